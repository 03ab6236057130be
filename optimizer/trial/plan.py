"""Trial plans as data: when a trial looks at its pairs, and how strict each look is.

A plan spends its chance of a false `better` (2.5 %) linearly over its looks: the level of a look is the one-sided
p value the paired t test has to reach there. The shipped levels were found by simulation of the whole gate and agree
with `derive_levels` to .0003; a plan for other looks is derived that way.
"""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from optimizer.trial.spending import derive_levels

SPENT = 0.025
"""Chance of a false `better` a plan may spend: with .05, a gate of true 5 % would fail its own calibration half of the
time."""


class TrialPlan(BaseModel):
    """How many pairs, when to look, when to stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    looks: tuple[int, ...]
    """Numbers of pairs at which a decision may fall, rising; the last one ends the trial."""
    levels: tuple[float, ...]
    """One-sided nominal level of each look."""
    episodes: int = Field(default=512, ge=1)
    """Training episodes of an arm where the scenario does not say otherwise (equal episodes, not equal steps)."""
    eval_tasks: int = Field(default=128, ge=8)
    """Fresh evaluation tasks of a pair: the knee, above which more pairs beat more tasks."""
    worthwhile_gain: float = Field(default=0.10, gt=0, lt=1)
    """A smaller gain in success is not worth the search."""
    futility_level: float = Field(default=0.10, gt=0, lt=0.5)
    """One-sided: the trial stops when the 90 % upper bound is below the worthwhile gain."""
    scenario_veto: float = Field(default=-0.05, le=0)
    """No scenario's mean may be below this (0 would veto 4 to 14 % of good patches, -.05 up to 3 %)."""
    planned_sd: float = Field(default=0.19, gt=0)
    """Spread of a pair's difference the plan is made for: training noise .15 with correlation .3 on 128 tasks."""

    @model_validator(mode="after")
    def _check(self) -> "TrialPlan":
        if not self.looks or len(self.looks) != len(self.levels):
            raise ValueError(
                f"a plan needs one level for each look: {len(self.looks)} looks, {len(self.levels)} levels"
            )
        if list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 2:
            raise ValueError(f"looks must rise from at least 2 pairs: {self.looks}")
        if not all(0 < level < 0.5 for level in self.levels):
            raise ValueError(f"levels must lie between 0 and .5: {self.levels}")
        return self

    @property
    def max_pairs(self) -> int:
        """Pairs at the last look."""
        return self.looks[-1]

    def level_at(self, pairs: int) -> float | None:
        """Level of the look at `pairs`; None where the plan does not look."""
        return dict(zip(self.looks, self.levels, strict=True)).get(pairs)

    def next_look(self, pairs: int) -> int | None:
        """The first look after `pairs`; None behind the last one."""
        return next((look for look in self.looks if look > pairs), None)

    def halved(self) -> "TrialPlan":
        """The same plan at half its levels: for the second attempt at a patch on fresh seeds."""
        return self.model_copy(
            update={"name": f"{self.name}-second", "levels": tuple(level / 2 for level in self.levels)}
        )


DEFAULT = TrialPlan(
    name="default", looks=(4, 8, 12, 16, 20, 24), levels=(0.0041, 0.0054, 0.0066, 0.0080, 0.0095, 0.0109)
)
QUICK = TrialPlan(name="quick", looks=(4, 8, 12, 16), levels=(0.0061, 0.0080, 0.0099, 0.0126))

PLANS = {plan.name: plan for plan in (DEFAULT, QUICK)}

SCREEN_PAIRS = 4
"""Pairs of a screening: it only chooses which candidate gets a trial, its pairs never count in one."""


def plan_named(name: str) -> TrialPlan:
    """A shipped plan. Raises ValueError that names the allowed ones."""
    if name not in PLANS:
        raise ValueError(f"unknown trial plan {name!r}: use {' or '.join(PLANS)}")
    return PLANS[name]


def derive_plan(name: str, looks: tuple[int, ...], planned_sd: float, spent: float = SPENT) -> TrialPlan:
    """A plan for other looks and another measured spread, with levels by linear spending."""
    return TrialPlan(name=name, looks=looks, levels=derive_levels(looks, spent), planned_sd=planned_sd)
