"""Values of a training run: states, the run document, an evaluation. Files: see docs/architecture.md."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class RunState(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    """Waits for a free slot."""
    STARTING = "starting"
    """Its process exists and loads the model."""
    RUNNING = "running"
    """Takes steps."""
    FINISHED = "finished"
    """Ended by itself; has a verdict."""
    FAILED = "failed"
    """Ended by an error; has a failure."""
    STOPPED = "stopped"
    """Ended because someone asked."""
    LOST = "lost"
    """Its process is gone and left no word."""

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES = frozenset({RunState.FINISHED, RunState.FAILED, RunState.STOPPED, RunState.LOST})


class Verdict(StrEnum):
    """What a finished run says about its goal."""

    GOAL_REACHED = "goal_reached"
    GOAL_MISSED = "goal_missed"
    NO_GOAL = "no_goal"


class Failure(BaseModel):
    """Why a run failed."""

    model_config = ConfigDict(extra="allow")

    kind: str
    """oom | nonfinite | killed | disk_full | model | environment | data | the exception's type name."""
    message: str
    """One sentence for the user, with the next step where there is one."""
    exit_code: int | None = None
    """Exit status of the process; negative: ended by that signal."""
    log_tail: list[str] = Field(default_factory=list)
    """Last lines of worker.log."""


class Eval(BaseModel):
    """Success of one model on one split under one grader."""

    model_config = ConfigDict(extra="allow")

    metric: str = "success"
    split: Literal["train", "validation", "test"]
    n: int
    mean: float
    ci95: tuple[float, float]
    """Wilson interval at 95 %."""
    parse_ok_rate: float | None = None
    """Share of turns with a call that could be parsed, of the turns that tried one."""
    tool_call_rate: float | None = None
    """Share of episodes with at least one valid tool call."""
    correct_given_valid_call: float | None = None
    """Success among the episodes with at least one valid tool call."""
    finish_rate: float | None = None
    """Share of episodes that ended by the environment's own end (an answer was submitted)."""
    truncated_rate: float | None = None
    turns_mean: float | None = None
    seconds: float | None = None


class RunDocument(BaseModel):
    """`run.json`. Unknown fields are kept. One document may be in many hands, so it never changes."""

    model_config = ConfigDict(extra="allow", frozen=True)

    schema_version: int = 1
    run_id: str
    state: RunState = RunState.QUEUED
    verdict: Verdict | None = None
    failure: Failure | None = None
    stop_reason: str | None = None
    """Who or what stopped it: user, signal, target, budget, anomaly."""
    request: str | None = None
    created_at: float
    """Unix seconds."""
    started_at: float | None = None
    ended_at: float | None = None
    pid: int | None = None
    process_started_at: float | None = None
    """Start time of the process by the operating system (psutil), so that a recycled pid is not taken for it."""
    process_mark: str | None = None
    """Its start by the kernel's own count, which no correction of the clock moves (`trainer.runs.processes`)."""
    keep_free_mb: int | None = None
    """Free disk space (MB) below which the worker ends; None: it does not look."""
    config_hash: str | None = None
    provenance: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Field of the config → where its value came from."""
    skill_versions: dict[str, str] = Field(default_factory=dict)
    """Skill → version of the bank that gave the policy."""
    profile: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    device: str | None = None
    parameters: int | None = None
    """Parameters of the model."""
    data_fingerprint: str | None = None
    parent_run: str | None = None
    round: int | None = None
    session: str | None = None
    """Session whose event launched it."""
    step: int = 0
    planned_steps: int | None = None
    eval: dict[str, Eval] = Field(default_factory=dict)
    """before, after: test split; validation: the best one."""
    seconds: float | None = None
