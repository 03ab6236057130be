"""Transcripts into the store, as often as one likes: what the session already holds is not added again.

What was known is told by the `call_id` of each event. Where hooks recorded the session, too, prompts and ends of turns
from their first event on are theirs, and only calls that no hook told are added.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from optimizer.capture.transcripts import TranscriptCounts, read_transcript, told_by
from optimizer.events import BadEvent, Event, EventKind, parse
from optimizer.ids import ID_PATTERN
from optimizer.store import TrajectoryStore
from skill_bank.files import iterate_lines


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    session: str | None
    """Folder of the session in the store; None: the transcript holds no event, or is told with its session's own."""
    added: int
    known: int
    """Events that the session held before."""
    lines: int
    """Lines of the session's own file."""
    bad_lines: list[int]
    copied_lines: int


def import_transcript(path: Path, store: TrajectoryStore) -> Imported:
    """Adds the events of a Claude Code transcript to its session, redacted. Raises OSError.

    A sub-agent's file beside its session's own is passed over: it is told with that one, in its place.
    """
    if told_by(path) is not None:
        return Imported(None, 0, 0, 0, [], 0)
    with store.importing():
        return _import(path, store)


def _import(path: Path, store: TrajectoryStore) -> Imported:
    counts = TranscriptCounts()
    session: str | None = None
    added = known = 0
    held = Held()
    for event in read_transcript(path, counts):
        if session is None:
            session = folder_name(event.session)
            held = held_by(store, session)
        if held.has(event):
            known += 1
            continue
        store.append(msgspec.structs.replace(event, session=session))
        added += 1
    return Imported(session, added, known, counts.lines, counts.bad_lines, counts.copied_lines)


def folder_name(session: str) -> str:
    """The session, or the id that the hook makes from one which cannot name a folder."""
    if ID_PATTERN.match(session):
        return session
    return "session-" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Held:
    """What a session holds already."""

    ids: frozenset[str] = frozenset()
    hooks_since: float | None = None
    """When its first hook event arrived; None: no hook recorded it."""

    def has(self, event: Event) -> bool:
        """Whether the event would be told twice."""
        if event.call_id is not None and event.call_id in self.ids:
            return True
        if event.is_call or self.hooks_since is None:
            return False
        return event.kind is not EventKind.SESSION_START and (event.time is None or event.time >= self.hooks_since)


def held_by(store: TrajectoryStore, session: str) -> Held:
    """Reads what the session's file holds; nothing where there is none."""
    path = store.file(session)
    if not path.exists():
        return Held()
    ids: set[str] = set()
    since: float | None = None
    for number, (_, line) in enumerate(iterate_lines(path)):
        try:
            event = parse(line, number)
        except BadEvent:
            continue
        if event.call_id is not None:
            ids.add(event.call_id)
        if event.source == "hook" and event.time is not None and (since is None or event.time < since):
            since = event.time
    return Held(frozenset(ids), since)
