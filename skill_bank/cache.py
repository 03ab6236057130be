"""What was read of a bank before: a skill none of whose files changed is not read again.

A skill's *mark* is the name and the time of the last change of each of its files. Times come from a clock that ticks
every few milliseconds, so a file that changed while it was read could keep its mark: one that is younger than
`SETTLED_NS` when it is read is read again next time. The same holds for the names in a folder: they are not listed
again while the folder did not change. Parsing is by content: a text that was parsed before is not parsed again.
"""

import os
import time
from collections.abc import Mapping, Sequence
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
_PATCHES = "patches"
_OPENED = 8
"""Files from which a folder is opened, so that the system does not walk its whole path again for each of them."""


def is_settled(*marks: Mark, now_ns: int) -> bool:
    """Whether files with these marks, read from `now_ns` on, have another mark once they change again."""
    return all(max(times, default=0) < now_ns - SETTLED_NS for _, times in marks)


class Marks:
    """The marks of folders."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Folder → time of its last change, and the names in it."""

    def of(self, folder: str, changed: int | None = None) -> Mark:
        """The mark of the files of a folder; empty for one that is not there.

        Times are those of the inode, which a write, a rename and a change of the times all move. `changed`: the time of
        the folder's own last change, for a caller that has just asked for it.
        """
        if changed is None:
            try:
                changed = os.stat(folder).st_ctime_ns
            except (FileNotFoundError, NotADirectoryError):
                return _NOTHING
        known = self._names.get(folder)
        if known is None or known[0] != changed:
            now = time.time_ns()
            try:
                known = changed, tuple(os.listdir(folder))
            except (FileNotFoundError, NotADirectoryError):  # a file, or gone meanwhile
                return _NOTHING
            if changed < now - SETTLED_NS:
                self._names[folder] = known
            else:
                self._names.pop(folder, None)
        names = known[1]
        try:
            return names, _times(folder, names)
        except OSError:  # a link among them that leads nowhere or to itself
            return names, tuple([_changed(f"{folder}/{name}") for name in names])

    def of_skill(self, folder: str) -> tuple[Mark, Mark]:
        """The marks of a skill's folder and of its patches."""
        mine = names, times = self.of(folder)
        if _PATCHES not in names:
            return mine, _NOTHING
        return mine, self.of(f"{folder}/{_PATCHES}", times[names.index(_PATCHES)])


def _times(folder: str, names: Sequence[str]) -> tuple[int, ...]:
    """One system call a file takes nearly all the time there is. A second thread makes it slower: each call hands the
    interpreter's lock over."""
    stat = os.stat
    if len(names) < _OPENED:
        return tuple([stat(f"{folder}/{name}").st_ctime_ns for name in names])
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return tuple([stat(name, dir_fd=handle).st_ctime_ns for name in names])
    finally:
        os.close(handle)


def _changed(path: str) -> int:
    for follow in (True, False):
        try:
            return os.stat(path, follow_symlinks=follow).st_ctime_ns
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
            root, of_skill = str(self._root), self._marks.of_skill
            marks = [of_skill(f"{root}/{one.group}/{one.name}") for one in entries]
            return [
                self._read(reader, entry, mark, now)
                if f"{entry.group}/{entry.name}" not in touched
                else read_one(reader, entry)
                for entry, mark in zip(entries, marks, strict=True)
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
