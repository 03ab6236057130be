"""The monitor: line by line is the same as all at once; missing is skipped; nothing is told twice in a row."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skill_bank.policy import PolicyError
from trainer.config import TrainingConfig
from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.detectors.feed import ALERT_EVENT, RunWatch, alerts_of, strongest
from trainer.runs.detectors.monitor import Monitor, watch
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import Plan, Severity, Standing
from trainer.runs.errors import RunError
from trainer.runs.rundir import RunDirectory
from trainer.runs.simulate import Scripted
from trainer.runs.simulate_faults import FAULTS
from trainer.runs.types import Failure, RunDocument, RunState


def scripted(number: int, seed: int) -> Scripted:
    run = FAULTS[number % len(FAULTS)].run(seed, 1.0)
    run.rows, run.events = run.rows[:90], [one for one in run.events if one["step"] <= 90]
    return run


def new_directory(folder: Path, **fields: Any) -> RunDirectory:
    directory = RunDirectory(folder / "run")
    config = TrainingConfig(max_steps=120, num_generations=4)
    directory.create(RunDocument(run_id="run", created_at=0.0, state=RunState.RUNNING, **fields), config)
    return directory


def write(directory: RunDirectory, lines: list[dict[str, Any]]) -> None:
    """Appends lines as the worker would: what is no finite number is refused there, so it is left out here."""
    for line in lines:
        if "kind" in line:
            directory.append_event(line["kind"], **{k: v for k, v in line.items() if k != "kind"})
        else:
            directory.append_metrics({k: v for k, v in line.items() if v == v})


@settings(max_examples=12, deadline=None)
@given(st.integers(0, len(FAULTS) - 1), st.integers(0, 50), st.data())
def test_line_by_line_is_the_same_as_all_at_once(number: int, seed: int, data: st.DataObject) -> None:
    """Also after a restart of whoever watches: a second monitor that begins anew at any line tells the same."""
    run = scripted(number, seed)
    whole = watch(run.rows, run.events, plan=run.plan)
    by_line = Monitor(plan=run.plan)
    events = list(run.events)
    told = []
    for row in run.rows:
        told += by_line.add_row(row)
        while events and events[0]["step"] == row["step"]:
            told += by_line.add_event(events.pop(0))
    assert told == by_line.alerts == whole.alerts
    cut = data.draw(st.integers(1, len(run.rows)))
    prefix = watch(run.rows[:cut], [one for one in run.events if one["step"] <= cut], plan=run.plan)
    assert prefix.alerts == [one for one in whole.alerts if one.step <= cut]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, len(FAULTS) - 1), st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_a_directory_polled_at_any_moment_tells_the_same(
    tmp_path_factory: pytest.TempPathFactory, number: int, chunks: list[int]
) -> None:
    run = scripted(number, 3)
    folder = tmp_path_factory.mktemp("feed")
    directory = new_directory(folder)
    live = RunWatch(directory)
    lines: list[dict[str, Any]] = []
    for row in run.rows:
        lines += [row, *[one for one in run.events if one["step"] == row["step"]]]
    told, at = [], 0
    for size in [*chunks, len(lines)]:
        write(directory, lines[at : at + size])
        told += live.poll(process=False)
        at += size
    assert told == live.alerts == [one for one in alerts_of(directory) if one.detector != "stall"]


def test_events_that_are_read_before_their_line_wait_for_it(tmp_path: Path) -> None:
    directory = new_directory(tmp_path)
    live = RunWatch(directory)
    write(directory, [{"kind": "nonfinite", "step": 1, "in_a_row": 1}, {"kind": "validation", "step": 1, "eval": {}}])
    assert live.poll(process=False) == []
    assert live.monitor.history.bad_updates == []
    write(directory, [{"step": 1, "loss": 0.1}])
    assert [one.name for one in live.poll(process=False)] == ["nonfinite"]


def test_a_resume_takes_back_what_it_repeats() -> None:
    monitor = Monitor(plan=Plan(planned_steps=50))
    for step in range(1, 21):
        monitor.add_row({"step": step, "reward_mean": 0.5, "truncated_rate": 0.0})
    for step in range(10, 31):
        monitor.add_row({"step": step, "reward_mean": 0.6, "truncated_rate": 0.9})
    assert monitor.history.steps == list(range(1, 31))
    assert monitor.history.tail("reward_mean", 30) == [0.5] * 9 + [0.6] * 21
    again = watch(
        [
            {"step": s, "reward_mean": 0.5 if s < 10 else 0.6, "truncated_rate": 0.0 if s < 10 else 0.9}
            for s in range(1, 31)
        ]
    )
    assert [(one.name, one.step) for one in monitor.alerts] == [(one.name, one.step) for one in again.alerts]


# ---- missing


def test_a_metric_that_is_missing_skips_its_detector_and_is_never_zero() -> None:
    lines: list[dict[str, Any]] = [{"step": step, "reward_mean": 0.4 + 0.001 * step} for step in range(1, 60)]
    monitor = watch(lines, plan=Plan(planned_steps=60))
    assert monitor.alerts == []
    for detector in CATALOGUE:
        status = monitor.statuses()[detector.id]
        if set(detector.needs) - {"reward_mean"}:
            assert status.standing is Standing.SKIPPED
            assert status.reason is not None
            for name in set(detector.needs) - {"reward_mean"}:
                assert name in status.reason
    assert monitor.statuses()["reward_collapse"].standing is Standing.QUIET
    assert "kl" in (monitor.statuses()["kl_runaway"].reason or "")


def test_never_judged_is_what_was_skipped_at_every_look() -> None:
    lines: list[dict[str, Any]] = [{"step": s, "truncated_rate": 0.0} for s in range(1, 9)]
    monitor = watch([*lines, *({"step": s} for s in range(9, 60))])
    for name in ("truncation", "kl_runaway"):
        assert monitor.statuses()[name].standing is Standing.SKIPPED
    assert "truncation" not in monitor.never_judged()
    assert "kl" in monitor.never_judged()["kl_runaway"]


def test_a_metric_that_stops_coming_is_not_judged_by_its_last_values() -> None:
    lines: list[dict[str, Any]] = [{"step": s, "truncated_rate": 0.9} for s in range(1, 9)]
    lines += [{"step": s} for s in range(9, 60)]
    monitor = watch(lines)
    assert max(one.step for one in monitor.alerts) == 6, "at step 8 the cooldown holds, and then there is no number"
    assert monitor.statuses()["truncation"].standing is Standing.SKIPPED


@settings(max_examples=30, deadline=None)
@given(st.integers(0, len(FAULTS) - 1), st.integers(0, 10**6))
def test_any_metric_may_be_missing_anywhere(number: int, seed: int) -> None:
    run = FAULTS[number].run(seed % 20, 1.0)
    rng = random.Random(seed)
    dropped = set(rng.sample(sorted(run.rows[0]), k=rng.randint(0, 20))) - {"step"}
    lines = [
        {name: value for name, value in row.items() if name not in dropped and (name == "step" or rng.random() < 0.9)}
        for row in run.rows[:60]
    ]
    monitor = watch(lines, run.events, plan=run.plan)
    for alert in monitor.alerts:
        assert not {one.metric for one in alert.evidence} & dropped


# ---- telling


def test_the_same_is_told_again_after_its_cooldown_and_at_once_when_it_gets_worse() -> None:
    lines = [{"step": s, "truncated_rate": 0.3 if s < 12 else 0.9} for s in range(1, 40)]
    monitor = watch(lines)
    # warm-up ends after step 5; warned at 6; three steps at 0.9 are critical at 14; then every ten steps
    assert [(one.step, one.severity.value) for one in monitor.alerts] == [
        (6, "warn"),
        (14, "critical"),
        (24, "critical"),
        (34, "critical"),
    ]


def test_rates_are_not_judged_in_the_warm_up() -> None:
    lines = [{"step": s, "truncated_rate": 0.9} for s in range(1, 11)]
    assert watch(lines, plan=Plan(planned_steps=50)).alerts[0].step == 6
    assert watch(lines, plan=Plan(planned_steps=160)).alerts[0].step == 9, "5 % of 160 are 8 steps"
    assert watch([{"step": 1, "loss": float("inf")}]).alerts[0].detector == "nonfinite"


def test_the_worst_form_of_each_anomaly_comes_first() -> None:
    lines = [{"step": s, "truncated_rate": 0.3 if s < 12 else 0.9, "env_error_rate": 0.4} for s in range(1, 40)]
    found = strongest(watch(lines).alerts)
    assert [(alert.name, str(alert.severity), alert.step, times) for alert, times in found] == [
        ("truncation", "critical", 34, 4),
        ("env_errors", "warn", 36, 4),
    ]


# ---- the run directory


def test_the_worker_records_alerts_and_hears_of_the_critical_one(tmp_path: Path) -> None:
    directory = new_directory(tmp_path)
    live = RunWatch(directory)
    write(directory, [{"step": s, "truncated_rate": 0.3} for s in range(1, 8)])
    assert live.record() is None, "a warning stops nothing"
    write(directory, [{"step": s, "truncated_rate": 0.9} for s in range(8, 12)])
    critical = live.record()
    assert critical is not None
    assert (critical.name, critical.severity) == ("truncation", Severity.CRITICAL)
    events = [one for one in directory.events() if one["kind"] == ALERT_EVENT]
    assert [(one["alert"], one["severity"], one["step"]) for one in events] == [
        ("truncation", "warn", 7),
        ("truncation", "critical", 10),
    ]
    assert events[0]["evidence"][-1] == {"step": 7, "metric": "truncated_rate", "value": 0.3, "threshold": 0.05}
    assert [one.step for one in alerts_of(directory)] == [7, 10], "alert events feed nobody"

    resumed = RunWatch(directory)
    assert resumed.record() is None, "what was told before the run was resumed stops it no more"
    assert len([one for one in directory.events() if one["kind"] == ALERT_EVENT]) == 2
    write(directory, [{"step": s, "truncated_rate": 0.9} for s in range(12, 21)])
    assert [resumed.record() is not None, resumed.alerts[-1].step] == [True, 20]


def test_a_stall_that_is_over_is_not_told_any_more(tmp_path: Path) -> None:
    directory = new_directory(tmp_path)
    MonitorPolicy.shipped().with_values(stall={"seconds": 60.0}).save(directory.path)
    live = RunWatch(directory)
    directory.beat()
    os.utime(directory.heartbeat_path, (time.time() - 100, time.time() - 100))
    assert [one.name for one in live.poll()] == ["stall"]
    assert [one.name for one in live.standing] == ["stall"]
    directory.beat()
    assert live.poll() == []
    assert live.standing == []
    assert [one.name for one in live.alerts] == ["stall"]


def test_a_failed_run_tells_its_class(tmp_path: Path) -> None:
    directory = new_directory(tmp_path, failure=Failure(kind="killed", message="by SIGKILL", exit_code=-9))
    assert [one.name for one in alerts_of(directory)] == ["crash:killed"]


def test_a_run_is_judged_by_the_policy_it_carries(tmp_path: Path) -> None:
    directory = new_directory(tmp_path)
    write(directory, [{"step": s, "truncated_rate": 0.3} for s in range(1, 8)])
    assert [one.name for one in alerts_of(directory)] == ["truncation"]
    MonitorPolicy.shipped().with_values(truncation={"warn": 0.6}).save(directory.path)
    assert alerts_of(directory) == []
    (directory.path / "monitor.json").write_text("[]")
    with pytest.raises(RunError, match=r"monitor\.json holds no `values`"):
        alerts_of(directory)
    with pytest.raises(PolicyError, match="no section 'nothing'"):
        MonitorPolicy.shipped().limits("nothing")
    with pytest.raises(PolicyError, match=r"sets no 'truncation\.nothing'"):
        MonitorPolicy.shipped().limits("truncation")["nothing"]
