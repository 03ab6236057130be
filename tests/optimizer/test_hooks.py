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

from optimizer.capture.hooks import capture, suspicious, workspace_of
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
