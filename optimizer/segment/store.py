"""Segments on disk: `segments/<layer>/<session>.jsonl`, derived from the raw events and rebuildable at any time.

1. Each session has a state file, `segments/state/<session>.json`: where reading stands, what is open, how many bytes of
   each layer's file hold closed segments. Bringing a session up to date reads only new bytes, one event at a time,
   and replaces only files that change; behind the closed segments of a file stand the open ones, as they are now.
2. `segments/seen.json` holds size, time and inode of each raw file as they were last seen, so that a look at thousands
   of unchanged sessions opens none of them.
3. Deleting the whole `segments` folder loses nothing. A file that does not fit its state is made again.
"""

import os
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

import msgspec

from optimizer.events import BadEvent, glance
from optimizer.layers import Layer, check_read
from optimizer.segment.many import SHARED_BYTES, can_share, refreshed_by_many
from optimizer.segment.segmenter import ChildrenOf, GroupOf, Segmenter, SegmenterState, no_children
from optimizer.segment.types import MAX_BAD_LINES, Segment, SegmentedSession
from optimizer.store import RawFile, TrajectoryStore, mark_of
from skill_bank.files import lock_of, write_bytes_atomic

_STATE_VERSION = 4

_BUFFER = 1024 * 1024


class _State(msgspec.Struct, kw_only=True):
    """What is remembered of a session."""

    version: int = _STATE_VERSION
    offset: int = 0
    line: int = 0
    mark: str = ""
    events: int = 0
    bad_lines: int = 0
    bad: list[int] = msgspec.field(default_factory=list)
    closed_bytes: dict[str, int] = msgspec.field(default_factory=dict)
    """Layer → bytes of its file that hold closed segments."""
    fold: SegmenterState = msgspec.field(default_factory=SegmenterState)


class _Seen(msgspec.Struct, array_like=True):
    """A raw file as it was when its segments were brought up to date."""

    size: int
    mtime_ns: int
    inode: int
    events: int
    bad_lines: int
    bad: list[int]


class _AllSeen(msgspec.Struct):
    version: int = _STATE_VERSION
    sessions: dict[str, _Seen] = msgspec.field(default_factory=dict)


class SegmentStore:
    """Segments of a workspace's sessions."""

    def __init__(self, store: TrajectoryStore, group_of: GroupOf, children_of: ChildrenOf = no_children) -> None:
        self.store = store
        self.root = store.root / "segments"
        self.group_of = group_of
        self.children_of = children_of

    def update(self, session: str) -> list[Segment]:
        """Takes in what is new and returns all segments of the session, in order of their first line."""
        self.refresh_one(session)
        return self.segments(session)

    def update_all(self) -> dict[str, list[Segment]]:
        """Segments of every session."""
        return {session: self.update(session) for session in self.store.sessions()}

    def refresh(self, sessions: Iterable[str] | None = None, *, processes: int = 1) -> list[SegmentedSession]:
        """Brings sessions (all by default, oldest change first) up to date, without loading their segments.

        With `processes`, a large backlog is shared between so many processes; each session is done by one of them.
        """
        if sessions is None:
            files = sorted(self.store.files(), key=lambda one: (one.mtime_ns, one.session))
        else:
            files = [one for one in map(self.store.look, sessions) if one is not None]
        known = self._load_seen()
        found: dict[str, SegmentedSession] = {}
        todo: list[RawFile] = []
        for file in files:
            seen = known.sessions.get(file.session)
            if seen is not None and (seen.size, seen.mtime_ns, seen.inode) == (file.size, file.mtime_ns, file.inode):
                found[file.session] = SegmentedSession(
                    file.session, seen.events, seen.bad_lines, seen.bad, changed=False
                )
            else:
                todo.append(file)
        backlog = sum(file.size for file in todo)
        done: Iterable[SegmentedSession]
        if processes > 1 and len(todo) > 1 and backlog >= SHARED_BYTES and can_share():
            done = refreshed_by_many(self.refresh_one, [(file.size, file.session) for file in todo], processes)
        else:
            done = (self.refresh_one(file.session) for file in todo)
        looked_at = {file.session: file for file in todo}
        for one in done:
            found[one.session] = one
            known.sessions[one.session] = _seen(looked_at[one.session], one)
        dirty = bool(todo)
        if sessions is None:
            gone = known.sessions.keys() - {file.session for file in files}
            for name in gone:
                del known.sessions[name]
            dirty = dirty or bool(gone)
        if dirty:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_bytes_atomic(self._seen_path, msgspec.json.encode(known), mode=0o600, flushed=False)
        return [found[file.session] for file in files]

    def refresh_one(self, session: str) -> SegmentedSession:
        """Brings one session up to date, reading only new bytes. A session without a file has no segments."""
        raw = self.store.file(session)  # refuses a session that cannot name a file before anything is made
        state_path = self.root / "state" / f"{session}.json"
        state_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock_of(state_path):
            state = self._load(state_path, session)
            before = (state.offset, state.mark)
            closed: dict[str, bytearray] = {}
            state = self._read(raw, session, state, closed)
            changed = (state.offset, state.mark) != before
            if changed or not state_path.exists():
                self._write_segments(session, state, closed)
                write_bytes_atomic(state_path, msgspec.json.encode(state), mode=0o600, flushed=False)
        return SegmentedSession(session, state.events, state.bad_lines, state.bad, changed)

    def segments(self, session: str) -> list[Segment]:
        """The segments that are stored, in order of their first line."""
        self.store.file(session)
        found = [one for layer in Layer for one in _stored(self._file(layer, session))]
        return sorted(found, key=lambda one: one.first_line)

    def of_layer(self, layer: Layer | str, *, reader: Layer | str | None = None) -> list[Segment]:
        """Stored segments of a layer. With a `reader`, raises LayerError unless that optimiser may read the layer."""
        if reader is not None:
            check_read(reader, layer)
        folder = self.root / Layer(layer)
        found: list[Segment] = []
        for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
            found += _stored(path)
        return found

    def _read(self, raw: Path, session: str, state: _State, closed: dict[str, bytearray]) -> _State:
        """Takes in the complete lines from the state's position on; closed segments go to `closed` as lines.

        Returns the state as it is then: a fresh one where the file was not the one that was read before.
        """
        try:
            file = open(raw, "rb", buffering=0)  # noqa: SIM115
        except FileNotFoundError:
            return _State()
        with file, BufferedReader(file, _BUFFER) as stream:
            if state.offset > 0 and mark_of(file, state.offset) != state.mark:
                state = _State()
            fold = state.fold
            fold.session = session
            take = Segmenter(self.group_of, fold, self.children_of).take
            start, offset, number = state.offset, state.offset, state.line
            no_events = 0
            stream.seek(offset)
            for line in stream:  # a binary stream splits on 0x0A only
                if line[-1] != 10:
                    break
                try:
                    take(glance(line, number))
                except BadEvent:
                    no_events += 1
                    if line.strip():
                        state.bad_lines += 1
                        if len(state.bad) < MAX_BAD_LINES:
                            state.bad.append(number)
                offset += len(line)
                number += 1
                if fold.closed:
                    for segment in fold.take_closed():
                        closed.setdefault(segment.layer, bytearray()).extend(_line_of(segment))
            if offset != start:
                state.events += number - state.line - no_events
                state.offset, state.line, state.mark = offset, number, mark_of(file, offset)
        return state

    def _write_segments(self, session: str, state: _State, closed: dict[str, bytearray]) -> None:
        opened: dict[str, bytearray] = {}
        for segment in state.fold.open:
            opened.setdefault(segment.layer, bytearray()).extend(_line_of(segment))
        for layer in map(str, Layer):
            path = self._file(layer, session)
            length = state.closed_bytes.get(layer, 0)
            more = closed.get(layer, b"") + opened.get(layer, b"")
            if length == 0 and not more:
                path.unlink(missing_ok=True)
            elif more or path.stat().st_size != length:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                kept = path.read_bytes()[:length] if length else b""
                write_bytes_atomic(path, kept + more, mode=0o600, flushed=False)
            state.closed_bytes[layer] = length + len(closed.get(layer, b""))

    def _file(self, layer: str, session: str) -> Path:
        return self.root / layer / f"{session}.jsonl"

    def _load(self, path: Path, session: str) -> _State:
        """The state, or a fresh one where there is none or it is damaged (it is derived: rebuilding it costs time)."""
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
            if state.version != _STATE_VERSION:
                return _State()
            for layer, length in state.closed_bytes.items():
                if length and os.stat(self._file(Layer(layer), session)).st_size < length:
                    return _State()
            return state
        except (FileNotFoundError, ValueError):
            return _State()

    @property
    def _seen_path(self) -> Path:
        return self.root / "seen.json"

    def _load_seen(self) -> _AllSeen:
        try:
            known = msgspec.json.decode(self._seen_path.read_bytes(), type=_AllSeen)
        except (FileNotFoundError, ValueError):
            return _AllSeen()
        return known if known.version == _STATE_VERSION else _AllSeen()


def _seen(file: RawFile, one: SegmentedSession) -> _Seen:
    return _Seen(file.size, file.mtime_ns, file.inode, one.events, one.bad_lines, one.bad_line_numbers)


def _line_of(segment: Segment) -> bytes:
    return msgspec.json.encode(segment)[:-1] + b',"outcome":"%s"}\n' % segment.outcome.encode()


def _stored(path: Path) -> list[Segment]:
    if not path.exists():
        return []
    decode = msgspec.json.Decoder(Segment).decode
    found: list[Segment] = []
    for line in path.read_bytes().split(b"\n"):
        if line:
            found.append(decode(line))
    return found
