"""The hook: no line lost or torn, no secret stored, never a workspace made, never anything that reaches the agent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.capture import hooks
from optimizer.capture.hooks import capture, field, note_error, suspicious, take, workspace_of
from optimizer.redact import redact
from optimizer.store import TrajectoryStore
from skill_bank.files import append_line

COMMAND = [sys.executable, "-P", "-c", "from optimizer.capture.hooks import main; main()"]


def run_hook(data: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if key not in ("MCP_EVO_HOME", "CLAUDE_PROJECT_DIR")}
    return subprocess.run(
        COMMAND, input=data, env={**kept, **environment}, capture_output=True, timeout=60, check=False
    )


def event(**more: Any) -> bytes:
    base = {"session_id": "s-1", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    return json.dumps({**base, "tool_response": {"stdout": "x"}, **more}).encode()


def test_an_event_arrives_with_its_time(tmp_path: Path) -> None:
    done = run_hook(event(), MCP_EVO_HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (recorded,) = TrajectoryStore(tmp_path / "trajectories").read("s-1").events
    assert (recorded.tool, recorded.outcome, recorded.source) == ("Bash", "ok", "hook")
    assert recorded.time is not None


def test_the_workspace_is_found_and_never_made(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    assert run_hook(event(cwd=str(inner))).returncode == 0
    assert list(tmp_path.rglob(".mcp-evo")) == []
    (tmp_path / "project" / ".mcp-evo").mkdir()
    run_hook(event(cwd=str(inner)))
    assert TrajectoryStore(tmp_path / "project" / ".mcp-evo" / "trajectories").sessions() == ["s-1"]
    assert run_hook(event(), MCP_EVO_HOME=str(tmp_path / "nowhere")).returncode == 0
    assert not (tmp_path / "nowhere").exists()
    assert workspace_of(event(cwd="/")) is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"nonsense", b"{}", b'{"session_id": 3}', b"\xff\xfe", b'{"session_id": "s"']
)
def test_bad_input_is_counted_and_never_shown(tmp_path: Path, data: bytes) -> None:
    done = run_hook(data, MCP_EVO_HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    if data != b'{"session_id": "s"':  # its session can be told: kept as it came, a bad line for the reader
        assert (tmp_path / "trajectories" / "hook-errors.log").read_text().count("\n") == 1


def lines_of(home: Path, session: str = "s-1") -> list[bytes]:
    path = home / "trajectories" / "raw" / session / "events.jsonl"
    return path.read_bytes().splitlines() if path.exists() else []


def errors_of(home: Path) -> int:
    path = home / "trajectories" / hooks.ERRORS
    return path.read_bytes().count(b"\n") if path.exists() else 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=16), inner, max_size=4),
    max_leaves=16,
)


@settings(max_examples=150, deadline=None)
@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_any_event_is_stored_as_it_came(
    tmp_path_factory: pytest.TempPathFactory, value: Any, indent: int | None, ascii_only: bool
) -> None:
    home = tmp_path_factory.mktemp("home")
    document = {"session_id": "s-1", "hook_event_name": "PostToolUse", "tool_response": value}
    dumped = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_EVO_HOME", str(home))
        take(dumped.encode("utf-8", "backslashreplace"))
    (line,) = lines_of(home)
    stored = json.loads(line)
    assert stored.pop("received_at") > 0
    assert stored == redact(document)
    assert errors_of(home) == 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_input_is_stored_or_counted(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_EVO_HOME", str(home))
        take(data)
        take(b'{"session_id":"s-1","x":' + data)  # torn, or not UTF-8: a line of its session all the same
    assert len(lines_of(home)) + errors_of(home) == 2
    assert len(lines_of(home)) >= 1


@pytest.mark.parametrize(
    "value",
    [
        b'"\\ud800 password=x1y2z3"',
        b"[" * 100_000 + b'"password=x1y2z3"' + b"]" * 100_000,
        b'"password=x1y2z3", "n": ' + b"9" * 5_000,
        b'"password=x1y2z3" torn',
        b'"password=x1y2z3 \xff\xfe"',
        b'"password=x1y2z3", "n": NaN',
    ],
    ids=["half a pair", "deep", "long number", "torn", "no text", "no number"],
)
def test_what_cannot_be_parsed_is_redacted_and_kept(tmp_path: Path, value: bytes) -> None:
    capture(str(tmp_path), b'{"session_id":"s-1","tool_response":' + value + b"}")
    (line,) = lines_of(tmp_path)
    assert b"x1y2z3" not in line
    assert b"[redacted:" in line


def test_only_a_top_level_session_counts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without session_id"):
        capture(str(tmp_path), b'{"tool_input": {"session_id": "inner"}}')
    capture(str(tmp_path), b'{"note": "{", "session_id" : "s-1"}')
    capture(str(tmp_path), b'{"a": [{"session_id": "x"}], "session_id": "s-1"}')
    capture(str(tmp_path), b'{"session_id": "s\\u002d1"}')
    assert len(lines_of(tmp_path)) == 3
    assert field(b'{"cwd": 3}', "cwd") is None


def test_own_rules_of_the_workspace_hold_for_the_hook(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("keep_runs: 3\nredaction:\n  patterns: ['ACME-[0-9]{6}']\n", encoding="utf-8")
    capture(str(tmp_path), event(tool_input={"command": "open ACME-123456"}))
    assert b"ACME-123456" not in lines_of(tmp_path)[0]
    (tmp_path / "config.yaml").write_text(
        "redaction: [\n", encoding="utf-8"
    )  # told by doctor, no reason to lose an event
    capture(str(tmp_path), event(tool_input={"command": "open ACME-123456"}))
    assert len(lines_of(tmp_path)) == 2


def test_the_side_file_of_errors_does_not_grow_for_ever(tmp_path: Path) -> None:
    for _ in range(1500):
        note_error(str(tmp_path), ValueError("x" * 300))
    sizes = [path.stat().st_size for path in (tmp_path / "trajectories").glob("hook-errors.log*")]
    assert len(sizes) == 2
    assert max(sizes) < 270_000


def test_secrets_are_not_stored(tmp_path: Path) -> None:
    secret = "ghp_" + "a1b2c3d4" * 4
    capture(str(tmp_path), event(tool_input={"command": f"git push https://me:{secret}@x"}))
    data = (tmp_path / "trajectories" / "raw" / "s-1" / "events.jsonl").read_bytes()
    assert secret.encode() not in data
    assert b"[redacted:" in data


def test_a_session_that_is_no_id_still_gets_a_folder(tmp_path: Path) -> None:
    capture(str(tmp_path), event(session_id="../../Etc"))
    (name,) = TrajectoryStore(tmp_path / "trajectories").sessions()
    assert name.startswith("session-")


def test_a_session_id_inside_a_command_is_not_taken(tmp_path: Path) -> None:
    trick = {"command": json.dumps({"session_id": "other"}), "session_id": "other"}
    data = json.dumps({"tool_input": trick, "hook_event_name": "PostToolUse", "session_id": "real"}).encode()
    capture(str(tmp_path), data)
    assert TrajectoryStore(tmp_path / "trajectories").sessions() == ["real"]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, json; from optimizer.capture.hooks import capture\n"
        "home, who = sys.argv[1:]\n"
        "for number in range(40):\n"
        "    event = {'session_id': 's-1', 'hook_event_name': 'Stop', 'who': who, 'number': number}\n"
        "    capture(home, json.dumps({**event, 'pad': 'x' * (number * 997 % 50_000)}).encode())\n"
    )
    writers = [subprocess.Popen([sys.executable, "-P", "-c", script, str(tmp_path), str(who)]) for who in range(8)]
    ours = tmp_path / "trajectories" / "raw" / "s-1" / "events.jsonl"
    ours.parent.mkdir(parents=True, exist_ok=True)
    for number in range(40):  # the server writes to the same files by other code
        line = {"session_id": "s-1", "hook_event_name": "Stop", "who": "server", "number": number}
        append_line(ours, json.dumps(line).encode())
    assert [one.wait(60) for one in writers] == [0] * 8
    rows = [json.loads(line) for line in ours.read_bytes().split(b"\n") if line]
    assert {(row["who"], row["number"]) for row in rows} == {
        (who, number) for who in [*map(str, range(8)), "server"] for number in range(40)
    }
    assert len(rows) == 9 * 40


def test_only_the_standard_library() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import optimizer.capture.hooks\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['optimizer']"


@settings(max_examples=200, deadline=None)
@given(st.recursive(st.text(max_size=30), lambda inner: st.dictionaries(st.text(max_size=12), inner, max_size=3)))
def test_what_redaction_would_change_is_suspicious(value: Any) -> None:
    text = json.dumps({"x": value}, ensure_ascii=False)
    if redact(json.loads(text)) != json.loads(text):
        assert suspicious(text.encode("utf-8", errors="surrogatepass"))


@pytest.mark.parametrize("field", ["api_key", "Authorization", "DB_PASSWORD", "access_token", "client-secret"])
def test_secret_fields_are_suspicious(field: str) -> None:
    assert redact({field: "abcdef"}) != {field: "abcdef"}
    assert suspicious(json.dumps({field: "abcdef"}).encode())
