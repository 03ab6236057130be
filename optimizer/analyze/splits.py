"""Splits: what a metric was measured on, as far as its name or the place it stands in says so."""

import re

TRAIN, VALIDATION, TEST = "train", "validation", "test"

HELD_OUT = frozenset({VALIDATION, TEST})

_WORDS = {
    "train": TRAIN, "rollout": TRAIN, "actor": TRAIN, "critic": TRAIN,
    "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "dev": VALIDATION,
    "eval": VALIDATION, "heldout": VALIDATION,
    "test": TEST,
}  # fmt: skip
_PART = re.compile(r"[a-z]+")


def split_of_name(name: str) -> str | None:
    """The split that a metric's name states: `val-core/gsm8k/acc` validation, `critic/score/mean` train."""
    parts = _PART.findall(name.lower())
    for one in ("val", "valid", "validation", "dev", "eval", "test", "heldout"):
        if one in parts:
            return _WORDS[one]
    return next((_WORDS[part] for part in parts if part in _WORDS), None)  # not `training`: often a section's name


def split_asked(text: str | None) -> str | None:
    """A split as somebody writes it; one that is none of ours stays as it is, so that it matches nothing."""
    if text is None or not text.strip():
        return None
    joined = re.sub(r"[^a-z]", "", text.lower())
    return TRAIN if joined == "training" else _WORDS.get(joined, joined or text)
