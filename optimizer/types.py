"""Values shared by the optimiser's parts: evidence, metric, finding, lever.

A finding is a claim with its evidence: which events or run steps it rests on, the number with its name, split, size and
error, and the lever that would mend it, where one is known.
"""

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Direction(StrEnum):
    """How a lever is moved."""

    UP = "up"
    """Multiplied by more than one."""
    DOWN = "down"
    """Multiplied by less than one."""
    SET = "set"
    """Set to a value, wherever it stood."""


class EventEvidence(BaseModel):
    """An event, by its identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["event"] = "event"
    session: str
    line: int


class RunEvidence(BaseModel):
    """A step of a run; without a step: the run as a whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["run"] = "run"
    run_id: str
    step: int | None = None


Evidence = EventEvidence | RunEvidence


class Metric(BaseModel):
    """A number with what it means."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    split: str | None = None
    value: float
    n: int | None = None
    """Values it is the mean of."""
    standard_error: float | None = None
    run: str | None = None
    """The run it was measured in, where the events say so."""


class Lever(BaseModel):
    """What to move where: a row of the decision table of rllm-analyze."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    skill: str = "rllm-config"
    key: str
    """Policy key without its last part: `learning_rate` for `learning_rate.default`."""
    direction: Direction
    choices: tuple[float, ...] = Field(min_length=1)
    """Multipliers (up: above 1, down: between 0 and 1), or values for `set`; the most promising first."""
    confidence: str = "medium"
    """How sure the table is that this lever mends it: low | medium | high."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.direction is Direction.UP and not all(choice > 1 for choice in self.choices):
            raise ValueError(f"{self.key}: `up` multiplies by more than 1, not by {self.choices}")
        if self.direction is Direction.DOWN and not all(0 < choice < 1 for choice in self.choices):
            raise ValueError(f"{self.key}: `down` multiplies by a number between 0 and 1, not by {self.choices}")
        return self


class Finding(BaseModel):
    """One thing that held a run or an agent back."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    kind: str
    """Name in the decision table, for instance `learning_rate_too_low`."""
    what: str
    """One sentence with the numbers."""
    evidence: list[Evidence]
    metrics: list[Metric] = Field(default_factory=list)
    confidence: float = Field(ge=0, le=1)
    """How sure the detector is: 1 where the numbers leave no other reading."""
    lever: Lever | None = None
    blocked: str | None = None
    """Why the lever may not be moved (the request fixed it), where that is so."""
    scope: dict[str, Any] | None = None
    """Context of the run it comes from, as a patch's condition."""
    layer: str = "rllm"
    run_id: str | None = None
