"""Putting a skill's text together: sections and patches in, lines out, each with where it was written.

Chunks (sections, what patches insert behind them, text between sections) are separated by one blank line, and so are
the pieces of a chunk: the blank lines at the edges of a section or of a patch never matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from skill_bank.plan import reaches
from skill_bank.policy import CompiledPolicy, Origin
from skill_bank.render import UnknownKey, fill_line
from skill_bank.types import Patch, PatchAction, Problem, Section, SkillSource, Text

Line = tuple[str, Origin | None]
"""A line of the compiled text, and where it was written; None: a blank line that separates."""


@dataclass
class _Piece:
    patch: str
    """Patch, or "base"."""
    section: str
    """Empty between sections."""
    file: str
    text: Text


@dataclass
class _Slot:
    """A section, or text between sections, while patches are applied."""

    pieces: list[_Piece]
    """In reading order."""
    inserted: list["_Slot"] = field(default_factory=list)
    """What insert_after patches put behind it, in order."""


class Assembly:
    """The text of one skill while patches are applied to it."""

    def __init__(self, source: SkillSource) -> None:
        self._source = source
        self._slots: list[_Slot] = []
        self._named: dict[str, _Slot] = {}
        for part in source.base.parts:
            section, text = (part.name, part.text) if isinstance(part, Section) else ("", part)
            slot = _Slot([_Piece("base", section, source.base.file, text)])
            self._slots.append(slot)
            if section:
                self._named[section] = slot

    def apply(self, patch: Patch, problems: list[Problem]) -> None:
        """Applies the next patch; why it cannot be applied goes to `problems`."""
        slot = self._named.get(patch.target_section)
        if slot is None:
            known = ", ".join(sorted(self._named)) or "none"
            problems.append(
                Problem(patch.file, patch.line_of("target_section"), f"there is no section '{patch.target_section}' "
                        f"when '{patch.id}' applies", f"Sections are: {known}; a section that another patch inserts "
                        "needs that patch in depends_on")
            )  # fmt: skip
            return
        piece = _Piece(patch.id, patch.new_section or patch.target_section, patch.file, patch.text)
        if patch.action is PatchAction.REPLACE:
            self._check_replace(patch, slot, problems)
            slot.pieces = [piece]
        elif patch.action is PatchAction.APPEND:
            slot.pieces.append(piece)
        elif patch.action is PatchAction.PREPEND:
            slot.pieces.insert(0, piece)
        else:
            fresh = _Slot([piece])
            if patch.new_section is not None:
                if patch.new_section in self._named:
                    problems.append(
                        Problem(patch.file, patch.line_of("new_section"), f"section '{patch.new_section}' exists "
                                "already", "Choose another name")
                    )  # fmt: skip
                self._named[patch.new_section] = fresh
            slot.inserted.append(fresh)

    def _check_replace(self, patch: Patch, slot: _Slot, problems: list[Problem]) -> None:
        """A replace must not wipe, by the accident of an order, what other patches did to the section."""
        for piece in slot.pieces:
            if piece.patch == "base":
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

    def lines(self, policy: CompiledPolicy | None, problems: list[Problem]) -> list[Line]:
        """The compiled SKILL.md, with placeholders filled from `policy`."""
        base = self._source.base
        found: list[Line] = [
            (line, Origin(self._source.name, "", "base", base.file, number))
            for number, line in enumerate(("---", *base.front_matter.split("\n"), "---"), start=1)
        ]
        for slot in self._slots:
            for piece in _walk(slot):
                filled = self._fill(piece, policy, problems)
                if filled:
                    found.append(("", None))
                    found.extend(filled)
        return found

    def _fill(self, piece: _Piece, policy: CompiledPolicy | None, problems: list[Problem]) -> list[Line]:
        if not piece.text.prose:
            return []
        found: list[Line] = []
        for line, number in zip(piece.text.prose.split("\n"), piece.text.numbers, strict=True):
            origin = Origin(self._source.name, piece.section, piece.patch, piece.file, number)
            if "{{" not in line:
                found.append((line, origin))
                continue
            try:
                filled = fill_line(policy or CompiledPolicy(self._source.name, ()), line)
            except UnknownKey as error:
                known = ", ".join(policy.keys) if policy is not None else "none"
                problems.append(
                    Problem(piece.file, number, f"the placeholder names the policy key '{error.args[0]}', which "
                            "nothing sets", f"Keys are: {known}")
                )  # fmt: skip
            except ValueError as error:
                problems.append(Problem(piece.file, number, str(error), "Write {{policy.key}} or {{policy.key.field}}"))
            else:
                found.extend((one, origin) for one in filled.split("\n"))
        return found


def _walk(slot: _Slot) -> Iterator[_Piece]:
    yield from slot.pieces
    for inner in slot.inserted:
        yield from _walk(inner)
