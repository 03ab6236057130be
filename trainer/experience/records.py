"""Values of the experience pool: a record, its counters, what a search finds, what a use reports.

A record is a lesson (`when_to_use`, `content`) with what is known about it. It is a superset of ReMe's TaskMemory
(`reme.py` maps both ways). Nothing here touches a disk.
"""

import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from trainer.experience.problems import PoolProblem

DEFAULT_POOL = "default"
SLOTTED = "slotted"
"""Tag of records whose numbers tell to what they apply: they are offered for questions with these numbers only."""


class Kind(StrEnum):
    """What a lesson is about."""

    TASK = "task"
    TOOL = "tool"
    SKILL = "skill"


class Polarity(StrEnum):
    """What a lesson was made of."""

    SUCCESS = "success"
    """What a winning attempt did."""
    FAILURE = "failure"
    """What losing attempts did and a tool or the reward refused."""
    CONTRAST = "contrast"
    """What winners did and losers of the same group did otherwise."""


class Status(StrEnum):
    """Whether a record is offered."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    """Kept, not offered: not tried yet, in doubt, or in contradiction with another."""
    RETIRED = "retired"
    """Kept for the record and never offered: harmful, useless, superseded or withdrawn."""


@dataclass(frozen=True)
class Evidence:
    """What a record rests on."""

    run_id: str = ""
    trajectory: str = ""
    """`step/group/generation` of an episode, or a session."""
    note: str = ""


@dataclass(frozen=True)
class Counters:
    """How often a record was met. Episodes, not steps."""

    retrieved: int = 0
    """Found for a task."""
    used: int = 0
    """Really put into a prompt."""
    won: int = 0
    lost: int = 0
    control_won: int = 0
    """Found for the task, withheld (control share), and won all the same."""
    control_lost: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(
            *(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)),
        )


COUNTERS: tuple[str, ...] = tuple(asdict(Counters()))


@dataclass(frozen=True)
class SourcePolicy:
    """Which policy's attempts a record was made of."""

    model: str = ""
    step: int | None = None
    skill_version: str = ""


@dataclass(frozen=True)
class ExperienceRecord:
    """One lesson."""

    when_to_use: str
    """The situation: a question with slots, or a description."""
    content: str
    """What to do or to leave."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    pool: str = DEFAULT_POOL
    """Name of the pool (ReMe: workspace_id)."""
    kind: Kind = Kind.TASK
    polarity: Polarity = Polarity.SUCCESS
    status: Status = Status.QUARANTINED
    status_reason: str = ""
    quality: float = 0.0
    """Score that the author or a judge gave (ReMe: score); no result of a search ever overwrites it."""
    family: str = ""
    """Family of tasks, for instance the environment's name: where the record is tried."""
    author: str = ""
    """`rules`, the name of a model or an agent."""
    tags: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    source: SourcePolicy = SourcePolicy()
    supersedes: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    """Records of the pool that say otherwise about the same situation; settled by evidence."""
    counters: Counters = Counters()
    created: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    modified: float = field(default_factory=time.time)
    foreign: Mapping[str, Any] | None = None
    """The imported line as it was, so that nothing of another format is lost."""

    def rendered(self) -> str:
        """The lesson as one line for a prompt.

        A question, with slots or not, gives `For a task like: <question> <content>.`: the bundled model was trained on
        lessons of this form.
        """
        situation, what = self.when_to_use.strip(), self.content.strip()
        if not situation:
            return what
        if situation.endswith(("?", "？")) or SLOTTED in self.tags:
            stop = "" if situation.endswith(("?", "？", ".", "。", "!")) else "."
            text = f"For a task like: {situation}{stop} {what}"
        else:
            text = f"{situation.rstrip('.:。：')}: {what}"
        return text if text.endswith((".", "。", "!", "?")) else f"{text}."

    def changed(self, **fields: Any) -> "ExperienceRecord":
        """A copy with other values."""
        return replace(self, **fields)


def document_of(record: ExperienceRecord) -> dict[str, Any]:
    """The record as JSON values."""
    document = asdict(record)
    document["foreign"] = None if record.foreign is None else dict(record.foreign)
    return document


def record_from(document: Mapping[str, Any]) -> ExperienceRecord:
    """The record of `document_of`; fields of later versions are ignored. Raises ValueError."""
    try:
        known = {name: document[name] for name in ExperienceRecord.__dataclass_fields__ if name in document}
        known |= {
            "kind": Kind(document.get("kind", "task")),
            "polarity": Polarity(document.get("polarity", "success")),
            "status": Status(document.get("status", "quarantined")),
            "tags": tuple(document.get("tags", ())),
            "evidence": tuple(Evidence(**one) for one in document.get("evidence", ())),
            "source": SourcePolicy(**document.get("source", {})),
            "supersedes": tuple(document.get("supersedes", ())),
            "contradicts": tuple(document.get("contradicts", ())),
            "counters": Counters(**document.get("counters", {})),
        }
        return ExperienceRecord(**known)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a record of the experience pool: {error}") from error


def to_json(value: Any) -> str:
    """JSON in ASCII: whatever a text holds (half surrogate pairs, NUL), it can be stored and comes back as it was."""
    return json.dumps(value, ensure_ascii=True, allow_nan=True, separators=(",", ":"))


@dataclass(frozen=True)
class Hit:
    """A record that was found, with why."""

    record: ExperienceRecord
    score: float
    """Fused score (`search.fuse`); comparable within one search only."""
    similarity: float
    """Cosine of the embeddings in [-1, 1]; NaN where the record has none."""
    text_rank: int | None = None
    """From 1, by BM25."""
    vector_rank: int | None = None


@dataclass(frozen=True)
class Retrieval:
    """What a search gave. A problem is a value: then there are no hits and the caller goes on without experience."""

    hits: tuple[Hit, ...] = ()
    problem: PoolProblem | None = None
    seconds: float = math.nan

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(hit.record.id for hit in self.hits)


@dataclass(frozen=True)
class Use:
    """One rollout for which a record was found."""

    record_id: str
    won: bool | None
    """None: no evidence (the environment failed); counts as used only."""
    control: bool = False
    """The record was withheld: the rollout belongs to the control share."""


class ExperienceSource(Protocol):
    """What a rollout engine needs of a pool. No method raises for what the outside world does."""

    @property
    def name(self) -> str: ...

    def retrieve(self, query: str, k: int = 3) -> Retrieval: ...

    def record_uses(self, uses: Sequence[Use]) -> PoolProblem | None: ...

    def flush(self) -> PoolProblem | None:
        """Writes what was counted and could not be written before."""
        ...

    def close(self) -> None: ...
