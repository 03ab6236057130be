"""A pool on disk: one SQLite file in WAL mode, any number of processes. Raises PoolError for what SQLite reports.

Tables: `records` (a JSON document, and as columns what changes or is searched by), `texts` (FTS5 over tokens of
`tokens.index_text`), `vectors` (half precision, with the embedder that made them), `guards` (problems that no record
may hold) and `meta`. `revision` grows with every change of a record, so that a reader takes over only what is new.

Every change is one `BEGIN IMMEDIATE` transaction: it is there as a whole or not at all. With `synchronous=NORMAL` a
process that dies loses nothing; a machine that loses power may lose the last transactions, never the file.
"""

import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

from skill_bank.files import lock_of
from trainer.experience.leaks import Guarded
from trainer.experience.problems import PoolError, ProblemKind, of_sqlite
from trainer.experience.records import (
    COUNTERS,
    Counters,
    ExperienceRecord,
    Status,
    document_of,
    record_from,
    to_json,
)
from trainer.experience.tokens import index_text, normalised

SCHEMA_VERSION = 1
WAIT_S = 30.0
"""How long a writer waits for others: eight that write without pause are served well within it."""

_ATTEMPT_S = 0.005
"""… of which SQLite itself waits so long each time."""

T = TypeVar("T")

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, polarity TEXT NOT NULL,
  family TEXT NOT NULL, text_key TEXT NOT NULL, modified REAL NOT NULL, revision INTEGER NOT NULL,
  {", ".join(f"n_{name} INTEGER NOT NULL DEFAULT 0" for name in COUNTERS)}, document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS records_text ON records (text_key);
CREATE INDEX IF NOT EXISTS records_revision ON records (revision);
CREATE TABLE IF NOT EXISTS vectors (number INTEGER PRIMARY KEY, embedder TEXT NOT NULL, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS guards (
  prompt TEXT NOT NULL, answer TEXT NOT NULL, origin TEXT NOT NULL, PRIMARY KEY (prompt, answer)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (body, tokenize = 'unicode61 remove_diacritics 0');
"""
_COUNTER_COLUMNS = ", ".join(f"n_{name}" for name in COUNTERS)
RECORD_COLUMNS = f"number, status, modified, {_COUNTER_COLUMNS}, document"
"""What `record_of_row` needs."""


def text_key(record: ExperienceRecord) -> str:
    """Equal for records that say the same word for word."""
    return f"{record.kind.value}\n{normalised(record.when_to_use)}\n{normalised(record.content)}"


class PoolStore:
    """The file of one pool."""

    def __init__(self, path: Path, *, create: bool = False, wait_s: float = WAIT_S) -> None:
        """Opens the file. Raises PoolError: missing (unless `create`), corrupt, newer, locked, not writable."""
        self.path = path
        if not create and not path.exists():
            raise PoolError(
                ProblemKind.MISSING,
                f"there is no experience pool at {path}. `mcp-evo experience init {path.stem}` makes one",
            )
        self._lock = threading.RLock()
        self.writes = 0
        """Changes that this process made: `PRAGMA data_version` tells of those of others only."""
        with self._translated():
            if create:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._wait_s = wait_s
            self._connection = sqlite3.connect(path, timeout=_ATTEMPT_S, isolation_level=None, check_same_thread=False)
        try:
            # changing the journal of a new file waits for nobody, so its makers take turns
            with self._translated(), lock_of(path) if create else nullcontext():
                self._patiently(self._prepare)
        except PoolError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise PoolError(
                ProblemKind.NEWER,
                f"the pool {self.path} was written by a later version of mcp-evo (format {version}, this one reads "
                f"{SCHEMA_VERSION}); update mcp-evo",
            )
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if version < SCHEMA_VERSION:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} INSERT OR IGNORE INTO meta VALUES ('revision', '0');"
                f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        self._connection.execute("SELECT number FROM records LIMIT 1").fetchone()

    def close(self) -> None:
        """Closes the file; closing twice does nothing."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise of_sqlite(error, self.path) from error

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One transaction that writes: all of it or nothing. Raises PoolError."""
        with self._lock, self._translated():
            if self._connection.in_transaction:
                yield  # part of a larger one
                return
            self._patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            try:
                yield
                self._connection.execute("COMMIT")
                self.writes += 1
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises PoolError."""
        with self._lock, self._translated():
            return self._patiently(lambda: self._connection.execute(sql, values).fetchall())

    def _do(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def wait(self, seconds: float) -> None:
        """How long this handle waits for others from now on."""
        self._wait_s = seconds

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeats an attempt that meets a lock, until it has waited long enough.

        SQLite's own waiting asks every 100 ms in the end, while whoever has just come asks at once: among many writers
        one may wait for ever. Here all ask equally often, so that each gets its turn.
        """
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not locked or time.monotonic() > deadline:
                    raise
                if self._connection.in_transaction and attempt == self._prepare:
                    self._connection.execute("ROLLBACK")
            time.sleep(random.uniform(0.001, 0.006))

    # ---- records

    def insert(self, record: ExperienceRecord, vector: bytes | None, embedder: str) -> int:
        """Adds a record and returns its number. Raises PoolError; ValueError where the id is there already."""
        with self.changing():
            if self._do("SELECT 1 FROM records WHERE id = ?", (record.id,)).fetchone() is not None:
                raise ValueError(f"record {record.id} is in the pool already")
            columns = ("id", "status", "polarity", "family", "text_key", "modified", "revision", "document")
            counters = [f"n_{name}" for name in COUNTERS]
            marks = ", ".join("?" * (len(columns) + len(counters)))
            cursor = self._do(
                f"INSERT INTO records ({', '.join([*columns, *counters])}) VALUES ({marks})",
                (*self._values(record), *_counted(record.counters)),
            )
            number = cursor.lastrowid
            assert number is not None
            self._index(number, record, vector, embedder)
            return number

    def replace(self, number: int, record: ExperienceRecord, vector: bytes | None, embedder: str) -> None:
        """Writes a record over the one with this number, counters included. Raises PoolError."""
        with self.changing():
            sets = ", ".join(
                f"{name} = ?"
                for name in ("id", "status", "polarity", "family", "text_key", "modified", "revision", "document")
            )
            counters = ", ".join(f"n_{name} = ?" for name in COUNTERS)
            self._do(
                f"UPDATE records SET {sets}, {counters} WHERE number = ?",
                (*self._values(record), *_counted(record.counters), number),
            )
            self._do("DELETE FROM texts WHERE rowid = ?", (number,))
            self._do("DELETE FROM vectors WHERE number = ?", (number,))
            self._index(number, record, vector, embedder)

    def _values(self, record: ExperienceRecord) -> tuple[Any, ...]:
        document = to_json(document_of(record))
        key = _storable(text_key(record))
        return (
            record.id,
            record.status.value,
            record.polarity.value,
            _storable(record.family),
            key,
            record.modified,
            self._next_revision(),
            document,
        )

    def _index(self, number: int, record: ExperienceRecord, vector: bytes | None, embedder: str) -> None:
        body = index_text(f"{record.when_to_use} {record.content} {' '.join(record.tags)}")
        self._do("INSERT INTO texts (rowid, body) VALUES (?, ?)", (number, _storable(body)))
        if vector is not None:
            self._do("INSERT INTO vectors VALUES (?, ?, ?)", (number, embedder, vector))

    def _next_revision(self) -> int:
        self._do("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'revision'")
        return int(self._do("SELECT value FROM meta WHERE key = 'revision'").fetchone()[0])

    def get(self, record_id: str) -> tuple[int, ExperienceRecord] | None:
        """(number, record) of an id, or None. Raises PoolError."""
        found = self.rows(f"SELECT {RECORD_COLUMNS} FROM records WHERE id = ?", (record_id,))
        return record_of_row(found[0]) if found else None

    def with_prefix(self, beginning: str) -> list[str]:
        """Ids that begin so, at most ten."""
        escaped = beginning.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return [
            row[0] for row in self.rows("SELECT id FROM records WHERE id LIKE ? ESCAPE '\\' LIMIT 10", (f"{escaped}%",))
        ]

    def by_numbers(self, numbers: Sequence[int]) -> dict[int, ExperienceRecord]:
        """Records by number. Raises PoolError."""
        found: dict[int, ExperienceRecord] = {}
        for start in range(0, len(numbers), 500):
            part = [int(n) for n in numbers[start : start + 500]]
            marks = ", ".join("?" * len(part))
            for row in self.rows(f"SELECT {RECORD_COLUMNS} FROM records WHERE number IN ({marks})", part):
                number, record = record_of_row(row)
                found[number] = record
        return found

    def with_text(self, key: str) -> list[tuple[int, ExperienceRecord]]:
        """Records that say exactly this (`text_key`)."""
        found = self.rows(f"SELECT {RECORD_COLUMNS} FROM records WHERE text_key = ? ORDER BY number", (_storable(key),))
        return [record_of_row(row) for row in found]

    def iterate(
        self, statuses: Iterable[Status] = tuple(Status), family: str | None = None
    ) -> Iterator[ExperienceRecord]:
        """Records in the order in which they came, a thousand at a time."""
        wanted = [status.value for status in statuses]
        marks, last = ", ".join("?" * len(wanted)), 0
        narrowed = "" if family is None else " AND family = ?"
        while True:
            values = [last, *wanted, *([] if family is None else [family])]
            rows = self.rows(
                f"SELECT {RECORD_COLUMNS} FROM records WHERE number > ? AND status IN ({marks}){narrowed} "
                "ORDER BY number LIMIT 1000",
                values,
            )
            for row in rows:
                last, record = record_of_row(row)
                yield record
            if len(rows) < 1000:
                return

    def change(self, record_id: str, how: Callable[[ExperienceRecord], ExperienceRecord]) -> ExperienceRecord | None:
        """Changes what is known about a record (not its texts) in one transaction; None where there is none."""
        with self.changing():
            found = self.get(record_id)
            if found is None:
                return None
            number, before = found
            after = how(before)
            if (after.when_to_use, after.content) != (before.when_to_use, before.content):
                raise ValueError("the texts of a record do not change: add another one that supersedes it")
            counters = ", ".join(f"n_{name} = ?" for name in COUNTERS)
            self._do(
                "UPDATE records SET status = ?, polarity = ?, family = ?, modified = ?, revision = ?, document = ?, "
                f"{counters} WHERE number = ?",
                (
                    after.status.value,
                    after.polarity.value,
                    _storable(after.family),
                    after.modified,
                    self._next_revision(),
                    to_json(document_of(after)),
                    *_counted(after.counters),
                    number,
                ),
            )
            return after

    def count(self, add: Mapping[str, Counters]) -> list[str]:
        """Adds counters in one transaction and returns the ids that the pool does not have. Raises PoolError."""
        sets = ", ".join(f"n_{name} = n_{name} + ?" for name in COUNTERS)
        missing = []
        with self.changing():
            for record_id, counters in add.items():
                if self._do(f"UPDATE records SET {sets} WHERE id = ?", (*_counted(counters), record_id)).rowcount == 0:
                    missing.append(record_id)
        return missing

    def delete(self, ids: Sequence[str]) -> int:
        """Takes records out for good and returns how many. Raises PoolError."""
        with self.changing():
            gone = 0
            for record_id in ids:
                found = self._do("SELECT number FROM records WHERE id = ?", (record_id,)).fetchone()
                if found is None:
                    continue
                for sql in (
                    "DELETE FROM texts WHERE rowid = ?",
                    "DELETE FROM vectors WHERE number = ?",
                    "DELETE FROM records WHERE number = ?",
                ):
                    self._do(sql, found)
                gone += 1
            if gone:
                self.set_meta("deletions", str(int(self.meta("deletions") or 0) + gone))
            return gone

    # ---- vectors, guards, meta

    def stale(self, embedder: str, limit: int) -> list[tuple[int, ExperienceRecord]]:
        """Records without a vector of this embedder, at most `limit`."""
        columns = ", ".join(f"r.{name}" for name in RECORD_COLUMNS.split(", "))
        rows = self.rows(
            f"SELECT {columns} FROM records r LEFT JOIN vectors v ON v.number = r.number AND v.embedder = ? "
            "WHERE v.number IS NULL ORDER BY r.number LIMIT ?",
            (embedder, limit),
        )
        return [record_of_row(row) for row in rows]

    def set_vectors(self, embedder: str, vectors: Mapping[int, bytes]) -> None:
        """Stores vectors by record number. Raises PoolError."""
        with self.changing():
            for number, vector in vectors.items():
                self._do("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", (number, embedder, vector))
                self._do("UPDATE records SET revision = ? WHERE number = ?", (self._next_revision(), number))

    def add_guards(self, guards: Iterable[Guarded]) -> int:
        """Adds problems that no record may hold and returns how many were new. Raises PoolError."""
        with self.changing():
            before = self._do("SELECT count(*) FROM guards").fetchone()[0]
            rows = [(_storable(one.prompt), _storable(one.answer), _storable(one.origin)) for one in guards]
            self._connection.executemany("INSERT OR IGNORE INTO guards VALUES (?, ?, ?)", rows)
            return int(self._do("SELECT count(*) FROM guards").fetchone()[0]) - int(before)

    def guards(self) -> list[Guarded]:
        """The problems that no record may hold."""
        return [Guarded(*row) for row in self.rows("SELECT prompt, answer, origin FROM guards")]

    def guard_count(self) -> int:
        return int(self.rows("SELECT count(*) FROM guards")[0][0])

    def meta(self, key: str) -> str | None:
        """A value beside the records."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def set_meta(self, key: str, value: str) -> None:
        with self.changing():
            self._do("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def size(self) -> int:
        """Number of records."""
        return int(self.rows("SELECT count(*) FROM records")[0][0])

    def version(self) -> tuple[int, int]:
        """Differs from an earlier one where anything may have changed since; costs microseconds."""
        return int(self.rows("PRAGMA data_version")[0][0]), self.writes

    def check(self) -> str | None:
        """What SQLite's own check of the file finds, or None; reads the whole file."""
        found = [row[0] for row in self.rows("PRAGMA quick_check(1)")]
        return None if found == ["ok"] else "; ".join(str(one) for one in found)


def record_of_row(row: Sequence[Any]) -> tuple[int, ExperienceRecord]:
    """(number, record) of a row of `RECORD_COLUMNS`: the columns are newer than the document."""
    number, status, modified, *rest = row
    record = record_from(json.loads(rest[-1]))
    counters = Counters(*rest[:-1])
    return number, record.changed(status=Status(status), modified=modified, counters=counters)


def _counted(counters: Counters) -> tuple[int, ...]:
    return astuple(counters)


def _storable(text: str) -> str:
    """Without half surrogate pairs, which UTF-8 has no bytes for; the document keeps the text as it was."""
    return text.encode("utf-8", "replace").decode("utf-8")
