"""The pages, and what on them can be executed: fenced blocks and code within lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""Pages that people write; those of docs/reference are made from the code."""

_FENCE = re.compile(r"^ *(?P<fence>`{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    """Path from the top of the repository."""
    line: int
    """Of the fence, from 1."""
    language: str
    text: str

    @property
    def name(self) -> str:
        """As a test's name."""
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """A page's path from the top of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page; a block within a block is part of the outer one."""
    fence, language, start = "", "", 0
    inside: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        found = _FENCE.match(line)
        if not fence and found is not None:
            fence, language, start, inside = found["fence"], found["info"].strip(), number, []
        elif fence and line.strip() == fence:
            yield Block(name_of(page), start, language, "\n".join(inside) + "\n")
            fence = ""
        elif fence:
            inside.append(line)
    assert not fence, f"{page}:{start}: the block does not end"


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in blocks(page):
        end = block.line + block.text.count("\n")
        for number in range(block.line - 1, end + 1):
            lines[number] = ""
    return "\n".join(lines)


def inline_code(page: Path) -> list[str]:
    """Code within the lines of a page."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))
