"""What the pairs of a trial say: pure functions from pairs to a summary and a decision.

1. The unit is the pair (scenario, seed), never the evaluation task: pooling tasks calls 8 to 28 % of
   null patches better.
2. At a look of the plan the paired t test has to reach that look's one-sided level. Between looks nothing is decided.
3. `better` needs more than the level: no scenario's mean below the veto line, and no more collapses than the base arm.
4. The interval shown is the repeated one (at the look's level); the naive 95 % interval covers only 90 to 95 %.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv, ndtri, stdtr, stdtrit

from optimizer.trial.plan import TrialPlan
from optimizer.trial.types import Decision, Pair, Rate, Reason, ScenarioEffect, Summary, TrialVerdict

_POWER = 0.80
"""Power at the effect seen, for the number of further pairs a promising patch needs."""


@lru_cache(maxsize=4096)
def critical_t(level: float, degrees: int) -> float:
    """Upper `level` quantile of Student's t."""
    return float(-stdtrit(degrees, level))


def spread(differences: Sequence[float], eval_tasks: int) -> float:
    """Sample standard deviation of the differences, at least half of one task.

    Success on n tasks comes in steps of 1 / n, so pairs that agree to the last task still carry its rounding; without
    the floor, four equal differences of one task would be infinitely significant.
    """
    if len(differences) < 2:
        return math.nan
    return max(float(np.std(differences, ddof=1)), 0.5 / eval_tasks)


def rate(count: int, n: int) -> Rate:
    """`count` of `n` with one-sided 95 % Clopper-Pearson bounds."""
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, 0.05))
    high = 1.0 if count == n else float(betaincinv(count + 1, n - count, 0.95))
    return Rate(count=count, n=n, low=low, high=high)


def scenario_effects(pairs: Sequence[Pair], veto: float) -> list[ScenarioEffect]:
    """Mean difference of each scenario, in order of first appearance."""
    by_scenario: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        by_scenario[pair.scenario].append(pair.difference)
    effects = []
    for scenario, differences in by_scenario.items():
        mean = float(np.mean(differences))
        effects.append(ScenarioEffect(scenario=scenario, pairs=len(differences), mean=mean, harmed=mean < veto))
    return effects


def realised_correlation(pairs: Sequence[Pair]) -> float | None:
    """Correlation of the two arms' success after each scenario's means are taken off; None where it cannot be told."""
    by_scenario: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_scenario[pair.scenario].append(pair)
    base: list[float] = []
    patched: list[float] = []
    for group in by_scenario.values():
        if len(group) < 2:
            continue
        base_mean = float(np.mean([pair.base.success for pair in group]))
        patched_mean = float(np.mean([pair.patched.success for pair in group]))
        base += [pair.base.success - base_mean for pair in group]
        patched += [pair.patched.success - patched_mean for pair in group]
    if len(base) < 3:
        return None
    scale = math.sqrt(float(np.dot(base, base)) * float(np.dot(patched, patched)))
    if scale < 1e-12:
        return None
    return float(np.dot(base, patched)) / scale


def identical(pairs: Sequence[Pair]) -> bool:
    """Both arms gave the same success in every pair."""
    return all(pair.difference == 0 for pair in pairs)


def summarise(pairs: Sequence[Pair], plan: TrialPlan) -> Summary:
    """Everything the pairs say so far. Raises ValueError without pairs.

    Test values are filled when at least one look of the plan was reached; they are those of the pairs up to that look,
    so that a pair behind it changes no decision.
    """
    if not pairs:
        raise ValueError("no pairs to summarise: run at least one")
    tested = [look for look in plan.looks if look <= len(pairs)]
    used = list(pairs[: tested[-1]]) if tested else list(pairs)
    differences = [pair.difference for pair in used]
    n = len(differences)
    effect = float(np.mean(differences))
    sd = spread(differences, plan.eval_tasks)
    error = sd / math.sqrt(n) if n > 1 else math.nan
    t = p_better = p_worse = level = upper90 = None
    interval = None
    if tested and not identical(used):
        level = plan.level_at(n)
        assert level is not None
        t = effect / error
        p_better, p_worse = float(stdtr(n - 1, -t)), float(stdtr(n - 1, t))
        reach = critical_t(level, n - 1) * error
        interval = (effect - reach, effect + reach)
        upper90 = effect + critical_t(plan.futility_level, n - 1) * error
    return Summary(
        pairs=n,
        effect=effect,
        sd=0.0 if math.isnan(sd) else sd,
        standard_error=0.0 if math.isnan(error) else error,
        t=t,
        p_better=p_better,
        p_worse=p_worse,
        level=level,
        interval=interval,
        upper90=upper90,
        base_mean=float(np.mean([pair.base.success for pair in used])),
        patched_mean=float(np.mean([pair.patched.success for pair in used])),
        scenarios=scenario_effects(used, plan.scenario_veto),
        collapses_base=rate(sum(pair.base.collapsed for pair in used), n),
        collapses_patched=rate(sum(pair.patched.collapsed for pair in used), n),
        correlation=realised_correlation(used),
    )


def blocks(summary: Summary) -> list[str]:
    """What forbids `better`, in words; empty where nothing does."""
    found = [
        f"scenario {effect.scenario}: mean {effect.mean:+.3f} over {effect.pairs} pairs"
        for effect in summary.scenarios
        if effect.harmed
    ]
    ours, theirs = summary.collapses_patched, summary.collapses_base
    if ours.count > theirs.count:
        found.append(
            f"collapses: {ours.count} of {ours.n} with the patch (up to {ours.high:.0%} is possible), "
            f"{theirs.count} of {theirs.n} without"
        )
    return found


def pairs_wanted(summary: Summary, level: float) -> int:
    """Pairs for 80 % power at the effect seen, fixed sample, one-sided level: ((z_level + z_power) sd / effect)²."""
    if summary.effect <= 0:
        return 0
    reach = float(-ndtri(level)) + float(ndtri(_POWER))
    return math.ceil((reach * summary.sd / summary.effect) ** 2)


def decide(pairs: Sequence[Pair], plan: TrialPlan, *, out_of_budget: bool = False) -> Decision | None:
    """The verdict after these pairs; None: go on.

    Decides only at looks of the plan. `out_of_budget` ends the trial now, as inconclusive where the last look taken did
    not decide (or where no look was reached).
    """
    if not pairs:
        return None
    at_look = plan.level_at(len(pairs)) is not None and len(pairs) <= plan.max_pairs
    if not at_look and not out_of_budget:
        return None
    summary = summarise(pairs, plan)
    if at_look:
        decided = _at_look(pairs, plan, summary)
        if decided is not None:
            return decided
    if at_look and len(pairs) >= plan.max_pairs:
        return _undecided(plan, summary, final=True)
    if out_of_budget:
        return _undecided(plan, summary, final=False)
    return None


def _at_look(pairs: Sequence[Pair], plan: TrialPlan, summary: Summary) -> Decision | None:
    if identical(pairs):
        return no_effect(summary, f"both arms gave the same success in all {summary.pairs} pairs")
    assert summary.level is not None
    assert summary.t is not None
    assert summary.upper90 is not None
    bound = critical_t(summary.level, summary.pairs - 1)
    if summary.t >= bound:
        blocked = blocks(summary)
        if not blocked:
            return Decision(
                verdict=TrialVerdict.BETTER,
                say=f"better: {effect_text(summary)}",
                next_step="review the patch and approve or reject it",
                summary=summary,
            )
        if len(pairs) >= plan.max_pairs:
            return Decision(
                verdict=TrialVerdict.INCONCLUSIVE,
                reason=Reason.VETOED,
                say=f"ahead on the whole ({effect_text(summary)}), but {'; '.join(blocked)}",
                next_step="narrow the patch's scope so that it leaves out where it harms, and try that as a new patch",
                blocked_by=blocked,
                summary=summary,
            )
        return None
    if summary.t <= -bound:
        return Decision(
            verdict=TrialVerdict.WORSE,
            say=f"worse: {effect_text(summary)}",
            next_step="the patch is rejected and remembered; propose another lever or the other direction",
            summary=summary,
        )
    if summary.upper90 < plan.worthwhile_gain:
        return Decision(
            verdict=TrialVerdict.INCONCLUSIVE,
            reason=Reason.NO_WORTHWHILE_GAIN,
            say=f"no worthwhile gain: {effect_text(summary)}; a gain of {plan.worthwhile_gain:.2f} is out of reach "
            f"(90 % upper bound {summary.upper90:+.3f})",
            next_step="the patch is remembered with its interval and not proposed again; try another lever",
            summary=summary,
        )
    return None


def _undecided(plan: TrialPlan, summary: Summary, *, final: bool) -> Decision:
    """Out of looks (final) or out of budget."""
    if summary.pairs > 2 and summary.sd > plan.planned_sd:
        return Decision(
            verdict=TrialVerdict.INCONCLUSIVE,
            reason=Reason.TOO_NOISY,
            say=f"too noisy: {effect_text(summary)}, pairs scatter by {summary.sd:.3f} (plan: {plan.planned_sd:.2f})",
            next_step="use a larger training budget, or scenarios whose base success lies between .35 and .75",
            more_allowed=not final,
            final=final,
            summary=summary,
        )
    if final:  # a new trial counts as a second attempt, at half the level
        further = pairs_wanted(summary, plan.levels[-1] / 2)
        step = f"a new trial on fresh seeds of about {further} pairs decides it (second attempt, level halved)"
    else:
        to_next_look = (plan.next_look(summary.pairs) or plan.max_pairs) - summary.pairs
        wanted = pairs_wanted(summary, plan.levels[-1]) - summary.pairs
        further = min(max(wanted, to_next_look), plan.max_pairs - summary.pairs)
        step = f"about {further} more pairs of the same plan decide it (`--more`)"
    return Decision(
        verdict=TrialVerdict.INCONCLUSIVE,
        reason=Reason.PROMISING,
        say=f"not decided: {effect_text(summary)}",
        next_step=step,
        more_pairs=further,
        more_allowed=not final,
        final=final,
        summary=summary,
    )


def no_effect(summary: Summary | None, because: str) -> Decision:
    """The verdict without a test where both arms are the same."""
    return Decision(
        verdict=TrialVerdict.INCONCLUSIVE,
        reason=Reason.ARMS_IDENTICAL,
        say=f"no effect: arms identical ({because})",
        next_step="the patch changes nothing inside its scope here: check its scope and the value it sets",
        summary=summary,
    )


def effect_text(summary: Summary) -> str:
    """The effect with its interval and its number of pairs, for one line of text."""
    text = f"effect {summary.effect:+.3f}"
    if summary.interval is not None:
        text += f" [{summary.interval[0]:+.3f}, {summary.interval[1]:+.3f}]"
    return f"{text} over {summary.pairs} pairs"
