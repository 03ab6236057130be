"""Squash: the active patches of a skill become part of its base, and nothing that compiles from it changes a byte.

1. Section anchors stay; a section that a patch inserted becomes a section of the base. What was inserted behind a
   section stays marked as such (`<!-- inserted:x -->`), so that a later patch of x lands where it would have landed.
2. A policy block keeps, in the attributes of its fence, the file and line where it was first written and its place in
   the order of merging, so the values, their order and their provenance stay what they were.
3. The manifest names what was folded: dependencies on it hold, conflicts with it count. The files are archived.
4. A profile whose patches do not begin with the folded ones keeps the base as it was, under a name of its own.

The caller compares what compiles before and after, for the manifest and for every profile, and refuses a difference.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from skill_bank.assemble import Assembly, Piece, Slot
from skill_bank.markdown import policy_fence, read_text
from skill_bank.plan import order, select
from skill_bank.types import Base, Manifest, Patch, Profile, Section, SkillSource, Text


@dataclass(frozen=True)
class Folding:
    """What a squash writes."""

    base: str
    """The new base."""
    manifest: Manifest
    folded: tuple[str, ...]
    """The patches that became part of the base, in the order in which they applied."""
    archived: tuple[str, ...]
    """Those of them that no list names any more."""
    kept: tuple[str, str] | None
    """(file name, text) of the base as it was, where a profile goes on building on it."""


def fold(source: SkillSource) -> Folding:
    """Folds the active patches of a skill that compiles into its base."""
    patches = order(source, select(source, None, (), []), [])
    folded = tuple(patch.id for patch in patches)
    blocks = [block for part in source.base.parts for block in _text(part).blocks]
    first = 1 + max((block.order for block in blocks), default=0)
    text = Assembly(source, source.base)
    for patch in patches:
        text.apply(patch, [])
    places = {patch.id: _Place(patch, number) for number, patch in enumerate(patches, start=first)}
    body = [line for slot in text.slots for line in _slot_lines(slot, places)]
    base = _whole(source.base, body)
    manifest = source.manifest
    profiles: dict[str, Profile] = {}
    kept: tuple[str, str] | None = None
    for name, profile in manifest.profiles.items():
        applied = tuple(patch.id for patch in order(source, select(source, name, (), []), []))
        if profile.base is not None:
            profiles[name] = profile
        elif applied[: len(folded)] == folded:
            profiles[name] = replace(profile, active=tuple(one for one in profile.active if one not in folded))
        else:
            kept = kept or _kept(source)
            profiles[name] = replace(profile, base=kept[0], folded=manifest.folded)
    still = {one for profile in profiles.values() for one in profile.active}
    fresh = replace(manifest, active=(), profiles=profiles, folded=(*manifest.folded, *folded))
    return Folding(base, fresh, folded, tuple(one for one in folded if one not in still), kept)


@dataclass(frozen=True)
class _Place:
    """Where the blocks of a patch come from and when they are merged."""

    patch: Patch
    order: int


def _text(part: Section | Text) -> Text:
    return part.text if isinstance(part, Section) else part


def _whole(base: Base, body: Sequence[str]) -> str:
    return "\n".join(["---", *base.front_matter.split("\n"), "---", *body])


def _kept(source: SkillSource) -> tuple[str, str]:
    """The base as it is, with the origin of each policy block written into its fence."""
    body = [line for slot in Assembly(source, source.base).slots for line in _slot_lines(slot, {})]
    text = _whole(source.base, body)
    return f"base-{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}.md", text


def _slot_lines(slot: Slot, places: dict[str, _Place], after: str = "") -> Iterator[str]:
    if after:
        yield f"<!-- inserted:{after} -->"
    if slot.name:
        yield f"<!-- section:{slot.name} -->"
    yield from _content(slot, places)
    if slot.name:
        yield f"<!-- /section:{slot.name} -->"
    if after:
        yield f"<!-- /inserted:{after} -->"
    for inner in slot.inserted:
        yield from _slot_lines(inner, places, slot.name)


def _content(slot: Slot, places: dict[str, _Place]) -> list[str]:
    """The lines between the markers."""
    marked = [_marked(piece, places) for piece in slot.pieces]
    if len(slot.pieces) == 1 and slot.pieces[0].patch == "base" and not slot.replaced:
        return marked[0]  # untouched: as it stands
    left = [line for piece in slot.replaced for line in _only_blocks(piece, places)]
    joined = _join([*marked, left])
    prose = "\n\n".join(piece.text.prose for piece in slot.pieces if piece.text.prose)
    if _prose(joined, slot.name or "x") == prose:
        return joined
    # Blank lines around a block could not be told from those of the prose: all blocks behind all prose, then.
    blocks = [line for piece in slot.pieces for line in _only_blocks(piece, places)]
    return _join([prose.split("\n") if prose else [], blocks, left])


def _prose(lines: list[str], section: str) -> str:
    return read_text(lines, 1, [], skill="x", section=section, patch="base", file="x/base.md").prose


def _join(parts: list[list[str]]) -> list[str]:
    """Parts without blank lines at their edges, one blank line between them."""
    found: list[str] = []
    for part in parts:
        lines = list(part)
        while lines and not lines[0].strip():
            lines.pop(0)
        while lines and not lines[-1].strip():
            lines.pop()
        if lines:
            found += ["", *lines] if found else lines
    return found


def _marked(piece: Piece, places: dict[str, _Place]) -> list[str]:
    """The lines of a piece, its policy fences with their origin."""
    lines = piece.text.raw.split("\n")[:-1] if piece.text.raw else []
    for block in piece.text.blocks:
        at = block.line - piece.text.line
        fence = policy_fence(lines[at])
        assert fence is not None
        if fence[1]:
            continue  # from an earlier squash: its origin is written already
        place = places.get(piece.patch)
        file = PurePosixPath(piece.file)
        name = file.name if place is None else f"{file.parent.name}/{file.name}"
        number = 0 if place is None else place.order
        lines[at] = f"{fence[0]} patch={piece.patch} file={name} line={block.line + 1} order={number}"
    return lines


def _only_blocks(piece: Piece, places: dict[str, _Place]) -> list[str]:
    """The policy blocks of a piece, a blank line between them."""
    lines = _marked(piece, places)
    found: list[list[str]] = []
    for block in piece.text.blocks:
        at = block.line - piece.text.line
        fence = policy_fence(lines[at])
        assert fence is not None
        mark = fence[0].removesuffix("yaml policy").strip()
        end = next(
            number
            for number in range(at + 1, len(lines))
            if lines[number].strip().startswith(mark) and not lines[number].strip().strip(mark[0])
        )
        found.append(lines[at : end + 1])
    return _join(found)
