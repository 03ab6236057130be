"""The feed of the index: which sessions and runs changed, in order, for every process that wants to know.

Whoever brings the index up to date, a watcher or a search anywhere, adds to it; followers in other processes read on
from the number they saw last. A look that finds the file as it was costs two `stat` calls.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass

from optimizer.index import rows
from optimizer.index.build import TrajectoryIndex
from optimizer.index.schema import transaction


@dataclass(frozen=True)
class Changes:
    """What changed since the last look, each once, in the order of its last change."""

    sessions: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sessions or self.runs)


class Follower:
    """Reads the feed from now on."""

    def __init__(self, index: TrajectoryIndex) -> None:
        self.index = index
        self._seen: int | None = None
        self._signature: tuple[int, ...] = ()

    def poll(self) -> Changes:
        """What is new; the first look only finds the place. Raises IndexUnavailable."""
        signature = self._look()
        if signature[0] == 0 and self._seen is None:
            self._seen = 0  # there is no index yet: all that will come is new
        if signature == self._signature or signature[0] == 0:
            return Changes()
        with self.index.connection() as connection:
            last = int(connection.execute("SELECT coalesce(max(seq), 0) FROM feed").fetchone()[0])
            is_another = bool(self._signature) and self._signature[0] != signature[0]  # rebuilt: its feed is a new one
            since = last if self._seen is None else 0 if is_another else self._seen
            query = "SELECT kind, name FROM feed WHERE seq>? ORDER BY seq"
            found = [(kind, name) for kind, name in connection.execute(query, (since,))]
        self._seen, self._signature = last, signature
        latest = dict.fromkeys(reversed(found))
        return Changes(
            tuple(name for kind, name in reversed(latest) if kind == "session"),
            tuple(name for kind, name in reversed(latest) if kind == "run"),
        )

    def _look(self) -> tuple[int, ...]:
        found: list[int] = []
        for suffix in ("", "-wal"):
            try:
                seen = os.stat(f"{self.index.path}{suffix}")
                found += [seen.st_ino, seen.st_size, seen.st_mtime_ns]
            except FileNotFoundError:
                found += [0, 0, 0]
        return tuple(found)


def tell_runs(index: TrajectoryIndex, runs: Collection[str]) -> None:
    """Adds changed runs to the feed. Raises IndexUnavailable."""
    if runs:
        with index.connection() as connection, transaction(connection):
            for run_id in runs:
                rows.tell(connection, "run", run_id)
