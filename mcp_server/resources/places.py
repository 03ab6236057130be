"""What changed in the small places of a workspace: rounds, patches and compiled skills, each a few files.

A look compares sizes and times, and reads nothing. The first one only takes note. Documents are replaced as a whole and
compiled folders are exchanged, so a look never meets half of a change.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mcp_server.resources.templates import patch_uri, round_uri
from mcp_server.skills.served import SCHEME, SKILL_FILE, VERSIONS_FILE

_ROUND = re.compile(r"round-0*([0-9]+)\.json\Z")

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """What a look found."""

    uris: tuple[str, ...] = ()
    """Resources that changed, came or went."""
    skills_changed: bool = False
    """The list of resources may name other skills, or describe them otherwise."""


class Places:
    """The places of one workspace, as last seen."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, Stamp] | None = None

    def look(self) -> Found:
        """What is different from the last look."""
        now = dict(self._stamps())
        before, self._seen = self._seen, now
        if before is None:
            return Found()
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        skills = [name for name in changed if name.startswith(SCHEME)]
        uris = [name for name in changed if not name.startswith(SCHEME)]
        uris += [f"{name}/{file}" for name in skills for file in (SKILL_FILE, "policy.json", VERSIONS_FILE)]
        return Found(tuple(uris), bool(skills))

    def _stamps(self) -> Iterator[tuple[str, Stamp]]:
        """URI → what tells its versions apart; of a skill the URI of its folder."""
        for entry in _entries(self._root / "rounds"):
            if (number := _ROUND.match(entry.name)) is not None:
                yield round_uri(int(number[1])), _stamp(entry.path)
        for entry in _entries(self._root / "patches"):
            stamp = _stamp(f"{entry.path}/patch.json")
            if stamp:
                yield patch_uri(entry.name), stamp
        for entry in _entries(self._root / "skills" / "compiled"):
            stamp = _stamp(f"{entry.path}/{SKILL_FILE}")
            if stamp and not entry.name.startswith("."):
                yield f"{SCHEME}{entry.name}", (*stamp, *_stamp(f"{entry.path}/policy.json"))


def _entries(folder: Path) -> "Iterator[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            yield from found
    except (FileNotFoundError, NotADirectoryError):
        return


def _stamp(path: str) -> Stamp:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return (seen.st_size, seen.st_mtime_ns, seen.st_ino)
