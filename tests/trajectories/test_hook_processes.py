"""The installed hook as the client runs it: real processes, many at once, nothing lost and nothing shown."""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOOK = Path(sys.executable).with_name("mcp-evo-hook")

WRITER = """
import hashlib, json, random, sys
from optimizer.capture.hooks import capture
home, who, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(who)
sys.stdin.readline()
for number in range(count):
    pad = "%x" % rng.getrandbits(64) * rng.randrange(1, 6_200)
    mark = hashlib.sha256(pad.encode()).hexdigest()
    event = {"session_id": "s-1", "hook_event_name": "PostToolUse", "who": who, "number": number, "mark": mark}
    capture(home, json.dumps({**event, "pad": pad}).encode())
"""

pytestmark = pytest.mark.skipif(not HOOK.is_file(), reason=f"mcp-evo-hook is not installed beside {sys.executable}")


def environment(**more: str) -> dict[str, str]:
    left_out = ("MCP_EVO_HOME", "CLAUDE_PROJECT_DIR", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in left_out} | more


def event(session: str = "s-1", **more: object) -> bytes:
    base = {
        "session_id": session,
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
    }
    return json.dumps({**base, "tool_response": {"stdout": "x"}, **more}).encode()


def write_at_once(home: Path, writers: int, events: int) -> None:
    """Every event arrives whole and once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", WRITER, str(home), str(who), str(events)],
            stdin=subprocess.PIPE,
            env=environment(),
        )
        for who in range(writers)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    assert [process.wait(300) for process in processes] == [0] * writers
    found = []
    largest = 0
    with open(home / "trajectories" / "raw" / "s-1" / "events.jsonl", "rb") as stream:
        for line in stream:
            largest = max(largest, len(line))
            document = json.loads(line)
            assert hashlib.sha256(document["pad"].encode()).hexdigest() == document["mark"]
            found.append((document["who"], document["number"]))
    assert len(found) == writers * events
    assert set(found) == {(who, number) for who in range(writers) for number in range(events)}
    assert largest > 90_000
    assert not (home / "trajectories" / "hook-errors.log").exists()


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    write_at_once(tmp_path, 12, 30)


@pytest.mark.slow
def test_a_hundred_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    write_at_once(tmp_path, 100, 100)


def test_hook_processes_at_once(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".mcp-evo").mkdir(parents=True)
    inner = project / "src"
    inner.mkdir()
    names = ["PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop",
             "SessionStart", "SessionEnd"]  # fmt: skip
    started = []
    for number in range(32):
        process = subprocess.Popen(
            [str(HOOK)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(CLAUDE_PROJECT_DIR=str(project)) if number % 2 else environment(),
            cwd="/",
        )
        data = event(f"s-{number % 3}", cwd=str(inner), number=number, hook_event_name=names[number % len(names)])
        assert process.stdin is not None
        process.stdin.write(data)
        process.stdin.close()
        started.append(process)
    for process in started:
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.wait(60), process.stdout.read(), process.stderr.read()) == (0, b"", b"")
        process.stdout.close()
        process.stderr.close()
    rows = [
        json.loads(line)
        for path in (project / ".mcp-evo" / "trajectories" / "raw").glob("s-*/events.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    assert sorted(row["number"] for row in rows) == list(range(32))
    modes = {path.stat().st_mode & 0o777 for path in (project / ".mcp-evo" / "trajectories" / "raw").rglob("*.jsonl")}
    assert modes == {0o600}


@pytest.mark.parametrize("state", ["no workspace", "not writable", "a file", "closed input", "full disk"])
def test_nothing_reaches_the_agent(tmp_path: Path, state: str) -> None:
    home = tmp_path / ".mcp-evo"
    data = event(cwd=str(tmp_path))
    if state == "a file":
        home.write_text("", encoding="utf-8")
    elif state != "no workspace":
        home.mkdir()
    if state == "not writable":
        (home / "trajectories").write_text("", encoding="utf-8")  # also root cannot make a folder of it
    if state == "full disk":
        (home / "trajectories").mkdir()
        (home / "trajectories" / "raw").symlink_to("/dev/full")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    done = subprocess.run(
        [str(HOOK)],
        stdin=subprocess.DEVNULL if state == "closed input" else None,
        **({} if state == "closed input" else {"input": data}),
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    after = sorted(path.name for path in tmp_path.rglob("*"))
    assert [name for name in after if name not in before] in ([], ["hook-errors.log"])


@pytest.mark.slow
def test_a_hook_costs_at_most_twice_a_bare_process(tmp_path: Path) -> None:
    home = tmp_path / ".mcp-evo"
    home.mkdir()
    data = event(tool_response={"stdout": "step 12: reward=0.4375 tokens=5120\n" * 100})
    kinds = {"bare": [sys.executable, "-c", "pass"], "hook": [str(HOOK)]}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(32):
        for name, command in kinds.items():
            began = time.perf_counter()
            subprocess.run(command, input=data, env=environment(MCP_EVO_HOME=str(home)), cwd=tmp_path, check=True)
            if number > 1:
                seconds[name].append(time.perf_counter() - began)
    assert statistics.median(seconds["hook"]) <= 2 * statistics.median(seconds["bare"])
