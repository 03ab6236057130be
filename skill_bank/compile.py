"""The compiler: sources of skills → SKILL.md and policy.json, in memory. Pure: the same texts give the same bytes.

Everything is checked before anything counts: `compile_skills` returns either every skill asked for, or raises
BankError with all the problems it found. Writing is `skill_bank.output`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skill_bank.assemble import Assembly
from skill_bank.format import SCHEMA_FILE, Reader, read_skill
from skill_bank.index import BankIndex, SkillEntry, parse_index
from skill_bank.plan import Selection, check_cross_cycles, check_references, order, profiles_of, select
from skill_bank.policy import Assignment, CompiledPolicy
from skill_bank.schema import check_policy
from skill_bank.types import BankError, BuiltSkill, Patch, Problem, SkillSource


@dataclass(frozen=True)
class LoadedBank:
    """A bank as read from disk, with what is wrong with each part."""

    index: BankIndex
    index_problems: tuple[Problem, ...]
    sources: Mapping[str, SkillSource]
    problems: Mapping[str, tuple[Problem, ...]]
    """Skill → what is wrong with its files."""


def load_bank(reader: Reader) -> LoadedBank:
    """Reads `bank.yaml` and every skill it declares."""
    problems: list[Problem] = []
    text = reader.text("bank.yaml", problems)
    if text is None:
        if not problems:
            problems.append(Problem("bank.yaml", 0, "there is no bank here", "Name a folder that holds bank.yaml"))
        return LoadedBank(BankIndex("", {}, {}), tuple(problems), {}, {})
    index, found = parse_index(text)
    problems.extend(found)
    sources: dict[str, SkillSource] = {}
    wrong: dict[str, tuple[Problem, ...]] = {}
    for name, entry in index.skills.items():
        mine: list[Problem] = []
        source = read_skill(reader, entry, mine)
        if source is not None:
            sources[name] = source
        wrong[name] = tuple(mine)
    return LoadedBank(index, tuple(problems), sources, wrong)


def closure(bank: LoadedBank, skills: Iterable[str]) -> list[str]:
    """The skills and those that their patches depend on, perhaps through others, sorted."""
    seen: set[str] = set()
    stack = list(skills)
    while stack:
        name = stack.pop()
        if name in seen or name not in bank.sources:
            continue
        seen.add(name)
        for patch in bank.sources[name].patches.values():
            stack.extend(need.rpartition(":")[0] for need in patch.depends_on if ":" in need)
    return sorted(seen)


def compile_skills(
    bank: LoadedBank,
    skills: Sequence[str],
    *,
    profile: str | None = None,
    candidates: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, BuiltSkill]:
    """The skills, compiled. `candidates`: skill → patches that count as active here.

    Raises BankError with every problem of the skills and of those they depend on.
    """
    candidates = candidates or {}
    problems: list[Problem] = list(bank.index_problems)
    for name in dict.fromkeys((*skills, *candidates)):
        if name not in bank.index.skills:
            known = ", ".join(sorted(bank.index.skills)) or "none"
            problems.append(Problem("bank.yaml", 0, f"there is no skill '{name}'", f"There are: {known}"))
    involved = closure(bank, skills)
    for name in dict.fromkeys((*skills, *involved)):
        problems.extend(bank.problems.get(name, ()))
    selections = {name: select(bank.sources[name], profile, candidates.get(name, ()), problems) for name in involved}
    profiles = profiles_of(source.manifest for source in bank.sources.values())
    if profile is not None and profile not in profiles:
        problems.append(
            Problem(
                "bank.yaml", 0, f"no skill has the profile '{profile}'", f"There are: {', '.join(profiles) or 'none'}"
            )
        )
    check_cross_cycles(bank.sources, selections, problems)
    built: dict[str, BuiltSkill] = {}
    for name in involved:
        check_references(bank.sources[name], selections[name], bank.index.skills, selections, bank.sources, problems)
        done = _build(bank.sources[name], bank.index.skills[name], bank.index, selections[name], problems)
        if name in skills:
            built[name] = done
    if problems:
        raise BankError(problems)
    return {name: built[name] for name in skills}


def _build(
    source: SkillSource, entry: SkillEntry, index: BankIndex, selection: Selection, problems: list[Problem]
) -> BuiltSkill:
    text = Assembly(source)
    patches = order(source, selection, problems)
    limit = index.limits.get("patch_lines")
    for patch in patches:
        if patch.target_section in entry.protected:
            problems.append(
                Problem(patch.file, patch.line_of("target_section"), f"section '{patch.target_section}' is protected",
                        "Target another section")
            )  # fmt: skip
        size = patch.text.prose.count("\n") + 1 + sum(len(block.assignments) for block in patch.text.blocks)
        if limit is not None and size > limit:
            problems.append(
                Problem(patch.file, 0, f"the patch has {size} lines, settings.limits.patch_lines is {limit}",
                        "Shorten it or split it")
            )  # fmt: skip
        text.apply(patch, problems)
    policy = _policy(source, patches, selection.profile, problems)
    lines = text.lines(policy, problems)
    most = index.limits.get("skill_lines")
    if most is not None and len(lines) > most:
        problems.append(
            Problem(source.base.file, 0, f"{source.name} compiles to {len(lines)} lines, "
                    f"settings.limits.skill_lines is {most}", "Shorten it or move detail into another skill")
        )  # fmt: skip
    files = {"SKILL.md": "".join(f"{line}\n" for line, _ in lines).encode("utf-8")}
    if policy is not None:
        files["policy.json"] = policy.to_bytes()
    return BuiltSkill(
        source.group,
        source.name,
        selection.profile,
        files,
        policy,
        tuple(patch.id for patch in patches),
        digest_of(files),
        tuple(origin for _, origin in lines),
    )


def _policy(
    source: SkillSource, patches: list[Patch], profile: str | None, problems: list[Problem]
) -> CompiledPolicy | None:
    """Policy blocks in order of merging. A block stays in force when the prose around it is replaced."""
    assignments: list[Assignment] = []
    for section in source.base.sections:
        for block in section.text.blocks:
            assignments.extend(block.assignments)
    for patch in patches:
        for block in patch.text.blocks:
            assignments.extend(block.assignments)
    if source.schema is not None:
        problems.extend(check_policy(source.schema, assignments))
    elif not assignments:
        return None
    elif SCHEMA_FILE not in source.broken:
        origin = assignments[0].origin
        problems.append(
            Problem(origin.file, origin.line, f"{source.name} sets policy and declares no schema for it",
                    f"Write {source.group}/{source.name}/{SCHEMA_FILE}")
        )  # fmt: skip
    return CompiledPolicy(source.name, tuple(assignments), profile)


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 over sorted names and contents, each with its length, in hex."""
    found = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode("utf-8"), files[name]):
            found.update(len(part).to_bytes(8, "big"))
            found.update(part)
    return found.hexdigest()
