"""What is odd about a skill without stopping its compilation."""

from collections.abc import Iterable, Sequence
from typing import Any

from skill_bank.importing.reading import MARKER_LIKE, Notes
from skill_bank.importing.types import Kind, Oddity, RawPatch, RawSkill, shown
from skill_bank.index import NAME
from skill_bank.markdown import SPEC_FIELDS

PATCH_KEYS = frozenset({
    "id", "target_section", "action", "description", "source", "created",
    "depends_on", "conflicts_with", "status", "superseded_by",
})  # fmt: skip
"""Fields of a patch by the format's description."""
STATUSES = frozenset({"proposed", "active", "deprecated", "archived", "draft", "staged", "rejected"})


def check_skill(skill: RawSkill, applied: Sequence[RawPatch]) -> tuple[Oddity, ...]:
    """Oddities of a skill whose files could be read, as far as they could."""
    notes = Notes(skill.name)
    in_force = {patch.stem for patch in applied}
    for patch in skill.patches.values():
        _check_patch(patch, patch.stem in in_force, notes)
    _check_order(applied, notes)
    if skill.manifest is not None:
        _check_lists(skill, notes)
        _check_profiles(skill, notes)
    if skill.base is not None:
        _check_base(skill, notes)
    return tuple(notes.found)


def _check_patch(patch: RawPatch, in_force: bool, notes: Notes) -> None:
    fields = patch.head.fields
    if not patch.head.parsed:
        return
    for key in fields:
        if key not in PATCH_KEYS:
            notes.note(patch.file, patch.line(str(key)), Kind.UNKNOWN_KEY, f"`{key}` means nothing in a patch")
    if "id" not in fields:
        notes.add(patch.file, 1, Kind.ID, f"no `id`: the file's name, '{patch.stem}', is used")
    elif fields["id"] != patch.stem:
        differs = (
            f"the id is {shown(fields['id'])} in the file {patch.stem}.md: lists name the file, dependencies the id"
        )
        notes.add(patch.file, patch.line("id"), Kind.ID, differs)
    if "action" not in fields:
        notes.add(patch.file, 1, Kind.FIELD, "no `action`: it replaces the section")
    if "target_section" not in fields:
        notes.add(patch.file, 1, Kind.MISSING_SECTION, "no `target_section`")
    if "status" in fields and (not isinstance(patch.status, str) or patch.status not in STATUSES):
        notes.add(patch.file, patch.line("status"), Kind.STATUS, f"unknown status {shown(patch.status)}")
    if in_force and fields.get("superseded_by"):
        replaced = f"superseded by '{fields['superseded_by']}', and listed as active"
        notes.add(patch.file, patch.line("superseded_by"), Kind.STATUS, replaced)
    for key in ("depends_on", "conflicts_with"):
        value = fields.get(key, [])
        if not isinstance(value, list):
            notes.add(
                patch.file, patch.line(key), Kind.FIELD, f"`{key}` is {shown(value)}, not a list: it has no effect"
            )
        elif any(not isinstance(one, str) for one in value):
            notes.add(patch.file, patch.line(key), Kind.FIELD, f"`{key}` holds something that is not text: no effect")
    if not patch.body:
        notes.add(patch.file, patch.body_line, Kind.FIELD, "the patch has no body")
    raw = patch.head.body.lstrip("\n")
    if raw[:1] in (" ", "\t"):
        notes.add(patch.file, patch.body_line, Kind.FIELD, "the first line is indented: the indentation is lost")
    for number, line in enumerate(patch.body.split("\n"), start=patch.body_line):
        if MARKER_LIKE.search(line) is not None:
            text = f"a section marker in the body of a patch becomes text: {line.strip()[:60]}"
            (notes.add if in_force else notes.note)(patch.file, number, Kind.LEAKED_MARKER, text)


def _check_order(applied: Iterable[RawPatch], notes: Notes) -> None:
    inserted: dict[Any, str] = {}
    for patch in applied:
        if patch.action != "insert_after" or not isinstance(patch.target, str):
            continue
        if patch.target in inserted:
            reversed_ = (
                f"inserted behind '{patch.target}' before '{inserted[patch.target]}', which was inserted earlier"
            )
            notes.add(patch.file, patch.line("action"), Kind.ORDER, reversed_)
        inserted[patch.target] = str(patch.id)


def _check_lists(skill: RawSkill, notes: Notes) -> None:
    manifest = skill.manifest
    assert manifest is not None
    files = {one.file for one in skill.oddities}
    for one in manifest.disabled:
        line = manifest.lines.get(f"disabled.{one}", 0)
        if one in manifest.active:
            notes.add(manifest.file, line, Kind.LISTED, f"'{one}' is active and disabled: it takes effect")
        if one not in skill.patches and f"{skill.folder}/patches/{one}.md" not in files:
            notes.add(manifest.file, line, Kind.LISTED, f"'{one}' is disabled and patches/{one}.md is missing")
    listed = {*manifest.active, *manifest.disabled}
    for profile in manifest.profiles.values():
        listed.update((*profile.active, *profile.disabled))
    for stem, patch in skill.patches.items():
        if stem not in listed:
            notes.note(patch.file, 0, Kind.UNDECLARED, "neither active nor disabled: it has no effect")


def _check_profiles(skill: RawSkill, notes: Notes) -> None:
    manifest = skill.manifest
    assert manifest is not None
    for name, profile in manifest.profiles.items():
        ids = {skill.patches[one].id for one in profile.active if one in skill.patches}
        for one in profile.active:
            line = manifest.lines.get(f"{name}.active.{one}", profile.line)
            if one not in skill.patches:
                lost = f"profile '{name}' lists '{one}', and patches/{one}.md is missing or cannot be read"
                notes.add(manifest.file, line, Kind.PROFILE, lost)
                continue
            for needed in skill.patches[one].names("depends_on"):
                if ":" not in needed and needed not in ids:
                    drops = f"profile '{name}' lists '{one}' without '{needed}', which it depends on"
                    notes.add(manifest.file, line, Kind.PROFILE, drops)
        for one in profile.disabled:
            if one in profile.active:
                line = manifest.lines.get(f"{name}.disabled.{one}", profile.line)
                both = f"profile '{name}' lists '{one}' as active and disabled: it takes effect"
                notes.add(manifest.file, line, Kind.PROFILE, both)


def _check_base(skill: RawSkill, notes: Notes) -> None:
    """By the Agent Skills specification: https://agentskills.io/specification."""
    base = skill.base
    assert base is not None
    fields, lines = base.head.fields, base.head.lines
    if not base.head.parsed:
        return
    for key in fields:
        if key not in SPEC_FIELDS:
            unknown = f"the specification knows no field `{key}`"
            notes.add(base.file, lines.get(str(key), 1), Kind.SPECIFICATION, unknown)
    name, description = fields.get("name"), fields.get("description")
    if name != skill.name:
        notes.add(base.file, lines.get("name", 1), Kind.SPECIFICATION, f"the name is {shown(name)}, not '{skill.name}'")
    if NAME.match(skill.name) is None or len(skill.name) > 64:
        notes.add(base.file, lines.get("name", 1), Kind.SPECIFICATION, f"'{skill.name}' is no name for a skill")
    if not isinstance(description, str) or not description.strip():
        notes.add(base.file, lines.get("description", 1), Kind.SPECIFICATION, "no description")
    elif len(description) > 1024:
        long = f"the description has {len(description)} characters; 1024 are allowed"
        notes.add(base.file, lines["description"], Kind.SPECIFICATION, long)
    if not base.sections:
        notes.add(base.file, 0, Kind.MARKER, "no sections: no patch can change this skill")
