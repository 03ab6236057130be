"""Values of a diagnosis: findings, the thresholds of its rules, and the evidence that the rules look at. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from trainer.config import TrainingConfig
from trainer.runs.series import RunSeries
from trainer.runs.statistics import difference_interval
from trainer.runs.types import Eval, Failure


class FindingKind(StrEnum):
    """What a finding says."""

    NONFINITE = "nonfinite"
    """Losses or gradients were not finite."""
    FAILED = "failed"
    """The run ended by an error that is not about learning."""
    ENVIRONMENT_ERRORS = "environment_errors"
    """The environment raised in a large share of episodes: the rewards are noise."""
    TRUNCATION = "truncation"
    """The completion cap cut many episodes before they could answer."""
    PARSER_NEVER_MATCHES = "parser_never_matches"
    """The model's tool calls were not understood, or it made none."""
    LEARNING_RATE_TOO_HIGH = "learning_rate_too_high"
    """The policy collapsed or got worse."""
    NO_DIVERSITY = "no_diversity"
    """Episodes of one problem were alike, so there was nothing to prefer."""
    GROUPS_TOO_EASY = "groups_too_easy"
    """Most groups were all right from the start."""
    GROUPS_TOO_HARD = "groups_too_hard"
    """Most groups were all wrong."""
    NEVER_SUBMITS = "never_submits"
    """Most episodes ended without an answer although they were not cut."""
    LEARNING_RATE_TOO_LOW = "learning_rate_too_low"
    """Reward and policy hardly moved although the groups carried signal."""
    BUDGET_TOO_SMALL = "budget_too_small"
    """It was still improving when its steps were spent."""
    HEALTHY = "healthy"
    """It learned."""
    INCONCLUSIVE = "inconclusive"
    """Too few steps or numbers to say."""


@dataclass(frozen=True)
class Finding:
    """One thing that the numbers say about a run."""

    kind: FindingKind
    sentence: str
    """For a person, with the numbers it rests on."""
    numbers: dict[str, float | int | str | None]
    """The same numbers by name."""
    confidence: float
    """0 to 1: how far beyond its thresholds, on how many steps. Orders findings; no probability."""
    field: str | None = None
    """Field of the configuration that it is about."""


@dataclass(frozen=True)
class Thresholds:
    """When a rule speaks."""

    min_steps: int = 5
    """Below this many steps nothing is said about learning (warm-up of the anomaly catalogue)."""
    truncated: float = 0.25
    """Share of cut episodes; a preflight warns from 0.15 and refuses from 0.5."""
    parse_ok: float = 0.1
    """Share of attempted calls that parse, below which the format is the problem."""
    tool_call: float = 0.05
    """Share of episodes with a call, below which the tools are not used."""
    environment_errors: float = 0.3
    """Share of episodes in which the environment raised."""
    finish: float = 0.2
    """Share of finished episodes below which answers are not submitted."""
    collapse_peak: float = 0.15
    """Reward a run must have shown before its loss counts as a collapse."""
    collapse_drop: float = 0.5
    """Share of the best reward that is gone at the end."""
    frozen_entropy: float = 0.1
    """Share of the first entropy below which a policy without gain has frozen."""
    unique: float = 0.5
    """Share of different episodes in a group below which they are alike."""
    flat_groups: float = 0.5
    """Share of groups without variance from which signal is short (catalogue: 0.30 info, 0.50 warn, 0.75 critical)."""
    signal_groups: float = 0.7
    """Share of groups without variance up to which the rest still carries enough signal to learn from."""
    easy_reward: float = 0.85
    hard_reward: float = 0.15
    """Rewards at which flat groups mean too easy, or too hard."""
    flat_room: float = 0.25
    """Share of the room above the first reward, below which a run has not learned."""
    slow_room: float = 0.5
    """Share of the room below which a run of some length has learned slowly; a larger rate is then worth a trial."""
    moved_entropy: float = 0.3
    """Relative change of entropy below which the policy has hardly moved."""
    rising: float = 0.04
    """Gain of the last third over the middle one from which a run was still improving."""
    healthy_success: float = 0.85
    """Test success from which a run without a goal needs no advice."""

    @classmethod
    def from_policy(cls, values: Mapping[str, Any]) -> "Thresholds":
        """Defaults with what policy sets; other names are left alone. Raises ValueError for no number."""
        known = {one.name for one in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                continue
            plain = value.get("default") if isinstance(value, Mapping) else value
            if plain is None:
                continue
            if isinstance(plain, bool) or not isinstance(plain, (int, float)):
                raise ValueError(f"threshold {name} must be a number, not {plain!r}")
            chosen[name] = int(plain) if name == "min_steps" else float(plain)
        return replace(cls(), **chosen)


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class Evidence:
    """What the rules look at."""

    series: RunSeries
    config: TrainingConfig
    thresholds: Thresholds
    evals: Mapping[str, Eval] = field(default_factory=dict)
    failure: Failure | None = None
    goal_reached: bool | None = None

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """(difference, low, high) of test success after against before, 95 % interval."""
        before, after = self.evals.get("before"), self.evals.get("after")
        if before is None or after is None:
            return None
        low, high = difference_interval(before.mean * before.n, before.n, after.mean * after.n, after.n)
        return after.mean - before.mean, low, high

    def at_start(self, name: str) -> float | None:
        """A rate of the model before any update: by the test before training, else by the first step."""
        before = self.evals.get("before")
        if before is not None:
            value = before.model_dump().get(name)
            if isinstance(value, (int, float)):
                return float(value)
        values = self.series.values(name)
        return values[0] if values else None

    @property
    def success_at_start(self) -> float | None:
        """Success before any update: by the test before training, else the training reward of the first step."""
        before = self.evals.get("before")
        if before is not None:
            return before.mean
        values = self.series.values("reward_mean")
        return values[0] if values else None

    def steps_weight(self, enough: int = 15) -> float:
        """How much the number of steps lets one say: 1 from `enough` steps on."""
        return min(1.0, self.series.steps / enough)


def clamp(value: float) -> float:
    """Into 0 … 1, two digits."""
    return round(min(1.0, max(0.0, value)), 2)


def rates_text(evidence: Evidence) -> str:
    """`test success 0.35 → 0.95`, or an empty text."""
    before, after = evidence.evals.get("before"), evidence.evals.get("after")
    if before is None or after is None:
        return ""
    return f"test success {before.mean:.2f} → {after.mean:.2f} (n {after.n})"


Rule = Callable[[Evidence], Finding | None]
"""Looks at the evidence and says something, or nothing."""


def rounded(value: float | None, digits: int = 3) -> float | None:
    """A number of a finding, or None where it was not measured."""
    return None if value is None else round(value, digits)


def learned(evidence: Evidence) -> bool:
    """Whether the run has nothing to be asked for: goal met, or high success."""
    after = evidence.evals.get("after")
    if evidence.goal_reached:
        return True
    no_goal = evidence.config.target_reward is None
    return no_goal and after is not None and after.mean >= evidence.thresholds.healthy_success
