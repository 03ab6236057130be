"""Putting a skill's text together: sections and patches in, lines out, each with where it was written.

Chunks (sections, what patches insert behind them, text between sections) are separated by one blank line, and so are
the pieces of a chunk: the blank lines at the edges of a section or of a patch never matter.

In a bank with `settings.layout: verbatim` (an imported one, whose text must stay what it was) the base is copied as it
stands, without its marker lines, and one blank line separates only what a patch adds. There, `<!-- \\section:x -->`
gives the line `<!-- section:x -->`, which could not be written otherwise.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from skill_bank.executable import holds_command
from skill_bank.measure import Change
from skill_bank.plan import reaches
from skill_bank.policy import CompiledPolicy, Origin
from skill_bank.render import ANY_PLACEHOLDER, PLACEHOLDER, UnknownKey, fill_line
from skill_bank.types import Base, Patch, PatchAction, Problem, Section, SkillSource, Text

ESCAPED_MARKER = re.compile(r"(<!--\s*)\\(?=\\*\s*/?\s*section\s*:)")
"""A section marker that is text: in a verbatim layout its first backslash is taken out."""

Line = tuple[str, "tuple[Piece, int] | None"]
"""A line of the compiled text, and where it was written (piece, line of its file); None: a blank line that separates.
"""


@dataclass
class Piece:
    """A text of the base or of a patch."""

    patch: str
    """Patch, or "base"."""
    section: str
    """Empty between sections."""
    file: str
    text: Text


@dataclass
class Slot:
    """A section, or text between sections, while patches are applied."""

    pieces: list[Piece]
    """In reading order."""
    inserted: list["Slot"] = field(default_factory=list)
    """What insert_after patches put behind it, in order."""
    replaced: list[Piece] = field(default_factory=list)
    """What a replace took out; its policy blocks stay in force."""
    name: str = ""
    """Of a section."""


class Assembly:
    """The text of one skill while patches are applied to it."""

    def __init__(self, source: SkillSource, base: Base, *, verbatim: bool = False, whole: bool = True) -> None:
        """`whole`: all patches in force can be read, so a section that is not there is missing."""
        self._source = source
        self._base = base
        self._verbatim = verbatim
        self._whole = whole
        self.slots: list[Slot] = []
        """Sections, and text between them, in reading order."""
        self._named: dict[str, Slot] = {}
        for part in base.parts:
            section, text = (part.name, part.text) if isinstance(part, Section) else ("", part)
            slot = Slot([Piece("base", section, base.file, text)], name=section)
            if part.after and part.after in self._named:
                self._named[part.after].inserted.append(slot)
            else:
                self.slots.append(slot)
            if section:
                self._named[section] = slot

    def apply(self, patch: Patch, problems: list[Problem]) -> Change:
        """Applies the next patch and returns what it changed; why it cannot be applied goes to `problems`."""
        slot = self._named.get(patch.target_section)
        if slot is None:
            known = ", ".join(sorted(self._named)) or "none"
            if self._whole:
                problems.append(
                    Problem(patch.file, patch.line_of("target_section"), f"there is no section "
                            f"'{patch.target_section}' when '{patch.id}' applies", f"Sections are: {known}; a section "
                            "that another patch inserts needs that patch in depends_on")
                )  # fmt: skip
            return Change(patch.text.raw, "")
        removed = ""
        piece = Piece(patch.id, patch.new_section or patch.target_section, patch.file, patch.text)
        if patch.action is PatchAction.REPLACE:
            self._check_replace(patch, slot, problems)
            removed = "\n".join(one.text.prose for one in slot.pieces)
            slot.replaced += slot.pieces
            slot.pieces = [piece]
        elif patch.action is PatchAction.APPEND:
            slot.pieces.append(piece)
        elif patch.action is PatchAction.PREPEND:
            slot.pieces.insert(0, piece)
        else:
            fresh = Slot([piece], name=patch.new_section or "")
            if patch.new_section is not None:
                if patch.new_section in self._named:
                    problems.append(
                        Problem(patch.file, patch.line_of("new_section"), f"section '{patch.new_section}' exists "
                                "already", "Choose another name")
                    )  # fmt: skip
                self._named[patch.new_section] = fresh
            slot.inserted.append(fresh)
        return Change(patch.text.raw, removed)

    def _check_replace(self, patch: Patch, slot: Slot, problems: list[Problem]) -> None:
        """A replace must not wipe, by the accident of an order, what other patches did to the section."""
        for piece in slot.pieces:
            if piece.patch == "base":
                if any(holds_command(line) for line in piece.text.prose.split("\n")):
                    problems.append(
                        Problem(patch.file, patch.line_of("action"), f"'{patch.id}' replaces section "
                                f"'{patch.target_section}', which holds a command (!`…`) that runs when the skill "
                                "loads", "Change the base by hand, or append instead of replacing")
                    )  # fmt: skip
                continue
            if self._source.patches[piece.patch].action is PatchAction.REPLACE:
                if not reaches(self._source, patch, piece.patch):
                    problems.append(
                        Problem(patch.file, patch.line_of("action"), f"'{patch.id}' and '{piece.patch}' both replace "
                                f"section '{patch.target_section}' and no order is declared",
                                f"Add depends_on or supersedes '{piece.patch}', or deactivate one")
                    )  # fmt: skip
            elif piece.patch not in patch.supersedes:
                problems.append(
                    Problem(patch.file, patch.line_of("action"), f"'{patch.id}' replaces section "
                            f"'{patch.target_section}' and would wipe what '{piece.patch}' added",
                            f"Add supersedes: ['{piece.patch}'], or make '{piece.patch}' depend on '{patch.id}'")
                )  # fmt: skip

    def texts(self) -> Iterator[tuple[str, Text]]:
        """(file, text) of everything that the compiled text holds, in reading order."""
        for slot in self.slots:
            for piece in walk(slot):
                yield piece.file, piece.text

    def lines(self, policy: CompiledPolicy | None, problems: list[Problem], *, whole: bool = True) -> list[Line]:
        """The compiled SKILL.md, with placeholders filled from `policy`.

        `whole`: what it does not set, nothing sets.
        """
        base = self._base
        head = Piece("base", "", base.file, Text("", (), 1))
        front = ("---", *base.front_matter.split("\n"), "---")
        found: list[Line] = [(line, (head, number)) for number, line in enumerate(front, start=1)]
        for slot in self.slots:
            for piece in walk(slot):
                filled = self._fill(piece, policy, problems, whole)
                if self._verbatim:
                    found.extend(self._as_written(piece, filled, first=piece is slot.pieces[0]))
                elif filled:
                    found.append(("", None))
                    found.extend(filled)
        if self._verbatim and found[-1][0] == "":
            found.pop()  # what follows the last line feed of base.md is no line
        return found

    def _as_written(self, piece: Piece, filled: list[Line], *, first: bool) -> list[Line]:
        before, behind = piece.text.edges if piece.patch == "base" else ((), ())
        if not filled and piece.patch != "base":
            filled = [("", None)]  # a replaced section that is empty stays one empty line
        separator: list[Line] = [] if first else [("", None)]
        unescaped = [(ESCAPED_MARKER.sub(r"\1", line), origin) for line, origin in filled]
        return [*separator, *((one, None) for one in before), *unescaped, *((one, None) for one in behind)]

    def _fill(self, piece: Piece, policy: CompiledPolicy | None, problems: list[Problem], whole: bool) -> list[Line]:
        if not piece.text.prose:
            return []
        rows = zip(piece.text.prose.split("\n"), piece.text.numbers, strict=True)
        if "{{" not in piece.text.prose:
            return [(line, (piece, number)) for line, number in rows]
        found: list[Line] = []
        for line, number in rows:
            origin = (piece, number)
            if "{{" not in line:
                found.append((line, origin))
                continue
            try:
                filled = fill_line(policy or CompiledPolicy(self._source.name, ()), line)
            except (UnknownKey, ValueError):
                problems.extend(self._unfillable(piece.file, number, line, policy, whole))
            else:
                if any(holds_command(one) for one in filled.split("\n")) and not holds_command(line):
                    problems.append(
                        Problem(piece.file, number, "a policy value turns the line into a command (!`…`)",
                                "Take the command out of the value")
                    )  # fmt: skip
                found.extend((one, origin) for one in filled.split("\n"))
        return found

    @staticmethod
    def _unfillable(file: str, number: int, line: str, policy: CompiledPolicy | None, whole: bool) -> list[Problem]:
        """Every placeholder of a line that cannot be filled."""
        found: list[Problem] = []
        known = ", ".join(policy.keys) if policy is not None else "none"
        named = dict.fromkeys(one[1] for one in PLACEHOLDER.finditer(line))
        unset = [key for key in named if policy is None or not policy.explain(key)]
        for key in unset if whole else ():
            message = f"the placeholder names the policy key '{key}', which nothing sets"
            found.append(Problem(file, number, message, f"Keys are: {known}"))
        if not unset or ANY_PLACEHOLDER.search(PLACEHOLDER.sub("", line)) is not None:
            fix = "Write {{policy.key}} or {{policy.key.field}}, and no placeholder in a value"
            found.append(Problem(file, number, "a placeholder that cannot be read", fix))
        return found


def origins_of(skill: str, lines: Sequence[Line]) -> tuple[Origin | None, ...]:
    """Where each line was written."""
    found: list[Origin | None] = []
    for _, place in lines:
        if place is None:
            found.append(None)
        else:
            piece, number = place
            found.append(Origin(skill, piece.section, piece.patch, piece.file, number))
    return tuple(found)


def walk(slot: Slot) -> Iterator[Piece]:
    """The pieces of a slot and of what was inserted behind it, in reading order."""
    yield from slot.pieces
    for inner in slot.inserted:
        yield from walk(inner)
