"""A compiled SKILL.md that somebody edited, as patches of the sections that the edit is in.

Where a line was written is known for each compiled line. Lines that the edit left alone go back to what their source
says, so that `{{policy.key}}` stays a placeholder.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skill_bank.bank import SkillBank, next_patch_id
from skill_bank.policy import Origin
from skill_bank.types import BuiltSkill, PatchAction, PatchText


@dataclass(frozen=True)
class Edited:
    """What an edit of a compiled skill amounts to."""

    patches: tuple[PatchText, ...]
    """One for each section that it changes."""
    outside: tuple[int, ...]
    """Lines of the edited file (from 1) that are in no section: front matter, text between sections."""


def patches_of_edit(bank: SkillBank, built: BuiltSkill, edited: str, created: str) -> Edited:
    """Staged patches that make a compiled skill what it was edited to; nothing is written."""
    old = built.files["SKILL.md"].decode("utf-8").split("\n")[:-1]
    new = edited.split("\n")
    if new and new[-1] == "":
        new.pop()
    origins = list(built.origins)
    owners = _owners(origins)
    sources = _sources(bank, origins)
    pieces: dict[str, list[tuple[str, Origin | None]]] = {}
    changed: dict[str, None] = {}
    outside: list[int] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        if tag == "equal":
            for index in range(a1, a2):
                pieces.setdefault(owners[index], []).append((old[index], origins[index]))
            continue
        touched = list(dict.fromkeys(owners[a1:a2])) or [owners[a1 - 1] if a1 else ""]
        for one in touched:
            changed[one] = None
        target = next((one for one in touched if one), "")
        if "" in touched:
            outside += range(b1 + 1, b2 + 1) or [b1 + 1]
        pieces.setdefault(target, []).extend((line, None) for line in new[b1:b2])
    found: list[PatchText] = []
    existing = list(bank.patches(built.name))
    for section in changed:
        if not section:
            continue
        name = next_patch_id(existing, f"edited-{section}")
        existing.append(name)
        adders = {one.patch for one in origins if one is not None and one.section == section and one.patch != "base"}
        found.append(
            bank.render_patch(
                built.name,
                id=name,
                target_section=section,
                action=PatchAction.REPLACE,
                body=_body(pieces.get(section, []), sources),
                description=f"Edited by hand in the installed {built.name}",
                source="hand edit",
                created=created,
                supersedes=sorted(adders),
            )
        )
    return Edited(tuple(found), tuple(dict.fromkeys(outside)))


def _owners(origins: Sequence[Origin | None]) -> list[str]:
    """The section of each line; a blank line that separates belongs to what is before it, if that goes on behind."""
    found: list[str] = []
    before = ""
    for index, one in enumerate(origins):
        if one is None:
            behind = next((other.section for other in origins[index:] if other is not None), "")
            found.append(before if before == behind else "")
        else:
            before = one.section
            found.append(before)
    return found


def _sources(bank: SkillBank, origins: Sequence[Origin | None]) -> Mapping[str, list[str]]:
    files = {one.file for one in origins if one is not None}
    return {file: (bank.root / file).read_text(encoding="utf-8").split("\n") for file in sorted(files)}


def _body(lines: Sequence[tuple[str, Origin | None]], sources: Mapping[str, list[str]]) -> str:
    found: list[str] = []
    last: tuple[str, int] | None = None
    for line, origin in lines:
        place = None if origin is None else (origin.file, origin.line)
        if place is not None:
            source = sources[place[0]][place[1] - 1]
            if "{{" in source:
                if place != last:
                    found.append(source)
                last = place
                continue
        last = place
        found.append(line)
    return "\n".join(found).strip("\n")
