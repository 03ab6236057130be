"""Diagnosis: known faults of random magnitude are named with their numbers; healthy runs get no advice."""

import random
from collections.abc import Callable
from typing import Any

import metric_series
import pytest
from metric_series import evaluation, step_row

from trainer.config import TrainingConfig
from trainer.runs.diagnose import FindingKind, Thresholds, diagnose
from trainer.runs.types import Eval, Failure

Series = Callable[..., tuple[list[dict[str, Any]], dict[str, Eval]]]
GOAL = TrainingConfig(target_reward=0.9)
FAULTS: list[tuple[Series, TrainingConfig, FindingKind, list[str]]] = [
    (
        metric_series.collapsed,
        TrainingConfig(learning_rate=6e-3),
        FindingKind.LEARNING_RATE_TOO_HIGH,
        ["0.006", "reward"],
    ),
    (
        metric_series.too_slow,
        TrainingConfig(learning_rate=6e-6),
        FindingKind.LEARNING_RATE_TOO_LOW,
        ["6e-06", "30 steps"],
    ),
    (
        metric_series.alike,
        TrainingConfig(temperature=0.1, num_generations=8),
        FindingKind.NO_DIVERSITY,
        ["temperature 0.1", "8 episodes", "%"],
    ),
    (metric_series.cut, TrainingConfig(max_completion_tokens=24), FindingKind.TRUNCATION, ["24 tokens", "%"]),
    (metric_series.too_easy, GOAL, FindingKind.GROUPS_TOO_EASY, ["difficulty mixed", "%"]),
    (metric_series.too_hard, GOAL, FindingKind.GROUPS_TOO_HARD, ["difficulty mixed", "%"]),
    (metric_series.unparsed, GOAL, FindingKind.PARSER_NEVER_MATCHES, ["%"]),
    (metric_series.still_rising, GOAL, FindingKind.BUDGET_TOO_SMALL, ["20 steps"]),
]


@pytest.mark.parametrize(("series", "config", "kind", "parts"), FAULTS, ids=[kind.value for _, _, kind, _ in FAULTS])
def test_a_known_fault_is_named_with_its_numbers(
    series: Series, config: TrainingConfig, kind: FindingKind, parts: list[str]
) -> None:
    named = 0
    for seed in range(40):
        rows, evals = series(random.Random(f"{kind}{seed}"))
        first = diagnose(rows, evals, config, goal_reached=False)[0]
        named += first.kind is kind
        if first.kind is kind:
            for part in parts:
                assert part in first.sentence
            assert 0 < first.confidence <= 1
            assert first.numbers
            assert first.field in TrainingConfig.model_fields
    assert named >= 38


@pytest.mark.parametrize("goal", [True, False])
def test_healthy_runs_get_no_advice(goal: bool) -> None:
    config = GOAL if goal else TrainingConfig()
    for seed in range(40):
        rows, evals = metric_series.healthy(random.Random(f"healthy{seed}"))
        kinds = [one.kind for one in diagnose(rows, evals, config, goal_reached=goal or None)]
        assert kinds == [FindingKind.HEALTHY], (seed, kinds)


def test_a_low_temperature_that_hides_failures_is_not_taken_for_a_frozen_policy() -> None:
    """A recorded run at temperature 0.1: nearly all training episodes right, entropy next to nothing from the start."""
    rewards = [1, 1, 0.875, 0.0625, 0.9375, 0.75, 0.75, 1, 1, 1, 1, 0.75, 0.9375, 1, 0.75, 1, 0.875, 1, 1, 1]
    entropies = [3, 14, 55, 293, 41, 46, 5, 0, 7, 4, 0, 15, 41, 1, 14, 0, 9, 4, 0, 0]
    rows = [
        {
            "step": step,
            "reward_mean": reward,
            "reward_max": 1.0,
            "entropy": entropy / 10_000,
            "frac_zero_variance": 0.75 if 0 < reward % 0.25 < 0.25 else 1.0,
            "unique_completions": 0.3,
        }
        for step, (reward, entropy) in enumerate(zip(rewards, entropies, strict=True), start=1)
    ]
    evals = {"before": metric_series.evaluation(0.273), "after": metric_series.evaluation(0.5)}
    first = diagnose(rows, evals, TrainingConfig(temperature=0.1, target_reward=0.9), goal_reached=False)[0]
    assert first.kind is FindingKind.NO_DIVERSITY
    assert "temperature 0.1" in first.sentence
    assert "0.27" in first.sentence


def test_an_explanation_takes_what_it_explains_with_it() -> None:
    rows, evals = metric_series.cut(random.Random(1))
    kinds = {one.kind for one in diagnose(rows, evals, TrainingConfig(max_completion_tokens=24))}
    assert kinds == {FindingKind.TRUNCATION}
    rows, evals = metric_series.collapsed(random.Random(1))
    kinds = {one.kind for one in diagnose(rows, evals, GOAL)}
    assert kinds == {FindingKind.LEARNING_RATE_TOO_HIGH}


def test_a_missing_number_is_not_zero() -> None:
    rng = random.Random(3)
    full, evals = metric_series.too_hard(rng)
    bare = [{"step": row["step"], "reward_mean": row["reward_mean"]} for row in full]
    (only,) = diagnose(bare, {}, GOAL)
    assert only.kind is FindingKind.INCONCLUSIVE
    without_parse = [{k: v for k, v in row.items() if k not in ("parse_ok_rate", "tool_call_rate")} for row in full]
    assert FindingKind.PARSER_NEVER_MATCHES not in {one.kind for one in diagnose(without_parse, evals, GOAL)}


def test_nothing_at_all_is_inconclusive() -> None:
    (only,) = diagnose([], {}, TrainingConfig())
    assert only.kind is FindingKind.INCONCLUSIVE
    assert "0 steps" in only.sentence


def test_too_few_steps_say_nothing_about_learning() -> None:
    rng = random.Random(5)
    rows = [step_row(rng, i + 1, 0.35, entropy=0.07) for i in range(3)]
    kinds = {one.kind for one in diagnose(rows, {"before": evaluation(0.35), "after": evaluation(0.36)}, GOAL)}
    assert kinds == {FindingKind.INCONCLUSIVE}


def test_a_failure_comes_first() -> None:
    rows, _ = metric_series.healthy(random.Random(1))
    found = diagnose(rows[:4], {}, TrainingConfig(), failure=Failure(kind="oom", message="out of memory"))
    assert found[0].kind is FindingKind.FAILED
    assert "oom" in found[0].sentence
    found = diagnose(rows[:4], {}, TrainingConfig(), failure=Failure(kind="nonfinite", message="two in a row"))
    assert found[0].kind is FindingKind.NONFINITE
    assert found[0].field == "learning_rate"


def test_an_environment_that_raises_is_mended_first() -> None:
    rows, evals = metric_series.too_hard(random.Random(2))
    broken = [row | {"env_error_rate": 0.6} for row in rows]
    assert diagnose(broken, evals, GOAL)[0].kind is FindingKind.ENVIRONMENT_ERRORS


def test_a_test_result_that_fell_beyond_chance_is_harm() -> None:
    rng = random.Random(7)
    rows = [step_row(rng, i + 1, 0.4, entropy=0.07) for i in range(20)]
    found = diagnose(rows, {"before": evaluation(0.5), "after": evaluation(0.3)}, GOAL)
    assert found[0].kind is FindingKind.LEARNING_RATE_TOO_HIGH
    assert "0.50 → 0.30" in found[0].sentence
    within = diagnose(rows, {"before": evaluation(0.42), "after": evaluation(0.38)}, GOAL)
    assert FindingKind.LEARNING_RATE_TOO_HIGH not in {one.kind for one in within}


def test_thresholds_come_from_policy() -> None:
    rows, evals = metric_series.cut(random.Random(1))
    rows = [row | {"truncated_rate": 0.2} for row in rows]
    assert diagnose(rows, evals, GOAL)[0].kind is not FindingKind.TRUNCATION
    stricter = Thresholds.from_policy({"truncated": 0.1, "min_steps": {"default": 7}, "unknown_key": 3})
    assert (stricter.truncated, stricter.min_steps, stricter.unique) == (0.1, 7, Thresholds().unique)
    assert diagnose(rows, evals, GOAL, thresholds=stricter)[0].kind is FindingKind.TRUNCATION
    with pytest.raises(ValueError, match="threshold truncated"):
        Thresholds.from_policy({"truncated": "much"})
