"""Detectors against whole runs: silent on healthy ones, simulated and recorded; found in scripts; true to the labels of
the recorded series."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.detectors.types import Alert
from trainer.runs.replay import against_labels, false_alarms, from_points, from_recording, judged, recall
from trainer.runs.simulate import healthy
from trainer.runs.simulate_faults import FAULTS, Fault

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE / "recordings").glob("*.json"))
CORPUS = HERE.parents[2] / "shared" / "corpus" / "metrics_truth.json"
LABELS: dict[str, Any] = json.loads((HERE / "labels" / "corpus.json").read_text())["runs"]

HARD_RECORDINGS = {"house-4": ["zero_variance", "no_diversity"]}
"""Recordings that are no healthy run: few problems are within reach of the model."""


def names(alerts: list[Alert]) -> list[str]:
    return [f"step {one.step}: {one.severity} {one.name}: {one.say}" for one in alerts]


def test_no_alarm_on_twenty_healthy_runs_of_two_hundred_steps() -> None:
    assert false_alarms(range(90_000, 90_020), 200) == {}


def test_simulated_healthy_runs_learn_and_scatter_as_recorded_ones() -> None:
    """A simulator without noise would make any detector look good."""
    for seed in range(5):
        run = healthy(seed, 200)
        rewards = [row["reward_mean"] for row in run.rows]
        assert sum(rewards[-50:]) > sum(rewards[:50]) + 5
        assert run.rows == healthy(seed, 200).rows, "the same seed gives the same run"
        entropies = [row["entropy"] for row in run.rows]
        changes = sorted(abs(b / a - 1) for a, b in pairwise(entropies))
        assert 0.15 < changes[100] < 0.6, "median change of entropy from step to step"


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_recorded_runs(path: Path) -> None:
    run = from_recording(json.loads(path.read_text()))
    judgement = against_labels(judged(run).alerts, [], HARD_RECORDINGS.get(path.stem, []))
    assert names(list(judgement.false)) == []


def test_every_detector_has_a_script() -> None:
    assert {fault.detector for fault in FAULTS} == {one.id for one in CATALOGUE}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.detector}{'-' + one.kind if one.kind else ''}" for one in FAULTS])
def test_a_blatant_failure_is_found_and_a_harmless_one_is_not(fault: Fault) -> None:
    seeds = range(3)
    assert recall(fault, 1.0, seeds).rate == 1.0
    if fault.detector in ("reward_plateau", "echo_trap"):
        return  # magnitude 0 of these is a run that has levelled off, or whose gradients spike
    harmless = recall(fault, 0.0, seeds)
    assert harmless.found <= (1 if fault.detector in ("lr_flat", "reward_hacking", "eval_regression") else 0)


def test_recall_grows_with_the_magnitude() -> None:
    fault = next(one for one in FAULTS if one.detector == "reward_collapse")
    rates = [recall(fault, magnitude, range(4)).rate for magnitude in (0.1, 0.5, 1.0)]
    assert rates == sorted(rates)
    assert rates[0] < 0.5 < rates[-1]


@pytest.mark.skipif(not CORPUS.exists(), reason="needs ../shared/corpus/metrics_truth.json next to the checkout")
@pytest.mark.parametrize("name", sorted(LABELS))
def test_recorded_series_against_their_labels(name: str) -> None:
    series = json.loads(CORPUS.read_text())["runs"][name]
    alerts = judged(from_points(series, "val_acc", 1319)).alerts
    judgement = against_labels(alerts, LABELS[name]["must"], LABELS[name]["may"])
    assert judgement.missed == (), names(alerts)
    assert names(list(judgement.false)) == []


def test_labels_are_read_as_they_are_meant() -> None:
    run = FAULTS[[one.kind for one in FAULTS].index("too_hard")].run(1, 1.0)
    alerts = judged(run).alerts
    assert against_labels(alerts, [["zero_variance:too_easy", "crash"]], []).missed == (
        ("zero_variance:too_easy", "crash"),
    )
    assert "zero_variance:too_hard" in {one.name for one in against_labels(alerts, [], []).false}
    assert not {one.detector for one in against_labels(alerts, [["zero_variance"]], []).false} & {"zero_variance"}
