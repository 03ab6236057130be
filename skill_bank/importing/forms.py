"""The forms in which a skill of the original's format can be written in ours."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from skill_bank.importing.assembly import apply_patches, front_matter, order
from skill_bank.importing.checks import PATCH_KEYS
from skill_bank.importing.reading import Notes
from skill_bank.importing.types import AsIs, Kind, Oddity, RawPatch, RawSkill
from skill_bank.index import ID, NAME
from skill_bank.manifest import render_manifest, render_patch
from skill_bank.markdown import SPEC_FIELDS, parse_base
from skill_bank.patchfile import parse_patch
from skill_bank.types import Manifest, Profile

NOT_MIGRATED = "not-migrated"
"""Folder of a skill for patch files that our format refuses and nothing needs."""

MAX_VALUE = 100_000
"""Characters of a value that is no text; aliases (`*name`) can make a few lines unfold to any length."""

_MARKER = re.compile(r"(<!--\s*)(?=\\*\s*/?\s*section\s*:)")
_SECTION = re.compile(r"[a-z0-9-]+\Z")
_STATUS = {
    "proposed": "draft", "draft": "draft", "staged": "staged", "rejected": "rejected",
    "archived": "archived", "deprecated": "archived",
}  # fmt: skip


class Form(StrEnum):
    """How the patches in force are kept."""

    PATCHES = "patches"
    """As patches."""
    FOLDED = "folded"
    """In the base, with its sections."""
    TEXT = "text"
    """In the base, without sections."""


@dataclass(frozen=True)
class Rendered:
    """A skill in our format."""

    form: Form
    specs: Mapping[str, Mapping[str, Any]]
    """Patch id → the parts of its file."""
    expected: str
    """The text that it has to compile to."""
    plain: Mapping[str, bytes]
    """Files other than patches, by path inside the skill's folder."""
    profiles: tuple[str, ...]
    oddities: tuple[Oddity, ...] = ()
    in_force: Mapping[str, str] = field(default_factory=dict)
    """What a manifest of the original lists → our patch id, for patches in force."""
    cross: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Patch id → what it needs of other skills: (skill, patch as the original lists it)."""
    failed: bool = False
    skill: str = ""
    folder: str = ""

    @property
    def files(self) -> dict[str, bytes]:
        """Path inside the skill's folder → content."""
        patches = {f"patches/{name}.md": render_patch(**spec).encode("utf-8") for name, spec in self.specs.items()}
        return {**self.plain, **patches}

    def with_cross_needs(self, others: Mapping[str, "Rendered"]) -> "Rendered":
        """With the dependencies on other skills that hold there; the others are dropped and reported."""
        specs = dict(self.specs)
        dropped: list[Oddity] = []
        for name, needs in self.cross.items():
            held = []
            for skill, patch in needs:
                known = others.get(skill)
                if known is not None and patch in known.in_force:
                    held.append(f"{skill}:{known.in_force[patch]}")
                else:
                    gone = f"'{name}' no longer depends on '{skill}:{patch}', which is not in force in the new bank"
                    dropped.append(Oddity(f"{self.folder}/patches/{name}.md", 0, Kind.CHANGED, gone, skill=self.skill))
            if held:
                specs[name] = {**specs[name], "depends_on": [*specs[name]["depends_on"], *held]}
        return replace(self, specs=specs, oddities=tuple(dropped))


def render_skill(skill: RawSkill, done: AsIs, form: Form) -> Rendered:
    """The skill in a form; whether that compiles, and to what, is for the compiler to say."""
    base, manifest = skill.base, skill.manifest
    assert base is not None
    assert manifest is not None
    assert done.text is not None
    notes = Notes(skill.name)
    head, expected = _valid_head(skill, done.text, notes)
    applied = done.applied if form is Form.PATCHES else ()
    if form is Form.PATCHES:
        contents: dict[Any, str] = {one.name: one.content for one in base.sections}
        names: list[Any] = [one.name for one in base.sections]
    else:
        contents, names = apply_patches(base, done.applied, Notes())
    body = _body(base.gaps, contents, names, marked=form is not Form.TEXT)
    plain = {"base.md": f"---\n{head}\n---\n\n\n{body}\n".encode()}
    ids = _ids(skill, notes)
    keeper = _Keeper(skill, ids, applied, done.applied if form is not Form.PATCHES else (), notes)
    specs = keeper.specs(plain)
    profiles: dict[str, Profile] = {}
    for name, one in manifest.profiles.items():
        if form is not Form.PATCHES:
            lost = f"profile '{name}' is dropped: the patches it chooses from are part of the base now"
            notes.add(manifest.file, one.line, Kind.PROFILE, lost)
        elif ID.match(name) is None:
            notes.add(manifest.file, one.line, Kind.PROFILE, f"profile '{name}' is dropped: a-z, 0-9, - and _ only")
        else:
            listed = order([skill.patches[stem] for stem in one.active if stem in skill.patches], Notes())
            active = tuple(ids[patch.stem] for patch in listed if ids[patch.stem] in specs)
            off = tuple(ids[stem] for stem in one.disabled if ids.get(stem) in specs and ids[stem] not in active)
            profiles[name] = Profile(name, one.description, active, off, 0)
    active = tuple(ids[patch.stem] for patch in applied)
    off = tuple(
        ids[stem] for stem in manifest.disabled
        if ids.get(stem) in specs and ids[stem] not in active
        and not any(ids[stem] in one.active for one in profiles.values())
    )  # fmt: skip
    lists = Manifest("manifest.yaml", "base.md", active, off, profiles)
    plain["manifest.yaml"] = render_manifest("", lists).encode("utf-8")
    if form is not Form.PATCHES and done.applied:
        folded = ", ".join(str(patch.id) for patch in done.applied)
        notes.add(base.file, 0, Kind.CHANGED, f"folded into the base, as our rules cannot keep them apart: {folded}")
    if form is Form.TEXT:
        notes.add(base.file, 0, Kind.CHANGED, "the sections are gone: a code block runs across their borders")
    in_force = {patch.stem: ids[patch.stem] for patch in applied}
    return Rendered(
        form, specs, expected, plain, tuple(profiles), tuple(notes.found), in_force, keeper.cross,
        skill=skill.name, folder=skill.folder,
    )  # fmt: skip


def _body(gaps: Mapping[int, str], contents: Mapping[Any, str], names: Sequence[Any], *, marked: bool) -> str:
    parts = [escaped(gaps[0])] if 0 in gaps else []
    seen: set[Any] = set()
    for position, name in enumerate(names, start=1):
        text = escaped(contents[name])
        if marked and isinstance(name, str) and _SECTION.match(name) is not None and name not in seen:
            text = f"<!-- section:{name} -->\n{text}\n<!-- /section:{name} -->"
        seen.add(name)
        parts.append(text)
        if position in gaps:
            parts.append(escaped(gaps[position]))
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Text whose section markers are not read as such in a verbatim layout."""
    return _MARKER.sub(r"\1\\", text)


def _ids(skill: RawSkill, notes: Notes) -> dict[str, str]:
    """File name without `.md` → patch id of ours."""
    found: dict[str, str] = {}
    for stem, patch in skill.patches.items():
        name = stem
        if ID.match(stem) is None:
            name = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_")[:56] or "patch"
            while name in found.values() or name in skill.patches:
                name += "-x"
            notes.add(patch.file, 0, Kind.CHANGED, f"the patch is called '{name}' now")
        found[stem] = name
    return found


class _Keeper:
    """Makes patch files of ours from those of the original."""

    def __init__(
        self, skill: RawSkill, ids: Mapping[str, str], applied: Sequence[RawPatch], folded: Sequence[RawPatch],
        notes: Notes,
    ) -> None:  # fmt: skip
        assert skill.manifest is not None
        self._skill = skill
        self._ids = ids
        self._applied = applied
        self._folded = {patch.stem for patch in folded}
        self._notes = notes
        self._groups = [[one.stem for one in applied]] if applied else []
        self._profiled: set[str] = set()
        if not folded:
            for profile in skill.manifest.profiles.values():
                self._groups.append([stem for stem in profile.active if stem in skill.patches])
                self._profiled.update(profile.active)
        self.cross: dict[str, tuple[tuple[str, str], ...]] = {}

    def specs(self, plain: dict[str, bytes]) -> dict[str, dict[str, Any]]:
        """Patch id → parts of its file; a file that our format refuses goes to `plain`, out of the way."""
        in_force = {patch.stem for patch in self._applied}
        found: dict[str, dict[str, Any]] = {}
        for stem, patch in self._skill.patches.items():
            spec = self._spec(patch, in_force)
            _, problems = parse_patch(render_patch(**spec), patch.file, self._skill.name)
            problems = tuple(one for one in problems if "is not the file's name" not in one.message)
            if problems and stem not in in_force:
                plain[f"{NOT_MIGRATED}/{stem}.md"] = patch.text.encode("utf-8")
                why = f"kept in {NOT_MIGRATED}/, where nothing reads it: {problems[0].message}"
                self._notes.add(patch.file, problems[0].line, Kind.CHANGED, why)
                continue
            found[spec["id"]] = spec
        return found

    def _spec(self, patch: RawPatch, in_force: set[str]) -> dict[str, Any]:
        name = self._ids[patch.stem]
        fields = patch.head.fields
        given = str(patch.status)
        if patch.stem in in_force or patch.stem in self._profiled:
            status = "active"
        elif patch.stem in self._folded:
            status = "archived"
        else:
            status = _STATUS.get(given, "draft")
        if status != given:
            becomes = f"the status {given!r} becomes {status}"
            self._notes.note(patch.file, patch.line("status"), Kind.CHANGED, becomes)
        extra = {key: value for key, value in fields.items() if key not in PATCH_KEYS}
        metadata = {"imported_status": given, **{str(key): _as_text(value) for key, value in extra.items()}}
        if fields.get("superseded_by"):
            metadata["superseded_by"] = _as_text(fields["superseded_by"])
        new_section = None
        if patch.action == "insert_after" and NAME.match(str(patch.id)) is not None:
            new_section = str(patch.id)
        body = escaped(patch.body)
        if body != patch.body:
            self._notes.note(patch.file, 0, Kind.CHANGED, "markers in the body are escaped (<!-- \\section:…)")
        return {
            "id": name,
            "target_section": str(patch.target),
            "action": str(patch.action),
            "description": _as_text(fields.get("description", "")),
            "source": _as_text(fields.get("source", "")),
            "created": _as_text(fields.get("created", "")),
            "scope": None,
            "depends_on": self._needs(patch, name),
            "conflicts_with": self._conflicts(patch),
            "supersedes": self._superseded(patch) if patch.stem in in_force else [],
            "new_section": new_section,
            "metadata": metadata,
            "status": status,
            "body": body,
        }

    def _named(self, wanted: str) -> str | None:
        """Our id of the patch that has this id in the original, in this skill."""
        for patch in (*self._applied, *self._skill.patches.values()):
            if patch.id == wanted:
                return self._ids[patch.stem]
        return None

    def _needs(self, patch: RawPatch, name: str) -> list[str]:
        """Dependencies that hold wherever the patch is in force; ours must hold, the original's need not."""
        kept: list[str] = []
        cross: list[tuple[str, str]] = []
        groups = [group for group in self._groups if patch.stem in group]
        for one in patch.names("depends_on"):
            if ":" in one:
                skill, _, other = one.partition(":")
                cross.append((skill, other))
                continue
            known = self._named(one)
            holds = all(any(self._skill.patches[stem].id == one for stem in group) for group in groups)
            if known is not None and holds:
                kept.append(known)
            else:
                gone = f"no longer depends on '{one}', which is not in force everywhere the patch is"
                self._notes.add(patch.file, patch.line("depends_on"), Kind.CHANGED, gone)
        if cross and groups:
            self.cross[name] = tuple(cross)
        return kept

    def _conflicts(self, patch: RawPatch) -> list[str]:
        kept: list[str] = []
        for one in patch.names("conflicts_with"):
            known = self._named(one)
            if known is None:
                gone = f"no longer conflicts with '{one}', which is no patch of this skill"
                self._notes.add(patch.file, patch.line("conflicts_with"), Kind.CHANGED, gone)
            else:
                kept.append(known)
        return kept

    def _superseded(self, patch: RawPatch) -> list[str]:
        """What a replace takes away in the order of the manifest, written down as ours wants it."""
        if patch.action != "replace":
            return []
        found: list[str] = []
        for one in self._applied:
            if one is patch:
                break
            if one.target == patch.target and one.action != "insert_after":
                found.append(self._ids[one.stem])
        if found:
            says = f"it says now that it supersedes {', '.join(found)}"
            self._notes.note(patch.file, patch.line("action"), Kind.CHANGED, says)
        return found


def _as_text(value: Any) -> str:
    """A value of front matter as text. Raises ValueError for one that refers to itself or unfolds to a huge one."""
    if isinstance(value, str):
        return value
    found: list[str] = []
    size = 0
    for piece in () if value is None else json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        size += len(piece)
        if size > MAX_VALUE:
            raise ValueError(f"a value of the front matter unfolds to more than {MAX_VALUE} characters")
        found.append(piece)
    return "".join(found)


def _valid_head(skill: RawSkill, text: str, notes: Notes) -> tuple[str, str]:
    """(front matter, the text with it): as compiled, or, where the specification refuses that, corrected."""
    base = skill.base
    assert base is not None
    if not base.head.value:
        return "", text
    head = front_matter(base.head.value)
    rest = text[len(f"---\n{head}\n---\n") :]
    fixed, why = corrected_head(head, base.head.fields, skill.name)
    if fixed != head:
        notes.add(base.file, 1, Kind.CHANGED, f"the front matter is written anew, as it was not valid: {why}")
    return fixed, f"---\n{fixed}\n---\n{rest}"


def corrected_head(head: str, fields: Mapping[str, Any], name: str) -> tuple[str, str]:
    """(valid front matter, why the given one was not); the given one where it is valid or cannot be helped."""
    problems = _head_problems(head, name)
    if not problems:
        return head, ""
    given = fields.get("metadata")
    metadata = dict(given) if isinstance(given, dict) else {} if given is None else {"value": _as_text(given)}
    kept: dict[str, Any] = {}
    for key, value in fields.items():
        if key == "allowed-tools" and isinstance(value, list):
            kept[key] = " ".join(map(str, value))
        elif key in SPEC_FIELDS and key != "metadata":
            kept[key] = _as_text(value)
        elif key != "metadata":
            metadata[str(key)] = _as_text(value)
    kept["name"] = name
    if metadata:
        kept["metadata"] = {key: value if _block(value) else _as_text(value) for key, value in metadata.items()}
    fixed = front_matter(kept)
    return (head if _head_problems(fixed, name) else fixed), "; ".join(problems)


def _block(value: Any) -> bool:
    """Whether a value is written without braces or brackets."""
    if isinstance(value, (dict, list)):
        children = value.values() if isinstance(value, dict) else value
        return bool(value) and all(_block(one) for one in children)
    return True


def _head_problems(head: str, name: str) -> list[str]:
    _, problems = parse_base(f"---\n{head}\n---\n", "SKILL.md", name)
    return [one.message for one in problems]
