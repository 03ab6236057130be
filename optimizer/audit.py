"""The audit log: `audit.jsonl`, what was approved, promoted, refused, rolled back, and through which channel.

Each entry holds the hash of the one before it, so a line that is changed, taken out or put in breaks the chain from
there on. `audit.head` remembers number and hash of the last entry, so that cutting off the end shows as well. This
finds accidents and careless tampering; who can write both files can write a new chain.
"""

import getpass
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skill_bank.files import append_json, iterate_lines, lock_of, read_json, write_json_atomic

_START = "0" * 64
"""What the first entry follows."""


@dataclass(frozen=True)
class AuditCheck:
    """Result of walking the chain."""

    entries: int
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems


def current_user() -> str:
    """Login name of whoever runs this process, or its user number where there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _hash(entry: dict[str, Any]) -> str:
    body = {key: value for key, value in entry.items() if key != "hash"}
    text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class AuditLog:
    """Appends to and verifies the log of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace / "audit.jsonl"
        self.head_path = workspace / "audit.head"

    def append(self, kind: str, *, channel: str | None = None, **fields: Any) -> dict[str, Any]:
        """Adds an entry and returns it. kind: approved | rejected | promoted | refused | rolled_back | …"""
        with lock_of(self.head_path):
            number, previous = self._last()
            entry: dict[str, Any] = {
                "seq": number + 1,
                "time": time.time(),
                "kind": kind,
                "channel": channel,
                "user": current_user(),
                **fields,
                "previous": previous,
            }
            entry["hash"] = _hash(entry)
            append_json(self.path, entry)
            write_json_atomic(self.head_path, {"seq": entry["seq"], "hash": entry["hash"]})
        return entry

    def entries(self) -> list[dict[str, Any]]:
        """All entries that can be read, in order."""
        return [entry for _, entry in self._rows() if entry is not None]

    def _rows(self) -> list[tuple[int, dict[str, Any] | None]]:
        if not self.path.exists():
            return []
        rows: list[tuple[int, dict[str, Any] | None]] = []
        for number, (_, line) in enumerate(iterate_lines(self.path), start=1):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            rows.append((number, entry if isinstance(entry, dict) else None))
        return rows

    def _last(self) -> tuple[int, str]:
        entries = self.entries()
        if not entries:
            return 0, _START
        return int(entries[-1].get("seq", 0)), str(entries[-1].get("hash", _START))

    def verify(self) -> AuditCheck:
        """Walks the whole chain and names every break."""
        problems: list[str] = []
        previous, expected = _START, 1
        rows = self._rows()
        for number, entry in rows:
            if entry is None:
                problems.append(f"line {number} is not an entry")
                continue
            if entry.get("hash") != _hash(entry):
                problems.append(f"line {number} (entry {entry.get('seq')}) was changed: its hash does not match")
            if entry.get("previous") != previous:
                problems.append(f"line {number} (entry {entry.get('seq')}) does not follow the entry before it")
            if entry.get("seq") != expected:
                problems.append(f"line {number}: entry {expected} expected, {entry.get('seq')} found")
            previous, expected = str(entry.get("hash")), int(entry.get("seq") or expected) + 1
        problems += self._check_head(previous, expected - 1)
        return AuditCheck(len(rows), problems)

    def _check_head(self, last_hash: str, last_seq: int) -> list[str]:
        try:
            head = read_json(self.head_path)
        except FileNotFoundError:
            return [] if last_seq == 0 else ["audit.head is missing"]
        except ValueError as error:
            return [f"audit.head cannot be read: {error}"]
        if not isinstance(head, dict) or not isinstance(head.get("seq"), int):
            return ["audit.head cannot be read: not a head"]
        if head["seq"] > last_seq:
            return [f"entries {last_seq + 1} to {head['seq']} were cut off at the end"]
        # a kill between the entry and its head leaves the head one behind: that is no break
        if head["seq"] == last_seq and head.get("hash") != last_hash:
            return ["the last entry is not the one that audit.head names"]
        return []
