"""The trajectory store: `trajectories/raw/<session>/events.jsonl`, append-only, without a layer.

1. Appending redacts secrets first; nothing that looks like one reaches the disk.
2. Reading splits on byte 0x0A only and goes on behind a bad line: one bad byte costs one line, which is counted.
3. A reader that remembers where it was (`Position`) reads only what is new. A file that shrank or whose read part
   changed (rotation, restore, compaction) is read again from its start.
4. A reader that sets `limit_bytes` holds no more than about that much of a file, however large it is.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from optimizer.events import BadEvent, Event, parse, to_line
from optimizer.ids import ID_PATTERN, BadId, check_id
from optimizer.redact import Rules, rules_of
from skill_bank.files import append_lines, lock_of

_WHOLE_BYTES = 128 * 1024
"""What was read of a file is hashed whole up to so many bytes; beyond, its beginning, its end and windows between."""

_WINDOWS = 24
_WINDOW_BYTES = 2048

_UNREADABLE = (BadEvent, msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Whatever is wrong with a line, it costs that line and never the rest of its session."""

_APPEND_TRIES = 8
"""A session's folder may be pruned between making it and writing into it; then it is made again."""


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
    more: bool = False
    """The limit was reached; complete lines follow."""


@dataclass(frozen=True)
class RawFile:
    """What a look at a session's file shows without reading it."""

    session: str
    size: int
    mtime_ns: int
    inode: int


class TrajectoryStore:
    """Raw events of a workspace."""

    def __init__(self, trajectories: Path) -> None:
        self.root = trajectories
        self.raw = trajectories / "raw"

    def file(self, session: str) -> Path:
        """The session's file. Raises BadId for a session that cannot name a folder."""
        return self.raw / check_id(session, "session") / "events.jsonl"

    def append(self, *events: Event, wait: bool = True) -> None:
        """Adds events of one session with one write, redacted by the rules of the workspace. Raises BadId, OSError.

        Without `wait` raises BlockingIOError, with nothing written, where another process is writing the file.
        """
        rules = rules_of(self.root.parent)
        lines = [to_line(_redacted(event, rules)) for event in events]
        self.append_raw(events[0].session, *lines, wait=wait)

    def append_raw(self, session: str, *lines: bytes, wait: bool = True) -> None:
        """Adds lines as they are, without their line feeds; whoever calls has taken the secrets out. Raises BadId."""
        path = self.file(session)
        for left in reversed(range(_APPEND_TRIES)):
            try:
                append_lines(path, lines, wait=wait)
                return
            except FileNotFoundError:  # the session is new, or its folder has just been taken away
                if left == 0:
                    raise
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """One import at a time: two that look what a session holds and then add would add the same twice."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock_of(self.root / "import"):
            yield

    def files(self) -> list[RawFile]:
        """The sessions' files by size and time, in no order; nothing of them is read."""
        found: list[RawFile] = []
        try:
            entries = os.scandir(self.raw)
        except (FileNotFoundError, NotADirectoryError):
            return found
        with entries:
            for entry in entries:
                if ID_PATTERN.match(entry.name):
                    one = self._look(entry.name)
                    if one is not None:
                        found.append(one)
        return found

    def look(self, session: str) -> RawFile | None:
        """One session's file; None where it has none. Raises BadId."""
        return self._look(check_id(session, "session"))

    def _look(self, session: str) -> RawFile | None:
        try:
            seen = os.stat(f"{self.raw}/{session}/events.jsonl")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return RawFile(session, seen.st_size, seen.st_mtime_ns, seen.st_ino) if _is_file(seen) else None

    def sessions(self) -> list[str]:
        """Sessions with events, oldest change first."""
        return [one.session for one in sorted(self.files(), key=lambda one: (one.mtime_ns, one.session))]

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

    def read(self, session: str, since: Position | None = None, *, limit_bytes: int | None = None) -> Batch:
        """The events from `since` on (all by default). A session without a file has no events.

        With `limit_bytes`, stops behind the line that reaches it; `more` says that complete lines may follow.
        """
        position = since or Position()
        try:
            with open(self.file(session), "rb") as stream:
                return _read(stream, position, limit_bytes)
        except FileNotFoundError:
            return Batch([], [], Position(), position.offset > 0)

    def event(self, session: str, line: int) -> Event:
        """One event by its identity. Raises BadId where that line holds none."""
        try:
            with open(self.file(session), "rb") as stream:
                for number, (_, text) in enumerate(_lines(stream, 0)):
                    if number == line and text.strip():
                        return parse(text, number)
                    if number >= line:
                        break
        except (FileNotFoundError, *_UNREADABLE):
            pass
        raise BadId(f"session {session} has no event in line {line}")


def _redacted(event: Event, rules: Rules) -> Event:
    return msgspec.structs.replace(
        event,
        input=rules.redact(event.input),
        response=rules.redact(event.response),
        text=None if event.text is None else rules.redact_text(event.text),
        reason=None if event.reason is None else rules.redact_text(event.reason),
    )


def folder_of(session: str) -> str:
    """Name of the folder in which a source's session lies: its id, or one made from it where it cannot name a folder.

    The same rule by which `mcp-evo-hook` files what it gets.
    """
    if ID_PATTERN.match(session):
        return session
    return "session-" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(stream: BinaryIO, position: Position, limit_bytes: int | None) -> Batch:
    restarted = position.offset > 0 and mark_of(stream, position.offset) != position.mark
    if restarted:
        position = Position()
    events: list[Event] = []
    bad: list[int] = []
    offset, number, more = position.offset, position.line, False
    for behind, line in _lines(stream, position.offset):
        if line.strip():
            try:
                events.append(parse(line, number))
            except _UNREADABLE:
                bad.append(number)
        offset, number = behind, number + 1
        if limit_bytes is not None and offset - position.offset >= limit_bytes:
            more = True
            break
    return Batch(events, bad, Position(offset, number, mark_of(stream, offset)), restarted, more)


def _is_file(seen: os.stat_result) -> bool:
    return stat.S_ISREG(seen.st_mode)


def _lines(stream: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """(offset behind the line, line without its line feed) for each complete line from `offset` on."""
    stream.seek(offset)
    for line in stream:  # a binary stream splits on 0x0A only
        if not line.endswith(b"\n"):
            return
        offset += len(line)
        yield offset, line[:-1]


def mark_of(stream: BinaryIO, offset: int) -> str:
    """Hash of what is before `offset`; empty where the file is shorter.

    A small part is hashed whole, so that no change of it goes unseen; of a large one, windows all over it, since a
    reader that follows a growing file asks for this after each event.
    """
    if offset == 0:
        return ""
    if os.fstat(stream.fileno()).st_size < offset:
        return ""
    digest = hashlib.blake2b(offset.to_bytes(8, "big"), digest_size=8)
    if offset <= _WHOLE_BYTES:
        windows = [(0, offset)]
    else:
        step = (offset - _WINDOW_BYTES) / (_WINDOWS - 1)
        windows = [(int(number * step), _WINDOW_BYTES) for number in range(_WINDOWS)]
    for start, length in windows:
        stream.seek(start)
        digest.update(stream.read(length))
    return digest.hexdigest()
