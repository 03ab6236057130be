"""The verdict of a meta trial: accepted gain per episode of trial budget, without and with a patch.

Each policy has one rate r = sum of accepted gains / sum of episodes, over the opportunities of the reserve families.
The effect is r_patched - r_base, for `UNIT` episodes. Its error by linearisation of the two ratios (Cochran 1977,
section 6.4), paired opportunity by opportunity: z_i = (g_i' - r' c_i') / mean(c') - (g_i - r c_i) / mean(c), error
sd(z) / sqrt(n), t with n - 1 degrees of freedom. The unit is the opportunity, never the repetition.

Better: t beyond the plan's level, no reserve family loses more than `FAMILY_VETO` of the base's rate, and no more
harmful patches are accepted. Worse: mirrored. No worthwhile gain: the one-sided 90 % upper bound is below a tenth of
the base's rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.meta.types import Outcome
from optimizer.trial.plan import SPENT, TrialPlan
from optimizer.trial.statistics import critical_t, no_effect, pairs_wanted, rate
from optimizer.trial.types import Decision, Reason, ScenarioEffect, Summary, TrialVerdict

UNIT = 10_000
"""Episodes that rates are told for: about one trial of the default plan."""

WORTHWHILE = 0.10
"""Share of the base's rate that a patch has to add."""

FAMILY_VETO = 0.10
"""Share of the base's rate that a family may lose at most."""

MIN_RESERVE = 8
"""Opportunities in reserve families: below, the error itself is known to no better than a quarter."""

GAIN_STEP = 0.5 / 128
"""Half a task of an evaluation: gains carry that rounding, so opportunities that agree exactly still spread so much."""

NAME = "meta-replay"


@dataclass(frozen=True)
class Ratio:
    """Difference of two rates with its error, for `UNIT` episodes."""

    base: float
    patched: float
    sd: float
    error: float

    @property
    def effect(self) -> float:
        return self.patched - self.base


def plan_for(opportunities: int, attempt: int) -> TrialPlan:
    """One look at all opportunities; a second attempt has half the level, as everywhere."""
    return TrialPlan(name=NAME, looks=(max(opportunities, 2),), levels=(SPENT / attempt,), worthwhile_gain=WORTHWHILE)


def ratio_of(base: Sequence[Outcome], patched: Sequence[Outcome]) -> Ratio:
    """The two rates of the same opportunities. Raises ValueError with fewer than two."""
    n = len(base)
    if n < 2 or n != len(patched):
        raise ValueError(f"{n} and {len(patched)} outcomes: two opportunities at least, the same for both policies")
    residuals = [0.0] * n
    rates = []
    for sign, outcomes in ((-1.0, base), (1.0, patched)):
        episodes = math.fsum(one.episodes for one in outcomes)
        value = math.fsum(one.gain for one in outcomes) / episodes if episodes > 0 else 0.0
        rates.append(value * UNIT)
        for index, one in enumerate(outcomes):
            if episodes > 0:
                residuals[index] += sign * UNIT * (one.gain - value * one.episodes) / (episodes / n)
    sd = math.sqrt(math.fsum(one * one for one in residuals) / (n - 1))  # residuals of a ratio sum to zero
    mean = max(math.fsum(one.episodes for one in (*base, *patched)) / (2 * n), 1.0)
    sd = max(sd, UNIT * GAIN_STEP / mean)
    return Ratio(rates[0], rates[1], sd, sd / math.sqrt(n))


def summarise(base: Sequence[Outcome], patched: Sequence[Outcome], plan: TrialPlan, repetitions: int) -> Summary:
    """Everything the replay says. `collapses_*` count harmful patches accepted, rounded over the repetitions."""
    found = ratio_of(base, patched)
    n = len(base)
    level = plan.levels[0]
    reach = critical_t(level, n - 1) * found.error
    t = found.effect / found.error if found.error > 0 else None
    return Summary(
        pairs=n,
        effect=found.effect,
        sd=found.sd,
        standard_error=found.error,
        t=t,
        level=level,
        interval=(found.effect - reach, found.effect + reach),
        upper90=found.effect + critical_t(plan.futility_level, n - 1) * found.error,
        base_mean=found.base,
        patched_mean=found.patched,
        scenarios=_families(base, patched, found.base),
        collapses_base=rate(_harmful(base, repetitions), n),
        collapses_patched=rate(_harmful(patched, repetitions), n),
    )


def _harmful(outcomes: Sequence[Outcome], repetitions: int) -> int:
    return round(sum(one.harmful for one in outcomes) / repetitions)


def _families(base: Sequence[Outcome], patched: Sequence[Outcome], whole: float) -> list[ScenarioEffect]:
    effects = []
    for family in dict.fromkeys(one.family for one in base):
        rates = []
        for outcomes in (base, patched):
            mine = [one for one in outcomes if one.family == family]
            episodes = math.fsum(one.episodes for one in mine)
            rates.append(UNIT * math.fsum(one.gain for one in mine) / episodes if episodes > 0 else 0.0)
        mean = rates[1] - rates[0]
        count = sum(one.family == family for one in base)
        harmed = mean < -FAMILY_VETO * max(whole, 0.0)
        effects.append(ScenarioEffect(scenario=family, pairs=count, mean=mean, harmed=harmed))
    return effects


def not_enough(recorded: int, needed: int, why: str = "") -> Decision:
    """The verdict without a test where too little is recorded."""
    text = f"not enough evidence, {recorded} of {needed}" if not why else f"not enough evidence, {why}"
    return Decision(
        verdict=TrialVerdict.INCONCLUSIVE,
        reason=Reason.NOT_ENOUGH_EVIDENCE,
        say=text,
        next_step=(
            f'record more trials: `mcp-evo evolve "…" --rounds N` adds one a round that proposes; at {needed}, in '
            "two environments at least, `mcp-evo evolve --layer meta` decides"
        ),
        more_allowed=False,
    )


def decide_meta(base: Sequence[Outcome], patched: Sequence[Outcome], plan: TrialPlan, repetitions: int) -> Decision:
    """The verdict of a replay. Raises ValueError with fewer than two opportunities."""
    summary = summarise(base, patched, plan, repetitions)
    numbers = (
        f"accepted gain for {UNIT:,} episodes {summary.base_mean:.3f} → {summary.patched_mean:.3f}, {_effect(summary)}"
    )
    if list(base) == list(patched):
        return no_effect(summary, f"both policies decide the same in all {summary.pairs} replayed trials")
    assert summary.level is not None
    assert summary.upper90 is not None
    bound = critical_t(summary.level, summary.pairs - 1)
    t = math.copysign(math.inf, summary.effect) if summary.t is None else summary.t
    if t >= bound:
        return _ahead(summary, numbers)
    if t <= -bound:
        return Decision(
            verdict=TrialVerdict.WORSE,
            say=f"worse: {numbers}",
            next_step="the patch is rejected and remembered; propose another value",
            summary=summary,
        )
    if summary.upper90 < plan.worthwhile_gain * abs(summary.base_mean):
        return Decision(
            verdict=TrialVerdict.INCONCLUSIVE,
            reason=Reason.NO_WORTHWHILE_GAIN,
            say=f"no worthwhile gain: {numbers}; a tenth more is out of reach "
            f"(90 % upper bound {summary.upper90:+.3f})",
            next_step="the patch is remembered with its interval and not proposed again; try another value",
            summary=summary,
        )
    wanted = max(pairs_wanted(summary, summary.level / 2) - summary.pairs, 1)
    return Decision(
        verdict=TrialVerdict.INCONCLUSIVE,
        reason=Reason.PROMISING,
        say=f"not decided: {numbers}",
        next_step=f"about {wanted} more recorded trials in reserve families decide it (second attempt, level halved)",
        more_pairs=wanted,
        summary=summary,
    )


def _ahead(summary: Summary, numbers: str) -> Decision:
    blocked = [f"family {one.scenario}: {one.mean:+.3f}" for one in summary.scenarios if one.harmed]
    ours, theirs = summary.collapses_patched.count, summary.collapses_base.count
    if ours > theirs:
        blocked.append(f"harmful patches accepted: {ours} with the patch, {theirs} without")
    if blocked:
        return Decision(
            verdict=TrialVerdict.INCONCLUSIVE,
            reason=Reason.VETOED,
            say=f"ahead on the whole ({numbers}), but {'; '.join(blocked)}",
            next_step="try a milder value as a new patch",
            blocked_by=blocked,
            summary=summary,
        )
    return Decision(
        verdict=TrialVerdict.BETTER,
        say=f"better: {numbers}",
        next_step="review the patch and approve or reject it",
        summary=summary,
    )


def _effect(summary: Summary) -> str:
    assert summary.interval is not None
    return (
        f"effect {summary.effect:+.3f} [{summary.interval[0]:+.3f}, {summary.interval[1]:+.3f}] over "
        f"{summary.pairs} replayed trials"
    )
