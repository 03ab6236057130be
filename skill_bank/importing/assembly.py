"""One skill of the original's format, put together by the original's rules (see the package's docstring)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from skill_bank.importing.reading import Notes
from skill_bank.importing.types import AsIs, Kind, Oddity, RawBank, RawBase, RawPatch, RawSkill, Severity, shown

ACTIONS = ("replace", "append", "prepend", "insert_after")


def compile_as_is(bank: RawBank, skill: RawSkill, profile: str | None = None) -> AsIs:
    """The text of a skill under its manifest or a profile, and every oddity that has to do with it."""
    notes = Notes(skill.name)
    found = list(skill.oddities)
    applied: tuple[RawPatch, ...] = ()
    text: str | None = None
    if not skill.present:
        found = [replace(one, severity=Severity.ERROR) for one in found]
    elif skill.manifest is not None and skill.base is not None:
        ids = _listed(skill, profile, notes)
        chosen, broken = _choose(skill, ids, notes)
        found = [replace(one, severity=Severity.ERROR) if one.file in broken else one for one in found]
        applied = order(chosen, notes)
        _check(bank, skill, applied, notes)
        text = assemble(skill.base, applied, notes)
    oddities = tuple(sorted({*found, *notes.found}))
    failed = any(one.severity is Severity.ERROR for one in oddities)
    return AsIs(skill.name, None if failed else text, applied, oddities)


def _listed(skill: RawSkill, profile: str | None, notes: Notes) -> Sequence[str]:
    manifest = skill.manifest
    assert manifest is not None
    if profile is None:
        return manifest.active
    if profile not in manifest.profiles:
        known = ", ".join(sorted(manifest.profiles)) or "none"
        notes.error(manifest.file, 0, Kind.PROFILE, f"{skill.name} has no profile '{profile}'; there are: {known}")
        return ()
    return manifest.profiles[profile].active


def _choose(skill: RawSkill, ids: Sequence[str], notes: Notes) -> tuple[list[RawPatch], set[str]]:
    """(the patches that are listed and can be read, the files that are listed and cannot)."""
    manifest = skill.manifest
    assert manifest is not None
    found: list[RawPatch] = []
    broken: set[str] = set()
    unreadable = {one.file for one in skill.oddities if one.kind in (Kind.ENCODING, Kind.UNREADABLE)}
    for one in ids:
        file = f"{skill.folder}/patches/{one}.md"
        patch = skill.patches.get(one)
        if patch is None and file in unreadable:
            broken.add(file)
        elif patch is None:
            notes.error(manifest.file, manifest.lines.get(f"active.{one}", 0), Kind.MISSING_FILE,
                        f"'{one}' is listed and patches/{one}.md is missing")  # fmt: skip
        elif not patch.head.parsed:
            broken.add(file)
        elif not isinstance(patch.head.value, dict) or not patch.head.value:
            notes.error(file, 2, Kind.FRONT_MATTER, "the front matter is no mapping, so the patch names no section")
        elif isinstance(patch.head.fields.get("id"), (list, dict, set)):
            notes.error(file, patch.line("id"), Kind.ID, f"the id is {patch.id}, not text")
        else:
            found.append(patch)
            if patch.status == "archived":
                notes.error(file, patch.line("status"), Kind.STATUS, "listed as active, and archived")
            elif patch.status != "active":
                stays = "it takes effect all the same"
                notes.add(file, patch.line("status"), Kind.STATUS, f"listed as active, and {patch.status}: {stays}")
            elif "status" not in patch.head.fields:
                notes.add(file, 1, Kind.STATUS, "no `status`: it counts as active")
    return found, broken


def order(patches: Sequence[RawPatch], notes: Notes) -> tuple[RawPatch, ...]:
    """The patches with what each depends on before it, depth first, otherwise as listed. Two of one id are one.

    The original keeps dependencies in a set, so that where a patch has several which were not listed before it, their
    order differs from one process to the next; ours is the order in which they are written.
    """
    by_id: dict[Any, RawPatch] = {}
    for patch in patches:
        if patch.id in by_id:
            twice = f"the id '{patch.id}' is also that of {by_id[patch.id].stem}, which is not applied"
            notes.add(patch.file, patch.line("id"), Kind.ID, twice)
        by_id[patch.id] = patch
    done: dict[Any, None] = {}
    for start in by_id:
        path: list[Any] = []
        stack: list[tuple[Any, list[Any]]] = [(start, _local(by_id[start], by_id))] if start not in done else []
        path += [start] if stack else []
        while stack:
            node, needs = stack[-1]
            pending = [one for one in needs if one not in done]
            if not pending:
                done[node] = None
                stack.pop()
                path.pop()
                continue
            following = pending[0]
            if following in path:
                cycle = " -> ".join(str(one) for one in (*path[path.index(following) :], following))
                notes.error(by_id[node].file, by_id[node].line("depends_on"), Kind.CYCLE,
                            f"dependencies form a cycle: {cycle}")  # fmt: skip
                return tuple(by_id.values())
            if len(pending) > 1:
                notes.add(by_id[node].file, by_id[node].line("depends_on"), Kind.ORDER,
                          f"{', '.join(map(str, pending))} are listed behind it: the original leaves their order to chance")  # noqa: E501 # fmt: skip
            path.append(following)
            stack.append((following, _local(by_id[following], by_id)))
    return tuple(by_id[one] for one in done)


def _local(patch: RawPatch, by_id: Mapping[Any, RawPatch]) -> list[Any]:
    return [one for one in dict.fromkeys(patch.names("depends_on")) if ":" not in one and one in by_id]


def _check(bank: RawBank, skill: RawSkill, applied: Sequence[RawPatch], notes: Notes) -> None:
    """Conflicts, and what patches of other skills they depend on."""
    ids = {patch.id for patch in applied}
    for patch in applied:
        for other in patch.names("conflicts_with"):
            if other in ids:
                notes.error(patch.file, patch.line("conflicts_with"), Kind.CONFLICT,
                            f"conflicts with '{other}', and both are listed")  # fmt: skip
        for needed in patch.names("depends_on"):
            line = patch.line("depends_on")
            if ":" in needed:
                _check_other(bank, needed, patch, line, notes)
            elif needed not in ids:
                exists = any(one.id == needed for one in skill.patches.values())
                why = "is not in force" if exists else "does not exist"
                notes.add(patch.file, line, Kind.DEPENDENCY, f"depends on '{needed}', which {why}; that is ignored")


def _check_other(bank: RawBank, needed: str, patch: RawPatch, line: int, notes: Notes) -> None:
    name, _, wanted = needed.partition(":")
    other = bank.skills.get(name)
    if other is None:
        notes.error(patch.file, line, Kind.DEPENDENCY, f"depends on '{needed}': no skill '{name}' is declared")
    elif other.manifest is None:
        notes.add(patch.file, line, Kind.DEPENDENCY,
                  f"depends on '{needed}', and the manifest of {name} cannot be read: not checked")  # fmt: skip
    elif wanted not in other.manifest.active:
        notes.error(patch.file, line, Kind.DEPENDENCY, f"depends on '{needed}', which {name} does not list as active")


def assemble(base: RawBase, patches: Sequence[RawPatch], notes: Notes) -> str:
    """The compiled text. What the original stops at is an error among `notes`; then the text means nothing."""
    contents, names = apply_patches(base, patches, notes)
    return join(base, contents, names)


def apply_patches(base: RawBase, patches: Sequence[RawPatch], notes: Notes) -> tuple[dict[Any, str], list[Any]]:
    """(section → its text, the sections in the order in which they are shown)."""
    contents: dict[Any, str] = {}
    names: list[Any] = []
    touched: dict[Any, list[RawPatch]] = {}
    for section in base.sections:
        contents[section.name] = section.content
        names.append(section.name)
    for patch in patches:
        target, action = patch.target, patch.action
        if action not in ACTIONS:
            notes.error(patch.file, patch.line("action"), Kind.FIELD,
                        f"the action is {shown(action)}; known are {', '.join(ACTIONS)}")  # fmt: skip
            continue
        at_end = action == "insert_after" and not target
        if not at_end and (not isinstance(target, str) or target not in contents):
            known = ", ".join(map(str, contents)) or "none"
            notes.error(patch.file, patch.line("target_section"), Kind.MISSING_SECTION,
                        f"there is no section {shown(target)}; there are: {known}")  # fmt: skip
            continue
        if action == "insert_after":
            if patch.id in contents:
                taken = f"section '{patch.id}' exists already: both places show this patch"
                notes.add(patch.file, patch.line("id"), Kind.DUPLICATE_SECTION, taken)
            contents[patch.id] = patch.body
            place = len(names) if at_end else names.index(target) + 1
            _warn_moved(base, names, place, patch, notes)
            names.insert(place, patch.id)
            continue
        if action == "replace":
            _warn_shadowed(patch, touched.get(target, []), notes)
            contents[target] = patch.body
            touched[target] = [patch]
        else:
            before, behind = contents[target], patch.body
            contents[target] = f"{before}\n\n{behind}" if action == "append" else f"{behind}\n\n{before}"
            touched.setdefault(target, []).append(patch)
    return contents, names


def _warn_shadowed(patch: RawPatch, earlier: Sequence[RawPatch], notes: Notes) -> None:
    for one in earlier:
        what = "also replaces" if one.action == "replace" else f"{one.action}s to"
        notes.add(patch.file, patch.line("action"), Kind.SHADOWED,
                  f"replaces section '{patch.target}', which '{one.id}' {what} before: that is lost")  # fmt: skip


def _warn_moved(base: RawBase, names: Sequence[Any], place: int, patch: RawPatch, notes: Notes) -> None:
    behind = [position for position in base.gaps if position >= max(place, 1)]
    if behind:
        notes.add(patch.file, patch.line("action"), Kind.MOVED_TEXT,
                  f"inserts a section: {len(behind)} piece(s) of text between sections behind it move up by one section")  # noqa: E501 # fmt: skip


def join(base: RawBase, contents: Mapping[Any, str], names: Sequence[Any]) -> str:
    """Front matter, sections and the text between them."""
    parts: list[str] = []
    if base.head.value:
        parts.append(f"---\n{front_matter(base.head.value)}\n---\n")
    if 0 in base.gaps:
        parts.append(base.gaps[0])
    for position, name in enumerate(names, start=1):
        parts.append(contents[name])
        if position in base.gaps:
            parts.append(base.gaps[position])
    return "\n\n".join(parts) + "\n"


def front_matter(value: Any) -> str:
    """Front matter as the original writes it anew."""
    return yaml.safe_dump(value, default_flow_style=False, allow_unicode=True).strip()


def failed(oddities: Sequence[Oddity]) -> bool:
    """Whether one of them is an error."""
    return any(one.severity is Severity.ERROR for one in oddities)
