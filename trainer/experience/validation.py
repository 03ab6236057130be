"""What a new record has to be, checked before it is stored, whoever made it: rules, an agent, a service."""

from typing import Any

from trainer.experience.problems import ExperienceError
from trainer.experience.records import ExperienceRecord, Kind, Polarity
from trainer.experience.redaction import Redactor, redact_shapes

MAX_WHEN = 500
"""Characters; longer situations are descriptions of one task, not of a kind of task."""
MAX_CONTENT = 1500
MAX_TAGS = 16

FORM: dict[str, str] = {
    "when_to_use": f"the situation, up to {MAX_WHEN} characters: the question with x, y, … for its values",
    "content": f"what to do or leave, up to {MAX_CONTENT} characters: tool and arguments with the same x, y, …",
    "polarity": "success | failure | contrast",
}
"""What an agent fills in."""

_UNSEEN = frozenset(chr(c) for c in [*range(9), *range(11, 32), *range(0x200B, 0x2010), *range(0x202A, 0x202F), 0xFEFF])


def checked(record: ExperienceRecord, redact: Redactor = redact_shapes) -> ExperienceRecord:
    """The record as it is stored: trimmed, without secrets. Raises ExperienceError that says what is allowed."""
    when, content = _clean(record.when_to_use), _clean(record.content)
    for name, text, limit in (("when_to_use", when, MAX_WHEN), ("content", content, MAX_CONTENT)):
        if not text:
            raise ExperienceError(f"{name} is empty; it takes {FORM[name]}")
        if len(text) > limit:
            raise ExperienceError(f"{name} has {len(text):,} characters; it takes {FORM[name]}")
        if "<EXP>" in text or "</EXP>" in text:
            raise ExperienceError(f"{name} holds <EXP> marks, which frame experience in a prompt; leave them out")
    tags = tuple(dict.fromkeys(redact(_clean(tag))[:64] for tag in record.tags if tag.strip()))[:MAX_TAGS]
    evidence = tuple(type(one)(one.run_id, one.trajectory, redact(_clean(one.note))[:300]) for one in record.evidence)
    return record.changed(when_to_use=redact(when), content=redact(content), tags=tags, evidence=evidence)


def record_of_form(form: dict[str, Any], **fields: Any) -> ExperienceRecord:
    """A record of what an agent or a service filled in. Raises ExperienceError."""
    for name in ("when_to_use", "content"):
        if not isinstance(form.get(name), str):
            raise ExperienceError(f"{name} is missing or no text; it takes {FORM[name]}")
    polarity, kind = str(form.get("polarity", "success")).lower(), str(form.get("kind", "task")).lower()
    if polarity not in list(Polarity):
        raise ExperienceError(f"polarity {polarity!r} is not allowed; allowed: {', '.join(Polarity)}")
    if kind not in list(Kind):
        raise ExperienceError(f"kind {kind!r} is not allowed; allowed: {', '.join(Kind)}")
    return checked(
        ExperienceRecord(form["when_to_use"], form["content"], polarity=Polarity(polarity), kind=Kind(kind), **fields)
    )


def _clean(text: str) -> str:
    """Trimmed, without characters that cannot be seen and half surrogate pairs."""
    whole = text.encode("utf-8", "ignore").decode("utf-8")
    return "".join(c for c in whole if c not in _UNSEEN).strip()
