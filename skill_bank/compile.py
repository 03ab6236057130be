"""The compiler: sources of skills → SKILL.md and policy.json, in memory. Pure: the same texts give the same bytes.

Everything is checked before anything counts: `compile_skills` returns either every skill asked for, or raises
BankError with all the problems it found. Writing is `skill_bank.live`.
"""

import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from skill_bank.assemble import Assembly, origins_of
from skill_bank.executable import commands_of
from skill_bank.format import SCHEMA_FILE, Reader, read_skill
from skill_bank.index import NAME, BankIndex, SkillEntry, parse_index
from skill_bank.limits import check_patch_size, check_skill_size
from skill_bank.markdown import nested_metadata
from skill_bank.measure import estimate_tokens
from skill_bank.plan import (
    Selection,
    check_conflicts,
    check_cross_cycles,
    check_foreign,
    check_own,
    order,
    profiles_of,
    select,
)
from skill_bank.policy import CompiledPolicy
from skill_bank.policy_check import check_policy
from skill_bank.prose import check_numbers
from skill_bank.types import BankError, Base, BuiltSkill, Patch, PolicyBlock, Problem, Section, SkillSource

NO_BANK = Problem("bank.yaml", 0, "there is no bank here", "Name a folder that holds bank.yaml")


@dataclass(frozen=True)
class LoadedBank:
    """A bank as read from disk, with what is wrong with each part."""

    index: BankIndex
    index_problems: tuple[Problem, ...]
    sources: Mapping[str, SkillSource]
    problems: Mapping[str, tuple[Problem, ...]]
    """Skill → what is wrong with its files."""


ReadSkill = tuple[SkillSource | None, tuple[Problem, ...]]
"""The sources of one skill (None where they cannot be used), and what is wrong with them."""


@contextmanager
def _no_collections() -> Iterator[None]:
    """Reading a bank makes many values that all live on; looking for garbage among them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_collections()
def load_bank(reader: Reader, read: Callable[[Sequence[SkillEntry]], Sequence[ReadSkill]] | None = None) -> LoadedBank:
    """Reads `bank.yaml` and every skill it declares (by `read`, where given)."""
    problems: list[Problem] = []
    text = reader.text("bank.yaml", problems)
    if text is None:
        if not problems:
            problems.append(NO_BANK)
        return LoadedBank(BankIndex("", {}, {}), tuple(problems), {}, {})
    index, found = _parsed_index(text)
    if index.unread != frozenset():
        index = _with_folders(reader, index)
    sources: dict[str, SkillSource] = {}
    wrong: dict[str, tuple[Problem, ...]] = {}
    entries = list(index.skills.values())
    found_skills = read(entries) if read is not None else [read_one(reader, one) for one in entries]
    for entry, (source, wrong[entry.name]) in zip(entries, found_skills, strict=True):
        if source is not None:
            sources[entry.name] = source
    return LoadedBank(index, (*problems, *found), sources, wrong)


def _with_folders(reader: Reader, index: BankIndex) -> BankIndex:
    """With the skills that lie in folders of groups that `bank.yaml` names and cannot be read: so that what is wrong
    with them is told, too."""
    names = [one for one in reader.names(".") if NAME.match(one)] if index.unread is None else sorted(index.unread)
    found = {
        name: SkillEntry(group, name, 0)
        for group in names
        for name in reader.names(group)
        if name not in index.skills and NAME.match(name) and "base.md" in reader.names(f"{group}/{name}")
    }
    return replace(index, skills={**index.skills, **found})


def read_one(reader: Reader, entry: SkillEntry) -> ReadSkill:
    """Reads one skill."""
    problems: list[Problem] = []
    return read_skill(reader, entry, problems), tuple(problems)


@lru_cache(maxsize=16)
def _parsed_index(text: str) -> tuple[BankIndex, tuple[Problem, ...]]:
    index, problems = parse_index(text)
    return index, tuple(problems)


def closure(bank: LoadedBank, skills: Iterable[str]) -> list[str]:
    """The skills and those that their patches depend on, perhaps through others, sorted."""
    seen: set[str] = set()
    stack = list(skills)
    while stack:
        name = stack.pop()
        source = bank.sources.get(name)
        if name in seen or source is None:
            continue
        seen.add(name)
        for patch in source.foreign:
            stack.extend(need.rpartition(":")[0] for need in source.patches[patch].depends_on if ":" in need)
    return sorted(seen)


def _at_odds(bank: LoadedBank, involved: Iterable[str]) -> list[str]:
    """Skills whose patches may conflict with the involved ones, in either direction."""
    mine = frozenset(involved)
    found: set[str] = set()
    for name, source in bank.sources.items():
        for patch in source.foreign:
            named = {given.rpartition(":")[0] for given in source.patches[patch].conflicts_with if ":" in given}
            if name in mine:
                found |= named
            elif named & mine:
                found.add(name)
    return sorted(one for one in found - mine if one in bank.sources)


class BuildCache:
    """What was built before: a skill whose sources, settings and patches in force are the same is not built again."""

    def __init__(self) -> None:
        self._built: dict[tuple[str, str | None], tuple[SkillSource, object, BuiltSkill, tuple[Problem, ...]]] = {}
        self._selected: dict[tuple[str, str | None], tuple[SkillSource, object, Selection, tuple[Problem, ...]]] = {}

    def select(
        self, source: SkillSource, profile: str | None, candidates: Sequence[str], problems: list[Problem]
    ) -> Selection:
        """The patches in force; what is wrong with the lists goes to `problems`."""
        slot, extra = (source.name, profile), tuple(candidates)
        known = self._selected.get(slot)
        if known is None or known[0] is not source or known[1] != extra:
            mine: list[Problem] = []
            known = (source, extra, select(source, profile, extra, mine), tuple(mine))
            self._selected[slot] = known
        problems.extend(known[3])
        return known[2]

    def build(
        self, source: SkillSource, entry: SkillEntry, index: BankIndex, selection: Selection, problems: list[Problem]
    ) -> BuiltSkill:
        """The skill; what is wrong with it goes to `problems`."""
        slot = (source.name, selection.profile)
        rest = (entry, selection, index.limits, index.warn, index.checks, index.verbatim)
        known = self._built.get(slot)
        if known is None or known[0] is not source or known[1] != rest:
            mine: list[Problem] = []
            known = (source, rest, _build(source, entry, index, selection, mine), tuple(mine))
            self._built[slot] = known
        problems.extend(known[3])
        return known[2]


@_no_collections()
def compile_skills(
    bank: LoadedBank,
    skills: Sequence[str],
    *,
    profile: str | None = None,
    candidates: Mapping[str, Sequence[str]] | None = None,
    cache: BuildCache | None = None,
) -> dict[str, BuiltSkill]:
    """The skills, compiled. `candidates`: skill → patches that count as active here.

    Raises BankError with every problem of the skills and of those they depend on.
    """
    candidates = candidates or {}
    cache = cache or BuildCache()
    problems: list[Problem] = list(bank.index_problems)
    for name in dict.fromkeys((*skills, *candidates)):
        if name not in bank.index.skills:
            known = ", ".join(sorted(bank.index.skills)) or "none"
            problems.append(Problem("bank.yaml", 0, f"there is no skill '{name}'", f"There are: {known}"))
    if any(one.damaged for one in bank.sources.values()):
        bank = replace(bank, sources={name: one.with_damaged() for name, one in bank.sources.items()})
    involved = closure(bank, skills)
    for name in dict.fromkeys((*skills, *involved)):
        problems.extend(bank.problems.get(name, ()))
    if profile is not None and not any(profile in one.manifest.profiles for one in bank.sources.values()):
        names = ", ".join(profiles_of(source.manifest for source in bank.sources.values())) or "none"
        problems.append(Problem("bank.yaml", 0, f"no skill has the profile '{profile}'", f"There are: {names}"))
    selections = {
        name: cache.select(bank.sources[name], profile, candidates.get(name, ()), problems) for name in involved
    }
    check_cross_cycles(bank.sources, selections, problems)
    others = _at_odds(bank, involved)
    everywhere = selections | {name: select(bank.sources[name], profile, (), []) for name in others}
    for name in (*involved, *others):
        if bank.sources[name].foreign:
            if name in selections:
                check_foreign(
                    bank.sources[name], selections[name], bank.index.skills, selections, bank.sources, problems
                )
            check_conflicts(bank.sources[name], everywhere, selections.keys(), problems)
    built: dict[str, BuiltSkill] = {}
    wanted = frozenset(skills)
    for name in involved:
        done = cache.build(bank.sources[name], bank.index.skills[name], bank.index, selections[name], problems)
        if name in wanted:
            built[name] = done
    if problems:
        raise BankError(problems)
    return {name: built[name] for name in skills}


def _build(
    source: SkillSource, entry: SkillEntry, index: BankIndex, selection: Selection, problems: list[Problem]
) -> BuiltSkill:
    warnings = list(source.warnings)
    base = source.base_of(selection.profile)
    check_own(source, selection, problems)
    text = Assembly(source, base, verbatim=index.verbatim, whole=selection.sections_whole)
    patches = order(source, selection, problems)
    if not index.verbatim:  # the text of an imported bank stays what it was
        problems.extend(nested_metadata(base))
    if source.manifest.base not in source.broken:  # what is wrong with the base is reported where it was read
        _check_protected(base, entry, patches, problems)
    for patch in patches:
        change = text.apply(patch, problems)
        check_patch_size(index, patch, change, problems, warnings)
    blocks = _blocks(base, patches)
    whole = selection.policy_whole and all(one.whole for one in blocks)
    policy = _policy(source, blocks, selection.profile, problems, whole=whole)
    lines = text.lines(policy, problems, whole=whole)
    content = "".join(f"{line}\n" for line, _ in lines)
    if not problems and "!" in content and source.manifest.base not in source.broken and not source.damaged:
        _check_commands(base, content, problems)
    tokens = estimate_tokens(content)
    check_skill_size(index, source.name, base.file, len(lines), tokens, problems, warnings)
    check_numbers(index.checks, text.texts(), policy, problems, warnings, whole=whole)
    files = {"SKILL.md": content.encode("utf-8")}
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
        partial(origins_of, source.name, lines),
        tuple(sorted(set(warnings))),
        tokens,
    )


def _check_protected(base: Base, entry: SkillEntry, patches: list[Patch], problems: list[Problem]) -> None:
    """No patch touches a protected section: neither its text nor a value that its policy sets."""
    if not entry.protected:
        return
    sections = {section.name: section for section in base.sections}
    keys: dict[str, str] = {}
    for name in entry.protected:
        if name not in sections:
            problems.append(
                Problem("bank.yaml", entry.line, f"{entry.name} protects the section '{name}', which {base.file} does "
                        "not have", f"Sections are: {', '.join(sections) or 'none'}")
            )  # fmt: skip
            continue
        keys.update((one.key, name) for block in sections[name].text.blocks for one in block.assignments)
    for patch in patches:
        if patch.target_section in entry.protected:
            problems.append(
                Problem(patch.file, patch.line_of("target_section"), f"section '{patch.target_section}' is protected",
                        "Target another section")
            )  # fmt: skip
        for block in patch.text.blocks:
            for one in block.assignments:
                if one.key in keys:
                    problems.append(
                        Problem(patch.file, one.origin.line, f"{one.key} is set by the protected section "
                                f"'{keys[one.key]}'", "Leave it as it is")
                    )  # fmt: skip


def _check_commands(base: Base, content: str, problems: list[Problem]) -> None:
    """What runs when the skill loads is what its base says, whatever patches put between the halves of a command."""

    def told(text: str) -> list[str]:
        return sorted(" ".join(one.text.split()) for one in commands_of(text))

    parts = [part.text if isinstance(part, Section) else part for part in base.parts]
    front = f"---\n{base.front_matter}\n---\n"
    mine, now = told("\n\n".join(one.prose for one in parts)), told(content[len(front) :])
    if mine != now:
        other = next(one for one in (*now, *mine) if now.count(one) != mine.count(one))
        shown = other if len(other) <= 60 else f"{other[:60]}…"
        problems.append(
            Problem(base.file, 0, f"the patches change what runs when the skill loads: {shown}",
                    "Close the command in the base, or take the backticks out of it")
        )  # fmt: skip


def _blocks(base: Base, patches: list[Patch]) -> list[PolicyBlock]:
    """Policy blocks in order of merging. A block stays in force when the prose around it is replaced."""
    mine = [block for part in base.parts for block in (part.text if isinstance(part, Section) else part).blocks]
    mine.sort(key=lambda one: one.order)  # stable: the base's own first, in the order of the file
    return [*mine, *(block for patch in patches for block in patch.text.blocks)]


def _policy(
    source: SkillSource, blocks: list[PolicyBlock], profile: str | None, problems: list[Problem], *, whole: bool
) -> CompiledPolicy | None:
    """The policy that the blocks make. `whole`: all of it can be read, so what is not there is missing."""
    assignments = [one for block in blocks for one in block.assignments]
    if source.schema is not None:
        problems.extend(check_policy(source.schema, assignments, whole=whole))
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
