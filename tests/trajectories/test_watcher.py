"""The watcher: new events are indexed within a second, whatever happens to files, notifications, lease or index."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from index_helpers import append, contents, fresh_home, hook_line, rebuilt

from optimizer import watcher as watching
from optimizer.home import Home
from optimizer.index import schema
from optimizer.index.feed import Changes
from optimizer.index.query import Query
from optimizer.index.search import search
from optimizer.lease import Lease
from optimizer.watcher import Mode, Watcher

pytestmark = pytest.mark.anyio

SOON_S = 8.0
"""Much longer than it takes (0.2 s), for machines that are busy."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return fresh_home(tmp_path / "workspace")


@asynccontextmanager
async def running(home: Home, polling: bool = False) -> AsyncIterator[tuple[Watcher, list[Changes]]]:
    told: list[Changes] = []

    async def tell(changes: Changes) -> None:
        told.append(changes)

    watcher = Watcher(home, tell, polling=polling)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await watcher.started.wait()
        yield watcher, told
        tasks.cancel_scope.cancel()


async def until(holds: Callable[[], bool], within_s: float = SOON_S) -> float:
    """Seconds until it held."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within_s, "it did not come to pass"
        await anyio.sleep(0.02)
    return time.monotonic() - began


def lines(home: Home, session: str) -> int:
    """Events of a session in the index, without bringing it up to date."""
    if not home.index.path.exists():
        return 0
    query = "SELECT count(*) FROM events JOIN sessions USING(sid) WHERE name=?"
    with home.index.reading() as connection:
        try:
            return int(connection.execute(query, (session,)).fetchone()[0])
        except sqlite3.OperationalError:  # being made
            return 0


@pytest.mark.parametrize("polling", [False, True])
async def test_new_events_are_segmented_indexed_and_told(home: Home, polling: bool) -> None:
    async with running(home, polling) as (watcher, told):
        await until(lambda: watcher.mode is (Mode.POLLING if polling else Mode.NOTIFIED))
        append(home.trajectories, "a", hook_line("a", "load_skill", tool_input={"name": "rllm-train"}), hook_line("a"))
        await until(lambda: lines(home, "a") == 2)
        append(home.trajectories, "a", hook_line("a"))
        took = await until(lambda: lines(home, "a") == 3)
        assert took < SOON_S
        await until(lambda: bool(told))
        assert told[-1].sessions == ("a",)
        await until(lambda: search(home.index, Query(layer="rllm")).total == 3)
        assert (home.trajectories.root / "segments" / "rllm" / "a.jsonl").is_file()


async def test_runs_are_told(home: Home) -> None:
    (home.workspace.runs / "run-1").mkdir()
    async with running(home) as (_, told):
        (home.workspace.runs / "run-1" / "metrics.jsonl").write_text('{"step": 1}\n')
        await until(lambda: any("run-1" in one.runs for one in told))


async def test_rotation_truncation_and_deletion(home: Home, tmp_path: Path) -> None:
    store = home.trajectories
    append(store, "a", hook_line("a"), hook_line("a"), hook_line("a"))
    append(store, "b", hook_line("b"))
    async with running(home):
        await until(lambda: lines(home, "a") == 3)
        os.truncate(store.file("a"), len(hook_line("a")) + 1)
        await until(lambda: lines(home, "a") == 1)
        store.file("a").rename(store.file("a").with_suffix(".1"))
        append(store, "a", hook_line("a", "Read"), hook_line("a", "Edit"))
        await until(lambda: search(home.index, Query(tool="Edit")).total == 1 and lines(home, "a") == 2)
        shutil.rmtree(store.file("b").parent)
        await until(lambda: lines(home, "b") == 0)
        shutil.rmtree(store.raw)
        await until(lambda: lines(home, "a") == 0)
        append(store, "c", hook_line("c"))
        await until(lambda: lines(home, "c") == 1)
    assert contents(home.index)["events"] == [
        (*row[:17], None, "other", row[19]) for row in rebuilt(store, tmp_path)["events"]
    ]


async def test_missed_notifications_are_made_good(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = watching.watchfiles.awatch

    async def deaf(*folders: Path, **options: object) -> AsyncGenerator[set[object], None]:
        async for _ in real(*folders, **options):  # type: ignore[arg-type]
            yield set()

    monkeypatch.setattr(watching.watchfiles, "awatch", deaf)
    monkeypatch.setattr(watching, "CALM_RESCAN_S", 0.3)
    monkeypatch.setattr(watching, "BUSY_RESCAN_S", 0.3)
    async with running(home) as (watcher, _):
        await until(lambda: watcher.mode is Mode.NOTIFIED)
        for number in range(1, 4):
            append(home.trajectories, "a", hook_line("a"))
            await until(lambda number=number: lines(home, "a") == number)  # type: ignore[misc]
        await until(lambda: watcher.mode is Mode.POLLING)  # and stays with looking


async def test_without_notifications_it_looks(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> AsyncGenerator[set[object], None]:
        raise OSError(28, "inotify watch limit reached")
        yield set()

    monkeypatch.setattr(watching.watchfiles, "awatch", refuse)
    async with running(home) as (watcher, _):
        append(home.trajectories, "a", hook_line("a"))
        await until(lambda: lines(home, "a") == 1)
        await until(lambda: watcher.mode is Mode.POLLING)


async def test_a_locked_index_is_tried_again(home: Home) -> None:
    async with running(home) as (watcher, _):
        append(home.trajectories, "a", hook_line("a"))
        await until(lambda: lines(home, "a") == 1)
        watcher.index.busy_s = 0.1
        other = schema.connect(home.index.path)
        other.execute("BEGIN IMMEDIATE")
        append(home.trajectories, "a", hook_line("a"))
        await anyio.sleep(0.6)
        assert lines(home, "a") == 1
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: lines(home, "a") == 2)


async def test_an_index_deleted_under_it_is_made_again(home: Home) -> None:
    async with running(home):
        append(home.trajectories, "a", hook_line("a"))
        await until(lambda: lines(home, "a") == 1)
        home.index.delete()
        await until(lambda: lines(home, "a") == 1)


WATCHER = """
import sys
from pathlib import Path
import anyio
from optimizer.home import Home
from optimizer.watcher import Watcher

async def tell(changes):
    print(*changes.sessions, flush=True)

watcher = Watcher(Home.open(Path(sys.argv[1])), tell)

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        while not watcher.lease.held:
            await anyio.sleep(0.02)
        print("holds", flush=True)

anyio.run(main)
"""


async def test_the_lease_moves_when_its_holder_is_killed(home: Home) -> None:
    process = subprocess.Popen([sys.executable, "-P", "-c", WATCHER, str(home.root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert await anyio.to_thread.run_sync(process.stdout.readline) == "holds\n"
        await until(lambda: Lease(home.root).holder() is not None)
        holder = Lease(home.root).holder()
        assert holder is not None
        assert holder.pid == process.pid
        async with running(home) as (watcher, told):
            append(home.trajectories, "a", hook_line("a"))
            await until(lambda: lines(home, "a") == 1)  # the other one's work
            assert watcher.mode is Mode.FOLLOWING
            await until(lambda: any("a" in one.sessions for one in told))  # of which this one tells, too
            process.send_signal(signal.SIGKILL)
            await until(lambda: watcher.lease.held)
            append(home.trajectories, "a", hook_line("a"))
            await until(lambda: lines(home, "a") == 2)
            new = watcher.lease.holder()
            assert new is not None
            assert new.pid == os.getpid()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_only_one_holds_the_lease(home: Home) -> None:
    first, second = Lease(home.root), Lease(home.root)
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    assert not first.held
    shutil.rmtree(home.root)
    assert not second.held, "a workspace that is gone has no holder"


async def test_a_look_waits_for_a_pause_but_not_for_ever(home: Home) -> None:
    busy = True
    told: list[Changes] = []

    async def tell(changes: Changes) -> None:
        told.append(changes)

    one = Watcher(home, tell, is_busy=lambda: busy)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        await one.started.wait()
        await until(lambda: one.mode is Mode.NOTIFIED)
        await anyio.sleep(1.0)
        append(home.trajectories, "s1", hook_line("s1"))
        assert await until(lambda: bool(told)) > 0.9 * watching.PATIENCE_S, "nothing was more urgent for ever"
        await anyio.sleep(watching.GAP_S)
        told.clear()
        append(home.trajectories, "s1", hook_line("s1"))
        await anyio.sleep(0.5 * watching.PATIENCE_S)
        assert told == []
        busy = False
        await until(lambda: bool(told))
        tasks.cancel_scope.cancel()
