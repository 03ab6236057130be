"""A run and the event that launched it find each other by id, or not at all."""

from pathlib import Path

from optimizer.events import tool_call
from optimizer.run_links import launching_event, record_launch
from optimizer.segment.store import SegmentStore
from optimizer.store import TrajectoryStore


def test_by_id_in_both_directions(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    # the answer of monitor_run names the run, too, and so does a text: neither launched it
    store.append(tool_call("s", "monitor_run", {"run_id": "run-1"}, {}, time=1.0, run_id="run-1"))
    store.append(tool_call("s", "Bash", {"command": "cat runs/run-1/run.json"}, {"stdout": "run-1"}, time=2.0))
    store.append(tool_call("s", "start_training", {}, {}, time=3.0, run_id="run-1", failed=True))
    assert launching_event(store, "s", "run-1") is None
    store.append(tool_call("s", "mcp__evo__start_training", {}, {}, time=4.0, run_id="run-1"))
    event = launching_event(store, "s", "run-1")
    assert event is not None
    assert (event.line, event.run_id) == (3, "run-1")
    (segment,) = SegmentStore(store, {}.get).update("s")
    assert (segment.runs, segment.launched) == (["run-1"], ["run-1"])


def test_never_guessed(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    record_launch(store, "s", "run-10", "train", 1.0)
    assert launching_event(store, None, "run-10") is None
    assert launching_event(store, "other", "run-10") is None
    assert launching_event(store, "../s", "run-10") is None
    assert launching_event(store, "s", "run-1") is None
    event = launching_event(store, "s", "run-10")
    assert event is not None
    assert event.source == "cli"
