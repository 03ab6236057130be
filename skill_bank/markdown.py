"""`base.md`: front matter, sections, prose and policy blocks; what it shares with patch files (`skill_bank.patchfile`).

A squash leaves two traces in a base, so that what comes later finds the skill as it was: `<!-- inserted:x -->` …
`<!-- /inserted:x -->` around text, or one section, that a patch inserted behind section x; and attributes of a policy
fence (`yaml policy patch=001-a file=patches/001-a.md line=12 order=3`) that say where its values were first written and
when they are merged.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath

from skill_bank.blocks import parse_block
from skill_bank.executable import commands_of
from skill_bank.index import unknown_fields
from skill_bank.policy import Assignment
from skill_bank.types import Base, PolicyBlock, Problem, Section, Text
from skill_bank.yamlparts import Parts, parse_parts
from skill_bank.yamlsimple import parse_simple
from skill_bank.yamltree import Node

_OPEN = re.compile(r"<!-- section:([a-z0-9-]+) -->\s*\Z")
_CLOSE = re.compile(r"<!-- /section:([a-z0-9-]+) -->\s*\Z")
_INSERTED = re.compile(r"<!-- inserted:([a-z0-9-]+) -->\s*\Z")
_INSERTED_END = re.compile(r"<!-- /inserted:([a-z0-9-]+) -->\s*\Z")
MARKER = re.compile(r"<!--\s*/?\s*(?:section|inserted)\s*:")
"""What only a compiler may read: no line of prose holds it."""
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)\Z")

SPEC_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Front matter fields of the Agent Skills specification."""


@dataclass(frozen=True)
class FrontMatter:
    """The head of a file, parsed, and where its body begins."""

    raw: str
    node: Node
    body: str
    body_line: int
    readable: bool = True
    """False: not all of the head can be read; what is wrong with the rest of it and with the body is told, too."""


def front_matter(text: str, file: str, problems: list[Problem]) -> FrontMatter | None:
    """Head and body of a file; what is wrong with the head goes to `problems`. None: nobody can say where it ends."""
    lines = text.split("\n")
    if lines[0] != "---":
        problems.append(Problem(file, 1, "no front matter", "Start the file with a line `---`"))
        return FrontMatter("", Node({}, 1), text, 1, readable=False)
    try:
        end = lines.index("---", 1)
    except ValueError:
        problems.append(Problem(file, 1, "the front matter never ends", "Close it with a line `---`"))
        return None
    raw = "\n".join(lines[1:end])
    simple = parse_simple(raw, 2)
    parts = parse_parts(raw, 2) if simple is None else Parts(simple)
    for one in parts.problems:
        fix = "Correct the YAML; quote text that holds `: `"
        problems.append(Problem(file, one.line, f"front matter: {one.message}", fix))
    node, readable = parts.root, not parts.problems
    if not isinstance(node.value, dict):
        if readable:
            problems.append(Problem(file, 2, "the front matter is not a mapping", "Write `key: value` lines"))
        node, readable = Node({}, 2), False
    return FrontMatter(raw, node, "\n".join(lines[end + 1 :]), end + 2, readable)


def read_text(
    lines: list[str], first: int, problems: list[Problem], *, skill: str, section: str | None, patch: str, file: str
) -> Text:
    """Prose and policy blocks of consecutive lines; `section` None: outside of every section."""
    raw = "\n".join(lines) + "\n" if lines else ""
    if "```" not in raw and "~~~" not in raw:
        return _without_blocks(lines, first, raw)
    prose: list[tuple[str, int]] = []
    blocks: list[PolicyBlock] = []
    fence: str | None = None
    block: list[str] | None = None
    folded: _Folded | None = None
    opened = 0
    for number, line in enumerate(lines, start=first):
        found = _FENCE.match(line)
        if fence is None and found is not None:
            fence, opened = found[2], number
            words = found[3].split()
            if words[:2] == ["yaml", "policy"]:
                block = []
                folded = _folded(words[2:], number, patch, file, problems) if len(words) > 2 else None
                continue
        elif fence is not None and found is not None and not found[3].strip() and found[2].startswith(fence):
            fence = None
            if block is not None:
                if section is None:
                    problems.append(
                        Problem(file, opened, "a policy block outside of every section", "Move it into a section")
                    )
                parsed, wrong = parse_block(
                    "\n".join(block), opened + 1, skill=skill, section=section or "", patch=patch, file=file
                )
                problems.extend(Problem(file, one.line, one.message, one.fix) for one in wrong)
                if folded is not None:
                    parsed = folded.moved(parsed, opened)
                if section is not None:
                    blocks.append(PolicyBlock(parsed, opened, 0 if folded is None else folded.order, not wrong))
                block = None
                continue
        if block is not None:
            block.append(line)
        else:
            prose.append((line, number))
    if fence is not None:
        problems.append(Problem(file, opened, "a code fence that never ends", f"Close it with a line {fence}"))
        if block is not None:
            blocks.append(PolicyBlock((), opened, whole=False))
    kept: list[tuple[str, int]] = []
    previous = first - 1
    for line, number in prose:
        # A block that is taken out leaves the blank lines before and after it behind: one of them is enough.
        if number != previous + 1 and not line.strip() and (not kept or not kept[-1][0].strip()):
            continue
        kept.append((line, number))
        previous = number
    before: list[str] = []
    behind: list[str] = []
    while kept and not kept[0][0].strip():
        before.append(kept.pop(0)[0])
    while kept and not kept[-1][0].strip():
        behind.append(kept.pop()[0])
    edges = tuple(before), tuple(reversed(behind))
    prose_lines = "\n".join(line for line, _ in kept)
    return Text(
        prose_lines,
        tuple(blocks),
        first,
        tuple(number for _, number in kept),
        edges,
        raw,
    )


def _without_blocks(lines: list[str], first: int, raw: str) -> Text:
    """`read_text` of lines that hold no code fence."""
    start, end = 0, len(lines)
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    edges = tuple(lines[:start]), tuple(lines[end:])
    return Text("\n".join(lines[start:end]), (), first, tuple(range(first + start, first + end)), edges, raw)


@dataclass(frozen=True)
class _Folded:
    """Where the values of a block were first written, before a squash made it part of the base."""

    patch: str
    file: str
    line: int
    order: int

    def moved(self, parsed: tuple[Assignment, ...], opened: int) -> tuple[Assignment, ...]:
        moved = []
        for one in parsed:
            line = one.origin.line - opened - 1 + self.line
            origin = replace(one.origin, patch=self.patch, file=self.file, line=line)
            moved.append(replace(one, origin=origin))
        return tuple(moved)


def _folded(words: list[str], number: int, patch: str, file: str, problems: list[Problem]) -> _Folded | None:
    found = dict(word.partition("=")[::2] for word in words)
    right = found.keys() == {"patch", "file", "line", "order"} and len(words) == 4
    if right and patch == "base" and found["line"].isdecimal() and found["order"].isdecimal():
        where = f"{PurePosixPath(file).parent}/{found['file']}"
        return _Folded(found["patch"], where, int(found["line"]), int(found["order"]))
    problems.append(
        Problem(file, number, f"a policy fence with '{' '.join(words)}' behind it",
                "Write ```yaml policy alone; attributes stand only where a squash wrote them into a base")
    )  # fmt: skip
    return None


def policy_fence(line: str) -> tuple[str, list[str]] | None:
    """(the fence with `yaml policy`, its attributes) of a line that opens a policy block; None for any other line."""
    found = _FENCE.match(line)
    words = [] if found is None else found[3].split()
    if found is None or words[:2] != ["yaml", "policy"]:
        return None
    return f"{found[1]}{found[2]}yaml policy", words[2:]


@lru_cache(maxsize=8192)
def parse_base(text: str, file: str, skill: str) -> tuple[Base | None, tuple[Problem, ...]]:
    """`base.md` and what is wrong with it."""
    problems: list[Problem] = []
    head = front_matter(text, file, problems)
    if head is None:
        return None, tuple(problems)
    _check_spec(head, file, skill, problems)
    reader = _BaseReader(head, file, skill, problems)
    return Base(file, head.raw, head.node.plain, reader.parts), tuple(problems)


class _BaseReader:
    """Takes the body of a base apart, line by line."""

    def __init__(self, head: FrontMatter, file: str, skill: str, problems: list[Problem]) -> None:
        self._file = file
        self._skill = skill
        self._problems = problems
        self._parts: list[Section | Text] = []
        self._names: dict[str, int] = {}
        self._pending: list[str] = []
        self._start = head.body_line
        self._section: tuple[str, int] | None = None
        self._after: tuple[str, int] | None = None
        """The `inserted` marker that is open: its section and its line."""
        for number, line in enumerate(head.body.split("\n"), start=head.body_line):
            if not line.startswith("<!--") or not self._marker(line, number):
                self._prose(line, number)
        if self._section is not None:
            name, number = self._section
            self._report(number, f"section '{name}' never ends", f"Add <!-- /section:{name} -->")
        if self._after is not None:
            name, number = self._after
            self._report(number, f"'inserted:{name}' never ends", f"Add <!-- /inserted:{name} -->")
        self._text(0)
        self.parts = tuple(self._parts)
        for command in commands_of(head.body):
            before, placeholder, _ = command.text.partition("{{")
            if placeholder:
                self._report(
                    head.body_line + command.line + before.count("\n"),
                    "a command (!`…`) that a policy value would change",
                    "Write the command out: what runs when a skill loads cannot change through a patch",
                )

    def _report(self, line: int, message: str, fix: str) -> None:
        self._problems.append(Problem(self._file, line, message, fix))

    def _prose(self, line: str, number: int) -> None:
        if "<!--" in line and MARKER.search(line) is not None:
            self._report(
                number,
                "a section marker that cannot be read",
                "Write <!-- section:name --> alone on its line, name of a-z, 0-9 and hyphens",
            )
        self._pending.append(line)

    def _take(self, behind: int, section: str | None) -> Text:
        lines, start = self._pending, self._start
        self._pending, self._start = [], behind + 1
        return read_text(
            lines, start, self._problems, skill=self._skill, section=section, patch="base", file=self._file
        )

    def _text(self, behind: int) -> None:
        """Ends the text between sections that is being read."""
        after = "" if self._after is None else self._after[0]
        if after and not self._pending and self._section is None:
            self._start = behind + 1  # nothing stands between the markers
            return
        section = self._section[0] if self._section is not None else after or None
        text = self._take(behind, section)
        self._parts.append(replace(text, after=after) if after else text)

    def _marker(self, line: str, number: int) -> bool:
        """Whether the line is a marker; then it was dealt with."""
        opening, closing = _OPEN.match(line), _CLOSE.match(line)
        if opening is not None:
            self._open(opening[1], number)
        elif closing is not None:
            self._close(closing[1], number)
        elif (inserted := _INSERTED.match(line)) is not None:
            self._open_inserted(inserted[1], number)
        elif (ended := _INSERTED_END.match(line)) is not None:
            if self._after is None or self._section is not None or ended[1] != self._after[0]:
                self._report(number, f"'inserted:{ended[1]}' is closed and not open here", "Correct the markers")
            else:
                self._text(number)
                self._after = None
        else:
            return False
        return True

    def _open(self, name: str, number: int) -> None:
        if self._section is not None:
            self._report(
                number,
                f"section '{name}' opens inside section '{self._section[0]}'",
                f"Close it first: <!-- /section:{self._section[0]} -->",
            )
            return
        if name in self._names:
            self._report(
                number,
                f"section '{name}' occurs twice (first in line {self._names[name]})",
                "Give each section its own name",
            )
        self._names.setdefault(name, number)
        self._text(number)
        self._section = (name, number)

    def _close(self, name: str, number: int) -> None:
        if self._section is None or name != self._section[0]:
            self._report(number, f"section '{name}' is closed and not open here", "Correct the markers")
            return
        after = "" if self._after is None else self._after[0]
        self._parts.append(Section(name, self._take(number, name), self._section[1], after))
        self._section = None

    def _open_inserted(self, name: str, number: int) -> None:
        if self._section is not None or self._after is not None:
            self._report(number, f"'inserted:{name}' opens inside another part", "Close that one first")
        elif name not in self._names:
            self._report(number, f"'inserted:{name}' stands before section '{name}'", "Move it behind the section")
        else:
            self._text(number)
            self._after = (name, number)


def nested_metadata(base: Base) -> list[Problem]:
    """The specification wants texts below `metadata`; its validator takes anything, and so do imported banks."""
    metadata = base.fields.get("metadata")
    if not isinstance(metadata, dict) or not any(isinstance(one, (dict, list)) for one in metadata.values()):
        return []
    lines = base.front_matter.split("\n")
    line = next((number for number, one in enumerate(lines, start=2) if one.startswith("metadata:")), 2)
    return [Problem(base.file, line, "'metadata' is not a mapping of words to texts", "Nest nothing")]


def _check_spec(head: FrontMatter, file: str, skill: str, problems: list[Problem]) -> None:
    """Front matter of a skill by the Agent Skills specification (https://agentskills.io/specification).

    Its reference validator reads StrictYAML, which has no flow style, and ends the front matter at the first `---`.
    """
    assert isinstance(head.node.value, dict)
    unknown_fields(problems, file, head.node, SPEC_FIELDS, "the front matter of a skill")
    if "---" in head.raw:
        problems.append(Problem(file, 2, "`---` inside the front matter", "Use another dash"))
    for key, node in head.node.value.items():
        children = list(node.value.values()) if isinstance(node.value, dict) else [node]
        for one in (node, *children):
            if one.flow:
                problems.append(
                    Problem(file, one.line, f"'{key}' is written in braces or brackets", "Write one item a line")
                )
            elif key != "metadata" and not isinstance(one.value, str):
                problems.append(Problem(file, one.line, f"'{key}' is not text", "Put it in quotes"))
    metadata = head.node.value.get("metadata")
    if metadata is not None and not isinstance(metadata.value, dict):
        problems.append(
            Problem(file, metadata.key_line, "'metadata' is not a mapping of words to texts", "Nest nothing")
        )
    fields = head.node.plain
    name, description = fields.get("name"), fields.get("description")
    if name != skill and (head.readable or "name" in fields):
        problems.append(Problem(file, 2, f"the name is {name!r} in the folder of {skill}", f"Write `name: {skill}`"))
    if not head.readable and "description" not in fields:
        pass  # it may stand where nothing can be read
    elif not isinstance(description, str) or not description.strip():
        problems.append(Problem(file, 2, "no description", "Say what the skill does and when to use it"))
    elif len(description) > 1024:
        problems.append(
            Problem(file, 2, f"the description has {len(description)} characters", "Use at most 1024 (specification)")
        )
    compatibility = fields.get("compatibility", "")
    if isinstance(compatibility, str) and len(compatibility) > 500:
        problems.append(Problem(file, 2, "compatibility has more than 500 characters", "Shorten it (specification)"))
