"""Values of rounds: the request of an evolution, a round's document, what approvers and watchers are told."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from optimizer.approvals import HERE, Origin
from optimizer.patch_store import PatchRecord
from optimizer.promote import Digests
from optimizer.recheck import FreshCheck
from optimizer.trial.run import TrialProgress
from optimizer.trial.screen import ScreenProgress
from optimizer.types import Finding
from trainer.runs.launch import RunUpdate
from trainer.runs.types import Eval

SCHEMA_VERSION = 1


class RoundState(StrEnum):
    """How far a round is. Each state names what is complete; the next step follows from it."""

    CREATED = "created"
    TRAINED = "trained"
    """Its run has a final state."""
    CHECKED = "checked"
    """Patches that earlier rounds promoted were measured again on fresh pairs."""
    ANALYSED = "analysed"
    """Its report is written."""
    PROPOSED = "proposed"
    """Its candidates are staged; none where nothing was to be proposed."""
    SCREENED = "screened"
    """One candidate is chosen for a trial."""
    TRIED = "tried"
    """The trial has a decision."""
    AWAITING_APPROVAL = "awaiting_approval"
    """Better, and a person has to decide."""
    CLOSED = "closed"
    """Complete, with or without a promotion."""


class Round(BaseModel):
    """`rounds/round-000001.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    round: int
    evolution: str
    """The evolution it belongs to; also the session of its events."""
    position: int
    """Place in its evolution, from 1."""
    state: RoundState = RoundState.CREATED
    layer: str = "rllm"
    request: str
    profile: str | None = None
    skill_versions: dict[str, str] = Field(default_factory=dict)
    """Skill → version in force while it trained."""
    optimizer_policy: dict[str, Any] | None = None
    """Values of traj-optimize when the round began: it keeps them to its end."""
    optimizer_version: str | None = None
    run_id: str
    agent: bool = False
    """A training agent of its own starts the run (`rounds launch`); it is found by the number of the round."""
    session: str | None = None
    """Session in which an agent trained it; null: the evolution's own."""
    report_id: str | None = None
    findings: list[str] = Field(default_factory=list)
    """Kinds of what was found, the most explaining first."""
    lever: str | None = None
    """The finding and lever that were acted on, in words."""
    note: str | None = None
    """Why nothing was proposed or tried, where that is so."""
    candidates: list[str] = Field(default_factory=list)
    checks: list[dict[str, Any]] = Field(default_factory=list)
    """Fresh looks at patches promoted before (optimizer/recheck.py)."""
    screening: dict[str, float] | None = None
    """Candidate → mean difference in its screening pairs."""
    chosen: str | None = None
    trial_id: str | None = None
    continued_from: int | None = None
    """Pairs that the trial had when this round went on with it; null where it began it."""
    trial_seed: int
    verdict: str | None = None
    promoted: str | None = None
    version_after: str | None = None
    outcome: list[dict[str, Any]] | None = None
    """Its candidates as they stood when it closed; a later round may go on with one."""
    created_at: float = Field(default_factory=time.time)
    history: list[dict[str, Any]] = Field(default_factory=list)


class EvolveRequest(BaseModel):
    """What an evolution is asked to do (`rounds/<evolution>.json`)."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    evolution: str
    request: str
    rounds: int = Field(ge=1, le=1000)
    profile: str | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    """`--set` values."""
    config_file: str | None = None
    folder: str
    """What relative paths of the request are relative to."""
    plan: str | None = None
    """Trial plan; None: what the policy of traj-optimize says."""
    max_pairs: int | None = None
    max_seconds: float | None = None
    """Budget of one trial; None: to its plan's end."""
    budget_episodes: int | None = Field(default=None, ge=1)
    """Episodes of the whole evolution, after which no further round begins."""
    budget_minutes: float | None = Field(default=None, gt=0)
    """Minutes of work of the whole evolution, after which no further round begins."""
    candidates: int | None = None
    """Candidates a round; None: one where a person waits, else what policy says."""
    fresh_check: bool = True
    """Measure a promoted patch again on fresh pairs in the round after."""
    final_trial: bool = False
    """Try a patch in the last round too, although no round follows that would train with it."""
    seed: int
    """Seeds of all trials follow from it."""
    created_at: float = Field(default_factory=time.time)


@dataclass(frozen=True)
class Answer:
    """What an approver says."""

    decision: Literal["approve", "reject", "later"]
    channel: str
    reason: str | None = None
    origin: Origin = HERE
    shown: Digests | None = None
    """What a person saw; None: nobody looked."""


Approver = Callable[[PatchRecord, Path], Answer]
"""Asks a person about a patch that was tried and is better; the path is its folder."""


@dataclass(frozen=True)
class Progress:
    """What a watcher of an evolution is told."""

    kind: str
    """round | run | checking | checked | findings | proposed | screening | trial | promoted | rejected | closed |
    note."""
    round: Round
    update: RunUpdate | None = None
    findings: tuple[Finding, ...] = ()
    patches: tuple[PatchRecord, ...] = ()
    screening: ScreenProgress | None = None
    trial: TrialProgress | None = None
    text: str = ""
    check: FreshCheck | None = None
    evals: dict[str, Eval] = field(default_factory=dict)


Watcher = Callable[[Progress], None]


class RoundError(RuntimeError):
    """A round that cannot go on: says why and how to take it up again."""


def patch_outcome(record: PatchRecord) -> dict[str, Any]:
    """A patch in a round's report."""
    extra = record.model_extra or {}
    return {
        "patch_id": record.patch_id,
        "description": record.description,
        "stage": str(record.stage),
        "verdict": record.verdict,
        "reason": extra.get("reason"),
        "effect": record.effect,
        "ci95": None if record.ci95 is None else list(record.ci95),
        "pairs": record.pairs,
    }
