"""Whether two records say the same, or the opposite, about the same situation. Pure; thresholds with reasons.

The situation (`when_to_use`) and the advice (`content`) are compared apart, and numbers and signs always exactly:
`house 12: x + y` and `house 21: x + y` read almost alike and are two lessons, `x + y` and `x - y` for one situation are
a contradiction. Similarity of words is the cosine of the pool's embedder.

- same situation and same advice: a **duplicate**, merged into the record that is there (evidence joined);
- same situation, advice of the same build (equal but for numbers and signs, or but for a negation), different: a
  **contradiction**: the newcomer waits in quarantine until evidence decides;
- same situation and unlike advice: both are kept, they may complete each other.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from trainer.experience.embed import Embedder
from trainer.experience.records import ExperienceRecord, Polarity
from trainer.experience.tokens import FUNCTION_WORDS, literals, normalised, pieces, skeleton

SAME = 0.92
"""Cosine from which two texts with the same numbers and signs are one: one changed word in twelve stays above it, two
different verbs in a short sentence fall below (measured on the labelled pairs of `tests/experience`)."""

NEGATIONS = frozenset(["not", "no", "never", "don't", "avoid", "without", "cannot", "stop", "wrong"]) | set("不别勿")
"""Words that forbid."""
FORBIDDING = ("不要", "不能", "避免", "禁止", "别", "勿")


class Relation(StrEnum):
    """How two records stand to each other."""

    UNRELATED = "unrelated"
    DUPLICATE = "duplicate"
    CONTRADICTION = "contradiction"


@dataclass(frozen=True)
class Compared:
    """A relation and the similarity of the situations."""

    relation: Relation
    situation: float
    advice: float


def compare(a: ExperienceRecord, b: ExperienceRecord, embedder: Embedder) -> Compared:
    """The relation of two records; symmetric."""
    first, second = core(a.content), core(b.content)
    texts = [a.when_to_use, b.when_to_use, a.content, b.content, skeleton(first), skeleton(second)]
    vectors = embedder.embed(texts)
    situation, advice, build = (_cosine(vectors[i], vectors[i + 1], texts[i], texts[i + 1]) for i in (0, 2, 4))
    same_situation = situation >= SAME and literals(a.when_to_use) == literals(b.when_to_use)
    same_family = not a.family or not b.family or a.family == b.family
    if not same_situation or not same_family or a.kind is not b.kind:
        return Compared(Relation.UNRELATED, situation, advice)
    opposed = negated(a) != negated(b)
    if advice >= SAME and _literal_order(a.content) == _literal_order(b.content) and not opposed:
        return Compared(Relation.DUPLICATE, situation, advice)
    equal_literals = _literal_order(first) == _literal_order(second)
    if opposed and equal_literals and _affirmed(first) == _affirmed(second):
        return Compared(Relation.CONTRADICTION, situation, advice)
    if build >= SAME and not opposed and not equal_literals and a.polarity is b.polarity and not negated(a):
        return Compared(Relation.CONTRADICTION, situation, advice)
    return Compared(Relation.UNRELATED, situation, advice)


def core(advice: str) -> str:
    """The advice without its reason (`…: it lost`) and without what it is set against (`…, not …`)."""
    for mark in (": it ", ", not ", "; do not ", "，不要", "，而不是"):
        advice = advice.split(mark)[0]
    return advice


def negated(record: ExperienceRecord) -> bool:
    """Whether the advice begins by forbidding (`do not …`, `不要…`); `use x, not y` does not count."""
    words = [piece for _, piece in pieces(normalised(record.content))][:4]
    first = normalised(record.content)[:8]
    return bool(NEGATIONS & set(words[:3])) or any(mark in first for mark in FORBIDDING)


def _affirmed(text: str) -> str:
    """The words of the advice without negations and function words."""
    for mark in FORBIDDING:
        text = text.replace(mark, " ")
    kept = [p for _, p in pieces(normalised(text)) if p not in NEGATIONS and p not in FUNCTION_WORDS and p != "t"]
    return " ".join(kept)


def _literal_order(text: str) -> list[str]:
    found = literals(text)
    return [piece for _, piece in pieces(normalised(text)) if piece in found or len(piece) == 1]


def _cosine(a: np.ndarray, b: np.ndarray, first: str, second: str) -> float:
    """1 for equal texts, also for those without features."""
    return 1.0 if normalised(first) == normalised(second) else float(a @ b)


def merged(old: ExperienceRecord, new: ExperienceRecord) -> ExperienceRecord:
    """The record that is there with the newcomer's evidence; its words, id and status stay."""
    evidence = tuple(dict.fromkeys([*old.evidence, *new.evidence]))
    return old.changed(
        evidence=evidence[:MAX_EVIDENCE],
        tags=tuple(dict.fromkeys([*old.tags, *new.tags])),
        quality=max(old.quality, new.quality),
        family=old.family or new.family,
        polarity=old.polarity if old.polarity is new.polarity else Polarity.CONTRAST,
        counters=old.counters + new.counters,
        modified=max(old.modified, new.modified),
    )


MAX_EVIDENCE = 32
"""Pieces of evidence that a record keeps."""
