"""What a campaign does next, on histories written by hand; the numbers are worked out in the comments."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.analyze.levers import LeverTable
from optimizer.campaign.decide import (
    base_of,
    best_of,
    decide,
    exceeds,
    next_change,
    runs_without_improvement,
    standard_error,
)
from optimizer.campaign.start import raised_goal
from optimizer.campaign.types import Basis, CampaignRequest, CampaignRun, CampaignVerdict
from optimizer.types import Finding, RunEvidence
from trainer.config import TrainingConfig
from trainer.runs.types import Eval

DECISIONS: dict[str, Any] = {
    "learning_rate_too_high": {
        "lever": "learning_rate",
        "direction": "down",
        "factor": 0.1,
        "candidates": [0.1, 0.033],
        "confidence": "high",
    },
    "learning_rate_too_low": {
        "lever": "learning_rate",
        "direction": "up",
        "factor": 30,
        "candidates": [30, 10, 3],
        "confidence": "medium",
    },
    "groups_too_easy": {
        "lever": "batch_size",
        "direction": "up",
        "factor": 2,
        "candidates": [2],
        "confidence": "low",
    },
    "no_diversity": {
        "lever": "temperature",
        "direction": "set",
        "value": 1.0,
        "candidates": [1.0, 0.8],
        "confidence": "high",
    },
    "truncation": {
        "lever": "max_completion_tokens",
        "direction": "up",
        "factor": 4,
        "candidates": [4, 8],
        "confidence": "high",
    },
}
TABLE = LeverTable(DECISIONS)
RANGES: dict[str, tuple[float | None, float | None]] = {
    "learning_rate": (1e-6, 3e-3),
    "batch_size": (1, 64),
    "temperature": (0.3, 1.5),
    "max_completion_tokens": (16, 2048),
}


def basis(fixed: dict[str, str] | None = None, **config: Any) -> Basis:
    values = {"max_steps": 32, "learning_rate": 6e-6, **config}
    return Basis(
        config=TrainingConfig.model_validate(values).model_dump(mode="json"),
        provenance={},
        context={},
        skill_versions={"rllm-analyze": "rllm-analyze@1"},
        decisions=DECISIONS,
        ranges=RANGES,
        fixed=fixed or {},
        thresholds={},
    )


def request(**fields: Any) -> CampaignRequest:
    return CampaignRequest(**{"campaign_id": "c", "request": "tiny", "folder": "/", **fields})


def rate(solved: int, n: int = 128) -> Eval:
    return Eval(split="test", n=n, mean=solved / n, ci95=(0.0, 1.0))


def finding(kind: str, confidence: float = 0.9) -> Finding:
    return Finding(
        id=f"finding-{kind}",
        kind=kind,
        what=f"It was {kind}.",
        evidence=[RunEvidence(run_id="x")],
        confidence=confidence,
        lever=TABLE.lever_for(kind),
    )


def run(
    number: int, solved: int | None, *found: str | Finding, of: CampaignRun | None = None, **to: Any
) -> CampaignRun:
    """Run `number` with so many of 128 test problems solved; `of` and `to`: what it changed."""
    change: Any = None
    if to:
        ((key, value),) = to.items()
        assert of is not None
        change = {
            "key": key,
            "before": of.overrides.get(key, TrainingConfig.model_validate({}).model_dump()[key]),
            "to": value,
            "reason": "r",
            "finding": "f",
            "kind": "k",
            "numbers": {},
            "row": {},
            "table": "t",
            "base_run": of.run_id,
        }
    return CampaignRun.model_validate(
        {
            "number": number,
            "parts": [f"c-r{number}"],
            "change": change,
            "overrides": {**(of.overrides if of is not None else {}), **to},
            "why": {**(of.why if of is not None else {}), **dict.fromkeys(to, "why")},
            "state": "finished",
            "eval": {} if solved is None else {"after": rate(solved)},
            "findings": [one if isinstance(one, Finding) else finding(one) for one in found],
            "steps": 32,
            "episodes": 512,
            "seconds": 60.0,
        }
    )


# When it ends


def test_without_runs_the_first_one_is_unchanged() -> None:
    planned = decide(request(), basis(), []).planned
    assert planned is not None
    # 32 steps of 4 problems x 4 episodes
    assert (planned.number, planned.change, planned.overrides, planned.episodes) == (1, None, {}, 512)


@pytest.mark.parametrize(("solved", "ends"), [(115, False), (116, True), (128, True)])  # 0.9 * 128 = 115.2
def test_the_target_is_judged_on_the_test_split(solved: int, ends: bool) -> None:
    decision = decide(request(target=0.9), basis(), [run(1, solved, "learning_rate_too_low")])
    assert (decision.verdict is CampaignVerdict.TARGET_REACHED) is ends
    assert (decision.planned is None) is ends


def test_a_target_that_an_earlier_run_missed_is_met_by_the_last() -> None:
    first = run(1, 40, "learning_rate_too_low")
    decision = decide(request(target=0.9), basis(), [first, run(2, 120, of=first, learning_rate=1.8e-4)])
    assert decision.verdict is CampaignVerdict.TARGET_REACHED
    assert "0.938" in decision.reason  # 120 / 128 = .9375


def test_the_error_of_a_difference() -> None:
    # .5 * .5 / 100 = .0025, .9 * .1 / 100 = .0009; sqrt(.0034) = .058310
    assert standard_error(rate(50, 100), rate(90, 100)) == pytest.approx(0.0583095, abs=1e-6)
    assert standard_error(rate(0), rate(128)) == 0.0


def test_an_improvement_is_more_than_one_standard_error() -> None:
    # of 100: .50 against .57: se = sqrt(.25 / 100 + .2451 / 100) = .0704; .57 is not one above, .58 (se .0702) is
    assert not exceeds(rate(57, 100), rate(50, 100))
    assert exceeds(rate(58, 100), rate(50, 100))
    assert not exceeds(rate(50, 100), rate(50, 100))


@pytest.mark.parametrize(
    ("solved", "count"),
    [
        ([40], 0),
        ([40, 41], 1),
        ([40, 80], 0),
        ([40, 80, 81, 60, 82], 3),
        # small gains add up against the last mark: 8/128 = .0625 > sqrt((.5 * .5 + .5625 * .4375) / 128) = .0623
        ([64, 68, 72], 0),
        ([64, 68], 1),
        ([None, 40, None], 1),
        ([None, None, None], 3),
    ],
)
def test_runs_without_improvement(solved: list[int | None], count: int) -> None:
    assert runs_without_improvement([run(number, one) for number, one in enumerate(solved, start=1)]) == count


def test_three_runs_without_improvement_end_it() -> None:
    first = run(1, 60, "learning_rate_too_low")
    same = [run(number, 60, "learning_rate_too_low", of=first, learning_rate=number * 1e-5) for number in (2, 3, 4)]
    assert decide(request(max_runs=9), basis(), [first, *same[:2]]).planned is not None
    decision = decide(request(max_runs=9), basis(), [first, *same])
    assert decision.verdict is CampaignVerdict.NO_IMPROVEMENT
    assert decision.reason.startswith("3 runs in a row")


def test_the_budget_of_runs() -> None:
    history = [run(1, 60, "learning_rate_too_low")]
    assert decide(request(max_runs=1), basis(), history).verdict is CampaignVerdict.BUDGET_SPENT
    assert decide(request(max_runs=2), basis(), history).planned is not None


@pytest.mark.parametrize(("most", "ends"), [(1023, True), (1024, False)])  # 512 are used, the next run takes 512
def test_the_budget_of_episodes(most: int, ends: bool) -> None:
    decision = decide(request(max_episodes=most), basis(), [run(1, 60, "learning_rate_too_low")])
    assert (decision.verdict is CampaignVerdict.BUDGET_SPENT) is ends
    if ends:
        assert "Next would have been learning_rate 6e-06 → 0.00018" in decision.reason


@pytest.mark.parametrize(("seconds", "ends"), [(60.0, True), (60.5, False)])  # the one run took 60 s
def test_the_budget_of_minutes(seconds: float, ends: bool) -> None:
    decision = decide(request(max_seconds=seconds), basis(), [run(1, 60, "learning_rate_too_low")])
    assert (decision.verdict is CampaignVerdict.BUDGET_SPENT) is ends


def test_nothing_left() -> None:
    decision = decide(request(target=0.9), basis(), [run(1, 100, "healthy", "budget_too_small")])
    assert decision.verdict is CampaignVerdict.NOTHING_LEFT
    assert "more steps are the user's to spend" in decision.reason


# What is changed


def test_the_lever_of_the_table() -> None:
    decision = decide(request(), basis(), [run(1, 60, "learning_rate_too_low")])
    planned = decision.planned
    assert planned is not None
    change = planned.change
    assert change is not None
    assert (change.key, change.before, change.to) == ("learning_rate", 6e-6, 1.8e-4)  # 6e-6 * 30
    assert planned.overrides == {"learning_rate": 1.8e-4}
    assert change.row == DECISIONS["learning_rate_too_low"]
    for part in ("It was learning_rate_too_low.", "rllm-analyze@1", "× 30, 10, 3", "6e-06 → 0.00018", "1e-06 … 0.003"):
        assert part in change.reason


def test_a_value_stays_in_the_safe_range() -> None:
    # 2e-4 * 30 = 6e-3 is clipped to the range's end
    change, _ = next_change(basis(learning_rate=2e-4), [run(1, 60, "learning_rate_too_low")])
    assert change is not None
    assert change.to == 3e-3
    change, considered = next_change(basis(learning_rate=3e-3), [run(1, 60, "learning_rate_too_low")])
    assert change is None
    assert "at the end of its safe range" in considered[0]


def test_the_surest_finding_goes_first() -> None:
    # .9 * .7 (medium) = .63 is less than .7 * 1 (high)
    history = [run(1, 60, finding("learning_rate_too_low", 0.9), finding("truncation", 0.7))]
    change, _ = next_change(basis(max_completion_tokens=24), history)
    assert change is not None
    assert (change.key, change.before, change.to) == ("max_completion_tokens", 24, 96)
    assert isinstance(change.to, int)


def test_a_fixed_setting_is_passed_over_and_named() -> None:
    history = [run(1, 60, finding("learning_rate_too_low", 0.9), finding("no_diversity", 0.2))]
    fixed = {"learning_rate": "learning_rate is no lever here: the request text fixed it"}
    change, considered = next_change(basis(fixed, temperature=0.1), history)
    assert change is not None
    assert (change.key, change.to) == ("temperature", 1.0)
    assert "the request text fixed it" in considered[0]


def test_a_lever_without_a_safe_range_is_passed_over() -> None:
    open_ended = basis().model_copy(update={"ranges": {"learning_rate": (1e-6, None)}})
    change, considered = next_change(open_ended, [run(1, 60, "learning_rate_too_low")])
    assert change is None
    assert "has no safe range" in considered[0]


def test_the_next_change_starts_from_the_last_run_unless_it_is_worse() -> None:
    first = run(1, 60, "learning_rate_too_low")
    equal = run(2, 58, "learning_rate_too_low", of=first, learning_rate=1.8e-4)
    worse = run(2, 20, "learning_rate_too_high", of=first, learning_rate=1.8e-4)
    untested = run(2, None, "nonfinite", of=first, learning_rate=1.8e-4)
    assert base_of([first, equal]) is equal  # 2/128 = .016 is less than one standard error (.062)
    assert base_of([first, worse]) is first
    assert base_of([first, untested]) is first
    assert base_of([untested]) is untested


def test_nothing_beyond_a_value_that_did_harm() -> None:
    first = run(1, 60, "learning_rate_too_low")
    # × 10 collapsed, so × 30 lies beyond it; × 3 is left
    worse = run(2, 20, "learning_rate_too_high", of=first, learning_rate=6e-5)
    change, considered = next_change(basis(), [first.model_copy(update={"overrides": {"learning_rate": 6e-6}}), worse])
    assert change is not None
    assert (change.before, change.to, change.base_run) == (6e-6, 1.8e-5, "c-r1")
    assert [one.split(":")[0] for one in considered] == ["learning_rate 6e-06 → 0.00018", "learning_rate 6e-06 → 6e-05"]
    assert "made it worse already (run c-r2)" in considered[0]


def test_no_configuration_is_trained_twice() -> None:
    first = run(1, 60, "no_diversity")
    second = run(2, 61, "no_diversity", of=first, temperature=1.0)
    back = finding("no_diversity")
    change, considered = next_change(basis(temperature=0.8), [first, second.model_copy(update={"findings": [back]})])
    # from 1.0: 1.0 is where it stands, 0.8 was the first run
    assert change is None
    assert "that is run c-r1" in considered[0]


def test_a_larger_batch_keeps_the_episodes() -> None:
    planned = decide(request(), basis(), [run(1, 100, "groups_too_easy")]).planned
    assert planned is not None
    assert planned.overrides == {"batch_size": 8, "max_episodes": 512}
    assert planned.episodes == 512  # 16 steps of 8 x 4
    assert set(planned.why) == {"batch_size", "max_episodes"}


def test_a_value_that_does_not_fit_the_rest_is_passed_over() -> None:
    change, considered = next_change(basis(problems=6), [run(1, 100, "groups_too_easy")])
    assert change is not None  # 8 is more than the 6 problems; sqrt(2) of 4 is 6, which fits
    assert change.to == 6
    assert "batch_size 8 asks for more problems" in considered[0]


def test_settings_of_earlier_runs_stay() -> None:
    first = run(1, 40, "truncation")
    second = run(2, 80, "learning_rate_too_low", of=first, max_completion_tokens=96)
    planned = decide(request(), basis(max_completion_tokens=24), [first, second]).planned
    assert planned is not None
    assert planned.overrides == {"max_completion_tokens": 96, "learning_rate": 1.8e-4}
    assert set(planned.why) == {"max_completion_tokens", "learning_rate"}


def test_the_best_run_is_the_earliest_of_equals() -> None:
    runs = [run(1, 60), run(2, 80), run(3, 80), run(4, None)]
    best = best_of(runs)
    assert best is not None
    assert best.number == 2
    assert best_of([run(1, None)]) is None


def test_the_goal_of_runs_lies_one_standard_error_above_the_target() -> None:
    # sqrt(.9 * .1 / 128) = .02652
    assert raised_goal(0.9, 128) == 0.927
    assert raised_goal(1.0, 128) == 1.0
    assert raised_goal(0.0, 128) == 0.0


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 128)),
            st.lists(st.sampled_from([*DECISIONS, "healthy", "budget_too_small"]), max_size=3),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_a_campaign_always_ends_and_repeats_nothing(outcomes: list[tuple[int | None, list[str]]], most: int) -> None:
    """Whatever the runs bring: at most `most` runs, no configuration twice, every value inside its range."""
    wanted, fixed_basis = request(target=0.95, max_runs=most), basis()
    runs: list[CampaignRun] = []
    for solved, kinds in outcomes:
        decision = decide(wanted, fixed_basis, runs)
        assert decision.reason
        if decision.planned is None:
            assert decision.verdict is not None
            break
        planned = decision.planned
        assert planned.number == len(runs) + 1 <= most
        assert planned.overrides not in [one.overrides for one in runs]
        if planned.change is not None:
            low, high = RANGES[planned.change.key]
            assert low is not None
            assert high is not None
            assert low <= planned.change.to <= high
            assert not math.isclose(planned.change.to, planned.change.before)
        made = run(planned.number, solved, *kinds)
        runs.append(
            made.model_copy(update={"change": planned.change, "overrides": planned.overrides, "why": planned.why})
        )
