"""The trial's statistics: values worked out by hand or taken from tables, not from the code under test."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.trial.plan import DEFAULT, PLANS, QUICK, TrialPlan, derive_plan, plan_named
from optimizer.trial.spending import derive_levels
from optimizer.trial.statistics import decide, pairs_wanted, rate, realised_correlation, summarise
from optimizer.trial.types import ArmResult, Pair, Reason, TrialVerdict


def make_pairs(
    differences: list[float],
    base: float = 0.5,
    scenarios: tuple[str, ...] = ("a",),
    collapsed_base: tuple[int, ...] = (),
    collapsed_patched: tuple[int, ...] = (),
) -> list[Pair]:
    return [
        Pair(
            index=index,
            scenario=scenarios[index % len(scenarios)],
            seed=index,
            base=ArmResult(success=base, n=128, collapsed=index in collapsed_base),
            patched=ArmResult(success=base + difference, n=128, collapsed=index in collapsed_patched),
        )
        for index, difference in enumerate(differences)
    ]


def test_levels_of_the_shipped_plans_follow_from_linear_spending() -> None:
    for plan in (DEFAULT, QUICK):
        derived = derive_levels(plan.looks, 0.025)
        assert derived == pytest.approx(plan.levels, abs=3e-4)
    # the first look spends its share exactly: .025 * 4 / 24
    assert derive_levels((4, 24), 0.025)[0] == pytest.approx(0.025 / 6, abs=1e-6)
    # one look spends everything
    assert derive_levels((8,), 0.025) == pytest.approx((0.025,), abs=1e-6)


def test_plan_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="one level for each look"):
        TrialPlan(name="x", looks=(4, 8), levels=(0.01,))
    with pytest.raises(ValueError, match="rise"):
        TrialPlan(name="x", looks=(8, 4), levels=(0.01, 0.01))
    with pytest.raises(ValueError, match="default or quick"):
        plan_named("fast")
    assert set(PLANS) == {"default", "quick"}
    assert derive_plan("own", (4, 8), 0.1).max_pairs == 8


def test_paired_t_against_hand_computation() -> None:
    # differences .10 .20 .30 .40: mean .25, sd = sqrt(.05/3) = .129099, se = .0645497, t = 3.87298
    summary = summarise(make_pairs([0.10, 0.20, 0.30, 0.40]), DEFAULT)
    assert summary.effect == pytest.approx(0.25)
    assert summary.sd == pytest.approx(math.sqrt(0.05 / 3))
    assert summary.t == pytest.approx(3.872983, abs=1e-5)
    # one-sided p of t = 3.872983 with 3 degrees of freedom, by the closed form for 3 degrees:
    # F(t) = 1/2 + (x / (1 + x²) + atan x) / pi with x = t / sqrt 3
    x = 3.872983 / math.sqrt(3)
    p = 0.5 - (x / (1 + x * x) + math.atan(x)) / math.pi
    assert summary.p_better == pytest.approx(p, abs=1e-6)
    assert summary.p_worse == pytest.approx(1 - p, abs=1e-6)
    assert summary.level == 0.0041
    assert summary.interval is not None
    # upper .0041 quantile of t with 3 degrees, from the same closed form, lies at 6.30
    half = (summary.interval[1] - summary.interval[0]) / 2 / summary.standard_error
    y = half / math.sqrt(3)
    assert 0.5 - (y / (1 + y * y) + math.atan(y)) / math.pi == pytest.approx(0.0041, abs=1e-7)
    # futility: upper .10 quantile of t with 3 degrees is 1.6377 (table)
    assert summary.upper90 == pytest.approx(0.25 + 1.6377 * 0.0645497, abs=1e-4)


def test_collapse_bounds() -> None:
    # 0 of 8: upper bound u solves (1 - u)^8 = .05
    assert rate(0, 8).high == pytest.approx(1 - 0.05 ** (1 / 8))
    assert rate(0, 8).low == 0
    # 8 of 8: lower bound solves l^8 = .05
    assert rate(8, 8).low == pytest.approx(0.05 ** (1 / 8))
    assert rate(8, 8).high == 1


def test_better_worse_and_nothing_between_looks() -> None:
    ahead = [0.20, 0.21, 0.19, 0.20]
    assert decide(make_pairs(ahead[:3]), DEFAULT) is None
    better = decide(make_pairs(ahead), DEFAULT)
    assert better is not None
    assert better.verdict is TrialVerdict.BETTER
    assert better.summary.interval is not None
    assert better.summary.interval[0] > 0
    worse = decide(make_pairs([-d for d in ahead]), DEFAULT)
    assert worse is not None
    assert worse.verdict is TrialVerdict.WORSE


def test_futility() -> None:
    # mean 0, sd .0216, upper bound 1.6377 * .0108 = .018 < .10
    decision = decide(make_pairs([0.02, -0.03, 0.01, 0.0]), DEFAULT)
    assert decision is not None
    assert (decision.verdict, decision.reason) == (TrialVerdict.INCONCLUSIVE, Reason.NO_WORTHWHILE_GAIN)


def test_scenario_veto_waits_for_the_last_look_and_then_says_so() -> None:
    differences = [0.30, 0.31, 0.29, -0.06] * 6
    names = ("a", "b", "c", "d")
    assert decide(make_pairs(differences[:8], scenarios=names), DEFAULT) is None
    last = decide(make_pairs(differences, scenarios=names), DEFAULT)
    assert last is not None
    assert (last.verdict, last.reason) == (TrialVerdict.INCONCLUSIVE, Reason.VETOED)
    assert "scenario d" in last.blocked_by[0]
    fine = decide(make_pairs([0.30, 0.31, 0.29, -0.04] * 6, scenarios=names), DEFAULT)
    assert fine is not None
    assert fine.verdict is TrialVerdict.BETTER


def test_more_collapses_forbid_better() -> None:
    differences = [0.20, 0.21, 0.19, 0.20] * 6
    blocked = decide(make_pairs(differences, collapsed_patched=(3,)), DEFAULT)
    assert blocked is not None
    assert blocked.reason is Reason.VETOED
    assert "1 of 24 with the patch" in blocked.blocked_by[0]
    even = decide(make_pairs(differences[:4], collapsed_patched=(3,), collapsed_base=(2,)), DEFAULT)
    assert even is not None
    assert even.verdict is TrialVerdict.BETTER


def test_identical_arms_are_not_tested() -> None:
    decision = decide(make_pairs([0.0] * 4), DEFAULT)
    assert decision is not None
    assert decision.reason is Reason.ARMS_IDENTICAL
    assert decision.say.startswith("no effect: arms identical")
    assert decision.summary.t is None
    assert decision.summary.interval is None


def test_equal_differences_of_one_task_are_not_infinitely_significant() -> None:
    decision = decide(make_pairs([1 / 128] * 4), DEFAULT)
    assert decision is not None
    assert decision.verdict is not TrialVerdict.BETTER


def test_out_of_budget_uses_the_last_look_only() -> None:
    differences = [0.3, 0.05, 0.2, 0.1, 0.9, 0.9]
    decision = decide(make_pairs(differences, base=0.05), DEFAULT, out_of_budget=True)
    assert decision is not None
    assert decision.summary.pairs == 4
    assert decision.reason is Reason.PROMISING
    assert decision.more_allowed
    assert decision.more_pairs is not None
    assert 4 <= decision.more_pairs <= 20
    early = decide(make_pairs([0.3, 0.1]), DEFAULT, out_of_budget=True)
    assert early is not None
    assert early.verdict is TrialVerdict.INCONCLUSIVE
    assert early.summary.t is None


def test_too_noisy_at_the_last_look() -> None:
    differences = [0.48, -0.30, 0.45, -0.25] * 4
    decision = decide(make_pairs(differences), QUICK)
    assert decision is not None
    assert decision.reason is Reason.TOO_NOISY
    assert not decision.more_allowed


def test_pairs_wanted() -> None:
    # z(.0109) = 2.2937, z(.80) = .8416: (3.1353 * .13 / .10)² = 16.61
    summary = summarise(make_pairs([0.1, 0.1, 0.1, 0.1]), DEFAULT).model_copy(update={"sd": 0.13})
    assert pairs_wanted(summary, 0.0109) == 17


def test_realised_correlation_is_within_scenarios() -> None:
    def pair(index: int, scenario: str, base: float, patched: float) -> Pair:
        return Pair(
            index=index,
            scenario=scenario,
            seed=index,
            base=ArmResult(success=base, n=128),
            patched=ArmResult(success=patched, n=128),
        )

    # within a: (-.1, -.1), (.1, .1); within b: (-.1, .1), (.1, -.1): cancels to 0 although the scenarios differ widely
    pairs = [pair(0, "a", 0.2, 0.2), pair(1, "b", 0.7, 0.9), pair(2, "a", 0.4, 0.4), pair(3, "b", 0.9, 0.7)]
    assert realised_correlation(pairs) == pytest.approx(0.0, abs=1e-12)
    assert realised_correlation([pairs[0], pairs[2], pair(4, "a", 0.3, 0.3)]) == pytest.approx(1.0)
    assert realised_correlation(pairs[:2]) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-64, 64), min_size=4, max_size=24))
def test_verdict_is_antisymmetric_and_serialises(steps: list[int]) -> None:
    differences = [step / 128 for step in steps]
    forward = decide(make_pairs(differences), DEFAULT, out_of_budget=True)
    backward = decide(make_pairs([-d for d in differences]), DEFAULT, out_of_budget=True)
    assert forward is not None
    assert backward is not None
    assert forward.summary.effect == pytest.approx(-backward.summary.effect)
    assert not (forward.verdict is TrialVerdict.BETTER and backward.verdict is TrialVerdict.BETTER)
    if forward.verdict is TrialVerdict.BETTER:
        assert backward.verdict is TrialVerdict.WORSE
        assert forward.summary.interval is not None
        assert forward.summary.interval[0] > 0
    assert type(forward).model_validate_json(forward.model_dump_json()) == forward


def simulate(
    rng: np.random.Generator, effect: float, sd: float, correlation: float, plan: TrialPlan
) -> tuple[TrialVerdict, int, tuple[float, float] | None]:
    """One trial on the model of the plan: success .55 (+ effect) + correlated normal noise, clipped, then binomial."""
    shared = rng.standard_normal(plan.max_pairs)
    pairs: list[Pair] = []
    for index in range(plan.max_pairs):
        own = rng.standard_normal(2)
        noise = sd * (math.sqrt(correlation) * shared[index] + math.sqrt(1 - correlation) * own)
        chance = np.clip([0.55 + noise[0], 0.55 + effect + noise[1]], 0.0, 1.0)
        solved = rng.binomial(plan.eval_tasks, chance) / plan.eval_tasks
        pairs.append(
            Pair(
                index=index,
                scenario="abc"[index % 3],
                seed=index,
                base=ArmResult(success=solved[0], n=plan.eval_tasks),
                patched=ArmResult(success=solved[1], n=plan.eval_tasks),
            )
        )
        decision = decide(pairs, plan)
        if decision is not None:
            return decision.verdict, decision.summary.pairs, decision.summary.interval
    raise AssertionError("a plan must decide at its last look")


def share_better(repetitions: int, seed: int, effect: float, sd: float, correlation: float, plan: TrialPlan) -> float:
    rng = np.random.default_rng(seed)
    hits = sum(simulate(rng, effect, sd, correlation, plan)[0] is TrialVerdict.BETTER for _ in range(repetitions))
    return hits / repetitions


def test_gate_small_simulation() -> None:
    # 300 null trials at a true 2 %: more than 5 % (15) has a chance below .001; a gate without sequential levels
    # (10 %) fails with chance .998
    assert share_better(300, 11, 0.0, 0.10, 0.3, DEFAULT) <= 0.05
    # a true gain of .2 is found in 98 to 100 %
    assert share_better(60, 12, 0.20, 0.10, 0.3, DEFAULT) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("plan", [DEFAULT, QUICK], ids=["default", "quick"])
@pytest.mark.parametrize(("sd", "correlation"), [(0.05, 0.3), (0.10, 0.6), (0.10, 0.0), (0.15, 0.0)])
def test_operating_characteristics(plan: TrialPlan, sd: float, correlation: float) -> None:
    assert share_better(2000, 21, 0.0, sd, correlation, plan) <= 0.035
    rng = np.random.default_rng(22)
    covered = found = 0
    for _ in range(500):
        verdict, _, interval = simulate(rng, 0.15, sd, correlation, plan)
        found += verdict is TrialVerdict.BETTER
        covered += interval is not None and interval[0] <= 0.15 <= interval[1]
    # powers at .15 known from an independent simulation: default .99 .98 .95 .80, quick .99 .98 .90 .63
    floor = {"default": (0.95, 0.93, 0.88, 0.70), "quick": (0.95, 0.93, 0.82, 0.54)}[plan.name]
    cell = [(0.05, 0.3), (0.10, 0.6), (0.10, 0.0), (0.15, 0.0)].index((sd, correlation))
    assert found / 500 >= floor[cell]
    assert covered / 500 >= 0.94
