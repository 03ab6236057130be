"""What was read of a bank before: a skill none of whose files changed is not read again.

A skill's *mark* is the name and the time of the last change of each of its files. Times come from a clock that ticks
every few milliseconds, so a file that changed while it was read could keep its mark: one that is younger than
`SETTLED_NS` when it is read is read again next time. Parsing is by content: a text that was parsed before is not parsed
again.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skill_bank.compile import LoadedBank, load_bank, read_one
from skill_bank.format import Reader
from skill_bank.index import SkillEntry
from skill_bank.types import Problem, SkillSource

SETTLED_NS = 50_000_000
"""Age of a file's last change beyond which the next change has another time: ten ticks of the coarsest usual clock."""

Mark = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Known:
    mark: Mark
    entry: SkillEntry
    source: SkillSource | None
    problems: tuple[Problem, ...]


def marks_of(folder: str) -> Mark:
    """The mark of the files of a folder: name and time of the last change in nanoseconds, in no order of note.

    It is the time of the inode, which a write, a rename and a change of the times all move. The folder is opened once,
    so that the system does not walk its whole path again for each file (half of the time for a bank of 20,000 files).
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    try:
        with os.scandir(handle) as entries:
            found = list(entries)
        try:
            return tuple([(one.name, one.stat().st_ctime_ns) for one in found])
        except OSError:  # a link among them that leads nowhere
            return tuple([(one.name, _changed(one)) for one in found])
    finally:
        os.close(handle)


def _changed(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_ctime_ns
    except OSError:  # a link to nothing or to itself
        return entry.stat(follow_symlinks=False).st_ctime_ns


class SourceCache:
    """The sources of one bank, as last read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._skills: dict[str, _Known] = {}

    def load(self, overlay: Mapping[str, bytes | None] | None = None) -> LoadedBank:
        """The bank as it is on disk; `overlay` holds texts that are to be read as if they were written (None: as if
        they were not there)."""
        reader = Reader(self._root, overlay)
        touched = {"/".join(path.split("/", 2)[:2]) for path in overlay or {}}

        def read(entry: SkillEntry) -> tuple[SkillSource | None, tuple[Problem, ...]]:
            if f"{entry.group}/{entry.name}" in touched:
                return read_one(reader, entry)
            return self._read(reader, entry)

        return load_bank(reader, read)

    def _read(self, reader: Reader, entry: SkillEntry) -> tuple[SkillSource | None, tuple[Problem, ...]]:
        now = time.time_ns()
        folder = f"{self._root}/{entry.group}/{entry.name}"
        mark = marks_of(folder) + marks_of(f"{folder}/patches")
        known = self._skills.get(entry.name)
        if known is None or known.mark != mark or known.entry != entry:
            source, problems = read_one(reader, entry)
            known = _Known(mark, entry, source, problems)
            if max((changed for _, changed in mark), default=0) < now - SETTLED_NS:
                self._skills[entry.name] = known
            else:
                self._skills.pop(entry.name, None)
        return known.source, known.problems
