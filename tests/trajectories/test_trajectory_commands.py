"""`mcp-evo trajectories import | segment | show` in one process, with a workspace of its own."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, MADE_UP, MISSING, files

from mcp_server.cli.main import run
from optimizer.capture.importing import import_transcript
from optimizer.facts import Format, facts_of
from optimizer.line_import import import_lines
from optimizer.redact import rules_of
from optimizer.store import TrajectoryStore

Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command and gives its JSON document."""
    monkeypatch.setenv("MCP_EVO_HOME", str(tmp_path / "home"))

    def command(*arguments: object, code: int = 0) -> Any:
        assert run(["trajectories", *map(str, arguments), "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return command


def test_imported_lines_keep_their_numbers_and_are_imported_once(ask: Ask, tmp_path: Path) -> None:
    source = MADE_UP / "normalised.jsonl"
    done = ask("import", source, "--format", "normalised")
    assert (done["added"], done["known"], done["files"][0]["bad_lines"]) == (25, 0, 1)
    stored = tmp_path / "home" / "trajectories" / "raw" / "made-up-1" / "events.jsonl"
    facts = facts_of(stored, Format.NORMALISED)
    assert facts == facts_of(source, Format.NORMALISED)
    again = ask("import", source, "--format", "normalised")
    assert (again["added"], again["known"]) == (0, 25)
    assert facts_of(stored, Format.NORMALISED) == facts


def test_hook_input_keeps_its_times_of_arrival(ask: Ask, tmp_path: Path) -> None:
    assert ask("import", MADE_UP / "hooks.jsonl")["added"] == 15
    stored = tmp_path / "home" / "trajectories" / "raw" / "made-up-2" / "events.jsonl"
    assert facts_of(stored, Format.HOOKS) == facts_of(MADE_UP / "hooks.jsonl", Format.HOOKS)
    assert ask("import", MADE_UP / "hooks.jsonl")["known"] == 15


def test_secrets_do_not_come_in(ask: Ask, tmp_path: Path) -> None:
    secret = "ghp_" + "a1b2c3d4" * 5
    line = {"type": "tool_call", "session_id": "s", "tool_name": "Bash", "tool_input": {"command": f"x {secret}"}}
    source = tmp_path / "events.jsonl"
    source.write_text(json.dumps(line) + f'\n{{"torn": "{secret}\n', encoding="utf-8")
    assert ask("import", source, "--format", "normalised")["added"] == 2
    stored = (tmp_path / "home" / "trajectories" / "raw" / "s" / "events.jsonl").read_text(encoding="utf-8")
    assert secret not in stored
    assert stored.count("\n") == 2
    assert ask("import", source, "--format", "normalised")["added"] == 0


def test_segments_of_what_was_imported(ask: Ask) -> None:
    ask("import", MADE_UP, "--format", "normalised")
    document = ask("segment", "made-up-1")
    assert document["total"] == 1
    (session,) = document["sessions"]
    assert (session["events"], session["bad_lines"], session["changed"]) == (24, 1, True)
    assert [(one["kind"], one["skill"], one["layer"]) for one in session["segments"]] == [
        ("skill", "rllm-config", "rllm"),
        ("free", None, "other"),
        ("skill", "rllm-run", "rllm"),
        ("skill", "rllm-monitor", "rllm"),
    ]
    config = session["segments"][0]
    assert config["outcome"] == "failed"
    assert [(one["line"], one["text"][:12]) for one in config["failures"]] == [
        (4, "ls: cannot a"),
        (10, "success=fals"),
    ]
    assert [one["line"] for one in config["masked"]] == [4]
    assert config["files"] == ["/p/a.yaml", "/p/b.py"]
    everything = ask("segment")
    assert everything["total"] == 3
    assert [one["changed"] for one in everything["sessions"] if one["session"] == "made-up-1"] == [False]


def test_show_tells_why(ask: Ask) -> None:
    ask("import", MADE_UP / "hooks.jsonl")
    document = ask("show", "made-up-2", "--limit", 12)
    assert (document["total"], len(document["events"])) == (15, 12)
    by_line = {one["line"]: one for one in document["events"]}
    assert (by_line[5]["outcome"], by_line[5]["evidence"]) == ("failed", "masked")
    assert by_line[5]["reason"].startswith("fatal: not a git")
    assert (by_line[13]["outcome"], by_line[13]["evidence"]) == ("ok", "answer")


def test_what_is_not_there_is_said(ask: Ask, tmp_path: Path) -> None:
    assert "is not there" in ask("import", tmp_path / "nothing", code=1)["error"]
    assert "is no file" in ask("facts", tmp_path, code=1)["error"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no *.jsonl" in ask("import", empty, code=1)["error"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason=MISSING)
def test_real_sessions_come_in_whole(ask: Ask, tmp_path: Path) -> None:
    sources = files("sessions/*/events.jsonl")
    done = ask("import", CORPUS / "sessions", "--format", "normalised")
    assert done["added"] == sum(path.read_bytes().count(b"\n") for path in sources)
    document = ask("segment")
    assert document["total"] == len(sources)
    for session in document["sessions"]:
        expected = json.loads((CORPUS / "expected" / f"{session['session']}.json").read_text(encoding="utf-8"))
        assert session["events"] == expected["events"]
        assert sum(one["tool_calls"] for one in session["segments"]) == expected["tool_calls"]


def test_a_folder_may_hold_what_is_no_file(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    (folder / "folder.jsonl").mkdir(parents=True)
    (folder / "nowhere.jsonl").symlink_to("gone")
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(folder / "pipe.jsonl")  # opening it would wait for a writer for ever
    (folder / "real.jsonl").write_bytes((MADE_UP / "hooks.jsonl").read_bytes())
    done = ask("import", folder)
    assert [Path(one["path"]).name for one in done["files"]] == ["real.jsonl"]
    assert done["added"] == 15
    assert "neither a file nor a folder" in ask("import", folder / "pipe.jsonl", code=1)["error"]


@pytest.mark.parametrize("format", ["hooks", "transcript"])
def test_a_file_that_cannot_be_read_is_named(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    path = tmp_path / "locked.jsonl"
    path.write_bytes(b"")

    def refuse(file: object, *arguments: Any, **options: Any) -> Any:
        if file == path:
            raise PermissionError(13, "Permission denied")
        return open(file, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("mcp_server.cli.trajectories.open", refuse, raising=False)
    told = ask("import", path, "--format", format, code=1)["error"]
    assert "locked.jsonl cannot be read (Permission denied)" in told


@pytest.mark.parametrize("format", ["normalised", "transcript"])
def test_two_imports_at_once_add_each_event_once(tmp_path: Path, format: str) -> None:
    """Both would look what the session holds, which is nothing, and add everything: the second one waits."""
    path = tmp_path / "source.jsonl"
    lines: list[dict[str, Any]] = [
        {"type": "tool_call", "session_id": "twice", "tool_name": "Read", "tool_input": {"n": 1}}
        if format == "normalised"
        else {
            "sessionId": "twice",
            "timestamp": "2026-03-01T10:00:00.000Z",
            "type": "user",
            "uuid": "u1",
            "message": {"role": "user", "content": "look"},
        }
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    first, second = (TrajectoryStore(tmp_path / name) for name in ("first", "second"))

    def take_in(store: TrajectoryStore) -> int:
        if format == "normalised":
            return import_lines(path, store, rules_of(tmp_path)).added
        return import_transcript(path, store).added

    added = take_in(first)
    assert added > 0
    with ThreadPoolExecutor(1) as threads:
        with second.importing():  # the other import, between its look and its last line
            waiting = threads.submit(take_in, second)
            time.sleep(0.2)
            assert not waiting.done()
            for line in first.file("twice").read_bytes().splitlines():
                second.append_raw("twice", line)
        assert waiting.result(timeout=60) == 0
    assert second.file("twice").read_bytes() == first.file("twice").read_bytes()


@pytest.mark.parametrize("write", [1, 2, 9])
def test_a_full_disk_is_one_clear_line_and_the_next_import_adds_the_rest(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    ask("import", MADE_UP / "hooks.jsonl")  # makes the workspace
    source = MADE_UP / "outcomes.jsonl"
    stored = tmp_path / "home" / "trajectories" / "raw" / "made-up-3" / "events.jsonl"
    real, count = os.write, 0

    def fill(descriptor: int, data: bytes) -> int:
        nonlocal count
        count += len(data) > 60  # a line; nothing else that is written here is as long
        return real(descriptor, data if count < write else data[: len(data) // 2])

    with monkeypatch.context() as full:
        full.setattr("os.write", fill)
        told = ask("import", source, "--format", "normalised", code=1)["error"]
    assert "the system refused" in told
    assert "were written" in told
    lines = source.read_bytes().splitlines(keepends=True)
    assert stored.read_bytes() == b"".join(lines[: write - 1])
    assert ask("import", source, "--format", "normalised")["known"] == write - 1
    assert stored.read_bytes() == source.read_bytes()
