"""Retention: what something rests on stays, what goes goes whole, and no crash or writer loses anything."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_helpers import append, fresh_home, hook_line

from mcp_server.cli.main import run
from optimizer import retention
from optimizer.citations import citations
from optimizer.events import Event, EventKind
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.index.query import Query
from optimizer.index.search import search
from optimizer.retention import SessionPlan, SessionRetention, carry_out, clipped_line, plan_sessions
from optimizer.sizes import PartSize, sizes_of, sizes_text
from skill_bank.files import write_json_atomic

DAY_S = 86_400.0

LONG = "x" * 200_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return fresh_home(tmp_path / "workspace")


def session(home: Home, name: str, age_days: float, *lines: bytes) -> Path:
    """A session that changed so long ago."""
    append(home.trajectories, name, *(lines or (hook_line(name),)))
    path = home.trajectories.file(name)
    moment = time.time() - age_days * DAY_S
    os.utime(path, (moment, moment))
    return path


def going(plan: SessionPlan) -> list[str]:
    return sorted(one.session for one in plan.go)


def test_age_number_and_size(home: Home) -> None:
    for name, age in (("new", 0.0), ("day", 1.0), ("month", 31.0), ("year", 365.0)):
        session(home, name, age, hook_line(name, tool_response="y" * 400_000))
    plan = plan_sessions(home, SessionRetention(keep_last=1, older_than_days=30))
    assert going(plan) == ["month", "year"]
    assert going(plan_sessions(home, SessionRetention(keep_last=3, older_than_days=30))) == ["year"]
    assert going(plan_sessions(home, SessionRetention(keep_last=0, older_than_days=0))) == ["day", "month", "year"]
    by_size = SessionRetention(keep_last=0, older_than_days=1000, max_mb=1.0)
    assert going(plan_sessions(home, by_size)) == ["month", "year"], "two times 0.4 MB are left"
    named = plan_sessions(home, SessionRetention(), ["day"])
    assert going(named) == ["day"]
    assert {one.session: one.reason for one in named.keep}["new"] == "changed within the last hour"
    with pytest.raises(BadId):
        plan_sessions(home, SessionRetention(), ["unheard-of"])


def test_a_session_from_the_future_stays(home: Home) -> None:
    session(home, "future", -5.0)
    assert going(plan_sessions(home, SessionRetention(keep_last=0, older_than_days=0))) == []


@pytest.mark.parametrize(
    ("where", "document"),
    [
        ("patches/p1/patch.json", {"finding": {"evidence": [{"kind": "event", "session": "s-1", "line": 3}]}}),
        ("patches/p1/approval.json", {"evidence": "s-1:4"}),
        ("rounds/round-000001.json", {"evolution": "s-1"}),
        ("reports/rllm/r.json", {"sessions": [], "findings": [{"evidence": [{"session": "s-1", "line": 0}]}]}),
        ("campaigns/c.json", {"runs": ["run-1"]}),
        ("trials/t1/plan.json", {"patch": {"finding": {"evidence": [{"kind": "run", "run_id": "run-1"}]}}}),
    ],
)
def test_what_something_rests_on_stays(home: Home, where: str, document: object) -> None:
    session(home, "s-1", 400)
    session(home, "s-2", 400)
    run_folder = home.workspace.runs / "run-1"
    run_folder.mkdir()
    write_json_atomic(
        run_folder / "run.json",
        {"run_id": "run-1", "state": "finished", "created_at": 1.0, "ended_at": 2.0, "session": "s-1"},
    )
    path = home.root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, document)
    assert list(citations(home)) == ["s-1"], citations(home)
    rule = SessionRetention(keep_last=0, older_than_days=30)
    plan = plan_sessions(home, rule)
    assert going(plan) == ["s-2"]
    (kept,) = plan.keep
    assert kept.reason == f"{where} rests on it"
    forced = plan_sessions(home, rule, force=["s-1"])
    assert going(forced) == ["s-1"]
    assert carry_out(home, forced).done == [], "judged again: not forced there"
    assert [one.session for one in carry_out(home, forced, ["s-1"]).done] == ["s-1"]
    assert home.trajectories.sessions() == ["s-2"]


def test_documents_that_cannot_be_parsed_protect_what_they_name(home: Home) -> None:
    session(home, "s-1", 400)
    (home.root / "patches" / "p").mkdir(parents=True)
    (home.root / "patches" / "p" / "patch.json").write_text('{"session": "s-1", "torn')
    assert list(citations(home)) == ["s-1"]


def test_a_session_filed_under_another_name_is_known_by_its_own(home: Home) -> None:
    from optimizer.store import folder_of

    session(home, folder_of("My Session!"), 400)
    write_json_atomic(home.root / "rounds" / "round-000001.json", {"evidence": [{"session": "My Session!", "line": 0}]})
    assert list(citations(home)) == [folder_of("My Session!")]


def test_a_report_that_only_looked_at_a_session_protects_nothing(home: Home) -> None:
    session(home, "s-1", 400)
    (home.root / "reports" / "rllm").mkdir(parents=True)
    write_json_atomic(home.root / "reports" / "rllm" / "r.json", {"sessions": ["s-1"], "findings": []})
    assert citations(home) == {}


def test_pruned_sessions_leave_segments_and_index(home: Home) -> None:
    session(home, "s-1", 400, hook_line("s-1", "load_skill", tool_input={"name": "rllm-train"}), hook_line("s-1"))
    moment = time.time() - 400 * DAY_S
    assert search(home.index, Query()).total == 2
    segments = home.trajectories.root / "segments" / "rllm" / "s-1.jsonl"
    assert segments.is_file()
    os.utime(home.trajectories.file("s-1"), (moment, moment))
    outcome = carry_out(home, plan_sessions(home, SessionRetention(keep_last=0, older_than_days=30)))
    assert [one.session for one in outcome.done] == ["s-1"]
    assert outcome.freed_bytes > 0
    assert not segments.exists()
    assert home.trajectories.sessions() == []
    assert search(home.index, Query()).total == 0
    assert not list(home.trajectories.root.glob(".trash-*"))


def test_what_changed_since_the_plan_stays(home: Home) -> None:
    session(home, "s-1", 400)
    plan = plan_sessions(home, SessionRetention(keep_last=0, older_than_days=30))
    append(home.trajectories, "s-1", hook_line("s-1"))
    outcome = carry_out(home, plan)
    assert outcome.done == []
    assert outcome.skipped[0].reason == "has changed since the plan was made"
    assert len(home.trajectories.read("s-1").events) == 2


def test_trash_of_a_killed_prune_goes_with_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session(home, "s-1", 400)
    plan = plan_sessions(home, SessionRetention(keep_last=0, older_than_days=30))

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            carry_out(home, plan)
    again = plan_sessions(home, SessionRetention())
    assert [one.reason for one in again.trash] == ["left by an interrupted prune"]
    carry_out(home, again)
    assert not list(home.trajectories.root.glob(".trash-*"))


def test_empty_folders_go_a_day_later(home: Home) -> None:
    session(home, "s-1", 400)
    carry_out(home, plan_sessions(home, SessionRetention(keep_last=0, older_than_days=30)))
    shell = home.trajectories.raw / "s-1"
    assert [one.name for one in shell.iterdir()] == ["events.jsonl.lock"], "a writer may be waiting for it"
    os.utime(shell, (1, 1))
    carry_out(home, plan_sessions(home, SessionRetention()))
    assert not shell.exists()


# --- clipping


def test_clipping_keeps_lines_and_says_what_is_gone(home: Home) -> None:
    lines = [
        hook_line("s", tool_input={"command": "make"}, tool_response={"stdout": LONG + "\nFAILED at the end"}),
        b"\xff no json " + b"y" * 100_000,
        hook_line("s", tool_input={"command": "ls"}),
    ]
    path = session(home, "s", 2, *lines)
    with open(path, "ab") as stream:
        stream.write(b'{"torn": "' + b"z" * 100_000)
    before = path.stat()
    os.utime(path, (1_700_000_000, 1_700_000_000))
    plan = plan_sessions(home, SessionRetention(compact=True))
    outcome = carry_out(home, plan)
    after = path.read_bytes().split(b"\n")
    assert after[1:3] == lines[1:]
    assert after[3].startswith(b'{"torn": "zzz')
    first = json.loads(after[0])
    assert first["tool_response"]["stdout"].endswith("FAILED at the end")
    assert first["clipped"][0]["bytes"] == 200_000 + len("\nFAILED at the end")
    assert len(first["clipped"][0]["sha256"]) == 64
    assert path.stat().st_size == before.st_size - outcome.freed_bytes
    assert path.stat().st_mtime == 1_700_000_000
    assert path.stat().st_mode & 0o777 == 0o600
    assert [event.line for event in home.trajectories.read("s").events] == [0, 2]
    assert plan_sessions(home, SessionRetention(compact=True)).go == [], "clipped once, nothing is left to gain"


def test_clipping_updates_the_index_and_merges_as_before(home: Home) -> None:
    big = {"content": "line\n" * 40_000, "file_path": "/a"}
    session(home, "s", 2, hook_line("s", "Write", tool_input=big, tool_use_id="t"))
    session(home, "w", 2, hook_line("w", "Write", tool_input=big, tool_use_id="t"))
    assert search(home.index, Query()).total == 1
    os.utime(home.trajectories.file("s"), (1, 1))
    carry_out(home, plan_sessions(home, SessionRetention(compact=True), ["s"]))
    page = search(home.index, Query())
    assert (page.total, page.merged) == (1, 1), "the clipped call is still the same as the whole one"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.booleans())
def test_any_line_stays_one_line(data: bytes, is_long: bool) -> None:
    line = data.replace(b"\n", b" ") + (b"q" * 3000 if is_long else b"") + b"\n"
    clipped = clipped_line(line, 1024)
    assert clipped.count(b"\n") == 1
    assert clipped.endswith(b"\n")
    assert len(clipped) <= len(line)


def _append_many(root: str, count: int) -> None:
    store = Home.open(Path(root)).trajectories
    for number in range(count):
        store.append(Event(kind=EventKind.TOOL_CALL, session="s", time=float(number), tool="T"))


def test_appending_while_clipping_loses_nothing(home: Home) -> None:
    session(home, "s", 2, *(hook_line("s", tool_response=LONG) for _ in range(20)))
    writer = multiprocessing.get_context("spawn").Process(target=_append_many, args=(str(home.root), 150))
    writer.start()
    clipped = 0
    while writer.is_alive():
        old = time.time() - 2 * DAY_S
        os.utime(home.trajectories.file("s"), (old, old))
        plan = plan_sessions(home, SessionRetention(compact=True, field_bytes=1024 + clipped))
        clipped += len(carry_out(home, plan).done)
    writer.join()
    events = home.trajectories.read("s")
    assert events.bad_lines == []
    assert [one.time for one in events.events if one.tool == "T"] == [float(number) for number in range(150)]


def test_a_writer_that_waits_for_the_lock_loses_nothing(home: Home) -> None:
    """A hook that came while its session was being pruned writes into a new file of the same folder."""
    session(home, "s", 400)
    plan = plan_sessions(home, SessionRetention(keep_last=0, older_than_days=30))
    real = retention._changed
    processes: list[subprocess.Popen[bytes]] = []

    def while_locked(*arguments: object) -> str | None:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from optimizer.capture.hooks import main; main()"],
            stdin=subprocess.PIPE,
            env={**os.environ, "MCP_EVO_HOME": str(home.root)},
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"session_id": "s", "hook_event_name": "Stop"}).encode())
        process.stdin.close()
        processes.append(process)
        time.sleep(1.0)  # it waits for the lock by now
        return real(*arguments)  # type: ignore[arg-type]

    retention._changed = while_locked  # type: ignore[assignment]
    try:
        outcome = carry_out(home, plan)
    finally:
        retention._changed = real
    assert [one.session for one in outcome.done] == ["s"]
    assert processes[0].wait(30) == 0
    (event,) = home.trajectories.read("s").events
    assert event.kind == EventKind.TURN_END


CLIPPER = """
import sys
from pathlib import Path
from optimizer import retention
from optimizer.home import Home
home = Home.open(Path(sys.argv[1]))
plan = retention.plan_sessions(home, retention.SessionRetention(compact=True))
print("planned", flush=True)
retention.carry_out(home, plan)
"""


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
def test_kill_9_while_clipping_leaves_old_or_new(home: Home, after_s: float) -> None:
    path = session(home, "s", 2, *(hook_line("s", tool_response=f"{n}" + LONG) for n in range(60)))
    old = path.read_bytes()
    process = subprocess.Popen([sys.executable, "-P", "-c", CLIPPER, str(home.root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "planned\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    new = b"".join(clipped_line(line, 64 * 1024) for line in old.splitlines(keepends=True))
    assert path.read_bytes() in (old, new)
    assert len(home.trajectories.read("s").events) == 60
    os.utime(path, (1, 1))
    carry_out(home, plan_sessions(home, SessionRetention(compact=True)))
    assert path.read_bytes() == new
    append(home.trajectories, "s", hook_line("s", tool_response=LONG))
    os.utime(path, (1, 1))
    carry_out(home, plan_sessions(home, SessionRetention(compact=True)))
    assert sorted(one.name for one in path.parent.iterdir()) == ["events.jsonl", "events.jsonl.lock"]


def test_a_full_disk_while_clipping_leaves_the_old_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = session(home, "s", 2, hook_line("s", tool_response=LONG))
    old = path.read_bytes()
    plan = plan_sessions(home, SessionRetention(compact=True))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("skill_bank.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        carry_out(home, plan)
    assert path.read_bytes() == old
    assert sorted(one.name for one in path.parent.iterdir()) == ["events.jsonl", "events.jsonl.lock"]


# --- sizes and the command


def test_sizes_add_up(home: Home) -> None:
    session(home, "s", 2, hook_line("s", tool_response=LONG))
    home.index.refresh()
    parts = {one.part: one.size_bytes for one in sizes_of(home.root)}
    assert parts["raw"] == home.trajectories.file("s").stat().st_size
    assert parts["index"] > 0
    everything = sum(path.lstat().st_size for path in home.root.rglob("*") if not path.is_dir())
    assert sum(parts.values()) == everything


def test_sizes_as_text() -> None:
    parts = [
        PartSize(part="runs", size_bytes=1_250_000),
        PartSize(part="raw", size_bytes=999),
        PartSize(part="index", size_bytes=0),
    ]
    assert sizes_text(parts) == "1.3 MB: runs 1.2 MB, raw 999 B"
    assert sizes_text([]) == "0 B"


def test_the_command(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    session(home, "old", 400)
    session(home, "new", 0.5)

    def prune(*arguments: str) -> dict[str, object]:
        code = run(["trajectories", "prune", *arguments, "--json", "--workspace", str(home.root)])
        return {**json.loads(capsys.readouterr().out), "code": code}

    rule = ("--keep", "1", "--older-than", "30")
    seen = prune(*rule, "--dry-run")
    assert (seen["executed"], seen["code"]) == (False, 0)
    assert [one["session"] for one in seen["plan"]["go"]] == ["old"]  # type: ignore[index]
    assert seen["sizes"]["raw"] > 0  # type: ignore[index]
    assert prune(*rule)["executed"] is False, "without --yes and without a terminal nothing is changed"
    assert run(["trajectories", "prune", *rule, "--workspace", str(home.root)]) == 0
    said = capsys.readouterr().out
    assert "nothing was changed; to carry it out:" in said
    assert "--older-than 30 --yes" in said
    assert prune(*rule, "--yes")["executed"] is True
    assert home.trajectories.sessions() == ["new"]
    assert prune("--compact", "--force", "new")["code"] == 1
    assert prune("unheard-of")["code"] == 1
    (home.root / "config.yaml").write_text("keep_sessions: 0\nkeep_sessions_days: 0\n")
    assert [one["session"] for one in prune()["plan"]["go"]] == ["new"]  # type: ignore[index]


def test_watching_from_the_command_line(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    late = threading.Timer(0.7, lambda: append(home.trajectories, "s", hook_line("s")))
    late.start()
    assert run(["trajectories", "watch", "--for", "3", "--json", "--workspace", str(home.root)]) == 0
    late.join()
    seen = json.loads(capsys.readouterr().out)
    assert seen["sessions"] == {"s": 1}
    assert seen["seconds"] >= 3
