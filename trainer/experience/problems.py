"""What can go wrong with a pool, as values.

1. The vocabulary is `ProblemKind`: one word for each boundary that was crossed.
2. The store and the clients raise `PoolError`, which carries a `PoolProblem`; tools and commands show its sentence.
3. What a rollout calls (`ExperienceSource`) never raises for the outside world: it returns the problem, the episode
   goes on without experience and is marked so.
4. Nothing is repaired by deleting: a file that cannot be read is left as it is.
"""

import shutil
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ProblemKind(StrEnum):
    """Which boundary."""

    MISSING = "missing"
    """There is no such pool."""
    LOCKED = "locked"
    """Another process holds the file for longer than we wait."""
    CORRUPT = "corrupt"
    """The file is no SQLite database, or a damaged one."""
    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    """The file or its folder cannot be written."""
    NEWER = "newer"
    """Written by a later version of this program."""
    IO = "io"
    UNREACHABLE = "unreachable"
    """No answer from a service: refused, unknown host, connection lost."""
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    """A service answered with an error status."""
    BAD_ANSWER = "bad_answer"
    """A service answered something else than its contract says."""
    INCOMPATIBLE = "incompatible"
    """A version of a service that cannot be used."""
    EMBEDDER = "embedder"
    """The embedder is not installed or does not answer."""


RETRYABLE = frozenset({ProblemKind.LOCKED, ProblemKind.DISK_FULL, ProblemKind.UNREACHABLE, ProblemKind.TIMED_OUT})
"""What may be over the next time."""


@dataclass(frozen=True)
class PoolProblem:
    """One thing that went wrong."""

    kind: ProblemKind
    say: str
    """What was wrong and what to do next, for a person."""

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


class PoolError(Exception):
    """A pool or service that cannot be used; `problem` says why."""

    def __init__(self, kind: ProblemKind, say: str) -> None:
        super().__init__(say)
        self.problem = PoolProblem(kind, say)


class ExperienceError(Exception):
    """Something that was asked of the experience pool and is refused; the message says what is allowed."""


NO_SPACE = 64 * 1024
"""Free bytes below which SQLite cannot make the files beside a pool, which it calls an input or output error."""


def _no_space(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < NO_SPACE
    except OSError:
        return False


def of_sqlite(error: Exception, path: Path) -> PoolError:
    """The typed error for what SQLite or the file system raised."""
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return PoolError(
            ProblemKind.LOCKED,
            f"the pool {path} is locked by another process; nothing was lost, try again when it has finished",
        )
    if "closed database" in text:
        return PoolError(ProblemKind.IO, f"the pool {path} was closed; open it again")
    if "full" in text or "no space" in text or "errno 28" in text or ("disk i/o" in text and _no_space(path)):
        return PoolError(
            ProblemKind.DISK_FULL,
            f"the disk that holds the pool {path} is full; nothing that was stored is lost, free some space and repeat",
        )
    if "readonly" in text or "read-only" in text or isinstance(error, PermissionError):
        return PoolError(ProblemKind.READ_ONLY, f"the pool {path} cannot be written; give yourself write access to it")
    if "unable to open" in text:
        return PoolError(ProblemKind.IO, f"the pool {path} cannot be opened ({error}); check that its folder exists")
    if "disk i/o" in text or isinstance(error, OSError):
        return PoolError(ProblemKind.IO, f"the pool {path} could not be read or written ({error}); check the disk")
    if isinstance(error, sqlite3.DatabaseError):
        return PoolError(
            ProblemKind.CORRUPT,
            f"the pool {path} is damaged or no pool ({error}); it is left as it is: move it away and read an export "
            "with `mcp-evo experience import`",
        )
    return PoolError(ProblemKind.IO, f"the pool {path} cannot be used: {error}")
