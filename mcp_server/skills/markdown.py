"""The text of a skill as its author wrote it, line by line: fenced blocks and prose, with the file they are in."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from skill_bank.bank import SkillBank
from skill_bank.types import PatchStatus

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")


@dataclass(frozen=True)
class SourceFile:
    """A file that a skill is made of."""

    file: str
    """Path inside the bank."""
    text: str


@dataclass(frozen=True)
class Block:
    """A fenced block, or a run of prose lines between two of them."""

    file: str
    line: int
    """Line of the file where `text` begins."""
    text: str
    info: str | None
    """What stands behind the opening fence; None: prose."""


def sources_of(bank: SkillBank, skill: str) -> list[SourceFile]:
    """The base of a skill, those of its profiles, and its staged and active patches. Raises BankError."""
    source = bank.source(skill)
    files = [source.base.file, *(one.file for one in source.bases.values())]
    wanted = (PatchStatus.STAGED, PatchStatus.ACTIVE)
    files += [one.file for one in source.patches.values() if one.status in wanted]
    return [SourceFile(name, (bank.root / name).read_text(encoding="utf-8")) for name in dict.fromkeys(files)]


def blocks_of(source: SourceFile) -> Iterator[Block]:
    """The blocks of a file in order. A fence that is not closed ends with the file."""
    lines: list[str] = []
    start, info, fence = 1, None, ""
    for number, line in enumerate(source.text.splitlines(), 1):
        found = _FENCE.match(line)
        closes = found is not None and found[1].startswith(fence) and not found[2].strip()
        if fence == "" and found is not None:
            yield Block(source.file, start, "\n".join(lines), None)
            lines, start, info, fence = [], number + 1, found[2].strip(), found[1]
        elif fence and closes:
            yield Block(source.file, start, "\n".join(lines), info)
            lines, start, info, fence = [], number + 1, None, ""
        else:
            lines.append(line)
    yield Block(source.file, start, "\n".join(lines), info)
