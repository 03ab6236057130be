"""Values of an evaluation: what is asked (`EvaluationPlan`), one episode (`EpisodeScore`), what came out.

A *subject* is a model under test. All subjects of a plan meet the same problems under the same grader and the same
random streams, so their episodes are pairs.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.types import Eval, Failure

SCHEMA_VERSION = 1

SplitName = Literal["train", "validation", "test"]

Judgement = Literal["better", "worse", "no difference shown"]
"""What a test at the 5 % level says of the second of two."""


class EvaluationError(RunError):
    """An evaluation that cannot be planned, started or read. The message says what to do next."""


class Subject(BaseModel):
    """A model under test."""

    model_config = ConfigDict(frozen=True)

    name: str
    """base, trained, or what it was called."""
    model: str
    """As `resolve_model` understands it."""
    run_id: str | None = None
    """The run whose trained model this is."""


class EvaluationPlan(BaseModel):
    """`plan.json`: everything that decides the result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    evaluation_id: str
    created_at: float
    target: str
    """What was asked for, as it was written."""
    run_id: str | None = None
    """The run that is evaluated; its own training and validation problems must not be tested on."""
    config: TrainingConfig
    """Environment, limits, grader; of a run: its configuration, with what was asked to be different."""
    learned: tuple[TrainingConfig, ...] = ()
    """Configurations that the subjects were trained with: no test problem may come from their training."""
    subjects: tuple[Subject, ...] = Field(min_length=1)
    """The first one is what the others are compared with."""
    splits: tuple[SplitName, ...] = ("test",)
    n: int = Field(128, ge=1, le=100_000)
    """Problems of each split and seed."""
    samples: int = Field(1, ge=1, le=1024)
    """Attempts at each problem."""
    seeds: tuple[int, ...] = Field((1,), min_length=1)
    """Each draws its own problems and random streams."""
    ks: tuple[int, ...] = (1,)
    """pass@k is given for these."""
    temperature: float = Field(1.0, gt=0, le=10)


@dataclass(frozen=True)
class EpisodeScore:
    """What one episode says about its model."""

    subject: str
    split: str
    seed: int
    problem: str
    """Identity of the problem: the same for every subject and sample."""
    sample: int
    category: str
    success: bool
    turns: int
    tool_calls: int
    tool_errors: int
    parse_errors: int
    attempted_calls: int
    stop_reason: str
    tokens: int


class Rate(BaseModel):
    """A share with its interval."""

    n: int
    mean: float
    ci95: tuple[float, float]


class CategoryResult(Rate):
    """Success on the problems of one kind."""

    category: str
    episodes: int
    """`n` counts problems."""


class SeedResult(Rate):
    """Success on the problems of one seed."""

    seed: int


class SplitResult(Eval):
    """Success of one subject on one split, with all seeds together. `n` counts episodes."""

    problems: int
    samples: int
    tool_error_rate: float | None = None
    """Share of calls that a tool refused, of the calls that reached one."""
    env_error_rate: float | None = None
    """Share of episodes that the environment itself spoiled; they count as failures."""
    tokens_mean: float | None = None
    pass_at: dict[str, Rate]
    """k → unbiased pass@k, its mean over problems."""
    categories: list[CategoryResult]
    by_seed: list[SeedResult]


class Comparison(BaseModel):
    """Two subjects on the same problems: second minus first."""

    split: SplitName
    first: str
    second: str
    problems: int
    difference: float
    ci95: tuple[float, float]
    test: str
    p: float
    verdict: Judgement
    sentence: str


class SubjectResult(BaseModel):
    """One subject."""

    name: str
    model: str
    run_id: str | None = None
    parameters: int | None = None
    splits: dict[SplitName, SplitResult]


class EvaluationResult(BaseModel):
    """`result.json`, and what `mcp-evo evaluate --json` prints."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    evaluation_id: str
    target: str
    run_id: str | None = None
    env: str
    difficulty: str
    n: int
    samples: int
    seeds: list[int]
    temperature: float
    device: str | None = None
    data_fingerprint: str
    """Hash of all problems."""
    seconds: float
    subjects: list[SubjectResult]
    comparisons: list[Comparison]
    warnings: list[str] = Field(default_factory=list)


class Progress(BaseModel):
    """`progress.json`."""

    done: int
    """Parts that are complete: a part is one subject on one split of one seed."""
    parts: int
    doing: str


class Standing(BaseModel):
    """How an evaluation stands."""

    evaluation_id: str
    state: Literal["running", "finished", "failed"]
    progress: Progress | None = None
    result: EvaluationResult | None = None
    failure: Failure | None = None
