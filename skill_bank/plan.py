"""Which patches of a skill apply, and in which order; every reason why they cannot.

Order: dependencies (and what a patch supersedes) first, ties by the order of the manifest. So the order depends on
nothing but the texts.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from skill_bank.types import Manifest, Patch, PatchStatus, Problem, SkillSource


@dataclass(frozen=True)
class Selection:
    """The patches in force for one skill."""

    skill: str
    profile: str | None
    ids: tuple[str, ...]
    """In the order of the manifest, candidates last."""
    candidates: frozenset[str]
    """Patches that are not active and count as such here, because they are being tried."""
    folded: frozenset[str] = frozenset()
    """Patches that are part of the base: in force, and not applied."""
    sections_whole: bool = True
    """False: what cannot be read, patches in force or the manifest, may add sections."""
    policy_whole: bool = True
    """False: it may set policy."""


_ADDING = ("new_section", "yaml policy")
"""What stands in a patch that adds a section, and in one that sets policy."""


def select(source: SkillSource, profile: str | None, candidates: Iterable[str], problems: list[Problem]) -> Selection:
    """The patches in force under a profile (None: the manifest's own lists) plus candidates.

    A profile that the skill does not have means the manifest's own lists: profiles are named per skill, and a whole
    bank compiles under one name.
    """
    manifest = source.manifest
    chosen = manifest.profiles.get(profile) if profile is not None else None
    prefix = "" if chosen is None else f"profiles.{chosen.name}."
    active = manifest.active if chosen is None else chosen.active
    disabled = dict.fromkeys(manifest.disabled)
    if chosen is not None:
        disabled.update(dict.fromkeys(chosen.disabled))
    folded = source.folded(profile)
    extra = [one for one in dict.fromkeys(candidates) if one not in active]
    ids: list[str] = []
    hidden: list[str | None] = []
    for one in (*active, *extra):
        line = manifest.lines.get(f"{prefix}active.{one}", 0)
        patch = source.patches.get(one)
        if one in folded:
            problems.append(
                Problem(manifest.file, line, f"patch '{one}' is part of the base already", "Take it off the list")
            )
            continue
        if one in disabled:
            problems.append(
                Problem(manifest.file, line, f"patch '{one}' is active and disabled", "Take it off one of the lists")
            )
        if patch is None and one in source.broken:
            hidden.append(source.unusable.get(one))  # reported where it was read
            continue
        if patch is None:
            known = ", ".join(sorted(source.patches)) or "none"
            problems.append(Problem(manifest.file, line, f"patch '{one}' does not exist", f"There are: {known}"))
            continue
        if patch.status is not PatchStatus.ACTIVE and one not in extra:
            problems.append(
                Problem(
                    patch.file,
                    patch.line_of("status"),
                    f"patch '{one}' has status {patch.status} and the manifest lists it as active",
                    "Activate it through a review, or take it off the manifest",
                )
            )
        if one in extra and patch.status in (PatchStatus.REJECTED, PatchStatus.ARCHIVED):
            problems.append(
                Problem(patch.file, patch.line_of("status"), f"patch '{one}' is {patch.status}", "Propose a new patch")
            )
        ids.append(one)
    for name in ("disabled", *((f"{prefix}disabled",) if prefix else ())):
        for one in manifest.disabled if name == "disabled" else (chosen.disabled if chosen is not None else ()):
            if one not in source.patches and one not in source.broken:
                problems.append(
                    Problem(manifest.file, manifest.lines.get(f"{name}.{one}", 0),
                            f"the disabled patch '{one}' does not exist", "Take it off the list")
                )  # fmt: skip
    may_add = [not manifest.whole or any(one is None or word in one for one in hidden) for word in _ADDING]
    name = None if chosen is None else chosen.name
    return Selection(
        source.name,
        name,
        tuple(ids),
        frozenset(extra),
        folded,
        sections_whole=not may_add[0],
        policy_whole=not may_add[1],
    )


def check_own(source: SkillSource, selection: Selection, problems: list[Problem]) -> None:
    """Dependencies and conflicts among the skill's own patches in force."""
    where = _list_name(selection)
    chosen = frozenset(selection.ids)
    for id_ in selection.ids:
        patch = source.patches[id_]
        for needed in patch.depends_on:
            if (other := _own(source, needed)) is None or other in selection.folded:
                continue
            if other not in source.patches and other in source.broken:
                continue
            line = patch.line_of("depends_on")
            if other not in source.patches:
                known = ", ".join(sorted(source.patches)) or "none"
                problems.append(
                    Problem(patch.file, line, f"depends on '{needed}', which does not exist", f"There are: {known}")
                )
            elif other not in chosen and source.manifest.whole:
                problems.append(
                    Problem(patch.file, line, f"depends on '{needed}', which {where} does not activate",
                            f"Activate '{needed}' or deactivate '{id_}'")
                )  # fmt: skip
        for name, ids in (("conflicts_with", patch.conflicts_with), ("supersedes", patch.supersedes)):
            for given in ids:
                mine = _own(source, given)
                if mine is None and name == "supersedes":
                    problems.append(
                        Problem(patch.file, patch.line_of(name), f"supersedes '{given}' of another skill",
                                "A replace takes over patches of its own section only")
                    )  # fmt: skip
                elif mine is not None and mine not in source.patches and mine not in source.broken | selection.folded:
                    problems.append(
                        Problem(patch.file, patch.line_of(name), f"names the patch '{given}', which does not exist",
                                "Correct or drop the name")
                    )  # fmt: skip
        if (newer := _own(source, patch.superseded_by)) and newer in chosen | selection.folded:
            problems.append(
                Problem(patch.file, patch.line_of("superseded_by"), f"'{id_}' is superseded by '{newer}' and both are "
                        "active", f"Deactivate '{id_}'")
            )  # fmt: skip
    for id_ in (*selection.ids, *sorted(selection.folded & source.patches.keys())):
        patch = source.patches[id_]
        for given in patch.conflicts_with:
            other = _own(source, given)
            if other is not None and (other in chosen or (other in selection.folded and id_ in chosen)):
                problems.append(_conflict(patch, given))


def check_foreign(
    source: SkillSource,
    selection: Selection,
    declared: Collection[str],
    selections: Mapping[str, Selection],
    sources: Mapping[str, SkillSource],
    problems: list[Problem],
) -> None:
    """Dependencies of the patches in force on patches of other skills, and whether those they name exist."""
    where = _list_name(selection)
    for id_ in source.foreign:
        if id_ not in selection.ids:
            continue
        patch = source.patches[id_]
        for needed in patch.depends_on:
            skill, _, other = needed.rpartition(":")
            line = patch.line_of("depends_on")
            if not skill or skill == source.name or not _exists(patch, needed, line, declared, sources, problems):
                continue
            theirs = selections[skill]
            if other not in theirs.ids and other not in theirs.folded and sources[skill].manifest.whole:
                problems.append(
                    Problem(patch.file, line, f"depends on '{needed}', which {where} does not activate",
                            f"Activate '{needed}' or deactivate '{id_}'")
                )  # fmt: skip
        for given in patch.conflicts_with:
            if _own(source, given) is None:
                _exists(patch, given, patch.line_of("conflicts_with"), declared, sources, problems)


def check_conflicts(
    source: SkillSource, selections: Mapping[str, Selection], involved: Collection[str], problems: list[Problem]
) -> None:
    """Conflicts of the patches in force with those of other skills, where one of the two skills is involved."""
    mine = selections[source.name]
    for id_ in source.foreign:
        if id_ not in mine.ids and id_ not in mine.folded:
            continue
        patch = source.patches[id_]
        for given in patch.conflicts_with:
            skill, _, other = given.rpartition(":")
            theirs = selections.get(skill)
            if theirs is None or skill == source.name or (source.name not in involved and skill not in involved):
                continue
            if other in theirs.ids or other in theirs.folded:
                problems.append(_conflict(patch, given))


def _list_name(selection: Selection) -> str:
    return "the manifest" if selection.profile is None else f"profile '{selection.profile}'"


def _own(source: SkillSource, reference: str) -> str | None:
    """The patch of this skill that a reference means; None: one of another skill."""
    skill, _, patch = reference.rpartition(":")
    return patch if not skill or skill == source.name else None


def _conflict(patch: Patch, other: str) -> Problem:
    return Problem(
        patch.file,
        patch.line_of("conflicts_with"),
        f"'{patch.id}' conflicts with '{other}' and both are active",
        "Deactivate one of them",
    )


def _exists(
    patch: Patch,
    reference: str,
    line: int,
    declared: Collection[str],
    sources: Mapping[str, SkillSource],
    problems: list[Problem],
) -> bool:
    """Whether a patch of another skill can be looked at; one that does not exist is a problem."""
    skill, _, other = reference.rpartition(":")
    if skill not in sources:
        if skill not in declared:  # else its files cannot be read, which is reported where they were read
            problems.append(
                Problem(patch.file, line, f"names '{reference}': there is no skill '{skill}'", "Correct the name")
            )
        return False
    if other in sources[skill].patches:
        return True
    if other not in sources[skill].broken and other not in sources[skill].manifest.folded:
        known = ", ".join(sorted(sources[skill].patches)) or "none"
        problems.append(Problem(patch.file, line, f"names '{reference}', which does not exist", f"There are: {known}"))
    return False


def order(source: SkillSource, selection: Selection, problems: list[Problem]) -> list[Patch]:
    """The patches in the order in which they apply; a cycle is a problem."""
    position = {one: index for index, one in enumerate(selection.ids)}
    before: dict[str, set[str]] = {one: set() for one in selection.ids}
    for one in selection.ids:
        patch = source.patches[one]
        for needed in (*patch.depends_on, *patch.supersedes):
            skill, _, bare = needed.rpartition(":")
            if (not skill or skill == source.name) and bare in position:
                before[one].add(bare)
    waiting = {one: len(needed) for one, needed in before.items()}
    after: dict[str, list[str]] = {one: [] for one in selection.ids}
    for one, earlier in before.items():
        for other in earlier:
            after[other].append(one)
    ready = [position[one] for one, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    found: list[Patch] = []
    while ready:
        one = selection.ids[heapq.heappop(ready)]
        found.append(source.patches[one])
        for other in after[one]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, position[other])
    if len(found) < len(selection.ids):
        for cycle in find_cycles(before):
            patch = source.patches[cycle[0]]
            problems.append(
                Problem(patch.file, patch.line_of("depends_on"), f"dependencies form a cycle: {' -> '.join(cycle)}",
                        "Remove one of these dependencies")
            )  # fmt: skip
    return found


def find_cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """One cycle of a graph, first node repeated at the end; empty where there is none. Deterministic."""
    state: dict[str, int] = {}
    for start in sorted(edges):
        if start in state:
            continue
        path = [start]
        stack = [iter(sorted(edges[start]))]
        state[start] = 1
        while stack:
            following = next(stack[-1], None)
            if following is None:
                state[path.pop()] = 2
                stack.pop()
            elif state.get(following) == 1:
                return [*path[path.index(following) :], following]
            elif following not in state and following in edges:
                state[following] = 1
                path.append(following)
                stack.append(iter(sorted(edges[following])))
    return []


def find_cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Cycles of a graph, as `find_cycle` gives them, so that none is left when the last edge of each is taken out."""
    left = {node: set(following) for node, following in edges.items()}
    found: list[list[str]] = []
    while cycle := find_cycle(left):
        found.append(cycle)
        left[cycle[-2]].remove(cycle[-1])
    return found


def check_cross_cycles(
    sources: Mapping[str, SkillSource], selections: Mapping[str, Selection], problems: list[Problem]
) -> None:
    """Cycles of dependencies that run through more than one skill."""
    if not any(sources[skill].foreign for skill in selections):
        return
    edges: dict[str, list[str]] = {}
    for skill in sorted(selections):
        for one in selections[skill].ids:
            needs = sources[skill].patches[one].depends_on
            edges[f"{skill}:{one}"] = [need if ":" in need else f"{skill}:{need}" for need in needs]
    for cycle in find_cycles(edges):
        if len({node.partition(":")[0] for node in cycle}) == 1:
            continue  # told where the patches of that skill are put in order
        skill, _, one = cycle[0].partition(":")
        patch = sources[skill].patches[one]
        problems.append(
            Problem(patch.file, patch.line_of("depends_on"), f"dependencies form a cycle: {' -> '.join(cycle)}",
                    "Remove one of these dependencies")
        )  # fmt: skip


def reaches(source: SkillSource, later: Patch, earlier: str) -> bool:
    """Whether `later` is declared to come after `earlier`: by dependencies, or by superseding it."""
    seen: set[str] = set()
    stack = [later.id]
    while stack:
        patch = source.patches.get(stack.pop())
        if patch is None:
            continue
        for need in (*patch.depends_on, *patch.supersedes):
            skill, _, bare = need.rpartition(":")
            if skill and skill != source.name:
                continue
            if bare == earlier:
                return True
            if bare not in seen:
                seen.add(bare)
                stack.append(bare)
    return False


def profiles_of(manifests: Iterable[Manifest]) -> list[str]:
    """Every profile name in the manifests, sorted."""
    return sorted({name for manifest in manifests for name in manifest.profiles})
