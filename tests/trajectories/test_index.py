"""The index: incremental equals rebuilt, damage and kills cost a rebuild at most, other processes may write at once."""

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_helpers import T0, append, contents, hook_line, rebuilt

from optimizer.events import tool_call
from optimizer.index import build, schema
from optimizer.index.build import SpanRow, TrajectoryIndex
from optimizer.index.query import Query
from optimizer.index.schema import SCHEMA_VERSION, IndexUnavailable
from optimizer.index.search import search
from optimizer.store import TrajectoryStore


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    return TrajectoryStore(tmp_path / "trajectories")


@pytest.fixture
def index(store: TrajectoryStore) -> TrajectoryIndex:
    return TrajectoryIndex(store)


def test_only_what_is_new_is_read(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    append(store, "a", hook_line("a"), hook_line("a"))
    append(store, "b", hook_line("b"))
    first = index.refresh()
    assert (sorted(first.sessions), first.events) == (["a", "b"], 3)
    assert index.refresh().bytes_read == 0
    line = hook_line("a", tool="Read", tool_input={"file_path": "/x/y.py"})
    append(store, "a", line)
    again = index.refresh()
    assert (again.sessions, again.events, again.bytes_read) == (["a"], 1, len(line) + 1)
    (hit,) = search(index, Query(file="x/y.py")).hits
    assert (hit.session, hit.line) == ("a", 2)


def test_unchanged_sessions_are_not_opened(
    store: TrajectoryStore, index: TrajectoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "a", hook_line("a"))
    append(store, "b", hook_line("b"))
    index.refresh()
    opened: list[str] = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda name, *rest, **more: opened.append(name) or read(name, *rest, **more))
    append(store, "b", hook_line("b"))
    index.refresh()
    assert opened == ["b"]


def test_small_chunks_give_the_same_index(
    store: TrajectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "a", *(hook_line("a", tool_input={"command": f"echo {number}"}) for number in range(50)), b"no json")
    whole = rebuilt(store, tmp_path)
    monkeypatch.setattr(build, "CHUNK_BYTES", 300)
    assert rebuilt(store, tmp_path) == whole
    assert whole["bad"] == [("a", 50)]


def test_a_deleted_index_is_rebuilt(store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path) -> None:
    append(store, "a", hook_line("a"))
    index.refresh()
    index.path.unlink()
    index.refresh()
    assert contents(index) == rebuilt(store, tmp_path)


@pytest.mark.parametrize("damage", ["garbage", "middle", "empty"])
def test_a_damaged_index_is_rebuilt_with_one_notice(
    store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path, damage: str
) -> None:
    append(store, "a", *(hook_line("a", tool_input={"command": f"x{n} " * 50}) for n in range(200)))
    index.refresh()
    data = index.path.read_bytes()
    if damage == "garbage":
        index.path.write_bytes(b"this is no database" * 1000)
    elif damage == "middle":
        index.path.write_bytes(data[:8192] + os.urandom(len(data) - 8192))
    else:
        index.path.write_bytes(b"")
    append(store, "a", hook_line("a"))
    told: list[str] = []
    for _ in range(3):
        told += search(index, Query(text="x7")).notices
    assert len(told) == (0 if damage == "empty" else 1), told
    assert contents(index) == rebuilt(store, tmp_path)


def test_another_form_is_rebuilt(store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path) -> None:
    append(store, "a", hook_line("a"))
    index.refresh()
    with sqlite3.connect(index.path) as connection:
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    connection.close()
    (notice,) = index.refresh().notices
    assert "rebuilt" in notice
    assert index.refresh().notices == []
    assert contents(index) == rebuilt(store, tmp_path)


# --- the same call, seen twice


def server_call(session: str, tool: str, arguments: dict[str, object], at: float, duration: float = 0.1) -> bytes:
    from optimizer.events import to_line

    return to_line(tool_call(session, tool, arguments, {"text": "ok"}, time=at, duration_s=duration))


def test_the_same_call_from_hook_and_server_is_one_hit(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    arguments = {"request": "tiny on 64 problems"}
    # the call took 45 s: the server notes its beginning, the hook its end
    append(store, "server-1", server_call("server-1", "start_training", arguments, T0, 45.0))
    hook = hook_line(
        "cc", "mcp__evo__start_training", tool_input=arguments, tool_use_id="toolu_1", received_at=T0 + 45.2
    )
    append(store, "cc", hook)
    page = search(index, Query(tool="start_training"))
    assert (page.total, page.merged) == (1, 1)
    (hit,) = page.hits
    assert (hit.session, hit.line, hit.source) == ("cc", 0, "hook")
    assert [(one.session, one.line, one.source) for one in hit.also] == [("server-1", 0, "server")]
    (in_server,) = search(index, Query(session="server-1")).hits
    assert (in_server.session, in_server.also[0].session) == ("server-1", "cc")
    assert len(store.read("cc").events) == len(store.read("server-1").events) == 1, "raw keeps both"


def test_what_is_not_the_same_call_stays_two(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    append(store, "server-1", server_call("server-1", "list_runs", {"limit": 5}, T0))
    for number, more in enumerate(
        (
            {"tool_input": {"limit": 6}, "received_at": T0},  # other arguments
            {"tool_input": {"limit": 5}, "received_at": T0 + 2.2},  # later than 2 s behind begin and end
            {"tool_input": {"limit": 5}, "tool_name": "mcp__evo__list_patches", "received_at": T0},  # another tool
        )
    ):
        append(store, f"cc-{number}", hook_line(f"cc-{number}", **{"tool": "mcp__evo__list_runs", **more}))  # type: ignore[arg-type]
    assert search(index, Query()).merged == 0


def test_two_calls_of_each_source_are_two_hits(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    for at in (T0, T0 + 1.0):
        append(store, "server-1", server_call("server-1", "list_runs", {}, at, 0.0))
        append(store, "cc", hook_line("cc", "mcp__evo__list_runs", tool_use_id=f"toolu_{at}", received_at=at + 0.01))
    page = search(index, Query())
    assert (page.total, page.merged) == (2, 2)
    assert [(one.line, one.also[0].line) for one in page.hits] == [(1, 1), (0, 0)]


def test_the_clients_id_joins_whatever_the_clock_says(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    append(store, "cc", hook_line("cc", tool_use_id="toolu_9", received_at=T0))
    append(store, "cc", hook_line("cc", tool_use_id="toolu_9", received_at=T0 + 9999))
    assert search(index, Query()).total == 1


def test_clipped_arguments_are_the_same_call() -> None:
    from optimizer.clip import clip
    from optimizer.index.merge import call_hash

    document = {"tool_input": {"content": "line of text\n" * 20_000, "file_path": "/a"}}
    clipped = clip(document)
    assert clipped != document
    assert call_hash("Write", clipped["tool_input"]) == call_hash("Write", document["tool_input"])
    assert call_hash("Write", {"content": "another\n" * 20_000, "file_path": "/a"}) != call_hash(
        "Write", document["tool_input"]
    )


CORPUS = Path(os.environ.get("MCP_EVO_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus: set MCP_EVO_CORPUS to the folder of recorded sessions")
def test_real_sessions_seen_twice_are_merged_call_by_call(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    """Three real sessions as hook input and in the normalised form, which has no ids: each call finds its own twin."""
    hooks = sorted(CORPUS.glob("hooks/real/*.jsonl"))
    assert hooks
    calls = 0
    for path in hooks:
        times = json.loads(path.with_suffix(".times.json").read_text())
        lines = path.read_bytes().split(b"\n")[: len(times)]
        append(
            store,
            "h-" + path.stem,
            *(
                b'{"received_at":%s,' % json.dumps(at).encode() + line[1:]
                for at, line in zip(times, lines, strict=True)
            ),
        )
        append(store, "n-" + path.stem, (CORPUS / "sessions" / path.stem / "events.jsonl").read_bytes().rstrip(b"\n"))
        calls += sum(event.is_call for event in store.read("h-" + path.stem).events)
    index.refresh()
    with index.reading() as connection:
        twins = connection.execute(
            "SELECT s.name, e.line, ls.name, l.line FROM events e JOIN sessions s USING(sid)"
            " JOIN events l ON l.id=e.lead JOIN sessions ls ON ls.sid=l.sid"
        ).fetchall()
    assert len(twins) == calls > 200
    assert {(one[2:], other[2:], line == twin) for one, line, other, twin in twins} == {
        (path.stem, path.stem, True) for path in hooks
    }


# --- skill and layer


def test_skill_and_layer_follow_the_segments(store: TrajectoryStore) -> None:
    spans: list[SpanRow] = [SpanRow("main", 1, 2, "rllm-train", "rllm")]
    index = TrajectoryIndex(store, lambda session: spans)
    append(store, "a", *(hook_line("a") for _ in range(4)))
    index.refresh()

    def lines(**filters: str) -> list[int]:
        return sorted(hit.line for hit in search(index, Query(**filters)).hits)  # type: ignore[arg-type]

    assert (lines(skill="rllm-train"), lines(layer="rllm"), lines(layer="other")) == ([1, 2], [1, 2], [0, 3])
    spans[0] = SpanRow("main", 1, 5, "rllm-train", "rllm")  # the segments are ahead of the index
    append(store, "a", hook_line("a"))
    assert lines(layer="rllm") == [1, 2, 3, 4]
    append(store, "a", hook_line("a"), hook_line("a", agent_id="sub"), hook_line("a"))
    assert lines(layer="rllm") == [1, 2, 3, 4, 5], "neither the sub-agent's nor what lies behind"
    spans[0] = SpanRow("main", 4, 6, "traj-loop", "traj")
    append(store, "a", hook_line("a"))
    assert (lines(layer="rllm"), lines(skill="traj-loop")) == ([], [4, 5])


# --- any history ends where a rebuild does

LINES = st.sampled_from(
    [
        *(hook_line("x", tool_use_id="toolu_1", received_at=T0 + n) for n in range(2)),
        *(hook_line("x", "mcp__evo__list_runs", received_at=T0 + n) for n in range(3)),
        *(server_call("x", "list_runs", {}, T0 + n, 0.5) for n in range(3)),
        hook_line("x", "Edit", tool_input={"file_path": "/a/b.py", "new_string": "训练 done"}),
        b"\xff not json",
        b"",
        b"[]",
    ]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "torn", "truncate", "rotate", "delete", "kill"]),
        st.sampled_from(["a", "server-1"]),
        st.lists(LINES, min_size=1, max_size=3),
        st.integers(0, 400),
        st.booleans(),
    ),
    min_size=3,
    max_size=10,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_history_ends_where_a_rebuild_does(tmp_path_factory: pytest.TempPathFactory, steps: list[object]) -> None:
    folder = tmp_path_factory.mktemp("history")
    store = TrajectoryStore(folder / "trajectories")
    index = TrajectoryIndex(store)
    for number, (what, session, lines, size, is_seen) in enumerate(steps):  # type: ignore[misc]
        path = store.file(session)
        if what in ("append", "torn"):
            append(store, session, *lines)
            if what == "torn":
                with open(path, "ab") as stream:
                    stream.write(b'{"half')
        elif what == "truncate" and path.exists():
            os.truncate(path, min(size, path.stat().st_size))
        elif what == "rotate" and path.exists():
            path.rename(path.with_suffix(f".{number}"))
            append(store, session, *lines)
        elif what == "delete" and path.exists():
            path.unlink()
        elif what == "kill":
            _refresh_killed_after(index, size % 5)
        if path.exists():  # two changes within one tick of the file system's clock must not look like none
            os.utime(path, ns=(10**18 + number, 10**18 + number))
        if is_seen:
            index.refresh()
    index.refresh()
    assert contents(index) == rebuilt(store, folder)


def _refresh_killed_after(index: TrajectoryIndex, inserts: int) -> None:
    """A refresh that ends in the middle of a transaction, as a killed process would; the journal is rolled back."""
    left = [inserts]
    insert = build.rows.insert

    def dying(*arguments: object) -> set[int]:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return insert(*arguments)  # type: ignore[arg-type]

    build.rows.insert = dying  # type: ignore[assignment]
    try:
        index.refresh()
    except KeyboardInterrupt:
        pass
    finally:
        build.rows.insert = insert


# --- real processes and a disk that refuses

REFRESHER = """
import sys
from pathlib import Path
from optimizer.index import build
from optimizer.index.build import TrajectoryIndex
from optimizer.store import TrajectoryStore
build.CHUNK_BYTES = 4096
index = TrajectoryIndex(TrajectoryStore(Path(sys.argv[1])))
print("ready", flush=True)
index.refresh()
print("done", flush=True)
"""


def start_refresh(store: TrajectoryStore) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", REFRESHER, str(store.root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_kill_9_while_indexing_goes_on_where_it_stood(
    store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path
) -> None:
    for session in ("a", "b"):
        append(store, session, *(hook_line(session, tool_input={"command": f"word{n} " * 40}) for n in range(1500)))
    process = start_refresh(store)
    for _ in range(500):  # until it is in the middle
        if index.path.exists() and index.path.stat().st_size + _size(f"{index.path}-wal") > 200_000:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with index.reading() as connection:
        before = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        placed = connection.execute("SELECT sum(line) FROM sessions").fetchone()[0]
    assert before == placed, "rows and position are written together"
    assert index.refresh().events == 3000 - before
    assert contents(index) == rebuilt(store, tmp_path)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def test_several_processes_at_once(store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path) -> None:
    for session in ("a", "b", "c"):
        append(store, session, *(hook_line(session, tool_input={"command": f"w{n}"}) for n in range(300)))
    processes = [start_refresh(store) for _ in range(3)]
    for number in range(50):
        append(store, "a", hook_line("a", tool_input={"command": f"late{number}"}))
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    index.refresh()
    assert contents(index) == rebuilt(store, tmp_path)


def test_a_locked_index_is_searched_and_refreshed_later(store: TrajectoryStore, tmp_path: Path) -> None:
    index = TrajectoryIndex(store, busy_s=0.2)
    append(store, "a", hook_line("a", tool_input={"command": "first"}))
    index.refresh()
    other = schema.connect(index.path)
    other.execute("BEGIN IMMEDIATE")
    append(store, "a", hook_line("a", tool_input={"command": "second"}))
    with pytest.raises(IndexUnavailable, match="another process"):
        index.refresh()
    page = search(index, Query(text="first"))
    assert page.total == 1
    assert "another process" in page.notices[0]
    other.execute("ROLLBACK")
    other.close()
    assert search(index, Query(text="second")).total == 1
    assert contents(index) == rebuilt(store, tmp_path)


def test_a_full_disk_loses_nothing(
    store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "a", hook_line("a", tool_input={"command": "first"}))
    index.refresh()
    monkeypatch.setattr(build, "CHUNK_BYTES", 20_000)
    append(store, "a", *(hook_line("a", tool_input={"command": f"many{n} " * 100}) for n in range(300)))
    real = schema.connect

    def small(path: Path, **options: object) -> sqlite3.Connection:
        connection = real(path, **options)  # type: ignore[arg-type]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 30}")  # SQLite's own ENOSPC
        return connection

    monkeypatch.setattr(schema, "connect", small)
    with pytest.raises(IndexUnavailable, match="disk is full"):
        index.refresh()
    monkeypatch.setattr(schema, "connect", real)
    assert search(index, Query(text="first")).total == 1
    index.refresh()
    assert contents(index) == rebuilt(store, tmp_path)


def test_a_refusing_file_system_is_one_clear_error(
    store: TrajectoryStore, index: TrajectoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "a", hook_line("a"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build, "open_index", refuse)
    with pytest.raises(IndexUnavailable, match="No space left"):
        search(index, Query())


def test_a_read_only_index_answers_from_what_it_holds(
    store: TrajectoryStore, index: TrajectoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "a", hook_line("a", tool_input={"command": "first"}))
    index.refresh()
    append(store, "a", hook_line("a", tool_input={"command": "second"}))
    real = schema.connect
    monkeypatch.setattr(schema, "connect", lambda path, **more: real(path, **{**more, "read_only": True}))
    page = search(index, Query(text="first"))
    assert page.total == 1
    assert "cannot be written" in page.notices[0]


def test_clock_jumps_do_not_hide_events(store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path) -> None:
    times = (T0, T0 - 1e6, T0 + 1e6, 0, -5.0, 1e18)
    append(store, "a", *(hook_line("a", received_at=at) for at in times), hook_line("a", received_at=None))
    index.refresh()
    os.utime(store.file("a"), (1, 1))  # a restored file looks old
    append(store, "a", hook_line("a", tool_input={"command": "later"}))
    os.utime(store.file("a"), (2, 2))
    assert search(index, Query(text="later")).total == 1
    lines: list[int] = []
    cursor = None
    while True:
        page = search(index, Query(), limit=2, cursor=cursor)
        lines += [hit.line for hit in page.hits]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(lines) == list(range(8)), "every event is on exactly one page"
    assert contents(index) == rebuilt(store, tmp_path)


ODD = [
    *(f'"tool_input":{{"a":{value}}}' for value in ("1" + "0" * 400, "-0.0", '"\\ud800"', '"\\u0000"', "NaN", "1e999")),
    '"tool_input":{"a":' + "[" * 900 + "]" * 900 + "}",
    '"tool_input":{"a":' + '"' + "z" * 2000 + '","b":[{"c":[{}]}]}',
    *(f'"received_at":{value},"duration_ms":{value}' for value in ("1" + "0" * 400, "1e308", "-1e308", '"x"', "true")),
    '"tool_use_id":"","agent_id":"\\u0000"',
    '"tool_name":7,"session_id":null',
]


def test_odd_values_cost_nothing_but_themselves(store: TrajectoryStore, index: TrajectoryIndex, tmp_path: Path) -> None:
    head = '{"hook_event_name":"PostToolUse","session_id":"s","tool_name":"B"'
    append(store, "s", *(f"{head},{odd}}}".encode() for odd in ODD), hook_line("s", tool_input={"command": "the end"}))
    assert search(index, Query(text="the end")).total == 1
    with index.reading() as connection:
        taken = connection.execute("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM bad_lines)").fetchone()
    assert sum(taken) == len(ODD) + 1, "every line is an event or listed as none"
    assert contents(index) == rebuilt(store, tmp_path)


def test_thousands_of_sessions(store: TrajectoryStore, index: TrajectoryIndex) -> None:
    for number in range(800):
        append(store, f"s-{number}", json.dumps({"type": "turn_end", "session_id": f"s-{number}"}).encode())
    assert len(index.refresh().sessions) == 800
    append(store, "s-700", hook_line("s-700"))
    began = time.perf_counter()
    assert index.refresh().sessions == ["s-700"]
    assert time.perf_counter() - began < 2.0  # 0.05 s on two cores; a scan of all files would read them all
