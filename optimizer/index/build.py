"""Bringing the index up to date: by stored positions, in bounded transactions, from any process.

1. A refresh compares size, time and inode of each session's file with what was seen last, and opens only the others.
2. Within a transaction, which takes the right to write first, the stored position is read, at most `CHUNK_BYTES` of the
   file are read from there, and rows and new position are written. Whoever is killed in between has written nothing.
3. A file that is not the one that was read before is taken in anew, one that is gone is taken out.
4. Skill and layer of an event come from its session's segments, which are brought up to date on the way.
"""

import logging
import math
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optimizer.events import Event
from optimizer.index import rows
from optimizer.index.schema import (
    BUSY_S,
    IndexUnavailable,
    connect,
    explain,
    is_broken,
    open_index,
    put_aside,
    transaction,
)
from optimizer.store import Batch, Position, RawFile, TrajectoryStore
from skill_bank.files import lock_of

CHUNK_BYTES = 2 * 1024 * 1024
"""Raw bytes of one transaction: what other writers wait for (about 0.3 s) and what is in memory at once."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpanRow:
    """Calls of one agent between two lines that worked by a skill (None: by none)."""

    agent: str
    first: int
    last: int
    skill: str | None
    layer: str


SpansOf = Callable[[str], Sequence[SpanRow]]
"""Spans of a session; brings its segments up to date."""


@dataclass
class Refresh:
    """What a refresh did."""

    sessions: list[str] = field(default_factory=list)
    """Sessions whose events changed."""
    events: int = 0
    """Events taken in."""
    bytes_read: int = 0
    notices: list[str] = field(default_factory=list)
    """What happened to the index itself: it was damaged, or of another form."""


class TrajectoryIndex:
    """The index of a workspace's trajectories. Holds no connection between calls, so any thread may use it."""

    def __init__(self, store: TrajectoryStore, spans_of: SpansOf | None = None, *, busy_s: float = BUSY_S) -> None:
        self.store = store
        self.path = store.root / "index.db"
        self.spans_of = spans_of
        self.busy_s = busy_s

    @contextmanager
    def connection(self, notices: list[str] | None = None) -> Iterator[sqlite3.Connection]:
        """A connection to the index, made or mended where that is necessary. Raises IndexUnavailable."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            found, notice = open_index(self.path, busy_s=self.busy_s)
            if notice is not None:
                logger.warning("%s", notice)
                if notices is not None:
                    notices.append(notice)
            with closing(found):
                yield found
        except sqlite3.Error as error:
            if is_broken(error):
                raise
            raise explain(error, self.path) from error
        except OSError as error:
            raise IndexUnavailable(f"the index {self.path.name} cannot be used: {error.strerror or error}") from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that never writes. Raises IndexUnavailable, and sqlite3.DatabaseError for a damaged file."""
        try:
            found = connect(self.path, read_only=True, busy_s=self.busy_s)
        except sqlite3.Error as error:
            if is_broken(error):
                raise
            raise explain(error, self.path) from error
        with closing(found):
            yield found

    def refresh(
        self,
        sessions: Collection[str] | None = None,
        *,
        busy_s: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Refresh:
        """Takes in what is new, in all sessions or in the named ones. Raises IndexUnavailable, BadId.

        What was complete before an error stays; the next refresh goes on there. `stop` is asked between two
        transactions: true ends it as an error would, without one.
        """
        done = Refresh()
        try:
            self._refresh(done, sessions, busy_s, stop)
        except sqlite3.DatabaseError as error:
            if not is_broken(error):
                raise
            done = Refresh(notices=[self.give_up(error)])
            self._refresh(done, None, busy_s, stop)
        return done

    def give_up(self, error: sqlite3.Error) -> str:
        """Puts a damaged index aside, so that the next use rebuilds it; says so in one sentence."""
        with lock_of(self.path):
            if self.path.exists():
                put_aside(self.path)
        notice = f"the index was damaged ({error}); it is rebuilt from the raw events"
        logger.warning("%s", notice)
        return notice

    def _refresh(
        self, done: Refresh, sessions: Collection[str] | None, busy_s: float | None, stop: Callable[[], bool]
    ) -> None:
        with self.connection(done.notices) as connection:
            if busy_s is not None:
                connection.execute(f"PRAGMA busy_timeout={int(busy_s * 1000)}")
            if sessions is None:
                present = {one.session: one for one in self.store.files()}
                known = rows.known_sessions(connection)
            else:
                looked = [self.store.look(name) for name in sessions]
                present = {one.session: one for one in looked if one is not None}
                known = rows.known_sessions(connection, sessions)
            for name in known:
                if name not in present:
                    self._forget(connection, name, done)
            for one in sorted(present.values(), key=lambda one: (-one.mtime_ns, one.session)):
                if stop():
                    break
                if not rows.is_current(known.get(one.session), one):
                    self._take(connection, one.session, done, stop)

    def _forget(self, connection: sqlite3.Connection, name: str, done: Refresh) -> None:
        with transaction(connection):
            if self.store.look(name) is None:
                rows.forget(connection, name)
                rows.tell(connection, "session", name)
                done.sessions.append(name)

    def _take(self, connection: sqlite3.Connection, name: str, done: Refresh, stop: Callable[[], bool]) -> None:
        changed = False
        while True:
            with transaction(connection):
                file = self.store.look(name)
                known = rows.known_sessions(connection, [name]).get(name)
                if file is None or rows.is_current(known, file):
                    break
                batch = self.store.read(name, None if known is None else known.position, limit_bytes=CHUNK_BYTES)
                changed |= self._write(connection, file, known, batch, done)
            if not batch.more or stop():
                break
        changed |= self._assign(connection, name)
        if changed:
            done.sessions.append(name)

    def _write(
        self,
        connection: sqlite3.Connection,
        file: RawFile,
        known: rows.Known | None,
        batch: Batch,
        done: Refresh,
    ) -> bool:
        """Writes a batch; whether any event came or went."""
        dirty: set[int] = set()
        if known is not None and batch.restarted:
            dirty |= rows.clear(connection, known.sid)
        before = known.position if known is not None and not batch.restarted else Position()
        last_at = known.last_at if known is not None and not batch.restarted else 0.0
        sid = rows.open_session(connection, file.session)
        for event in batch.events:
            last_at = _moment(event, last_at)
            dirty |= rows.insert(connection, sid, event, last_at)
        rows.insert_bad_lines(connection, sid, batch.bad_lines)
        rows.merge(connection, dirty)
        rows.store_position(connection, sid, file, batch.position, last_at, complete=not batch.more)
        changed = bool(batch.events or batch.bad_lines or (batch.restarted and known is not None))
        if changed:
            rows.tell(connection, "session", file.session)
        done.events += len(batch.events)
        done.bytes_read += batch.position.offset - before.offset
        return changed

    def _assign(self, connection: sqlite3.Connection, name: str) -> bool:
        """Gives the session's events skill and layer; whether any has another one than before."""
        if self.spans_of is None:
            spans: Sequence[SpanRow] = ()
        else:
            try:
                spans = self.spans_of(name)
            except OSError as error:  # segments are derived, too: what can be searched goes on without them
                logger.warning("segments of session %s cannot be brought up to date: %s", name, error)
                return False
        with transaction(connection):
            return rows.assign(
                connection, name, [(one.agent, one.first, one.last, one.skill, one.layer) for one in spans]
            )

    def delete(self) -> None:
        """Deletes the index; the next use rebuilds it."""
        with lock_of(self.path):
            for suffix in ("-wal", "-shm", ""):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def _moment(event: Event, last_at: float) -> float:
    """When an event was, for ordering: one without a time was when the one before it in its session was."""
    return event.time if event.time is not None and math.isfinite(event.time) else last_at
