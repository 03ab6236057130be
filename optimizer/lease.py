"""The lease of a workspace: which process keeps the index fresh and tells the others what changed.

A lock on `.lease.lock` that the operating system frees when its holder ends, however it ends; so the lease moves by
itself, and nothing has to be believed about clocks or process numbers. `lease` beside it names the holder for people.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from skill_bank.files import read_json, write_json_atomic


@dataclass(frozen=True)
class Holder:
    """Who holds the lease, as far as its note says."""

    pid: int
    since: float
    """Unix seconds."""


class Lease:
    """The lease as one process sees it."""

    def __init__(self, root: Path) -> None:
        self.note = root / "lease"
        self._path = root / ".lease.lock"
        self._lock = FileLock(str(self._path), mode=0o600, thread_local=False)
        self._inode = 0

    @property
    def held(self) -> bool:
        """Whether this process holds it. Not any more where the workspace was deleted or moved under it."""
        return self._lock.is_locked and self._inode == _inode(self._path)

    def try_acquire(self) -> bool:
        """Takes the lease if nobody holds it; never waits. Raises OSError where the workspace cannot be written."""
        if self.held:
            return True
        self.release()
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        self._inode = _inode(self._path)
        write_json_atomic(self.note, {"pid": os.getpid(), "since": round(time.time(), 3)})
        return True

    def release(self) -> None:
        """Gives it up; nothing where it is not held."""
        if self._lock.is_locked:
            self._lock.release(force=True)

    def holder(self) -> Holder | None:
        """The note of whoever took the lease last; None where there is none that can be read."""
        try:
            note: Any = read_json(self.note)
            return Holder(int(note["pid"]), float(note["since"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
