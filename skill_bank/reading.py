"""What can be asked of a bank without changing it: skills, sources, policy, versions, pins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skill_bank.compile import compile_skills
from skill_bank.format import Reader
from skill_bank.index import BankIndex, parse_index
from skill_bank.live import LiveBank, source_of, unknown_skill
from skill_bank.policy import CompiledPolicy, ResolvedPolicy
from skill_bank.types import BankError, Patch, Problem, SkillInfo, SkillSource
from skill_bank.versions import VersionRecord


class ReadableBank:
    """A bank on disk, to be read. Reading needs no lock."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._live = LiveBank(self.root)

    def index(self) -> BankIndex:
        """`bank.yaml`, parsed. Raises BankError."""
        problems: list[Problem] = []
        text = Reader(self.root).text("bank.yaml", problems)
        if text is None:
            missing = Problem("bank.yaml", 0, f"there is no bank in {self.root}", "Create one: mcp-evo init")
            raise BankError(problems or [missing])
        index, problems = parse_index(text)
        if problems:
            raise BankError(problems)
        return index

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group → its skills, in the order of bank.yaml."""
        index = self.index()
        return {
            group: tuple(name for name, entry in index.skills.items() if entry.group == group) for group in index.groups
        }

    def skills(self, group: str | None = None) -> tuple[str, ...]:
        """All skills, or those of a group."""
        return tuple(name for name, entry in self.index().skills.items() if group is None or entry.group == group)

    def group_of(self, skill: str) -> str:
        """The group of a skill. Raises BankError naming the skills that exist."""
        index = self.index()
        if skill not in index.skills:
            raise unknown_skill(skill, index.skills)
        return index.skills[skill].group

    def steps(self, skill: str) -> tuple[str, ...]:
        """The tools that working by a skill means to call."""
        return self.index().skills[skill].steps

    def children(self, skill: str) -> tuple[str, ...]:
        """The skills that this one orchestrates."""
        self.group_of(skill)
        return self.index().skills[skill].children

    def source(self, skill: str) -> SkillSource:
        """Everything of a skill on disk: sections, manifest, patches, schema. Raises BankError."""
        return source_of(self._live.load(), skill)

    def patches(self, skill: str) -> dict[str, Patch]:
        """Every patch of a skill that can be read, whatever its status."""
        return dict(self.source(skill).patches)

    def status(self) -> list[SkillInfo]:
        """Every skill at a glance, with what is wrong with its files. Raises BankError where there is no bank."""
        bank = self._live.load()
        if bank.index_problems and not bank.index.skills:
            raise BankError(bank.index_problems)
        pins = self.pins()
        found: list[SkillInfo] = []
        for name, entry in bank.index.skills.items():
            source = bank.sources.get(name)
            latest = self._live.versions.latest(name)
            found.append(
                SkillInfo(
                    name=name,
                    group=entry.group,
                    description=str(source.base.fields.get("description", "")) if source else "",
                    children=entry.children,
                    active=source.manifest.active if source else (),
                    patches={one.id: one.status.value for one in source.patches.values()} if source else {},
                    profiles=tuple(sorted(source.manifest.profiles)) if source else (),
                    has_policy=source is not None and source.schema is not None,
                    version=latest.number if latest else None,
                    digest=latest.digest if latest else None,
                    stale=source is None or latest is None or dict(latest.sources) != self._live.hashes(source),
                    problems=bank.problems.get(name, ()),
                    pinned=pins.get(name),
                )
            )
        return found

    def undeclared(self) -> tuple[Problem, ...]:
        """Folders that hold a skill and that `bank.yaml` does not name: nothing of them compiles."""
        index = self.index()
        return tuple(
            Problem(
                f"{group}/{base.parent.name}",
                0,
                f"bank.yaml does not declare '{base.parent.name}', so it is not compiled",
                f"Declare it under groups.{group}.skills, or move it away",
            )
            for group in sorted(index.groups)
            for base in sorted((self.root / group).glob("*/base.md"))
            if (entry := index.skills.get(base.parent.name)) is None or entry.group != group
        )

    def load_compiled(self, skill: str) -> str:
        """The text of the live SKILL.md. Raises BankError if the skill is unknown or was never compiled."""
        path = self.compiled_folder(skill) / "SKILL.md"
        if not path.exists():
            missing = f"compiled/{skill}/SKILL.md"
            raise BankError([Problem(missing, 0, f"{skill} is not compiled", f"mcp-evo skills compile {skill}")])
        return path.read_text(encoding="utf-8")

    def compiled_folder(self, skill: str) -> Path:
        """Where the live SKILL.md and policy.json of a skill are. Raises BankError if the skill is unknown."""
        self.group_of(skill)
        return self._live.folder(skill)

    def policy(self, skill: str, profile: str | None = None) -> CompiledPolicy:
        """The policy in force: the live one, or, under a profile, compiled into memory.

        Raises BankError if the skill has no policy or its sources do not compile.
        """
        if profile is None:
            path = self.compiled_folder(skill) / "policy.json"
            if path.exists():
                return CompiledPolicy.load(path)
        built = compile_skills(self._live.load(), [skill], profile=profile, cache=self._live.built)[skill]
        if built.policy is None:
            raise BankError([Problem("bank.yaml", 0, f"{skill} has no policy", "Ask a skill with a policy schema")])
        return built.policy

    def resolve(self, skill: str, context: Mapping[str, Any], profile: str | None = None) -> ResolvedPolicy:
        """`policy(skill, profile).resolve(context)`."""
        return self.policy(skill, profile).resolve(context)

    def history(self, skill: str) -> list[VersionRecord]:
        """The versions of a skill, oldest first."""
        self.group_of(skill)
        return self._live.versions.history(skill)

    def version(self, skill: str) -> VersionRecord | None:
        """The newest version of a skill; None if it was never compiled."""
        self.group_of(skill)
        return self._live.versions.latest(skill)

    def version_files(self, skill: str, number: int) -> dict[str, bytes]:
        """The compiled files of a version, byte for byte. Raises BankError."""
        self.group_of(skill)
        record = self._live.versions.get(skill, number)
        return {name: self._live.versions.content(digest) for name, digest in record.files.items()}

    def version_sources(self, skill: str, number: int) -> dict[str, bytes]:
        """The source files of a version by their path inside the bank, byte for byte. Raises BankError."""
        self.group_of(skill)
        record = self._live.versions.get(skill, number)
        return {path: self._live.versions.content(digest) for path, digest in record.sources.items()}

    def version_record(self, skill: str, number: int) -> VersionRecord:
        """What is recorded of a version. Raises BankError naming those that exist."""
        self.group_of(skill)
        return self._live.versions.get(skill, number)

    def pins(self) -> dict[str, int]:
        """Pinned skills, each with the version that it is held at."""
        return self._live.pins.read()
