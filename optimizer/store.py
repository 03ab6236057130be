"""The trajectory store: `trajectories/raw/<session>/events.jsonl`, append-only, without a layer.

1. Appending redacts secrets first; nothing that looks like one reaches the disk.
2. Reading splits on byte 0x0A only and goes on behind a bad line: one bad byte costs one line, which is counted.
3. A reader that remembers where it was (`Position`) reads only what is new. A file that shrank or whose read part
   changed (rotation, restore) is read again from its start.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from optimizer.events import BadEvent, Event, parse, to_line
from optimizer.ids import ID_PATTERN, BadId, check_id
from optimizer.redact import redact, redact_text
from skill_bank.files import append_line, iterate_lines

_MARK_BYTES = 256
"""Bytes before a position that are remembered, to notice that a file is no longer the one that was read."""


@dataclass(frozen=True)
class Position:
    """Where an incremental reader stands in a session's file."""

    offset: int = 0
    line: int = 0
    """Number of the next line, from 0."""
    mark: str = ""
    """Hash of the bytes before the offset."""


@dataclass(frozen=True)
class Batch:
    """What a read brought."""

    events: list[Event]
    bad_lines: list[int]
    position: Position
    restarted: bool
    """The file was not the one that was read before: these events are all of it, from line 0."""


class TrajectoryStore:
    """Raw events of a workspace."""

    def __init__(self, trajectories: Path) -> None:
        self.root = trajectories
        self.raw = trajectories / "raw"

    def file(self, session: str) -> Path:
        """The session's file. Raises BadId for a session that cannot name a folder."""
        return self.raw / check_id(session, "session") / "events.jsonl"

    def append(self, event: Event) -> None:
        """Adds an event to its session, redacted."""
        path = self.file(event.session)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        clean = msgspec.structs.replace(
            event,
            input=redact(event.input),
            response=redact(event.response),
            text=None if event.text is None else redact_text(event.text),
            reason=None if event.reason is None else redact_text(event.reason),
        )
        append_line(path, to_line(clean))

    def sessions(self) -> list[str]:
        """Sessions with events, oldest change first."""
        if not self.raw.is_dir():
            return []
        found = []
        for entry in os.scandir(self.raw):
            path = Path(entry.path) / "events.jsonl"
            if ID_PATTERN.match(entry.name) and path.is_file():
                found.append((path.stat().st_mtime_ns, entry.name))
        return [name for _, name in sorted(found)]

    def resolve(self, session: str | None) -> str:
        """The session asked for, by id or unambiguous beginning; None: the latest. Raises BadId with what there is."""
        known = self.sessions()
        if not known:
            raise BadId("no session was recorded yet: train with `mcp-evo evolve`, or connect an agent to the server")
        if session is None:
            return known[-1]
        matching = [name for name in known if name == session] or [name for name in known if name.startswith(session)]
        if len(matching) != 1:
            some = ", ".join((matching or known)[-5:])
            problem = "names several sessions" if matching else "is not a recorded session"
            raise BadId(f"{session!r} {problem}: {some}")
        return matching[0]

    def read(self, session: str, since: Position | None = None) -> Batch:
        """The events from `since` on (all by default). A session without a file has no events."""
        path = self.file(session)
        if not path.exists():
            return Batch([], [], Position(), since is not None and since.offset > 0)
        position = since or Position()
        restarted = position.offset > 0 and _mark(path, position.offset) != position.mark
        if restarted:
            position = Position()
        events: list[Event] = []
        bad: list[int] = []
        offset, number = position.offset, position.line
        for behind, line in iterate_lines(path, position.offset):
            if line.strip():
                try:
                    events.append(parse(line, number))
                except BadEvent:
                    bad.append(number)
            offset, number = behind, number + 1
        return Batch(events, bad, Position(offset, number, _mark(path, offset)), restarted)

    def event(self, session: str, line: int) -> Event:
        """One event by its identity. Raises BadId where that line holds none."""
        for event in self.read(session).events:
            if event.line == line:
                return event
        raise BadId(f"session {session} has no event in line {line}")


def _mark(path: Path, offset: int) -> str:
    """Hash of the bytes before `offset`; empty where the file is shorter."""
    if offset == 0:
        return ""
    with open(path, "rb") as stream:
        start = max(offset - _MARK_BYTES, 0)
        stream.seek(start)
        data = stream.read(offset - start)
    return hashlib.sha256(data).hexdigest()[:16] if len(data) == offset - start else ""
