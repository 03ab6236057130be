"""The watcher: follows raw events and runs, keeps segments and index fresh, and tells what changed.

1. Only the holder of the workspace's lease works. Every other watcher follows the feed of the index, so it tells its
   own listeners the same, and tries to take the lease over: when a holder dies, the next one begins with a full look.
2. Notifications of the file system say which sessions to look at. They are hints: a full look by size and time, every
   second while something goes on and every `CALM_RESCAN_S` otherwise, finds what they missed.
3. Where changes keep being found without a notification (network drives, exhausted watches), and where notifications
   cannot be had at all, the watcher looks every `POLL_S` instead.
4. Nothing it meets ends it: rotated, truncated and deleted files are what a look finds; an index that is locked or a
   disk that is full is logged once and tried again.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import watchfiles

from optimizer.home import Home
from optimizer.ids import ID_PATTERN
from optimizer.index.feed import Changes, Follower, tell_runs
from optimizer.index.schema import IndexUnavailable
from optimizer.lease import Lease

STEP_MS = 50
"""Changes that follow each other within this are looked at together."""

DEBOUNCE_MS = 250
"""So long at most, while changes keep coming."""

GAP_S = 0.5
"""From one look to the next while changes keep coming."""

PATIENCE_S = 0.8
"""So long a look waits for a pause: what is new is in the index within a second."""

PAUSE_S = 0.1

BUSY_RESCAN_S = 1.0
BUSY_FOR_S = 10.0
"""After a change, full looks come every `BUSY_RESCAN_S` for so long."""

CALM_RESCAN_S = 15.0

POLL_S = 0.5

FOLLOW_S = 0.5
"""How often one that holds no lease looks at the feed and tries to take the lease."""

MISSED = 2
"""So many looks in a row found a change without a notification of any: there will be none."""

RUN_FILES = ("run.json", "metrics.jsonl")
"""Files of a run whose change its readers want to know of."""

T = TypeVar("T")

OnChange = Callable[[Changes], Awaitable[None]]

logger = logging.getLogger(__name__)


class Mode(StrEnum):
    """How a watcher learns of changes."""

    FOLLOWING = "following"
    """Another process holds the lease."""
    NOTIFIED = "notified"
    """By notifications of the file system."""
    POLLING = "polling"
    """By looking."""


class Watcher:
    """Watches one workspace until it is cancelled."""

    def __init__(
        self, home: Home, on_change: OnChange, *, polling: bool = False, is_busy: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_busy`: whether this process has something more urgent to do just now."""
        self.home = home
        self.index = home.index
        self.lease = Lease(home.root)
        self.on_change = on_change
        self.polling = polling
        self.is_busy = is_busy
        self.mode = Mode.FOLLOWING
        self.started = anyio.Event()
        """Everything that changes from now on is told."""
        self._follower = Follower(self.index)
        self._stopped = threading.Event()
        self._runs: dict[str, tuple[int, ...]] | None = None
        self._busy_until = 0.0
        self._last_look = 0.0
        self._last_found = -GAP_S
        self._missed = 0
        self._complaint: str | None = None

    async def run(self) -> None:
        """Works until it is cancelled; gives the lease back then."""
        await self._do(self._follower.poll)
        try:
            while True:
                if await anyio.to_thread.run_sync(self._take_lease):
                    await self._hold()
                self.mode = Mode.FOLLOWING
                await self._tell()
                self.started.set()
                await anyio.sleep(FOLLOW_S)
        finally:
            self._stopped.set()
            self.lease.release()

    def _take_lease(self) -> bool:
        try:
            return self.lease.try_acquire()
        except OSError as error:
            self._complain(f"the lease cannot be taken: {error}")
            return False

    async def _hold(self) -> None:
        """Works while the lease is held and the watched folders are the ones that were found."""
        folders = [self.home.trajectories.raw, self.home.workspace.runs]
        await self._look(None)
        self.started.set()
        while self.lease.held:
            try:
                for folder in folders:
                    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                marks = [_inode(folder) for folder in folders]
            except OSError as error:
                self._complain(f"the workspace cannot be watched: {error}")
                return
            if self.polling:
                self.mode = Mode.POLLING
                await self._poll(folders, marks)
            else:
                self.mode = Mode.NOTIFIED
                await self._be_notified(folders, marks)

    async def _poll(self, folders: list[Path], marks: list[int]) -> None:
        while self._is_as_found(folders, marks):
            await anyio.sleep(POLL_S)
            await self._look(None)

    async def _be_notified(self, folders: list[Path], marks: list[int]) -> None:
        notices = watchfiles.awatch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=int(BUSY_RESCAN_S * 1000),
            yield_on_timeout=True,
            force_polling=False,
            ignore_permission_denied=True,
        )
        self._last_look = -CALM_RESCAN_S  # what changed before notifications were set up is found by a look behind it
        self._missed = -1
        try:
            async with aclosing(notices):
                async for some in notices:
                    if not self._is_as_found(folders, marks) or not await self._take([path for _, path in some]):
                        return
        except (OSError, RuntimeError, ExceptionGroup) as error:
            if isinstance(error, ExceptionGroup) and error.split((OSError, RuntimeError))[1] is not None:
                raise
            # not enough watches, no notifications on this file system, or a folder that went while it was watched
            if self._is_as_found(folders, marks):
                self._complain(f"notifications cannot be had ({error}); looking every {POLL_S:g} s instead")
                self.polling = True

    async def _take(self, paths: list[str]) -> bool:
        """Acts on notifications, or on there being none for a while; whether it is worth waiting for more."""
        sessions, runs = self._named(paths)
        if sessions or runs:
            self._missed = 0
            await self._breathe()  # what comes meanwhile is kept
            await self._look(sessions)
        elif time.monotonic() - self._last_look < self._rescan_s():
            await self._tell()
        else:
            found = await self._look(None)
            self._missed += found or self._missed < 0  # the first look is not about notifications
            if self._missed >= MISSED:
                logger.warning("changes come without notifications here; looking every %g s instead", POLL_S)
                self.polling = True
        return not self.polling

    async def _breathe(self) -> None:
        """Waits for the next look: putting a call into the index takes as long as answering it."""
        began = time.monotonic()
        await anyio.sleep(max(self._last_found + GAP_S - began, 0.0))
        while self.is_busy() and time.monotonic() < began + PATIENCE_S:
            await anyio.sleep(PAUSE_S)

    def _is_as_found(self, folders: list[Path], marks: list[int]) -> bool:
        return self.lease.held and [_inode(folder) for folder in folders] == marks

    def _rescan_s(self) -> float:
        return BUSY_RESCAN_S if time.monotonic() < self._busy_until else CALM_RESCAN_S

    def _named(self, paths: list[str]) -> tuple[set[str], set[str]]:
        """(sessions, runs) to which changed paths belong."""
        sessions: set[str] = set()
        runs: set[str] = set()
        for path in paths:
            for root, found in ((self.home.trajectories.raw, sessions), (self.home.workspace.runs, runs)):
                prefix = f"{root}{os.sep}"
                if path.startswith(prefix):
                    name, _, rest = path[len(prefix) :].partition(os.sep)
                    wanted = rest == "" or (found is sessions and rest == "events.jsonl") or rest in RUN_FILES
                    if wanted and ID_PATTERN.match(name):
                        found.add(name)
        return sessions, runs

    async def _look(self, sessions: set[str] | None) -> bool:
        """Looks at the named sessions (None: at all of them) and at the runs, and tells; whether anything changed."""
        if sessions is None:
            self._last_look = time.monotonic()
        changed = bool(await self._do(lambda: self._work(sessions)))
        if changed:
            self._last_found = time.monotonic()
            self._busy_until = self._last_found + BUSY_FOR_S
        await self._tell()
        return changed

    def _work(self, sessions: set[str] | None) -> bool:
        refreshed = self.index.refresh(sessions, stop=self._stopped.is_set)
        runs = self._changed_runs()
        tell_runs(self.index, runs)
        self._complaint = None
        return bool(refreshed.sessions or runs)

    def _changed_runs(self) -> list[str]:
        """Runs whose documents changed since the last look; none at the first."""
        seen: dict[str, tuple[int, ...]] = {}
        root = self.home.workspace.runs
        for entry in os.scandir(root) if root.is_dir() else ():
            if ID_PATTERN.match(entry.name):
                seen[entry.name] = tuple(value for name in RUN_FILES for value in _stamp(f"{entry.path}/{name}"))
        before, self._runs = self._runs, seen
        if before is None:
            return []
        gone = [name for name in before if name not in seen]
        return [name for name, stamp in seen.items() if before.get(name) != stamp] + gone

    async def _tell(self) -> None:
        changes = await self._do(self._follower.poll)
        if changes:
            await self.on_change(changes)

    async def _do(self, work: Callable[[], T]) -> T | None:
        """Work in a thread; what the disk or the index refuses is logged once and answered with None."""
        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)  # what goes on ends by `_stopped`
        except (IndexUnavailable, OSError, sqlite3.Error) as error:
            self._busy_until = time.monotonic() + BUSY_FOR_S  # look again soon
            self._complain(str(error))
            return None

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            logger.warning("watching: %s", text)


def _stamp(path: str) -> tuple[int, int]:
    try:
        seen = os.stat(path)
    except OSError:
        return (0, 0)
    return (seen.st_size, seen.st_mtime_ns)


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0
