"""`SkillBank`: the facade over a bank on disk. Reading needs no lock; every change holds the bank's lock."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from skill_bank.compile import compile_skills
from skill_bank.files import write_bytes_atomic
from skill_bank.format import Reader
from skill_bank.index import ID, BankIndex, parse_index
from skill_bank.live import LiveBank, build_all, source_of, targets_of, unknown_skill
from skill_bank.manifest import edit_status, render_manifest, render_patch
from skill_bank.patchfile import parse_patch
from skill_bank.policy import CompiledPolicy, ResolvedPolicy
from skill_bank.swap import replace_folder
from skill_bank.types import (
    BankError,
    BuiltSkill,
    Patch,
    PatchAction,
    PatchStatus,
    PatchText,
    Problem,
    SkillInfo,
    SkillSource,
)
from skill_bank.versions import VersionRecord

SHIPPED = Path(__file__).parent / "bank"
"""The bank that comes with the package."""


@dataclass(frozen=True)
class CompileReport:
    """What a compile did."""

    skills: dict[str, BuiltSkill]
    written: tuple[str, ...]
    """Skills whose folder changed."""
    unchanged: tuple[str, ...]
    versions: dict[str, VersionRecord] = field(default_factory=dict)
    """Skill → its newest version, where the live bank was compiled."""
    out: Path | None = None
    """Where the folders are; None: nothing was written."""


class SkillBank:
    """A bank on disk."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._live = LiveBank(self.root)

    @classmethod
    def shipped(cls) -> Self:
        """The bank of the package; read it, seed from it, never write to it."""
        return cls(SHIPPED)

    @classmethod
    def seed(cls, dest: Path | str) -> Self:
        """A bank at `dest`, copied from the shipped one and compiled; one that exists is left as it is.

        Raises BankError if `dest` holds other things in the places of the bank's.
        """
        dest = Path(dest)
        dest.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(dest) + ".seed.lock", mode=0o600):
            if not (dest / "bank.yaml").exists():
                _copy_shipped(dest)
        bank = cls(dest)
        if any(bank._live.versions.latest(name) is None for name in bank.skills()):
            bank.compile("all", reason="seed")
        return bank

    # Reading

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
        """Every skill at a glance, with what is wrong with its files."""
        bank = self._live.load()
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
                )
            )
        return found

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
        built = compile_skills(self._live.load(), [skill], profile=profile)[skill]
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

    # Compiling

    def compile(
        self,
        target: str = "all",
        *,
        profile: str | None = None,
        out: Path | str | None = None,
        extra_patches: Sequence[str | PatchText] = (),
        reason: str = "compile",
        dry_run: bool = False,
    ) -> CompileReport:
        """Compiles a skill, a group or `all`.

        Without `out`, profile and extra patches: into the live compiled folder, with a version record for each skill
        that changed. With `out`: into `out/<skill>/`. With a profile or extra patches and without `out`, or with
        `dry_run`: into memory. `extra_patches` count as active: ids (`patch` for a single skill, `skill:patch`) of
        patches in the bank, or `PatchText`s that are not in it. Raises BankError with every problem; then nothing
        was written.
        """
        if out is None and profile is None and not extra_patches and not dry_run:
            with self._live.lock:
                self._live.recover()
                built, written, records = self._live.compile(target, reason)
            unchanged = tuple(name for name in built.skills if name not in written)
            return CompileReport(built.skills, tuple(written), unchanged, records, self.root / "compiled")
        overlay, candidates = self._candidates(target, extra_patches)
        bank = self._live.load(overlay)
        skills = compile_skills(bank, targets_of(bank, target), profile=profile, candidates=candidates)
        if out is None or dry_run:
            return CompileReport(skills, (), tuple(skills))
        folder = Path(out)
        changed = tuple(name for name, one in skills.items() if replace_folder(folder / name, one.files))
        return CompileReport(skills, changed, tuple(name for name in skills if name not in changed), {}, folder)

    def check(self, target: str = "all") -> tuple[Problem, ...]:
        """Every problem of a skill, a group or all, under the manifest and under each profile; writes nothing."""
        bank = self._live.load()
        try:
            build_all(bank, targets_of(bank, target))
        except BankError as error:
            return error.problems
        return ()

    def check_patch(self, patch: PatchText, profile: str | None = None) -> tuple[Problem, ...]:
        """What would be wrong if this patch were active (under a profile); writes nothing."""
        try:
            self.compile(patch.skill, profile=profile, extra_patches=[patch])
        except BankError as error:
            return error.problems
        return ()

    # Changing

    def render_patch(
        self,
        skill: str,
        *,
        id: str,
        target_section: str,
        body: str,
        description: str,
        source: str,
        created: str,
        action: PatchAction | str = PatchAction.APPEND,
        scope: Mapping[str, Any] | str | None = None,
        depends_on: Sequence[str] = (),
        conflicts_with: Sequence[str] = (),
        supersedes: Sequence[str] = (),
        new_section: str | None = None,
        metadata: Mapping[str, str] | None = None,
        status: PatchStatus | str = PatchStatus.STAGED,
    ) -> PatchText:
        """The text of a patch file from its parts. `scope` is a condition, or "all"; a patch with policy needs one."""
        text = render_patch(
            id=id,
            target_section=target_section,
            action=str(action),
            description=description,
            source=source,
            created=created,
            scope=scope,
            depends_on=depends_on,
            conflicts_with=conflicts_with,
            supersedes=supersedes,
            new_section=new_section,
            metadata=metadata or {},
            status=str(status),
            body=body,
        )
        return PatchText(skill, id, text)

    def add_patch(self, patch: PatchText, *, profile: str | None = None) -> Patch:
        """Writes a new patch file, draft or staged (not in force). It must compile as if it were active.

        `profile`: check it on top of that profile. Raises BankError with every problem; then nothing was written.
        """
        path = self._patch_path(patch.skill, patch.id)
        with self._live.lock:
            self._live.recover()
            if (self.root / path).exists():
                raise BankError([Problem(path, 0, f"there is a patch '{patch.id}' already", "Choose another id")])
            parsed, problems = parse_patch(patch.text, path, patch.skill)
            if parsed is not None and parsed.status not in (PatchStatus.DRAFT, PatchStatus.STAGED):
                line = parsed.line_of("status")
                raise BankError([Problem(path, line, f"a new patch is {parsed.status}", "Write `status: staged`")])
            found = problems or self.check_patch(patch, profile)
            if found or parsed is None:
                raise BankError(found)
            self._live.commit(patch.skill, {path: patch.text.encode("utf-8")})
        return parsed

    def set_status(self, skill: str, patch: str, status: PatchStatus | str) -> Patch:
        """Changes the `status` line of a patch file. A patch that a list activates can only be active."""
        with self._live.lock:
            self._live.recover()
            self._live.commit(skill, self._status_overlay(self.source(skill), patch, PatchStatus(status)))
            return self.source(skill).patches[patch]

    def activate(
        self, skill: str, patch: str, *, profile: str | None = None, reason: str | None = None
    ) -> CompileReport:
        """Sets the patch active, lists it (in the manifest, or in a profile of it), and compiles the skill live.

        Raises BankError if the result does not compile; then nothing was written.
        """
        with self._live.lock:
            self._live.recover()
            source = self.source(skill)
            overlay = self._status_overlay(source, patch, PatchStatus.ACTIVE)
            active, disabled = _lists(source, profile)
            if patch not in active:
                active.append(patch)
            overlay.update(self._lists_overlay(source, profile, active, [one for one in disabled if one != patch]))
            self._live.commit(skill, overlay)
            return self.compile(skill, reason=reason or f"activate {patch}")

    def deactivate(
        self,
        skill: str,
        patch: str,
        *,
        profile: str | None = None,
        status: PatchStatus | str = PatchStatus.ARCHIVED,
        reason: str | None = None,
    ) -> CompileReport:
        """Takes the patch off the list, sets its status where no other list names it, and compiles the skill live."""
        with self._live.lock:
            self._live.recover()
            source = self.source(skill)
            active, disabled = _lists(source, profile)
            overlay = self._lists_overlay(source, profile, [one for one in active if one != patch], disabled)
            elsewhere = [one.active for name, one in source.manifest.profiles.items() if name != profile]
            if profile is not None:
                elsewhere.append(source.manifest.active)
            if not any(patch in one for one in elsewhere):
                overlay.update(self._status_overlay(source, patch, PatchStatus(status)))
            self._live.commit(skill, overlay)
            return self.compile(skill, reason=reason or f"deactivate {patch}")

    def rollback(self, skill: str, number: int, *, reason: str | None = None) -> VersionRecord:
        """Makes the skill what it was in a version, source and output byte for byte; the result is a new version.

        Patches that the version did not activate stay on disk, out of force; those that were in force are archived.
        Raises BankError; then nothing changed.
        """
        with self._live.lock:
            self._live.recover()
            return self._live.rollback(skill, number, reason or f"rollback to {number}")

    # Inside

    def _status_overlay(self, source: SkillSource, patch: str, status: PatchStatus) -> dict[str, bytes]:
        if patch not in source.patches:
            known = ", ".join(sorted(source.patches)) or "none"
            missing = f"{source.name} has no patch '{patch}' that can be read"
            raise BankError([Problem(source.manifest.file, 0, missing, f"There are: {known}")])
        path = source.patches[patch].file
        return {path: edit_status((self.root / path).read_text(encoding="utf-8"), status).encode("utf-8")}

    def _lists_overlay(
        self, source: SkillSource, profile: str | None, active: list[str], disabled: list[str]
    ) -> dict[str, bytes]:
        path = source.manifest.file
        text = render_manifest((self.root / path).read_text("utf-8"), source.manifest, profile, (active, disabled))
        return {path: text.encode("utf-8")}

    def _candidates(
        self, target: str, extra: Sequence[str | PatchText]
    ) -> tuple[dict[str, bytes], dict[str, list[str]]]:
        overlay: dict[str, bytes] = {}
        candidates: dict[str, list[str]] = {}
        for one in extra:
            if isinstance(one, PatchText):
                overlay[self._patch_path(one.skill, one.id)] = one.text.encode("utf-8")
                skill, patch = one.skill, one.id
            else:
                skill, _, patch = one.rpartition(":")
                skill = skill or target
            candidates.setdefault(skill, []).append(patch)
        return overlay, candidates

    def _patch_path(self, skill: str, patch: str) -> str:
        if ID.match(patch) is None:
            allowed = "Use a-z, 0-9, - and _, at most 64 characters"
            raise BankError([Problem("bank.yaml", 0, f"'{patch}' is not a patch id", allowed)])
        return f"{self.group_of(skill)}/{skill}/patches/{patch}.md"


def _lists(source: SkillSource, profile: str | None) -> tuple[list[str], list[str]]:
    if profile is None:
        return list(source.manifest.active), list(source.manifest.disabled)
    if profile not in source.manifest.profiles:
        known = ", ".join(sorted(source.manifest.profiles)) or "none"
        missing = f"{source.name} has no profile '{profile}'"
        raise BankError([Problem(source.manifest.file, 0, missing, f"There are: {known}")])
    chosen = source.manifest.profiles[profile]
    return list(chosen.active), list(chosen.disabled)


def _copy_shipped(dest: Path) -> None:
    """Puts the files of the shipped bank into `dest`; bank.yaml, which makes it a bank, comes last.

    So a copy that was interrupted is finished by the next one. A file that is there and differs is somebody else's:
    then nothing is copied and BankError says so.
    """
    sources = {
        path.relative_to(SHIPPED): path
        for path in sorted(SHIPPED.rglob("*"))
        if path.is_file() and path.suffix in (".md", ".yaml", ".json") and "versions" not in path.parts
    }
    for name, path in sources.items():
        target = dest / name
        if target.exists() and target.read_bytes() != path.read_bytes():
            message = f"{dest} holds no bank.yaml and has another '{name.as_posix()}'"
            raise BankError([Problem(name.as_posix(), 0, message, "Name an empty folder, or remove it")])
    for name in sorted(sources, key=lambda one: (one.name == "bank.yaml", one)):
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(dest / name, sources[name].read_bytes())


PATCH_NUMBER = re.compile(r"(\d{3,})-")


def next_patch_id(existing: Iterable[str], slug: str) -> str:
    """`NNN-slug` with the next free number among the ids that begin with one."""
    numbers = [int(found[1]) for one in existing if (found := PATCH_NUMBER.match(one)) is not None]
    return f"{max(numbers, default=0) + 1:03d}-{slug}"[:64].rstrip("-_")
