"""Retention of recorded sessions: which may go, why the others stay, letting them go, and clipping as a milder step.

1. A plan is made first and shows every session with its size and its reason; nothing is written while planning.
2. A session stays that changed within the last hour, and one that a round, patch, finding or approval rests on
   (`optimizer.citations`), unless it is named to go all the same.
3. Every session is judged again under the lock that its writers take, and moved out of sight there in one step; its
   folder with the lock stays for a day, so that a writer that waits for the lock goes on as if the session were new.
4. Compacting replaces a file by one with the same lines in the same places, in which oversized fields are clipped
   (`optimizer.clip`): (session, line) stays valid. A crash leaves the old file or the new one.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from filelock import Timeout
from pydantic import BaseModel, Field

from optimizer.citations import citations
from optimizer.clip import FIELD_BYTES, clip
from optimizer.home import Home
from optimizer.index.schema import IndexUnavailable
from optimizer.layers import Layer
from optimizer.store import RawFile
from skill_bank.files import lock_of, write_chunks_atomic

TRASH = ".trash-"

LIVE_S = 3600.0
"""A session that changed within this may be going on."""

SHELL_S = 86_400.0
"""How long the empty folder of a pruned session stays for writers that may still come."""

LOCK_TIMEOUT_S = 10.0
"""How long a writer of the session is waited for."""

DAY_S = 86_400.0

MB = 1_000_000


@dataclass(frozen=True)
class SessionRetention:
    """What to keep."""

    keep_last: int = 200
    """So many of the sessions that changed last stay."""
    older_than_days: float = 90.0
    """Sessions that changed later stay."""
    max_mb: float | None = None
    """Beyond this, the oldest go whatever their age; None: no limit."""
    compact: bool = False
    """Clip oversized fields instead of deleting anything."""
    field_bytes: int = FIELD_BYTES
    """Texts up to this size are not clipped."""


class PlannedSession(BaseModel):
    """One session in a plan."""

    session: str
    size_bytes: int
    freed_bytes: int = 0
    """What would be freed."""
    reason: str
    cited_by: list[str] = Field(default_factory=list)
    """Documents that rest on it."""
    mtime_ns: int = 0
    """Of its file when the plan was made: one that grew since is left alone."""


class SessionPlan(BaseModel):
    """What would be deleted or clipped and what not."""

    compact: bool
    field_bytes: int
    go: list[PlannedSession]
    """To be deleted, or with `compact` to be clipped."""
    keep: list[PlannedSession]
    trash: list[PlannedSession]
    """Files that an interrupted prune left behind."""

    @property
    def freed_bytes(self) -> int:
        return sum(one.freed_bytes for one in (*self.go, *self.trash))


class PrunedSessions(BaseModel):
    """What became of a plan."""

    done: list[PlannedSession]
    skipped: list[PlannedSession]
    """Left alone when it came to it; the reason says why."""
    freed_bytes: int


def plan_sessions(
    home: Home,
    retention: SessionRetention,
    sessions: Sequence[str] = (),
    force: Sequence[str] = (),
    now: float | None = None,
) -> SessionPlan:
    """The plan. `sessions`: only these, whatever their age; `force`: these, also where something rests on them.

    Raises BadId for an unknown session, OSError where a document that may cite one cannot be read.
    """
    store = home.trajectories
    forced = {store.resolve(one) for one in force}
    chosen = {store.resolve(one) for one in sessions} | forced
    cited = citations(home)
    moment = time.time() if now is None else now
    newest_first = sorted(store.files(), key=lambda one: (-one.mtime_ns, one.session))
    go: list[PlannedSession] = []
    keep: list[PlannedSession] = []
    left = sum(one.size for one in newest_first)
    for number, file in reversed(list(enumerate(newest_first))):
        age_days = max(0.0, moment - file.mtime_ns / 1e9) / DAY_S
        reason, stays = _judge(file, number, age_days, left, retention, chosen, moment)
        documents = cited.get(file.session, [])
        if documents and not retention.compact and not stays:
            stays = file.session not in forced
            reason = f"{documents[0]} rests on it" if stays else f"forced, although {documents[0]} rests on it"
        freed = 0 if stays else _freed(store.file(file.session), retention) if retention.compact else file.size
        if not stays and retention.compact and freed == 0:
            reason, stays = "nothing in it is oversized", True
        entry = PlannedSession(
            session=file.session,
            size_bytes=file.size,
            freed_bytes=freed,
            reason=reason,
            cited_by=documents[:5],
            mtime_ns=file.mtime_ns,
        )
        (keep if stays else go).append(entry)
        left -= freed
    return SessionPlan(
        compact=retention.compact,
        field_bytes=retention.field_bytes,
        go=go,
        keep=list(reversed(keep)),
        trash=_trash(store.root),
    )


def _judge(
    file: RawFile,
    number: int,
    age_days: float,
    left: int,
    retention: SessionRetention,
    chosen: set[str],
    now: float,
) -> tuple[str, bool]:
    """(reason, whether it stays), before asking what rests on it."""
    if file.mtime_ns / 1e9 > now - LIVE_S:  # also one whose time lies ahead: the clock was set
        return "changed within the last hour", True
    if chosen:
        return ("named", False) if file.session in chosen else ("not named", True)
    if retention.compact:
        return "holds oversized fields", False
    if number < retention.keep_last:
        return f"one of the newest {retention.keep_last}", True
    if retention.max_mb is not None and left > retention.max_mb * MB:
        return f"all sessions together take more than {retention.max_mb:g} MB", False
    if age_days < retention.older_than_days:
        return f"changed {age_days:.0f} days ago", True
    return f"changed {age_days:.0f} days ago", False


def _trash(root: Path) -> list[PlannedSession]:
    found = []
    for path in sorted(root.glob(f"{TRASH}*")):
        size = bytes_below(path)
        found.append(
            PlannedSession(session=path.name, size_bytes=size, freed_bytes=size, reason="left by an interrupted prune")
        )
    return found


def bytes_below(path: Path) -> int:
    """Bytes of a file, or of the files below a folder; links are not followed, what vanishes counts nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        return sum(bytes_below(Path(entry.path)) for entry in os.scandir(path))
    except FileNotFoundError:
        return 0


def carry_out(home: Home, plan: SessionPlan, force: Sequence[str] = ()) -> PrunedSessions:
    """Does what the plan says, each session judged again. `force` as for the plan. Raises BadId, OSError."""
    cited = {} if plan.compact else citations(home)
    forced = {home.trajectories.resolve(one) for one in force}
    done: list[PlannedSession] = []
    skipped: list[PlannedSession] = []
    trash = [home.trajectories.root / one.session for one in plan.trash]
    for one in plan.go:
        documents = cited.get(one.session, [])
        why_not: str | None = None
        if documents and one.session not in forced:
            why_not = f"{documents[0]} rests on it now"
        else:
            try:
                why_not = _compact(home, one, plan) if plan.compact else _move(home, one, trash)
            except Timeout:
                why_not = "its writer did not let go of it"
        if why_not is None:
            done.append(one)
        else:
            skipped.append(one.model_copy(update={"reason": why_not}))
    for path in trash:
        _delete(path)
    if not plan.compact:
        _sweep_shells(home)
    try:
        home.index.refresh([one.session for one in done])
    except IndexUnavailable:  # its next use finds out by itself
        pass
    return PrunedSessions(
        done=[*done, *plan.trash], skipped=skipped, freed_bytes=sum(one.freed_bytes for one in (*done, *plan.trash))
    )


def _changed(home: Home, one: PlannedSession) -> str | None:
    seen = home.trajectories.look(one.session)
    if seen is None:
        return "is gone already"
    if (seen.size, seen.mtime_ns) != (one.size_bytes, one.mtime_ns):
        return "has changed since the plan was made"
    return None


def _move(home: Home, one: PlannedSession, trash: list[Path]) -> str | None:
    """Moves a session's files out of sight; None, or why not."""
    path = home.trajectories.file(one.session)
    lock = lock_of(path)
    with lock.acquire(timeout=LOCK_TIMEOUT_S):
        why_not = _changed(home, one)
        if why_not is not None:
            return why_not
        target = home.trajectories.root / f"{TRASH}{one.session}-{os.getpid()}-{time.time_ns()}"
        target.mkdir(mode=0o700)
        trash.append(target)
        os.replace(path, target / path.name)  # the session is gone with this step; the rest is tidying up
        for other in list(path.parent.iterdir()):
            if other.name != f"{path.name}.lock":
                os.replace(other, target / other.name)
    segments = home.trajectories.root / "segments"
    for derived in (
        segments / "state" / f"{one.session}.json",
        *(segments / each / f"{one.session}.jsonl" for each in Layer),
    ):
        derived.unlink(missing_ok=True)
    return None


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep_shells(home: Home) -> None:
    """Removes folders that hold nothing but a lock and have not changed for a day."""
    raw = home.trajectories.raw
    for folder in sorted(raw.iterdir()) if raw.is_dir() else ():
        names = {one.name for one in folder.iterdir()} if folder.is_dir() and not folder.is_symlink() else {"?"}
        if names - {"events.jsonl.lock"} or time.time() - folder.stat().st_mtime < SHELL_S:
            continue
        try:
            with lock_of(folder / "events.jsonl").acquire(timeout=0):
                if not (folder / "events.jsonl").exists():
                    (folder / "events.jsonl.lock").unlink(missing_ok=True)
                    folder.rmdir()
        except (Timeout, OSError):  # somebody writes there after all
            continue


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def clipped_line(line: bytes, field_bytes: int) -> bytes:
    """The line with its oversized fields clipped; the very same bytes where there is nothing to gain or it is no event.

    A line feed at its end stays.
    """
    if len(line) <= field_bytes:
        return line
    try:
        document = _decode(line)
        if not isinstance(document, dict):
            return line
        clipped = clip(document, field_bytes)
        shorter = _encode(clipped) + (b"\n" if line.endswith(b"\n") else b"")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return line
    return shorter if clipped != document and len(shorter) < len(line) and b"\n" not in shorter[:-1] else line


def _clipped_lines(path: Path, field_bytes: int) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        for line in stream:  # a binary stream splits on 0x0A only
            yield clipped_line(line, field_bytes)


def _freed(path: Path, retention: SessionRetention) -> int:
    """Bytes that clipping the file would free."""
    try:
        size = path.stat().st_size
        if size <= retention.field_bytes:
            return 0
        return size - sum(len(line) for line in _clipped_lines(path, retention.field_bytes))
    except FileNotFoundError:
        return 0


def _compact(home: Home, one: PlannedSession, plan: SessionPlan) -> str | None:
    """Replaces a session's file by a clipped one; None, or why not. The file's time stays: clipping is no activity."""
    path = home.trajectories.file(one.session)
    with lock_of(path).acquire(timeout=LOCK_TIMEOUT_S):
        why_not = _changed(home, one)
        if why_not is None:
            for left_behind in path.parent.glob(f".{path.name}.*.tmp"):  # by one that was killed; nobody else is here
                left_behind.unlink(missing_ok=True)
            write_chunks_atomic(
                path, _clipped_lines(path, plan.field_bytes), mode=0o600, times_ns=(one.mtime_ns, one.mtime_ns)
            )
        return why_not
