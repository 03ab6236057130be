"""Values of the monitor: severities, what a detector is, what it sees, what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainer.config import TrainingConfig
from trainer.runs.types import Failure

if TYPE_CHECKING:
    from trainer.runs.detectors.history import History
    from trainer.runs.detectors.policy import MonitorPolicy


class Severity(StrEnum):
    """How much an alert asks for."""

    INFO = "info"
    """Worth knowing; no alarm."""
    WARN = "warn"
    """Look at it; the next steps confirm it or not."""
    CRITICAL = "critical"
    """What follows is probably wasted. The only one that may stop a run, and only where `auto_stop` allows it."""

    @property
    def rank(self) -> int:
        return ("info", "warn", "critical").index(self.value)

    @property
    def is_alarm(self) -> bool:
        return self is not Severity.INFO


class Occasion(StrEnum):
    """When a detector looks."""

    STEP = "step"
    """After a metrics line."""
    VALIDATION = "validation"
    """After a validation."""
    UPDATE = "update"
    """After an update that was not finite."""
    PROCESS = "process"
    """After a look at the process: heartbeat, failure."""


@dataclass(frozen=True)
class Evidence:
    """One number that an alert rests on."""

    step: int
    metric: str
    value: float | None
    """None: it is no number (NaN or infinite), or a class."""
    threshold: float | None = None
    """The bound that it crossed, in the metric's unit."""


@dataclass(frozen=True)
class Sighting:
    """What a detector says about the present moment."""

    severity: Severity
    say: str
    """One sentence with the numbers."""
    evidence: tuple[Evidence, ...]
    kind: str | None = None
    """Tells apart what one rule can mean, e.g. too_easy and too_hard."""


@dataclass(frozen=True)
class Skipped:
    """Why a detector could not look."""

    reason: str


Judge = Callable[["View"], Sighting | Skipped | None]
"""Pure: the same view gives the same answer. None: nothing to say."""


@dataclass(frozen=True)
class Detector:
    """One rule."""

    id: str
    number: int
    """Row of the runtime catalogue."""
    severity: Severity
    """The highest that it can give."""
    rule: str
    """What it looks for, in a few words; numbers are in the policy section of the same id."""
    cause: str
    advice: str
    source: str
    """Where the rule comes from."""
    judge: Judge
    needs: tuple[str, ...] = ()
    """Metrics that the present line must hold."""
    occasions: frozenset[Occasion] = frozenset({Occasion.STEP})
    warmup_steps: int | None = None
    """Steps before it may speak; None: the policy's warm-up."""
    cooldown_steps: int | None = None
    """Steps before it may say the same again; None: the policy's cooldown."""


@dataclass(frozen=True)
class Plan:
    """What the configuration says that rules refer to. None: not known."""

    planned_steps: int | None = None
    max_completion_tokens: int | None = None
    max_turns: int | None = None
    num_generations: int | None = None
    trains_flat_groups: bool = False
    """Whether episodes of groups without variance are trained on, too (for a KL term)."""
    main_reward: str = "success"
    """Name of the reward component that is the task itself; all others are auxiliary."""

    @classmethod
    def of(cls, config: TrainingConfig) -> "Plan":
        return cls(
            planned_steps=config.planned_steps,
            max_completion_tokens=config.max_completion_tokens,
            max_turns=config.max_turns,
            num_generations=config.num_generations,
            trains_flat_groups=config.beta > 0,
        )


@dataclass(frozen=True)
class ProcessFacts:
    """What is known about the process of a run at one moment."""

    active: bool = True
    """Whether it is expected to get on (started, not ended)."""
    heartbeat_age_s: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class View:
    """Everything a detector may look at."""

    history: "History"
    policy: "MonitorPolicy"
    plan: Plan = field(default_factory=Plan)
    process: ProcessFacts = field(default_factory=ProcessFacts)

    def limits(self, section: str) -> Mapping[str, float]:
        """The thresholds of one policy section."""
        return self.policy.limits(section)


@dataclass(frozen=True)
class Alert:
    """A sighting that is worth telling."""

    detector: str
    step: int
    severity: Severity
    say: str
    evidence: tuple[Evidence, ...]
    cause: str
    advice: str
    kind: str | None = None

    @property
    def name(self) -> str:
        """`zero_variance:too_hard`, or the detector's id."""
        return self.detector if self.kind is None else f"{self.detector}:{self.kind}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "alert": self.name,
            "detector": self.detector,
            "step": self.step,
            "severity": self.severity.value,
            "say": self.say,
            "evidence": [
                {"step": one.step, "metric": one.metric, "value": one.value, "threshold": one.threshold}
                for one in self.evidence
            ],
            "cause": self.cause,
            "advice": self.advice,
        }


class Standing(StrEnum):
    """What a detector made of its last look."""

    QUIET = "quiet"
    WARMING_UP = "warming_up"
    SKIPPED = "skipped"
    ALERT = "alert"


@dataclass(frozen=True)
class Status:
    """A detector's last look."""

    standing: Standing
    reason: str | None = None
    """Why it was skipped."""
