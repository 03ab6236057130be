"""Values of task generation: what is asked (`GenerationPlan`), what was found, why something was left out."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.config import TrainingConfig
from trainer.datafiles import Row
from trainer.experience.trajectories import Call
from trainer.runs.errors import RunError

SCHEMA_VERSION = 1

FULL_REWARD = 1.0
"""What solves a task: the environment's full reward, as for worked examples."""


class GenerationError(RunError):
    """A set of tasks that cannot be planned, made or read. The message says what to do next."""


class Explorer(StrEnum):
    """Who looks for attempts."""

    SCRIPTED = "scripted"
    """Tries calls with values from question, answers and tool descriptions; else the class's own `solution`."""
    POLICY = "policy"
    """A model plays the originals."""


class FoundBy(StrEnum):
    """Where an attempt comes from."""

    SEARCH = "search"
    SOLUTION = "solution"
    POLICY = "policy"


class Reason(StrEnum):
    """Why something was left out; attempts and templates first, then tasks."""

    NOT_REPRODUCED = "not_reproduced"
    """The attempt's calls do not win again in a fresh instance."""
    NOTHING_SHARED = "nothing_shared"
    """Question and calls share no value, so nothing can be varied."""
    UNFOUNDED = "unfounded"
    """The submitted answer stands in no result and not in the question: a guess that was right."""
    AMBIGUOUS = "ambiguous"
    """Several readings explain the originals equally well."""
    REFUTED = "refuted"
    """The template loses on another original that it fits."""
    UNSUPPORTED = "unsupported"
    """Too few originals are solved by the template, and the class has no `solution` to check single tasks with."""
    CALL_FAILED = "call_failed"
    """A reference call is refused by its tool."""
    NOT_SOLVED = "not_solved"
    """The reference calls earn less than the full reward."""
    NOT_DETERMINISTIC = "not_deterministic"
    """Two fresh instances answer differently."""
    TRIVIAL = "trivial"
    """Doing nothing earns the full reward."""
    UNCONFIRMED = "unconfirmed"
    """The class's own `solution` of the new question does not reach the answer."""
    DUPLICATE = "duplicate"
    """An original or another task asks this, in these words or with these calls."""
    NEAR_DUPLICATE = "near_duplicate"
    """… in almost these words, with the same numbers, signs and answer."""
    LEAK = "leak"
    """It equals, holds or nearly holds a validation or test problem."""
    OTHER_SPLIT = "other_split"
    """The class says that another split owns it."""
    ENVIRONMENT = "environment"
    """The environment raised."""


def call_document(call: Call) -> dict[str, Any]:
    """A call that was answered, as JSON."""
    return {"tool": call.tool, "arguments": copy.deepcopy(dict(call.arguments)), "result": call.result}


def call_of(document: Mapping[str, Any]) -> Call:
    """Reads what `call_document` gave. Raises KeyError."""
    return Call(document["tool"], document["arguments"], document["result"], False)


@dataclass(frozen=True)
class Attempt:
    """Calls that solve an original."""

    original: int
    """Number of the original."""
    by: FoundBy
    place: str
    """Which attempt at it: what can be looked up again."""
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Task:
    """A generated task with where it comes from."""

    row: Row
    calls: tuple[Call, ...]
    """The reference: in a fresh instance they earn the full reward."""
    answers: tuple[str, ...]
    """Keys of the row that hold what the calls found."""
    template: str
    """Question with slots."""
    attempt: str
    """`original/found by/place` of the attempt that the template was read from."""
    world: int
    """Original whose other fields the row has."""
    support: int
    """Originals that the template solves."""
    confirmed: bool
    """The class's own `solution` reaches the same answer."""
    number: int
    """Draw that it is: with the seed it gives the task again."""

    def provenance(self, task: int, seed: int) -> dict[str, Any]:
        """One line of provenance.jsonl."""
        return {
            "task": task,
            "seed": seed,
            "draw": self.number,
            "attempt": self.attempt,
            "world": self.world,
            "template": self.template,
            "support": self.support,
            "confirmed": self.confirmed,
            "answers": list(self.answers),
            "reference": [call_document(call) for call in self.calls],
        }


class GenerationPlan(BaseModel):
    """`plan.json`: everything that decides the set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    set_id: str
    created_at: float
    config: TrainingConfig
    """Environment, problems, limits, grader; its validation and test problems are guarded."""
    explorer: Explorer = Explorer.SCRIPTED
    model: str | None = None
    """The policy, as `resolve_model` understands it."""
    run_id: str | None = None
    """The run whose configuration (and, with the policy, model) this is."""
    count: int = Field(64, ge=1, le=100_000)
    """Tasks wanted."""
    originals: int = Field(64, ge=2, le=100_000)
    """Training problems that are explored, at most."""
    attempts: int = Field(4, ge=1, le=256)
    """Episodes of the policy at each original."""
    calls: int = Field(400, ge=10, le=100_000)
    """Calls of the search at each original, at most."""
    support: int = Field(2, ge=2, le=1000)
    """Originals that a template must solve, where the class has no `solution`."""
    seed: int = Field(1, ge=0, le=2**31 - 1)


class Manifest(BaseModel):
    """`manifest.json`: what a finished set holds and how it came about. No times: equal plans give equal bytes."""

    model_config = ConfigDict(extra="allow", frozen=True)

    schema_version: Literal[1] = 1
    set_id: str
    env: str
    explorer: Explorer
    model: str | None
    seed: int
    asked: int
    kept: int
    digest: str
    """SHA-256 of tasks.jsonl."""
    answers: list[str]
    """Keys of the rows that hold answers; the other ones say in which world a question is asked."""
    tools: dict[str, list[str]]
    """Tool → its arguments."""
    fields: list[str]
    """What rows have beside the prompt."""
    originals: int
    solved: int
    """Originals for which an attempt was found."""
    found_by: dict[str, int]
    """Attempts by explorer."""
    templates: int
    confirmed: int
    """Tasks that the class's own `solution` confirms."""
    draws: int
    """Fillings tried."""
    dropped: dict[str, dict[str, int]]
    """attempts | templates | tasks → reason → count."""
    guarded: int
    """Validation and test problems that no task may tell."""
