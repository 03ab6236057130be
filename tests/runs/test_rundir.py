"""The run directory: strict writing, tolerant reading, one final state."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest
from run_helpers import MakeRun

from trainer.runs.errors import RunError
from trainer.runs.registry import list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunState, Verdict
from trainer.runs.workspace import Workspace


def test_a_document_round_trips_with_fields_of_later_versions(make_run: MakeRun) -> None:
    directory = make_run("r1", {"session": "s-1", "from_the_future": {"a": [1, 2]}})
    document = directory.read_document()
    assert (document.run_id, document.state, document.session) == ("r1", RunState.QUEUED, "s-1")
    directory.set_fields(step=3)
    raw = json.loads(directory.document_path.read_text())
    assert raw["from_the_future"] == {"a": [1, 2]}
    assert raw["step"] == 3


def test_a_final_state_is_given_once_and_never_changed(make_run: MakeRun) -> None:
    directory = make_run()
    directory.finish(RunState.FINISHED, verdict=Verdict.NO_GOAL)
    first = directory.read_document()
    directory.finish(RunState.FAILED, failure=Failure(kind="late", message="late"))
    directory.set_fields(step=99)
    assert directory.read_document() == first
    assert first.seconds is not None
    with pytest.raises(ValueError, match="not a final state"):
        directory.finish(RunState.RUNNING)


def _count(path: str, times: int) -> None:
    directory = RunDirectory(Path(path))
    for _ in range(times):
        directory.update(lambda document: document.model_copy(update={"step": document.step + 1}))


def test_concurrent_updates_lose_nothing(make_run: MakeRun) -> None:
    directory = make_run()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_count, args=(str(directory.path), 20)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert directory.read_document().step == 60


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run_id": 1}', b"\xff\xfe", b'{"run_id": "x"}'])
def test_a_damaged_document_is_named_not_guessed(make_run: MakeRun, content: bytes) -> None:
    directory = make_run()
    directory.document_path.write_bytes(content)
    with pytest.raises(RunError, match=r"run\.json"):
        directory.read_document()


def test_bad_lines_cost_themselves_only(make_run: MakeRun) -> None:
    directory = make_run()
    directory.append_metrics({"step": 1, "reward_mean": 0.1})
    with open(directory.metrics_path, "ab") as stream:
        stream.write(b'{"step": 2, "rew\n\xff\xfe\n[1]\n"text"\n\n')
    directory.append_metrics({"step": 3, "reward_mean": 0.3})
    with open(directory.metrics_path, "ab") as stream:
        stream.write(b'{"step": 4, "torn')
    assert [row["step"] for row in directory.metrics()] == [1, 3]
    directory.append_metrics({"step": 5})
    assert [row["step"] for row in directory.metrics()] == [1, 3, 5]


def test_of_a_step_written_twice_the_later_line_counts(make_run: MakeRun) -> None:
    directory = make_run()
    for row in ({"step": 2, "reward_mean": 0.2}, {"step": 1}, {"step": 2, "reward_mean": 0.4}):
        directory.append_metrics(row)
    assert directory.metrics() == [{"step": 1}, {"step": 2, "reward_mean": 0.4}]


def test_not_a_number_is_never_written(make_run: MakeRun) -> None:
    directory = make_run()
    with pytest.raises(ValueError, match="JSON"):
        directory.append_metrics({"step": 1, "loss": float("nan")})
    assert directory.metrics() == []


def test_reading_goes_on_where_it_stopped(make_run: MakeRun) -> None:
    directory = make_run()
    directory.append_metrics({"step": 1})
    rows, offset = directory.metrics_from(0)
    assert [row["step"] for row in rows] == [1]
    with open(directory.metrics_path, "ab") as stream:
        stream.write(b'{"step": 2')
    assert directory.metrics_from(offset) == ([], offset)
    with open(directory.metrics_path, "ab") as stream:
        stream.write(b"}\n")
    rows, _ = directory.metrics_from(offset)
    assert [row["step"] for row in rows] == [2]


def test_the_first_reason_to_stop_stays(make_run: MakeRun) -> None:
    directory = make_run()
    assert directory.stop_reason() is None
    directory.request_stop("anomaly")
    directory.request_stop("user")
    assert directory.stop_reason() == "anomaly"


def test_heartbeat_and_log_tail(make_run: MakeRun) -> None:
    directory = make_run()
    assert directory.heartbeat_age_s() is None
    assert directory.log_tail() == []
    directory.beat()
    os.utime(directory.heartbeat_path, (time.time() - 60, time.time() - 60))
    age = directory.heartbeat_age_s()
    assert age is not None
    assert 59 < age < 65
    directory.log_path.write_bytes(b"x" * 100_000 + b"\n\n" + b"".join(b"line %d \xff\n" % i for i in range(50)))
    tail = directory.log_tail(3)
    assert [line.split()[1] for line in tail] == ["47", "48", "49"]


def test_a_run_is_not_created_over_another_one(make_run: MakeRun) -> None:
    make_run("same")
    with pytest.raises(RunError, match="exists already"):
        make_run("same")


def test_a_run_that_could_not_be_written_leaves_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, make_run: MakeRun
) -> None:
    def full(path: Path, document: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("trainer.runs.rundir.write_json_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        make_run("full")
    assert list(workspace.runs.iterdir()) == []
    assert list_runs(workspace) == []
