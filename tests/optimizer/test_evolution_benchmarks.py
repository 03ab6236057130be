"""The pure parts of the benchmarks of evolution, against numbers worked out by hand and known error rates."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import calibration, evolution, noise
from benchmarks.null_pairs import (
    BASE,
    RESEEDED,
    STEP,
    STEPPED,
    Change,
    TooAlike,
    arm_configs,
    centred,
    changed,
    pairs_of,
    resampled,
)
from benchmarks.planted import Kind, good_patches, harmful_patches, rule
from optimizer.trial.plan import DEFAULT, QUICK
from optimizer.trial.scenarios import SCENARIOS
from optimizer.trial.types import ArmResult, Pair, TrialVerdict
from optimizer.tryout import CONFIG_SKILL
from skill_bank.bank import SkillBank

MIXED = next(one for one in SCENARIOS if one.name == "calculator-mixed")
HARD = next(one for one in SCENARIOS if one.name == "calculator-hard")


def arm(success: float, collapsed: bool = False) -> ArmResult:
    return ArmResult(success=success, n=128, collapsed=collapsed)


def made(differences: Sequence[float], scenario: str = "calculator-mixed") -> list[Pair]:
    return [
        Pair(index=i, scenario=scenario, seed=i, base=arm(0.5), patched=arm(0.5 + one))
        for i, one in enumerate(differences)
    ]


def test_arms_share_everything_but_the_step_or_the_seed() -> None:
    policy = SkillBank.shipped().policy(CONFIG_SKILL, "original")
    configs = arm_configs(MIXED, policy, 3, seed=1)
    base = configs[BASE].model_dump()
    stepped, reseeded = configs[STEPPED].model_dump(), configs[RESEEDED].model_dump()
    assert {name for name in base if base[name] != stepped[name]} == {"learning_rate"}
    assert stepped["learning_rate"] == pytest.approx(base["learning_rate"] * STEP)
    assert {name for name in base if base[name] != reseeded[name]} == {"seed"}
    assert arm_configs(MIXED, policy, 3, seed=1) == configs
    assert arm_configs(MIXED, policy, 4, seed=1)[BASE].seed != configs[BASE].seed
    assert (base["max_episodes"], base["test_problems"]) == (512, 128)


def test_arms_that_are_the_same_runs_are_refused() -> None:
    results = {("calculator-mixed", i, name): arm(0.5) for i in range(4) for name in (BASE, RESEEDED)}
    with pytest.raises(TooAlike, match="4 of 4 differences are exactly zero"):
        pairs_of(RESEEDED, [MIXED], results, 4)
    # one in ten is let pass
    results = {("calculator-mixed", i, RESEEDED): arm(0.5 + (0.1 if i else 0.0)) for i in range(10)}
    results |= {("calculator-mixed", i, BASE): arm(0.5) for i in range(10)}
    assert len(pairs_of(RESEEDED, [MIXED], results, 10)) == 10


def test_scenarios_take_turns() -> None:
    results = {
        (name, i, arm_): arm(0.5 + 0.01 * i * (arm_ != BASE) + 0.02 * (arm_ != BASE))
        for name in ("calculator-mixed", "calculator-hard")
        for i in range(2)
        for arm_ in (BASE, RESEEDED)
    }
    pairs = pairs_of(RESEEDED, [MIXED, HARD], results, 2)
    assert [one.scenario for one in pairs] == ["calculator-mixed", "calculator-hard"] * 2
    assert [one.index for one in pairs] == [0, 1, 2, 3]


def test_centred_pairs_keep_their_noise_alone() -> None:
    pairs = [*made([0.1, 0.3]), *made([-0.2, 0.0], "calculator-hard")]
    assert [round(one.difference, 6) for one in centred(pairs)] == [-0.1, 0.1, -0.1, 0.1]


def test_families_hold_deciding_scenarios_and_48_pairs() -> None:
    for family, names in calibration.FAMILIES.items():
        scenarios = calibration.scenarios_of(family)
        assert {one.name for one in scenarios} == set(names)
        assert not any(one.reserve for one in scenarios)
        assert calibration.REAL_PAIRS % len(scenarios) == 0


def test_a_change_is_done_to_the_patched_arm_after_the_swap() -> None:
    pair = Pair(index=0, scenario="x", seed=0, base=arm(0.4), patched=arm(0.6))
    rng = np.random.default_rng(0)
    seen = {round(changed(pair, Change(gain=0.1), rng, 0).difference, 6) for _ in range(40)}
    assert seen == {0.3, -0.1}  # .6 + .1 - .4, and .4 + .1 - .6
    fallen = changed(pair, Change(collapse=1.0), rng, 5)
    assert (fallen.patched.success, fallen.patched.collapsed, fallen.index) == (0.1, True, 5)
    assert changed(pair, Change(gain=0.9), rng, 0).patched.success == 1.0


def test_known_error_rates_come_out() -> None:
    rng = np.random.default_rng(1)
    null = made(rng.normal(0, 0.1, 48).clip(-0.5, 0.5))
    decisions = resampled(null, DEFAULT, 800, rng)
    better = sum(one.verdict is TrialVerdict.BETTER for one in decisions)
    worse = sum(one.verdict is TrialVerdict.WORSE for one in decisions)
    # the gate spends .025 on each side; 800 decisions: mean 20, three standard deviations are 13
    assert better <= 33
    assert worse <= 33
    found = resampled(null, DEFAULT, 200, rng, Change(gain=0.3))
    assert sum(one.verdict is TrialVerdict.BETTER for one in found) >= 196


def test_a_row_of_the_noise_table_by_hand() -> None:
    pairs = [
        Pair(index=i, scenario="calculator-mixed", seed=i, base=arm(base, collapsed=i == 0), patched=arm(patched))
        for i, (base, patched) in enumerate([(0.4, 0.5), (0.5, 0.5), (0.6, 0.8), (0.5, 0.6)])
    ]
    row = noise.row_of(MIXED, pairs)
    # base .4 .5 .6 .5: mean .5, sd sqrt(.02 / 3); differences .1 0 .2 .1: sd sqrt(.02 / 3)
    assert row["mean"] == 0.5
    assert row["sd"] == row["sd_of_difference"] == pytest.approx(0.0816, abs=1e-4)
    # patched .5 .5 .8 .6: sd sqrt(.06 / 3), beside .02 / 3
    assert row["sd_of_difference_unpaired"] == pytest.approx((0.08 / 3) ** 0.5, abs=1e-4)
    assert row["step_gains"] == 0.1
    assert row["sd_training"] == pytest.approx((0.02 / 3 - 0.25 / 128) ** 0.5, abs=1e-4)
    # (2.801581 x .081650 / .15)² = 2.33, so three pairs
    assert row["pairs_for_80_percent_at_15"] == 3
    assert (row["collapses"], row["has_room"]) == (1, True)
    # deviations base -.1 0 .1 0 and patched -.1 -.1 .2 0: product .03, lengths sqrt(.02) sqrt(.06)
    assert row["correlation"] == pytest.approx(0.03 / (0.02 * 0.06) ** 0.5, abs=1e-3)


def test_a_paired_interval_by_hand() -> None:
    # 12 differences 0 and .2 in turn: mean .1, sd sqrt(12 x .01 / 11), t(.975, 11) = 2.200985
    effect, (low, high) = evolution.paired_interval([0.0, 0.2] * 6)
    reach = 2.200985 * (0.12 / 11) ** 0.5 / 12**0.5
    assert effect == pytest.approx(0.1)
    assert (low, high) == (pytest.approx(0.1 - reach, abs=1e-6), pytest.approx(0.1 + reach, abs=1e-6))
    assert evolution.by_scenario(["a", "b", "a"], [(0.1, 0.3), (0, 1), (0.2, 0.2)], "a") == 0.1


def test_planted_patches_have_names_of_their_own_and_compile() -> None:
    patches = [*harmful_patches(), *good_patches()]
    assert len(harmful_patches()) == 20
    assert len({one.name for one in patches}) == len(patches)
    assert {one.kind for one in patches} == set(Kind)
    assert len({one.key for one in good_patches()}) == 3
    assert "default: 24" in rule("max_completion_tokens", 24, env="calculator")


def test_verdicts_are_counted() -> None:
    rng = np.random.default_rng(2)
    decisions = resampled(made([0.3, 0.31, 0.29, 0.3, 0.32, 0.3]), QUICK, 10, rng, Change(gain=0.0))
    row = calibration.verdicts(decisions)
    assert row["decisions"] == row["better"] + row["worse"] + row["inconclusive"] == 10


def test_the_levers_of_promoted_patches_are_told() -> None:
    rounds = [
        {"patch_id": "001-a", "lever": "learning_rate_too_low: learning_rate 1e-05 → 0.0003"},
        {"patch_id": None, "lever": "no_diversity: temperature 0.1 → 1.0"},
        {"patch_id": "002-b", "lever": "truncation: max_completion_tokens 24 → 96"},
    ]
    assert evolution.levers([{"rounds": rounds}]) == ["learning_rate", "max_completion_tokens"]
