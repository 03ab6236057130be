"""Versions: what a skill was, source and output, addressed by content.

`versions/objects/ab/cdef…` holds each file once, named by the SHA-256 of its bytes. `versions/<skill>.jsonl` holds one
record a line, oldest first. A record names every source file that decides the skill (base, manifest, policy schema,
patches that the manifest or a profile activates) and every compiled file. A rollback writes those bytes back and is a
new record itself.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skill_bank.files import append_json, read_json_lines, write_bytes_atomic, write_many_atomic
from skill_bank.types import BankError, Problem

VERSION_SCHEMA = 1


@dataclass(frozen=True)
class VersionRecord:
    """One version of one skill."""

    number: int
    """From 1."""
    skill: str
    digest: str
    """`BuiltSkill.digest` of the compiled folder."""
    sources: Mapping[str, str]
    """Path inside the bank → SHA-256."""
    files: Mapping[str, str]
    """Compiled file → SHA-256."""
    profiles: Mapping[str, str]
    """Profile → digest of the folder compiled under it."""
    patches: tuple[str, ...]
    """Patches applied, in order."""
    created_at: float
    """Unix seconds."""
    reason: str = "compile"
    """compile | rollback, or what the caller said (for instance `promote patch-id`)."""
    restored: int | None = None
    """The version that a rollback restored."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a record that this version of the program does not know."""

    @property
    def label(self) -> str:
        """`rllm-config@3`."""
        return f"{self.skill}@{self.number}"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_FIELDS = tuple(VersionRecord.__dataclass_fields__)
_REQUIRED = frozenset(_FIELDS) - {"reason", "restored", "extra"}


class VersionStore:
    """The `versions` folder of a bank. Callers that write hold the bank's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = f"{folder}/"
        self._kept: set[str] = set()
        """Objects that this process wrote: content never changes under its name."""
        self._latest: dict[str, tuple[tuple[int, int, int], VersionRecord | None]] = {}

    def history(self, skill: str) -> list[VersionRecord]:
        """The versions of a skill, oldest first; empty for one that was never compiled."""
        found = read_json_lines(self.folder / f"{skill}.jsonl")
        records = []
        for line, row in found.rows:
            if not isinstance(row, dict) or not row.keys() >= _REQUIRED:
                name = f"versions/{skill}.jsonl"
                raise BankError([Problem(name, line, "this is no version record", "Restore or remove the line")])
            known = {name: row[name] for name in _FIELDS if name in row and name != "extra"}
            known["patches"] = tuple(known["patches"])
            rest = {name: value for name, value in row.items() if name not in _FIELDS and name != "schema_version"}
            records.append(VersionRecord(**known, extra=rest))
        return records

    def latest(self, skill: str) -> VersionRecord | None:
        """The newest version of a skill."""
        try:
            stat = os.stat(f"{self._prefix}{skill}.jsonl")
        except FileNotFoundError:
            return None
        mark = (stat.st_size, stat.st_mtime_ns, stat.st_ino)  # the file only ever grows
        known = self._latest.get(skill)
        if known is None or known[0] != mark:
            found = self.history(skill)
            known = (mark, found[-1] if found else None)
            self._latest[skill] = known
        return known[1]

    def get(self, skill: str, number: int) -> VersionRecord:
        """One version. Raises BankError naming those that exist."""
        found = self.history(skill)
        for record in found:
            if record.number == number:
                return record
        have = f"1 to {found[-1].number}" if found else "none"
        raise BankError(
            [Problem(f"versions/{skill}.jsonl", 0, f"{skill} has no version {number}", f"There are: {have}")]
        )

    def has(self, digest: str) -> bool:
        """Whether the content is kept."""
        return digest in self._kept or self._object(digest).exists()

    def put(self, data: bytes) -> str:
        """Keeps a file's content and returns its SHA-256."""
        name = sha256(data)
        if not self.has(name):
            path = self._object(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(path, data)
        return name

    def put_all(self, contents: Iterable[bytes]) -> None:
        """Keeps many files' contents, flushed to the disk together."""
        missing = {name: data for data in contents if not self.has(name := sha256(data))}
        for name in missing:
            self._object(name).parent.mkdir(parents=True, exist_ok=True)
        write_many_atomic({self._object(name): data for name, data in missing.items()})
        self._kept.update(missing)

    def content(self, digest: str) -> bytes:
        """The content of an object, checked. Raises BankError if it is missing or damaged."""
        path = self._object(digest)
        if not path.exists():
            raise BankError([Problem(f"versions/objects/{digest}", 0, "the content is missing", "Restore the bank")])
        data = path.read_bytes()
        if sha256(data) != digest:
            raise BankError([Problem(f"versions/objects/{digest}", 0, "the content is damaged", "Restore the bank")])
        return data

    def append(self, record: VersionRecord) -> None:
        """Adds a record as the newest version of its skill."""
        self.folder.mkdir(parents=True, exist_ok=True)
        row = {"schema_version": VERSION_SCHEMA, **asdict(record)}
        row.update(row.pop("extra"))
        append_json(self.folder / f"{record.skill}.jsonl", row)

    def _object(self, digest: str) -> Path:
        return self.folder / "objects" / digest[:2] / digest[2:]
