"""Advice: values inside the safe range, a confidence that is a product, and a measure that can show what is claimed."""

import math

import pytest

from optimizer.analyze.advice import advise, detectable
from optimizer.types import Direction, Finding, Lever
from skill_bank.policy import ResolvedPolicy, nest
from trainer.runs.types import Eval

RANGES = {"learning_rate.min": 1e-5, "learning_rate.max": 3e-3, "num_generations.min": 2, "num_generations.max": 8}


def policy() -> ResolvedPolicy:
    return ResolvedPolicy("rllm-config", {}, RANGES, {}, nest(RANGES))


def finding(kind: str, lever: Lever | None, confidence: float = 0.5, blocked: str | None = None) -> Finding:
    return Finding(
        id=f"finding-{kind}", kind=kind, what="w", evidence=[], confidence=confidence, lever=lever, blocked=blocked
    )


RAISE = Lever(key="learning_rate", direction=Direction.UP, choices=(10.0, 3.0), confidence="high")
MORE = Lever(key="num_generations", direction=Direction.UP, choices=(2.0,), confidence="low")
CONFIG = {"learning_rate": 1e-5, "num_generations": 4}
TEST = Eval(split="test", n=128, mean=0.5, ci95=(0.41, 0.59))


def test_values_confidence_and_order() -> None:
    found = advise(
        [finding("few", MORE, 1.0), finding("slow", RAISE, 0.6), finding("odd", None)], CONFIG, policy(), TEST
    )
    assert [one.finding for one in found] == ["finding-slow", "finding-few"]  # 0.6 × 1 before 1 × 0.4
    assert found[0].confidence == pytest.approx(0.6)
    assert found[1].confidence == pytest.approx(0.4)
    assert found[0].values[:2] == (pytest.approx(1e-4), pytest.approx(3e-5))
    assert found[1].values == (8, 6)  # × 2, then × sqrt(2) rounded; × 4 leaves the range and is 8 again
    assert found[0].sentence.startswith("Try learning_rate 1e-05 → 0.0001 (or 3e-05, ")
    assert "confidence 0.60 (finding × table: high)" in found[0].sentence
    assert found[0].measured_by == "a paired trial on test success (propose_patch, try_patch)"


def test_what_was_fixed_is_measured_by_a_second_run_and_says_what_that_can_show() -> None:
    (found,) = advise([finding("slow", RAISE, blocked="the request fixed it")], CONFIG, policy(), TEST)
    assert "a second run with learning_rate=0.0001 and the same seed" in found.measured_by
    # 2.80 * sqrt(2 * 0.25 / 128) = 0.175
    assert "n 128 tells differences from about 0.18" in found.measured_by
    assert detectable(TEST) == pytest.approx(2.8015852 * math.sqrt(0.5 / 128), rel=1e-6)
    assert detectable(Eval(split="test", n=128, mean=1.0, ci95=(0.97, 1.0))) > 0


def test_the_end_of_the_range_is_said() -> None:
    (found,) = advise([finding("slow", RAISE)], {"learning_rate": 3e-3}, policy(), None)
    assert found.values == ()
    assert found.sentence == "learning_rate 0.003 is at the end of its safe range: nothing to try in that direction."


@pytest.mark.parametrize("config", [{}, {"learning_rate": 0.0}, {"learning_rate": "auto"}, {"learning_rate": True}])
def test_what_cannot_be_moved_gets_no_advice(config: dict[str, object]) -> None:
    assert advise([finding("slow", RAISE)], config, policy(), TEST) == []
