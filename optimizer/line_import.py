"""Files of raw events into the store: hook input and the older normalised form, line by line as they are.

1. A line keeps its form; only secrets are taken out. So in a session that was empty an event keeps its line number.
2. A line that is no event goes to the session of the lines around it, where it is counted as bad.
3. Importing a file again adds nothing: a line that the session holds, however its time of arrival is noted, is known.
   Lines that stand in a file twice are kept twice.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from optimizer.events import BadEvent, glance
from optimizer.redact import Rules
from optimizer.store import TrajectoryStore, folder_of
from skill_bank.files import encoded, iterate_lines

_ARRIVAL = "received_at"


@dataclass
class ImportedLines:
    """What an import of one file did."""

    path: str
    sessions: list[str] = field(default_factory=list)
    """Folders of the sessions in the store."""
    lines: int = 0
    added: int = 0
    known: int = 0
    """Lines that the store held before."""
    bad_lines: int = 0


def event_files(path: Path) -> list[Path]:
    """The files to import: `path` itself, or every `*.jsonl` below a folder. What is no file (a folder, a
    link to nowhere, a pipe, a device) is passed over: there is none for such a `path`.
    """
    return [one for one in (sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]) if one.is_file()]


def import_lines(path: Path, store: TrajectoryStore, rules: Rules, arrivals: list[Any] | None = None) -> ImportedLines:
    """Adds the lines of a file to their sessions. `arrivals`: times of arrival by line number. Raises OSError."""
    with store.importing():
        return _import_lines(path, store, rules, arrivals)


def _import_lines(path: Path, store: TrajectoryStore, rules: Rules, arrivals: list[Any] | None) -> ImportedLines:
    done = ImportedLines(str(path))
    held: dict[str, Counter[bytes]] = {}
    waiting: list[bytes] = []
    session: str | None = None
    for number, line in enumerate(_lines(path)):
        done.lines += 1
        try:
            session = folder_of(glance(line, number).session)
        except BadEvent:
            done.bad_lines += 1
        if session is None:
            waiting.append(line)
            continue
        if session not in held:
            held[session] = _held(store.file(session))
            done.sessions.append(session)
        arrival = arrivals[number] if arrivals is not None and number < len(arrivals) else None
        for one in (*waiting, line):
            _add(store, session, one, arrival if one is line else None, rules, held[session], done)
        waiting.clear()
    return done


def _add(
    store: TrajectoryStore,
    session: str,
    line: bytes,
    arrival: Any,
    rules: Rules,
    held: Counter[bytes],
    done: ImportedLines,
) -> None:
    clean = _clean(line, arrival, rules)
    key = _key(clean)
    if held[key] > 0:
        held[key] -= 1
        done.known += 1
        return
    store.append_raw(session, clean)
    done.added += 1


def _clean(line: bytes, arrival: Any, rules: Rules) -> bytes:
    """The line without secrets, with its time of arrival where it is known and not there."""
    try:
        document = json.loads(line.decode("utf-8"))
        redacted = rules.redact(document)
        if arrival is not None and isinstance(redacted, dict) and _ARRIVAL not in redacted:
            redacted = {_ARRIVAL: arrival, **redacted}
        if redacted == document:
            return line
        return encoded(json.dumps(redacted, ensure_ascii=False, separators=(",", ":")))
    except (ValueError, RecursionError):
        text = rules.redact_text(line.decode("utf-8", "surrogateescape"))
        return text.encode("utf-8", "surrogateescape").replace(b"\n", b" ")


def _key(line: bytes) -> bytes:
    """What a line is known by: its document without the time of arrival, else its bytes."""
    try:
        document = msgspec.json.decode(line)
        if isinstance(document, dict):
            document.pop(_ARRIVAL, None)
        line = msgspec.json.encode(document)
    except (ValueError, RecursionError):
        pass
    return blake2b(line, digest_size=12).digest()


def _held(path: Path) -> Counter[bytes]:
    if not path.exists():
        return Counter()
    return Counter(_key(line) for _, line in iterate_lines(path))


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        for line in stream:  # a binary stream splits on 0x0A only
            yield line[:-1] if line.endswith(b"\n") else line
