"""Rows of the index: what is written for a session, an event, a merged call, a span. All within a caller's transaction.

Nothing here depends on the order in which sessions are taken in, so an index that grew piece by piece holds what one
built from scratch holds.
"""

import math
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from optimizer.events import Event
from optimizer.index.merge import Call, base_tool, call_hash, leaders, times_of
from optimizer.index.text import storable, text_of, words_of
from optimizer.store import Position, RawFile

FEED_KEPT = 2000
"""Changes that followers of the index can still read."""

_FILE_KEYS = ("file_path", "notebook_path")
"""Where a tool's input names the file that it works on."""

_PIECE = 500
"""Rows taken out at once."""

Span = tuple[str, int, int, str | None, str]
"""agent, first line, last line, skill, layer."""


@dataclass(frozen=True)
class Known:
    """What the index knows of a session's file."""

    sid: int
    size: int
    mtime_ns: int
    inode: int
    position: Position
    last_at: float
    assigned: int
    complete: bool


def known_sessions(connection: sqlite3.Connection, names: Collection[str] | None = None) -> dict[str, Known]:
    """Session → what is known of it."""
    query = "SELECT name, sid, size, mtime_ns, inode, offset, line, mark, last_at, assigned, complete FROM sessions"
    if names is None:
        found = connection.execute(query).fetchall()
    else:
        found = [row for name in names for row in connection.execute(f"{query} WHERE name=?", (name,))]
    return {
        row[0]: Known(row[1], row[2], row[3], row[4], Position(row[5], row[6], row[7]), row[8], row[9], bool(row[10]))
        for row in found
    }


def is_current(known: Known | None, file: RawFile) -> bool:
    """Whether the file is as it was when it was read to its end, and all of its events have their skill."""
    if known is None or not known.complete or known.assigned < known.position.line:
        return False
    return (known.size, known.mtime_ns, known.inode) == (file.size, file.mtime_ns, file.inode)


def open_session(connection: sqlite3.Connection, name: str) -> int:
    """Number of the session, which is made where it is new."""
    connection.execute(
        "INSERT OR IGNORE INTO sessions(name, size, mtime_ns, inode, offset, line, mark, last_at, assigned, complete)"
        " VALUES(?, 0, 0, 0, 0, 0, '', 0, 0, 0)",
        (name,),
    )
    return int(connection.execute("SELECT sid FROM sessions WHERE name=?", (name,)).fetchone()[0])


def store_position(
    connection: sqlite3.Connection, sid: int, file: RawFile, position: Position, last_at: float, *, complete: bool
) -> None:
    """Where reading goes on, and what the file looked like."""
    connection.execute(
        "UPDATE sessions SET size=?, mtime_ns=?, inode=?, offset=?, line=?, mark=?, last_at=?, complete=? WHERE sid=?",
        (
            *(file.size, file.mtime_ns, file.inode),
            *(position.offset, position.line, position.mark, last_at, complete, sid),
        ),
    )


def insert(connection: sqlite3.Connection, sid: int, event: Event, at: float) -> set[int]:
    """Adds an event; returns the hash of its call where others may be the same call."""
    is_call = event.is_call
    same = call_hash(event.tool, event.input) if is_call else None
    began, ended = times_of(event) if is_call else (None, None)
    call_id = None if event.call_id is None else storable(event.call_id)
    tool = None if event.tool is None else storable(event.tool)
    cursor = connection.execute(
        "INSERT INTO events(sid, line, kind, agent, at, time, began, ended, tool, base_tool, outcome, source, call_id,"
        " run_id, same) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            *(sid, event.line, storable(event.kind), storable(event.agent), at),
            *(_finite(event.time), _finite(began), _finite(ended)),
            *(tool, None if tool is None else base_tool(tool), storable(event.outcome), storable(event.source)),
            *(call_id, None if event.run_id is None else storable(event.run_id), same),
        ),
    )
    number = cursor.lastrowid
    body = text_of(event)
    connection.execute("INSERT INTO texts(id, body) VALUES(?,?)", (number, body))
    connection.execute("INSERT INTO words(rowid, body) VALUES(?,?)", (number, words_of(body)))
    for path in files_of(event):
        connection.execute("INSERT OR IGNORE INTO files(event, path) VALUES(?,?)", (number, path))
    if same is None or not _has_likes(connection, same, call_id):
        return set()
    return {same}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def files_of(event: Event) -> list[str]:
    """Files that a call's input names."""
    if not event.is_call or not isinstance(event.input, dict):
        return []
    values = (event.input.get(key) for key in _FILE_KEYS)
    return [storable(value) for value in values if isinstance(value, str) and value]


def _has_likes(connection: sqlite3.Connection, same: int, call_id: str | None) -> bool:
    """Whether the call may be one of several events: another source tells the same call, or another event its id."""
    ends = connection.execute(
        "SELECT (SELECT min(source) FROM events WHERE same=?1), (SELECT max(source) FROM events WHERE same=?1)", (same,)
    ).fetchone()
    if ends[0] != ends[1]:
        return True
    if call_id is None:
        return False
    return len(connection.execute("SELECT 1 FROM events WHERE call_id=? LIMIT 2", (call_id,)).fetchall()) > 1


def insert_bad_lines(connection: sqlite3.Connection, sid: int, lines: Iterable[int]) -> None:
    """Lines that are no events."""
    connection.executemany("INSERT OR IGNORE INTO bad_lines(sid, line) VALUES(?,?)", [(sid, line) for line in lines])


def merge(connection: sqlite3.Connection, hashes: Iterable[int]) -> None:
    """Decides anew which events of these calls are the same."""
    for same in hashes:
        found = connection.execute(
            "SELECT e.id, s.name, e.line, e.source, e.call_id, e.began, e.ended, e.lead"
            " FROM events e JOIN sessions s USING(sid) WHERE e.same=?",
            (same,),
        ).fetchall()
        number = {(row[1], row[2]): row[0] for row in found}
        speakers = leaders(Call((row[1], row[2]), row[3], same, row[4], row[5], row[6]) for row in found)
        for row in found:
            speaker = speakers.get((row[1], row[2]))
            lead = None if speaker is None else number[speaker]
            if lead != row[7]:
                connection.execute("UPDATE events SET lead=? WHERE id=?", (lead, row[0]))


def clear(connection: sqlite3.Connection, sid: int) -> set[int]:
    """Takes all events of a session out; returns the hashes of calls that others were merged with."""
    merged = connection.execute(
        "SELECT DISTINCT same FROM events e WHERE sid=? AND same IS NOT NULL"
        " AND (lead IS NOT NULL OR EXISTS(SELECT 1 FROM events o WHERE o.lead=e.id))",
        (sid,),
    ).fetchall()
    while True:
        some = connection.execute("SELECT id FROM events WHERE sid=? LIMIT ?", (sid, _PIECE)).fetchall()
        if not some:
            break
        for (number,) in some:
            body = connection.execute("SELECT body FROM texts WHERE id=?", (number,)).fetchone()[0]
            connection.execute("INSERT INTO words(words, rowid, body) VALUES('delete',?,?)", (number, words_of(body)))
        for table, column in (("texts", "id"), ("files", "event"), ("events", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column}=?", some)
    connection.execute("DELETE FROM bad_lines WHERE sid=?", (sid,))
    connection.execute("DELETE FROM spans WHERE sid=?", (sid,))
    connection.execute("UPDATE sessions SET assigned=0 WHERE sid=?", (sid,))
    return {row[0] for row in merged}


def forget(connection: sqlite3.Connection, name: str) -> None:
    """Takes a session out altogether."""
    known = known_sessions(connection, [name]).get(name)
    if known is not None:
        dirty = clear(connection, known.sid)
        connection.execute("DELETE FROM sessions WHERE sid=?", (known.sid,))
        merge(connection, dirty)


def assign(connection: sqlite3.Connection, name: str, spans: Sequence[Span]) -> bool:
    """Gives events skill and layer by the session's spans; whether any span is another one than before."""
    known = known_sessions(connection, [name]).get(name)
    if known is None:
        return False
    stored = {
        tuple(row)
        for row in connection.execute("SELECT agent, first, last, skill, layer FROM spans WHERE sid=?", (known.sid,))
    }
    wanted = {(storable(agent), first, last, skill, layer) for agent, first, last, skill, layer in spans}
    gone = stored - wanted
    for agent, first, last, _, _ in gone:
        connection.execute(
            "UPDATE events SET skill=NULL, layer='other' WHERE sid=? AND agent=? AND line BETWEEN ? AND ?",
            (known.sid, agent, first, last),
        )
        connection.execute(
            "DELETE FROM spans WHERE sid=? AND agent=? AND first=? AND last=?", (known.sid, agent, first, last)
        )
    for span in sorted(wanted, key=lambda one: (one[1], one[2])):
        agent, first, last, skill, layer = span
        if span not in stored:
            connection.execute("INSERT INTO spans VALUES(?,?,?,?,?,?)", (known.sid, *span))
        if span not in stored or last >= known.assigned:
            connection.execute(
                "UPDATE events SET skill=?, layer=? WHERE sid=? AND agent=? AND line BETWEEN ? AND ?",
                (skill, layer, known.sid, agent, first, last),
            )
    connection.execute("UPDATE sessions SET assigned=line WHERE sid=?", (known.sid,))
    return stored != wanted


def tell(connection: sqlite3.Connection, kind: str, name: str) -> None:
    """Adds a change to the feed that other processes follow."""
    cursor = connection.execute("INSERT INTO feed(kind, name) VALUES(?,?)", (kind, storable(name)))
    connection.execute("DELETE FROM feed WHERE seq<=?", ((cursor.lastrowid or 0) - FEED_KEPT,))
