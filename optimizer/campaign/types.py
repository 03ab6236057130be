"""Values of campaigns: what is asked, what is fixed when it starts, its runs, its changes, its document.

A campaign trains, analyses, changes one setting by the decision table of rllm-analyze and trains again. It never edits
a skill: what it changes are settings of its own runs, recorded with source `override`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from optimizer.types import Finding
from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.launch import RunUpdate
from trainer.runs.types import Eval, Failure

SCHEMA_VERSION = 1

DEFAULT_MAX_RUNS = 5

PATIENCE = 3
"""Runs in a row without improvement that end a campaign."""


class CampaignError(RunError):
    """A campaign that cannot be started or cannot go on: says why and how to take it up again."""


class CampaignState(StrEnum):
    """How far a campaign is. Each state names what is complete; the next step follows from it."""

    CREATED = "created"
    """Its request and everything that holds for all of its runs is written down."""
    AWAITING_APPROVAL = "awaiting_approval"
    """The next run is proposed, and a person has to decide."""
    PLANNED = "planned"
    """The next run has its id and its settings."""
    TRAINED = "trained"
    """The run is over; its test success and findings are recorded."""
    ENDED = "ended"
    """No further run; its verdict is known, the best run's confirmation is due."""
    CLOSED = "closed"
    """Complete."""


class CampaignVerdict(StrEnum):
    """Why a campaign ended."""

    TARGET_REACHED = "target_reached"
    """A run's success on the test split is at least the target."""
    NO_IMPROVEMENT = "no_improvement"
    """As many runs in a row as its patience allows were no better than the best before them."""
    BUDGET_SPENT = "budget_spent"
    """Another run would exceed the runs, episodes or minutes allowed."""
    NOTHING_LEFT = "nothing_left"
    """No finding has a lever that may still be moved."""
    REFUSED = "refused"
    """A person said no to the next run."""


class CampaignRequest(BaseModel):
    """What a campaign is asked to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    campaign_id: str
    request: str
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Values that were fixed from outside (`--set`, an agent's overrides)."""
    override_source: Literal["set", "override"] = "set"
    config_file: str | None = None
    profile: str | None = None
    folder: str
    """What relative paths of the request are relative to."""
    target: float | None = Field(None, ge=0, le=1)
    """Success on the test split from which it is done; None: it goes on while something can be changed."""
    max_runs: int = Field(DEFAULT_MAX_RUNS, ge=1, le=100)
    max_episodes: int | None = Field(None, ge=1)
    """Training episodes of all runs together."""
    max_seconds: float | None = Field(None, gt=0)
    """Training time of all runs together; waiting for a slot or a person does not count."""
    ask: bool = False
    """Approve mode: a person says yes to every run."""
    confirm: bool = True
    """Evaluate the best run on fresh problems at the end."""
    session: str | None = None
    """Session whose event started it."""
    key: str | None = None
    """A client's own text: one key starts one campaign."""


class Basis(BaseModel):
    """What holds for all runs of a campaign, fixed when it starts: a patch promoted meanwhile changes nothing here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: dict[str, Any]
    """Configuration of the first run."""
    provenance: dict[str, dict[str, Any]]
    context: dict[str, Any]
    """Policy context."""
    skill_versions: dict[str, str]
    decisions: dict[str, Any]
    """The decision table of rllm-analyze."""
    ranges: dict[str, tuple[float | None, float | None]]
    """Lever → its safe range by the policy of rllm-config in this context."""
    fixed: dict[str, str]
    """Lever → why the campaign may not move it."""
    thresholds: dict[str, float]
    """Of the diagnosis."""

    def training(self, overrides: dict[str, Any]) -> TrainingConfig:
        """The configuration of a run. Raises ValidationError for values that do not fit together."""
        return TrainingConfig.model_validate({**self.config, **overrides})


class Change(BaseModel):
    """One setting that a run has otherwise than the run it starts from, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    before: int | float
    """`from` in the report."""
    to: int | float
    reason: str
    """One sentence: finding, numbers, row of the table, values, safe range."""
    finding: str
    """Its id."""
    kind: str
    numbers: dict[str, float]
    """What the finding rests on."""
    row: dict[str, Any]
    """The row of the decision table."""
    table: str
    """Version of the skill that the row comes from."""
    base_run: str
    """The run it starts from."""


class CampaignRun(BaseModel):
    """One run of a campaign; several run directories where it was broken off and resumed."""

    model_config = ConfigDict(extra="allow")

    number: int
    parts: list[str] = Field(min_length=1)
    """Run ids: the first one, and one for each time it was resumed."""
    change: Change | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Every setting that the campaign decided, this run's change included."""
    why: dict[str, str] = Field(default_factory=dict)
    """Setting of `overrides` → its reason in a few words."""
    state: str | None = None
    """Final state of its run; None: not over."""
    stop_reason: str | None = None
    failure: Failure | None = None
    eval: dict[str, Eval] = Field(default_factory=dict)
    findings: list[Finding] = Field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    seconds: float = 0.0

    @property
    def run_id(self) -> str:
        return self.parts[-1]

    @property
    def success(self) -> Eval | None:
        """Test success after training, where it was measured."""
        return self.eval.get("after")


class Planned(BaseModel):
    """The next run, as it is proposed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    change: Change | None
    overrides: dict[str, Any]
    why: dict[str, str]
    episodes: int
    """Training episodes at most."""


class Choice(BaseModel):
    """One decision with its reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    time: float = Field(default_factory=time.time)
    after_run: str | None
    """The run it was made after."""
    action: Literal["start", "change", "end", "resume"]
    reason: str
    considered: list[str] = Field(default_factory=list)
    """What else could have been changed, and why it was not."""


class Consent(BaseModel):
    """What a person said about a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    time: float = Field(default_factory=time.time)
    number: int
    decision: Literal["approve", "reject"]
    channel: str
    reason: str | None = None
    user: str
    token: str | None = None
    client: str | None = None
    """Who passed it on (optimizer/approvals.py)."""


Holds = Literal["confirmed", "open", "refuted"]


class Confirmation(BaseModel):
    """The best run on problems that decided nothing."""

    model_config = ConfigDict(extra="allow")

    run_id: str
    evaluation_id: str | None = None
    seed: int | None = None
    eval: Eval | None = None
    base: Eval | None = None
    """The start model on the same problems."""
    holds: Holds | None = None
    """Whether the target stands: success at least the target; below it, but the interval reaches it; or neither."""
    sentence: str


class Campaign(BaseModel):
    """`campaigns/<id>.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    campaign_id: str
    state: CampaignState = CampaignState.CREATED
    request: CampaignRequest
    basis: Basis
    runs: list[CampaignRun] = Field(default_factory=list)
    next: Planned | None = None
    """The run that waits for a person."""
    verdict: CampaignVerdict | None = None
    reason: str | None = None
    best_run: str | None = None
    confirmation: Confirmation | None = None
    choices: list[Choice] = Field(default_factory=list)
    consents: list[Consent] = Field(default_factory=list)
    created_at: float = Field(default_factory=time.time)
    history: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def finished(self) -> list[CampaignRun]:
        """Its runs that are over."""
        return [one for one in self.runs if one.state is not None]


@dataclass(frozen=True)
class CampaignProgress:
    """What a watcher of a campaign is told."""

    kind: Literal["run", "trained", "decided", "resumed", "confirming", "closed"]
    campaign: Campaign
    update: RunUpdate | None = None
    text: str = ""


CampaignWatcher = Callable[[CampaignProgress], None]
