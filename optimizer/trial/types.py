"""Values of a paired trial: pair, summary, decision. Rules: docs/evolution.md, "The trial in plain words"."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class TrialVerdict(StrEnum):
    """What a paired trial says about a patch."""

    BETTER = "better"
    """The patched arm is ahead at the level of its look, no scenario is harmed and it collapses no more often."""
    WORSE = "worse"
    """The base arm is ahead at the level of its look."""
    INCONCLUSIVE = "inconclusive"
    """Neither; the reason says why and the next step what to do."""


class Reason(StrEnum):
    """Why a trial ended without `better` or `worse`."""

    NO_WORTHWHILE_GAIN = "no_worthwhile_gain"
    """The one-sided 90 % upper bound of the effect is below the worthwhile gain."""
    PROMISING = "promising"
    """The gain may be worthwhile; more pairs would tell."""
    TOO_NOISY = "too_noisy"
    """The pairs scatter more than the plan allows for."""
    VETOED = "vetoed"
    """Ahead on the whole, but a scenario is harmed or the patched arm collapses more often."""
    ARMS_IDENTICAL = "arms_identical"
    """Both arms gave the same result in every pair: there is nothing to test."""
    NOT_ENOUGH_EVIDENCE = "not_enough_evidence"
    """Too few recorded trials to replay (patches of the optimiser's policy)."""


class ArmResult(BaseModel):
    """One arm of a pair: success of one trained model on the pair's fresh evaluation tasks."""

    model_config = ConfigDict(frozen=True, extra="allow")

    run_id: str | None = None
    success: float = Field(ge=0, le=1)
    """Share of the evaluation tasks solved, one sample each at temperature 1."""
    n: int = Field(ge=1)
    """Evaluation tasks."""
    collapsed: bool = False
    collapse_reason: str | None = None
    seconds: float | None = None
    episodes: int | None = None
    """Training episodes."""


class Pair(BaseModel):
    """One unit of a trial: both arms on one (scenario, seed)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    index: int
    """Place in the plan's order, from 0."""
    scenario: str
    seed: int
    base: ArmResult
    patched: ArmResult
    seconds: float | None = None

    @property
    def difference(self) -> float:
        """Patched success minus base success."""
        return self.patched.success - self.base.success


class Rate(BaseModel):
    """A count out of n with bounds at 95 %, each one-sided (Clopper and Pearson): 0 of 8 still allows 31 %."""

    model_config = ConfigDict(frozen=True)

    count: int
    n: int
    low: float
    high: float


class ScenarioEffect(BaseModel):
    """Mean difference of the pairs of one scenario."""

    model_config = ConfigDict(frozen=True)

    scenario: str
    pairs: int
    mean: float
    harmed: bool
    """The mean lies below the veto line."""


class Summary(BaseModel):
    """Everything the pairs seen so far say, decided or not."""

    model_config = ConfigDict(frozen=True)

    pairs: int
    effect: float
    """Mean difference (patched minus base) over the pairs."""
    sd: float
    """Standard deviation of the differences."""
    standard_error: float
    t: float | None = None
    """Paired t statistic; null where nothing was tested."""
    p_better: float | None = None
    p_worse: float | None = None
    """One-sided p values of the paired t test."""
    level: float | None = None
    """One-sided nominal level of the last look taken; null before the first one."""
    interval: tuple[float, float] | None = None
    """Repeated confidence interval at the look's level: covers at least 95 % over all looks."""
    upper90: float | None = None
    """One-sided 90 % upper bound of the effect (futility)."""
    base_mean: float
    patched_mean: float
    scenarios: list[ScenarioEffect]
    collapses_base: Rate
    collapses_patched: Rate
    correlation: float | None = None
    """Realised correlation between the arms within scenarios; null with fewer than three pairs or no spread."""


class Decision(BaseModel):
    """Verdict of a trial and everything needed to report it (`verdict.json`)."""

    model_config = ConfigDict(frozen=True)

    verdict: TrialVerdict
    reason: Reason | None = None
    say: str
    """One sentence with the numbers."""
    next_step: str
    blocked_by: list[str] = Field(default_factory=list)
    """What forbade `better` although the level was reached."""
    more_pairs: int | None = None
    """Further pairs wanted for a promising patch (80 % power at the effect seen)."""
    more_allowed: bool = False
    """The plan has looks left (`patches try --more`)."""
    final: bool = True
    """False: the trial was ended by its budget before the plan's last look."""
    summary: Summary | None = None
    """Null where no pair was run."""
