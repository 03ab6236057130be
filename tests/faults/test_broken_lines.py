"""Files that a crash, a full disk or an editor left broken: a bad line costs itself, never the run.

All JSON-lines files are read by skill_bank.files; here those of a run directory, with all their readers.
"""

import json
import random
from pathlib import Path

import pytest
from fault_helpers import MakeScripted, check_readable, check_workspace, go_on, settled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skill_bank.files import append_json, read_json, read_json_lines, write_json_atomic, write_text_atomic
from trainer.runs.errors import RunError
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

DEEP = b"[" * 200_000 + b"\n"

BROKEN: dict[str, bytes] = {
    "half": b'{"step": 3, "reward_me',
    "half_utf8": '{"step": 3, "text": "题'.encode()[:-1],
    "not_utf8": b'{"step": 4, "text": "\xff\xfe"}\n',
    "zeros": bytes(4096),
    "zeros_and_feed": bytes(512) + b"\n",
    "deep": DEEP,
    "long": b'"' + b"x" * 2_000_000 + b"\n",
    "scalar": b"5\n",
    "list": b"[1, 2]\n",
    "null": b"null\n",
    "huge_number": b'{"step": 1' + b"0" * 5000 + b"}\n",
    "strange_types": b'{"step": "three", "kind": 7, "reward_mean": "high", "time": null, "seconds": 5}\n',
    "numbers_as_text": b'{"step": 2, "reward_mean": "0.5", "entropy": [], "seconds": {"generate": "x"}}\n',
    "not_numbers": b'{"step": 2, "reward_mean": NaN, "entropy": Infinity, "loss": -Infinity}\n',
    "surrogate": b'{"step": 2, "text": "\\ud800", "kind": "\\ud800"}\n',
    "separators": '{"step": 2, "text": "a\u2028b\u0085c"}\n'.encode(),
    "empty_lines": b"\n\n  \n",
    "two_in_one": b'{"step": 5}{"step": 6}\n',
    "windows": b'{"step": 2, "reward_mean": 0.5}\r\n',
}

FILES = ("metrics.jsonl", "events.jsonl", "episodes/step-000002.jsonl", "eval-before.jsonl", "eval-after.jsonl")


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, RunDirectory]:
    """A run with four steps and checkpoints that was stopped and can go on."""
    from fault_helpers import SCRIPTED_WORKER

    from trainer.runs.registry import create_run
    from trainer.runs.workspace import create_workspace
    from trainer.settings import resolve

    workspace = create_workspace(tmp_path_factory.mktemp("lines") / "ws")
    workspace.config_path.write_text("keep_free_mb: 1\n")
    config = resolve(overrides={"max_steps": 6, "validate_every": 0}).config
    directory = create_run(workspace, config, run_id="origin")
    (directory.path / "script.json").write_text(json.dumps({"steps": 6, "low_at": 4}))
    assert settled(workspace, LocalLauncher(SCRIPTED_WORKER), directory).state is RunState.FAILED
    for name in ("eval-before.jsonl", "eval-after.jsonl"):
        append_json(directory.path / name, {"task": "t1", "generation": 0, "reward": 1.0, "messages": []})
    return workspace, directory


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("broken", sorted(BROKEN))
def test_a_broken_end(
    stopped_run: tuple[Workspace, RunDirectory], name: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, directory = stopped_run
    path = directory.path / name
    before = path.read_bytes()
    try:
        path.write_bytes(before + BROKEN[broken])
        check_readable(directory)
        whole = len(read_json_lines(path).rows)
        append_json(path, {"step": 1, "kind": "later", "reward_mean": 0.25})  # writing goes on behind it
        rows = [row for _, row in read_json_lines(path).rows]
        assert rows[-1] == {"step": 1, "kind": "later", "reward_mean": 0.25}
        assert len(rows) >= whole + 1
        check_readable(directory)
        check_workspace(workspace)
    finally:
        path.write_bytes(before)


def test_a_run_with_broken_files_goes_on(workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted) -> None:
    directory = make_run(steps=5, low_at=3)
    settled(workspace, launcher, directory)
    for name in FILES[:3]:
        path = directory.path / name
        path.write_bytes(path.read_bytes() + b"\n".join(BROKEN.values()) + b'\n{"step": 3, "reward_')
    resumed = go_on(workspace, launcher, directory, low_at=10**6)
    assert [row["step"] for row in resumed.metrics()] == [1, 2, 3, 4, 5]
    check_workspace(workspace)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_anywhere(stopped_run: tuple[Workspace, RunDirectory], data: st.DataObject) -> None:
    """Bytes of a file are cut, changed or repeated at random; everything can still be read."""
    _, directory = stopped_run
    path = directory.path / data.draw(st.sampled_from(FILES))
    before = path.read_bytes()
    at = data.draw(st.integers(0, len(before)))
    junk = data.draw(st.binary(max_size=40))
    kind = data.draw(st.sampled_from(["cut", "insert", "replace", "repeat"]))
    changed = {
        "cut": before[:at],
        "insert": before[:at] + junk + before[at:],
        "replace": before[:at] + junk + before[at + len(junk) :],
        "repeat": before + before[at:],
    }[kind]
    try:
        path.write_bytes(changed)
        check_readable(directory)
    finally:
        path.write_bytes(before)


NO_DOCUMENT = (b"", b'{"run_id": "x', bytes(100), b"\xff\xfe\x00", b"[]", b"[" * 200_000)


@pytest.mark.parametrize(
    "name", ["run.json", "config.json", "failure.json", "heartbeat", "STOP", "worker.log", "monitor.json"]
)
def test_a_document_that_is_none_is_said_and_harms_no_other_run(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, name: str
) -> None:
    workspace.config_path.write_text("max_concurrent_runs: 8\nkeep_free_mb: 1\n")
    bad = [make_run(f"bad{number}", steps=1) for number in range(len(NO_DOCUMENT))]
    good = make_run("good", steps=2)
    for directory, content in zip(bad, NO_DOCUMENT, strict=True):
        (directory.path / name).write_bytes(content)
    assert settled(workspace, launcher, good).state is RunState.FINISHED
    if name == "run.json":
        documents = {run.directory.run_id: run.document for run in list_runs(workspace)}
        assert len(documents) == len(bad) + 1
        for directory in bad:
            document = documents[directory.run_id]
            assert document.state is RunState.LOST
            assert document.failure is not None
            assert "run.json" in document.failure.message
            with pytest.raises(RunError, match=r"run\.json"):
                directory.read_document()
        return
    for directory in bad:
        document = settled(workspace, launcher, directory)
        if name == "config.json":
            assert document.state is RunState.FAILED
            with pytest.raises(RunError, match=r"config\.json"):
                directory.read_config()


def test_half_a_surrogate_pair_is_written_and_read(tmp_path: Path) -> None:
    """A model may write one; it is no UTF-8, and must not end a run."""
    text = {"text": "a\ud800b", "\udfff": "题"}
    append_json(tmp_path / "a.jsonl", text)
    write_json_atomic(tmp_path / "a.json", text)
    write_text_atomic(tmp_path / "b.jsonl", json.dumps(text, ensure_ascii=False) + "\n")
    assert read_json(tmp_path / "a.json") == text
    for name in ("a.jsonl", "b.jsonl"):
        assert [row for _, row in read_json_lines(tmp_path / name).rows] == [text]
        (tmp_path / name).read_bytes().decode("utf-8")


def test_many_writers_that_die_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Half lines between whole ones, as writers leave them that are killed one after the other."""
    path = tmp_path / "lines.jsonl"
    source = random.Random(5)
    whole = []
    for number in range(200):
        line = {"n": number, "text": "题\u2028" * source.randrange(5)}
        append_json(path, line)
        whole.append(line)
        if source.random() < 0.3:
            half = json.dumps({"n": -1, "text": "x" * 50}).encode()[: source.randrange(1, 50)]
            with open(path, "ab") as stream:
                stream.write(half)
    append_json(path, {"n": 200, "text": ""})
    rows = [row for _, row in read_json_lines(path).rows if isinstance(row, dict)]
    assert rows == [*whole, {"n": 200, "text": ""}]
