"""The live view: what a person sees while a run goes on, with and without a terminal."""

import io
import time
from typing import Any

import pytest
from rich.console import Console

from mcp_server.cli.live import TrainingView, duration, event_note, number, step_seconds
from trainer.config import TrainingConfig
from trainer.runs.launch import RunUpdate
from trainer.runs.types import RunDocument, RunState

CONFIG = TrainingConfig(max_steps=10)


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "reward_mean": step / 10, "entropy": 0.5, "seconds": {"generate": 1.0, "update": 1.0}} | more


def update(state: RunState, *rows: dict[str, Any], events: tuple[dict[str, Any], ...] = ()) -> RunUpdate:
    document = RunDocument(run_id="r", state=state, created_at=time.time(), planned_steps=10)
    return RunUpdate(document, rows, events)


def view(terminal: bool) -> tuple[TrainingView, io.StringIO]:
    out = io.StringIO()
    return TrainingView(Console(file=out, force_terminal=terminal, width=120, color_system=None), CONFIG), out


def test_a_terminal_sees_a_table_with_eta_and_curve() -> None:
    shown, out = view(terminal=True)
    with shown:
        shown.show(update(RunState.RUNNING, *[row(i) for i in range(1, 5)]))
    text = out.getvalue()
    for part in ("step 4 of at most 10, at most 12 s left", "entropy", "flat groups", "0.400", "reward ▂"):
        assert part in text


def test_without_a_terminal_there_are_few_plain_lines() -> None:
    shown, out = view(terminal=False)
    with shown:
        shown.show(update(RunState.QUEUED), ["other"])
        shown.show(update(RunState.STARTING))
        shown.show(update(RunState.RUNNING))
        for i in range(1, 8):
            shown.show(update(RunState.RUNNING, row(i)))
        shown.show(
            update(RunState.FINISHED, events=({"kind": "eval", "name": "after", "eval": {"mean": 0.9, "n": 128}},))
        )
    lines = out.getvalue().splitlines()
    assert lines[0] == "r: waiting for a free slot behind other"
    assert lines[1] == "r: loading tiny"
    assert lines[2] == "r: test before training"
    assert "test after: 0.900 (n 128)" in lines
    assert lines[-1] == "r: finished"
    assert len(lines) <= 7


def test_what_was_not_measured_is_a_dash() -> None:
    assert [number(None), number(float("nan")), number("x"), number(True)] == ["–"] * 4
    assert number(0.0) == "0.000"
    shown, out = view(terminal=True)
    with shown:
        shown.show(update(RunState.RUNNING, {"step": 1}))
    assert "–" in out.getvalue()
    assert step_seconds({"step": 1}) is None
    assert step_seconds({"time_s": 2}) == 2.0


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_only_events_worth_telling_are_told() -> None:
    assert event_note({"kind": "started"}) == ""
    assert event_note({"kind": "eval"}) == ""
    assert (
        event_note({"kind": "validation", "step": 5, "eval": {"mean": 0.5, "n": 64}})
        == "validation at step 5: 0.500 (n 64)"
    )
    assert event_note({"kind": "warning", "text": "an update was skipped"}) == "warning: an update was skipped"
