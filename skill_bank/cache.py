"""What was read of a bank before: a skill none of whose files changed is not read again.

A skill's *mark* is the name and the time of the last change of each of its files. Times come from a clock that ticks
every few milliseconds, so a file that changed while it was read could keep its mark: one that is younger than
`SETTLED_NS` when it is read is read again next time. The same holds for the names in a folder: they are not listed
again while the folder did not change. Parsing is by content: a text that was parsed before is not parsed again.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from skill_bank.compile import LoadedBank, ReadSkill, load_bank, read_one
from skill_bank.format import Reader
from skill_bank.index import SkillEntry

SETTLED_NS = 50_000_000
"""Age of a file's last change beyond which the next change has another time: ten ticks of the coarsest usual clock."""

Mark = tuple[tuple[str, ...], tuple[int, ...]]
"""Names of the files of a folder, and the time of the last change of each in nanoseconds."""

_NOTHING: Mark = ((), ())
_SHARED = 200
"""Folders from which a second thread pays."""


def is_settled(*marks: Mark, now_ns: int) -> bool:
    """Whether files with these marks, read from `now_ns` on, have another mark once they change again."""
    return all(max(times, default=0) < now_ns - SETTLED_NS for _, times in marks)


class Marks:
    """The marks of folders."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Folder → time of its last change, and the names in it."""

    def of(self, folder: str) -> Mark:
        """The mark of the files of a folder; empty for one that is not there.

        Times are those of the inode, which a write, a rename and a change of the times all move. The folder is opened
        once, so that the system does not walk its whole path again for each file.
        """
        now = time.time_ns()
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return _NOTHING
        try:
            names = self._listed(folder, handle, now)
            stat = os.stat
            try:
                return names, tuple([stat(name, dir_fd=handle).st_ctime_ns for name in names])
            except OSError:  # a link among them that leads nowhere or to itself
                return names, tuple([_changed(name, handle) for name in names])
        finally:
            os.close(handle)

    def of_all(self, folders: Sequence[str]) -> list[Mark]:
        """The mark of each folder. Most of the time the system is at work, which a second thread can use meanwhile."""
        half = len(folders) // 2 if len(folders) >= _SHARED else 0
        with ThreadPoolExecutor(1) as other:  # starts a thread only when it gets work
            first = [other.submit(self._each, folders[:half])] if half else []
            rest = self._each(folders[half:])
            return [*(mark for one in first for mark in one.result()), *rest]

    def _each(self, folders: Sequence[str]) -> list[Mark]:
        return [self.of(one) for one in folders]

    def _listed(self, folder: str, handle: int, now_ns: int) -> tuple[str, ...]:
        changed = os.fstat(handle).st_ctime_ns
        known = self._names.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        names = tuple(os.listdir(handle))
        if changed < now_ns - SETTLED_NS:
            self._names[folder] = changed, names
        else:
            self._names.pop(folder, None)
        return names


def _changed(name: str, handle: int) -> int:
    for follow in (True, False):
        try:
            return os.stat(name, dir_fd=handle, follow_symlinks=follow).st_ctime_ns
        except OSError:
            continue
    return 0  # it went away meanwhile: listed again next time, as its folder has just changed


@dataclass(frozen=True)
class _Known:
    marks: tuple[Mark, Mark]
    """Of the skill's folder and of its patches."""
    entry: SkillEntry
    read: ReadSkill


class SourceCache:
    """The sources of one bank, as last read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._marks = Marks()
        self._skills: dict[str, _Known] = {}

    def load(self, overlay: Mapping[str, bytes | None] | None = None) -> LoadedBank:
        """The bank as it is on disk; `overlay` holds texts that are to be read as if they were written (None: as if
        they were not there)."""
        reader = Reader(self._root, overlay)
        touched = {"/".join(path.split("/", 2)[:2]) for path in overlay or {}}

        def read(entries: Sequence[SkillEntry]) -> list[ReadSkill]:
            now = time.time_ns()
            folders = [f"{self._root}/{one.group}/{one.name}" for one in entries]
            marks = self._marks.of_all([one for folder in folders for one in (folder, f"{folder}/patches")])
            return [
                self._read(reader, entry, mark, now)
                if f"{entry.group}/{entry.name}" not in touched
                else read_one(reader, entry)
                for entry, mark in zip(entries, zip(marks[::2], marks[1::2], strict=True), strict=True)
            ]

        return load_bank(reader, read)

    def _read(self, reader: Reader, entry: SkillEntry, marks: tuple[Mark, Mark], now_ns: int) -> ReadSkill:
        known = self._skills.get(entry.name)
        if known is None or known.marks != marks or (known.entry is not entry and known.entry != entry):
            known = _Known(marks, entry, read_one(reader, entry))
            if is_settled(*marks, now_ns=now_ns):
                self._skills[entry.name] = known
            else:
                self._skills.pop(entry.name, None)
        return known.read
