"""The index file: its tables, how it is opened, and what happens to one that is damaged or of another form.

A file that SQLite cannot read, or whose form is another version's, is moved aside as `index.db.damaged` (one is kept)
or deleted, and a fresh one takes its place; both under a lock, so that processes that meet it at once do it once. A
process that still holds the old file notices by its inode and opens the new one.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skill_bank.files import lock_of

SCHEMA_VERSION = 1
"""Changes whenever tables, words or merging change: an index of another version is rebuilt."""

BUSY_S = 5.0
"""How long a writer waits for its turn before it gives up for now."""

_TABLES = """
CREATE TABLE sessions(
  sid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
  size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL,
  offset INTEGER NOT NULL, line INTEGER NOT NULL, mark TEXT NOT NULL,
  last_at REAL NOT NULL, assigned INTEGER NOT NULL, complete INTEGER NOT NULL
);
CREATE TABLE bad_lines(sid INTEGER NOT NULL, line INTEGER NOT NULL, PRIMARY KEY(sid, line)) WITHOUT ROWID;
CREATE TABLE events(
  id INTEGER PRIMARY KEY, sid INTEGER NOT NULL, line INTEGER NOT NULL,
  kind TEXT NOT NULL, agent TEXT NOT NULL, at REAL NOT NULL, time REAL, began REAL, ended REAL,
  tool TEXT, base_tool TEXT, outcome TEXT NOT NULL, source TEXT NOT NULL, call_id TEXT, run_id TEXT,
  same INTEGER, lead INTEGER, skill TEXT, layer TEXT NOT NULL DEFAULT 'other',
  UNIQUE(sid, line)
);
CREATE INDEX events_by_time ON events(at);
CREATE INDEX events_by_call ON events(same, source) WHERE same IS NOT NULL;
CREATE INDEX events_by_id ON events(call_id) WHERE call_id IS NOT NULL;
CREATE INDEX events_by_lead ON events(lead) WHERE lead IS NOT NULL;
CREATE TABLE files(event INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY(event, path)) WITHOUT ROWID;
CREATE TABLE spans(
  sid INTEGER NOT NULL, agent TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  skill TEXT, layer TEXT NOT NULL
);
CREATE INDEX spans_by_session ON spans(sid);
CREATE TABLE texts(id INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(body, content='', detail=none, columnsize=0, tokenize='ascii');
CREATE TABLE feed(seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL);
"""

_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class IndexUnavailable(Exception):
    """The index cannot be used or brought up to date now; the message says why and what to do."""


def explain(error: sqlite3.Error, path: Path) -> IndexUnavailable:
    """What an error of SQLite means for whoever asked."""
    code = code_of(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        why = f"another process has been writing it for more than {BUSY_S:g} s; try again"
    elif code == sqlite3.SQLITE_FULL:
        why = "the disk is full; free some space (`mcp-evo trajectories prune`, `mcp-evo runs prune`)"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        why = "it cannot be written; give yourself write access to it and its folder"
    elif code == sqlite3.SQLITE_IOERR:
        why = f"the disk refuses ({error})"
    else:
        why = str(error)
    return IndexUnavailable(f"the index {path.name} cannot be brought up to date: {why}")


def code_of(error: sqlite3.Error) -> int | None:
    """SQLite's primary result code; None: Python's own check failed, before SQLite was asked."""
    try:
        return error.sqlite_errorcode & 0xFF
    except AttributeError:
        return None


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the error says that the file is no index any more."""
    return code_of(error) in _BROKEN


def connect(path: Path, *, read_only: bool = False, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are begun explicitly. Raises sqlite3.Error."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA cache_size=-16000")
        connection.execute("PRAGMA temp_store=MEMORY")
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection) -> int:
    """Form of the tables; 0: none yet. Raises sqlite3.Error."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def open_index(path: Path, *, busy_s: float = BUSY_S) -> tuple[sqlite3.Connection, str | None]:
    """(connection, notice) to the index, made where it is missing and made anew where it cannot be used.

    The notice is one sentence where an index had to be given up. Raises sqlite3.Error, OSError.
    """
    try:
        connection = connect(path, busy_s=busy_s)
        found = _version_or_close(connection)
        if found == SCHEMA_VERSION:
            return connection, None
        connection.close()
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise
    with lock_of(path):
        notice = _make_room(path, busy_s)
        connection = connect(path, busy_s=busy_s)
        try:
            os.chmod(path, 0o600)
            if version_of(connection) != SCHEMA_VERSION:
                with transaction(connection):
                    for statement in _TABLES.split(";\n"):
                        if statement.strip():
                            connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
    return connection, notice


def _version_or_close(connection: sqlite3.Connection) -> int:
    try:
        return version_of(connection)
    except BaseException:
        connection.close()
        raise


def _make_room(path: Path, busy_s: float) -> str | None:
    """Takes an index that cannot be used out of the way; by whoever holds the lock, once."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        connection = connect(path, busy_s=busy_s)
        try:
            found = version_of(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise
        put_aside(path)
        return f"the index was damaged ({error}); it is rebuilt from the raw events, the old one is {path.name}.damaged"
    if found in (0, SCHEMA_VERSION):
        return None
    _remove(path)
    return f"the index had form {found}, this version writes {SCHEMA_VERSION}; it is rebuilt from the raw events"


def put_aside(path: Path) -> None:
    """Moves a damaged index away. Its journal goes: replayed into a fresh index it would damage that one, too."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    os.replace(path, f"{path}.damaged")


def _remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, with the right to write from the start. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
