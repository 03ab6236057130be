"""`SkillBank`: the facade over a bank on disk. Reading needs no lock; every change holds the bank's lock.

A change is checked as a whole before anything is written: it is built in memory with the new texts laid over the old
ones, and a change that does not compile leaves the bank as it was.
"""

import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from skill_bank.compile import LoadedBank, closure, compile_skills, load_bank
from skill_bank.files import lock_of, read_json, write_bytes_atomic, write_json_atomic
from skill_bank.format import ID, BankIndex, Reader, parse_index, parse_patch
from skill_bank.manifest import edit_status, render_manifest, render_patch
from skill_bank.policy import CompiledPolicy, ResolvedPolicy
from skill_bank.swap import recover, replace_folder
from skill_bank.types import BankError, BuiltSkill, Patch, PatchAction, PatchStatus, Problem, SkillSource
from skill_bank.versions import VersionRecord, VersionStore, sha256

SHIPPED = Path(__file__).parent / "bank"
"""The bank that comes with the package."""


@dataclass(frozen=True)
class PatchText:
    """A patch that is not in the bank (yet): the whole file's text."""

    skill: str
    id: str
    text: str


@dataclass(frozen=True)
class SkillInfo:
    """A skill at a glance."""

    name: str
    group: str
    description: str
    children: tuple[str, ...]
    active: tuple[str, ...]
    patches: Mapping[str, str]
    """Patch → status."""
    profiles: tuple[str, ...]
    has_policy: bool
    version: int | None
    digest: str | None
    stale: bool
    """The sources changed since they were compiled."""
    problems: tuple[Problem, ...]


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
        self.versions = VersionStore(self.root / "versions")
        self._lock = lock_of(self.root / ".bank")

    @classmethod
    def shipped(cls) -> Self:
        """The bank of the package; read it, seed from it, never write to it."""
        return cls(SHIPPED)

    @classmethod
    def seed(cls, dest: Path | str) -> Self:
        """A bank at `dest`, copied from the shipped one and compiled; one that exists is left as it is."""
        dest = Path(dest)
        dest.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(dest) + ".seed.lock", mode=0o600):
            if not (dest / "bank.yaml").exists():
                staging = dest.parent / f".{dest.name}.seeding"
                shutil.rmtree(staging, ignore_errors=True)
                shutil.copytree(SHIPPED, staging, ignore=shutil.ignore_patterns("*.lock", "versions", "__pycache__"))
                if dest.exists():
                    # An empty folder, or one with files of somebody else's: never delete, put the bank's files in.
                    for one in sorted(staging.iterdir(), key=lambda path: path.name == "bank.yaml"):
                        if (dest / one.name).exists():
                            raise BankError(
                                [Problem(one.name, 0, f"{dest} holds no bank.yaml and has a '{one.name}'",
                                         "Name an empty folder")]
                            )  # fmt: skip
                        one.rename(dest / one.name)
                    staging.rmdir()
                else:
                    staging.rename(dest)
        bank = cls(dest)
        if any(bank.versions.latest(name) is None for name in bank.skills()):
            bank.compile("all")
        return bank

    # Reading

    def load(self, overlay: Mapping[str, bytes] | None = None) -> LoadedBank:
        """The sources as they are on disk, with `overlay` laid over them."""
        return load_bank(Reader(self.root, overlay))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group → its skills, in the order of bank.yaml."""
        index = self.load_index()
        return {
            group: tuple(name for name, entry in index.skills.items() if entry.group == group) for group in index.groups
        }

    def skills(self, group: str | None = None) -> tuple[str, ...]:
        """All skills, or those of a group."""
        index = self.load_index()
        return tuple(name for name, entry in index.skills.items() if group is None or entry.group == group)

    def load_index(self) -> BankIndex:
        """`bank.yaml`, parsed. Raises BankError."""
        problems: list[Problem] = []
        text = Reader(self.root).text("bank.yaml", problems)
        if text is None:
            problems = problems or [
                Problem("bank.yaml", 0, f"there is no bank in {self.root}", "Create one: mcp-evo init")
            ]
            raise BankError(problems)
        index, problems = parse_index(text)
        if problems:
            raise BankError(problems)
        return index

    def group_of(self, skill: str) -> str:
        """The group of a skill. Raises BankError naming the skills that exist."""
        index = self.load_index()
        if skill not in index.skills:
            raise self._unknown(skill, index.skills)
        return index.skills[skill].group

    def children(self, skill: str) -> tuple[str, ...]:
        """The skills that this one orchestrates."""
        self.group_of(skill)
        return self.load_index().skills[skill].children

    def patches(self, skill: str) -> dict[str, Patch]:
        """Every patch of a skill that can be read, whatever its status."""
        source = self._source(self.load(), skill)
        return dict(source.patches)

    def status(self) -> list[SkillInfo]:
        """Every skill at a glance, with what is wrong with its files."""
        bank = self.load()
        found: list[SkillInfo] = []
        for name, entry in bank.index.skills.items():
            source = bank.sources.get(name)
            latest = self.versions.latest(name)
            problems = bank.problems.get(name, ())
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
                    stale=source is None or latest is None or dict(latest.sources) != self._hashes(source, {}),
                    problems=problems,
                )
            )
        return found

    def load_compiled(self, skill: str) -> str:
        """The text of the live SKILL.md. Raises BankError if the skill is unknown or was never compiled."""
        return self._compiled_file(skill, "SKILL.md").read_text(encoding="utf-8")

    def compiled_folder(self, skill: str) -> Path:
        """Where the live SKILL.md and policy.json of a skill are."""
        return self.root / self._compiled_dir() / skill

    def policy(self, skill: str, profile: str | None = None) -> CompiledPolicy:
        """The policy in force: the live one, or, under a profile, compiled into memory.

        Raises BankError if the skill has no policy or its sources do not compile.
        """
        if profile is None:
            self.group_of(skill)
            folder = self.compiled_folder(skill)
            if (folder / "policy.json").exists():
                return CompiledPolicy.load(folder / "policy.json")
        built = compile_skills(self.load(), [skill], profile=profile)[skill]
        if built.policy is None:
            raise BankError([Problem("bank.yaml", 0, f"{skill} has no policy", "Ask a skill with a policy schema")])
        return built.policy

    def resolve(self, skill: str, context: Mapping[str, Any], profile: str | None = None) -> ResolvedPolicy:
        """`policy(skill, profile).resolve(context)`."""
        return self.policy(skill, profile).resolve(context)

    def history(self, skill: str) -> list[VersionRecord]:
        """The versions of a skill, oldest first."""
        self.group_of(skill)
        return self.versions.history(skill)

    # Compiling

    def compile(
        self,
        target: str = "all",
        *,
        profile: str | None = None,
        out: Path | str | None = None,
        extra_patches: Sequence[str | PatchText] = (),
        reason: str = "compile",
    ) -> CompileReport:
        """Compiles a skill, a group or `all`.

        Without `out`, profile and extra patches: into the live compiled folder, with a version record for each skill
        that changed. With `out`: into `out/<skill>/`. With a profile or extra patches and without `out`: into memory.
        `extra_patches` count as active: ids (`patch` for a single skill, `skill:patch`) of patches in the bank, or
        `PatchText`s that are not in it. Raises BankError with every problem; then nothing was written.
        """
        overlay, candidates = self._candidates(target, extra_patches)
        live = out is None and profile is None and not extra_patches
        if not live:
            built = self._build(self.load(overlay), target, profile, candidates)
            if out is None:
                return CompileReport(built, (), (), {}, None)
            written = [name for name, one in built.items() if replace_folder(Path(out) / name, one.files)]
            unchanged = tuple(name for name in built if name not in written)
            return CompileReport(built, tuple(written), unchanged, {}, Path(out))
        with self._lock:
            self._recover()
            return self._compile_live(self.load(), target, reason)

    def check(self, target: str = "all") -> tuple[Problem, ...]:
        """Every problem of a skill, a group or all, under the manifest and under each profile; writes nothing."""
        return self._problems(self.load(), target)

    def check_patch(self, patch: PatchText, profile: str | None = None) -> tuple[Problem, ...]:
        """What would be wrong if this patch were active; writes nothing."""
        try:
            self.compile(patch.skill, profile=profile, extra_patches=[patch])
        except BankError as error:
            return error.problems
        return ()

    # Changing

    def add_patch(
        self,
        skill: str,
        *,
        id: str,
        target_section: str,
        body: str,
        action: PatchAction | str = PatchAction.APPEND,
        description: str,
        source: str,
        created: str,
        scope: Mapping[str, Any] | str | None = None,
        depends_on: Sequence[str] = (),
        conflicts_with: Sequence[str] = (),
        supersedes: Sequence[str] = (),
        new_section: str | None = None,
        metadata: Mapping[str, str] | None = None,
        profile: str | None = None,
        status: PatchStatus = PatchStatus.STAGED,
    ) -> Patch:
        """Writes a new patch file, staged (not in force). It must compile as if it were active.

        `scope` is a condition, or "all"; a patch that sets policy needs one. `profile`: check it on top of that
        profile. Raises BankError with every problem; then nothing was written.
        """
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
        return self.add_patch_text(PatchText(skill, id, text), profile=profile)

    def add_patch_text(self, patch: PatchText, *, profile: str | None = None) -> Patch:
        """Writes a new patch from its whole text (status draft or staged). Raises BankError; then nothing was written."""
        path = self._patch_path(patch.skill, patch.id)
        with self._lock:
            self._recover()
            if (self.root / path).exists():
                raise BankError([Problem(path, 0, f"there is a patch '{patch.id}' already", "Choose another id")])
            parsed, problems = parse_patch(patch.text, path, patch.skill)
            if parsed is not None and parsed.status not in (PatchStatus.DRAFT, PatchStatus.STAGED):
                raise BankError(
                    [Problem(path, parsed.line_of("status"), f"a new patch is {parsed.status}", "Stage it first")]
                )
            found = problems or self.check_patch(patch, profile)
            if found or parsed is None:
                raise BankError(found)
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(self.root / path, patch.text.encode("utf-8"))
        return parsed

    def set_status(self, skill: str, patch: str, status: PatchStatus | str) -> Patch:
        """Changes the `status` line of a patch file. A patch that the manifest activates must stay active."""
        with self._lock:
            self._recover()
            return self._change(skill, {patch: PatchStatus(status)}, None, reason=None)[patch]

    def activate(
        self, skill: str, patch: str, *, profile: str | None = None, reason: str | None = None
    ) -> CompileReport:
        """Sets the patch active, lists it (in the manifest, or in a profile of it), and compiles the skill live.

        Raises BankError if the result does not compile; then nothing was written.
        """
        with self._lock:
            self._recover()
            source = self._source(self.load(), skill)
            lists = self._lists(source, profile)
            if patch not in lists[0]:
                lists = ([*lists[0], patch], [one for one in lists[1] if one != patch])
            self._change(skill, {patch: PatchStatus.ACTIVE}, (profile, lists), reason=reason)
            return self._compile_live(self.load(), skill, reason or f"activate {patch}")

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
        with self._lock:
            self._recover()
            source = self._source(self.load(), skill)
            active, disabled = self._lists(source, profile)
            elsewhere = [source.manifest.active] if profile is not None else []
            elsewhere += [one.active for name, one in source.manifest.profiles.items() if name != profile]
            kept = any(patch in one for one in elsewhere)
            lists = ([one for one in active if one != patch], disabled)
            statuses = {} if kept else {patch: PatchStatus(status)}
            self._change(skill, statuses, (profile, lists), reason=reason)
            return self._compile_live(self.load(), skill, reason or f"deactivate {patch}")

    def rollback(self, skill: str, number: int, *, reason: str | None = None) -> VersionRecord:
        """Makes the skill what it was in a version, source and output byte for byte; the result is a new version.

        Patches that the version did not activate stay on disk, out of force. Raises BankError; then nothing changed.
        """
        with self._lock:
            self._recover()
            self.group_of(skill)
            record = self.versions.get(skill, number)
            sources = {path: self.versions.content(digest) for path, digest in record.sources.items()}
            self._build(self.load(sources), skill, None, {})
            # From here on a kill leaves a journal, and the next writer finishes the rollback.
            journal = {"skill": skill, "number": number, "reason": reason or f"rollback to {number}"}
            write_json_atomic(self._journal, journal)
            return self._finish_rollback(journal)

    # Inside

    @property
    def _journal(self) -> Path:
        return self.root / "rollback.json"

    def _recover(self) -> None:
        recover(self.root / self._compiled_dir())
        if self._journal.exists():
            self._finish_rollback(read_json(self._journal))

    def _finish_rollback(self, journal: Mapping[str, Any]) -> VersionRecord:
        record = self.versions.get(journal["skill"], journal["number"])
        sources = {path: self.versions.content(digest) for path, digest in record.sources.items()}
        for path, data in sorted(sources.items(), key=lambda one: one[0].endswith("manifest.yaml")):
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != data:
                write_bytes_atomic(target, data)
        files = {name: self.versions.content(digest) for name, digest in record.files.items()}
        replace_folder(self.compiled_folder(record.skill), files)
        latest = self.versions.latest(record.skill)
        assert latest is not None
        if dict(latest.sources) != dict(record.sources) or latest.digest != record.digest:
            latest = VersionRecord(
                number=latest.number + 1,
                skill=record.skill,
                digest=record.digest,
                sources=record.sources,
                files=record.files,
                profiles=record.profiles,
                patches=record.patches,
                created_at=time.time(),
                reason=str(journal["reason"]),
                restored=record.number,
            )
            self.versions.append(latest)
        self._journal.unlink()
        return latest

    def _compiled_dir(self) -> str:
        return "compiled"

    def _compiled_file(self, skill: str, name: str) -> Path:
        self.group_of(skill)
        path = self.compiled_folder(skill) / name
        if not path.exists():
            raise BankError(
                [Problem(f"compiled/{skill}/{name}", 0, f"{skill} is not compiled", f"mcp-evo skills compile {skill}")]
            )
        return path

    def _unknown(self, skill: str, known: Iterable[str]) -> BankError:
        return BankError([Problem("bank.yaml", 0, f"there is no skill '{skill}'", f"There are: {', '.join(known)}")])

    def _source(self, bank: LoadedBank, skill: str) -> SkillSource:
        if skill not in bank.index.skills:
            raise self._unknown(skill, bank.index.skills)
        if skill not in bank.sources:
            raise BankError(bank.problems[skill])
        return bank.sources[skill]

    def _targets(self, bank: LoadedBank, target: str) -> list[str]:
        if target == "all":
            return list(bank.index.skills)
        if target in bank.index.skills:
            return [target]
        found = [name for name, entry in bank.index.skills.items() if entry.group == target]
        if not found and target not in bank.index.groups:
            if bank.index_problems:
                raise BankError(bank.index_problems)
            known = [*bank.index.groups, *bank.index.skills]
            raise BankError(
                [
                    Problem(
                        "bank.yaml", 0, f"there is no skill or group '{target}'", f"There are: {', '.join(known)}, all"
                    )
                ]
            )
        return found

    def _build(
        self, bank: LoadedBank, target: str, profile: str | None, candidates: Mapping[str, Sequence[str]]
    ) -> dict[str, BuiltSkill]:
        return compile_skills(bank, self._targets(bank, target), profile=profile, candidates=candidates)

    def _profiles(self, bank: LoadedBank, skills: Iterable[str]) -> list[str]:
        return sorted({name for one in skills if one in bank.sources for name in bank.sources[one].manifest.profiles})

    def _problems(self, bank: LoadedBank, target: str) -> tuple[Problem, ...]:
        found: set[Problem] = set()
        targets = self._targets(bank, target)
        for profile in (None, *self._profiles(bank, targets)):
            try:
                compile_skills(bank, targets, profile=profile)
            except BankError as error:
                found.update(error.problems)
        return tuple(sorted(found))

    def _compile_live(self, bank: LoadedBank, target: str, reason: str) -> CompileReport:
        targets = self._targets(bank, target)
        problems = self._problems(bank, target)
        if problems:
            raise BankError(problems)
        built = compile_skills(bank, targets)
        profiles: dict[str, dict[str, str]] = {name: {} for name in targets}
        for profile in self._profiles(bank, targets):
            having = [name for name in targets if profile in bank.sources[name].manifest.profiles]
            for name, one in compile_skills(bank, having, profile=profile).items():
                profiles[name][profile] = one.digest
        written: list[str] = []
        records: dict[str, VersionRecord] = {}
        for name, one in built.items():
            if replace_folder(self.compiled_folder(name), one.files):
                written.append(name)
            records[name] = self._record(bank.sources[name], one, profiles[name], reason)
        unchanged = tuple(name for name in targets if name not in written)
        return CompileReport(built, tuple(written), unchanged, records, self.root / self._compiled_dir())

    def _record(
        self, source: SkillSource, built: BuiltSkill, profiles: Mapping[str, str], reason: str
    ) -> VersionRecord:
        texts: dict[str, bytes] = {}
        hashes = self._hashes(source, texts)
        latest = self.versions.latest(source.name)
        if latest is not None and latest.digest == built.digest and dict(latest.sources) == hashes:
            return latest
        for data in texts.values():
            self.versions.put(data)
        record = VersionRecord(
            number=latest.number + 1 if latest else 1,
            skill=source.name,
            digest=built.digest,
            sources=hashes,
            files={name: self.versions.put(data) for name, data in sorted(built.files.items())},
            profiles=dict(sorted(profiles.items())),
            patches=built.patches,
            created_at=time.time(),
            reason=reason,
        )
        self.versions.append(record)
        return record

    def _hashes(self, source: SkillSource, texts: dict[str, bytes]) -> dict[str, str]:
        """Path → SHA-256 of each file that decides the skill; their contents go to `texts`."""
        manifest = source.manifest
        used = dict.fromkeys(manifest.active)
        for profile in manifest.profiles.values():
            used.update(dict.fromkeys(profile.active))
        paths = [source.base.file, manifest.file]
        if source.schema is not None:
            paths.append(source.schema.file)
        paths += [source.patches[one].file for one in used if one in source.patches]
        for path in sorted(paths):
            texts[path] = (self.root / path).read_bytes()
        return {path: sha256(data) for path, data in texts.items()}

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
            raise BankError(
                [
                    Problem(
                        "bank.yaml", 0, f"'{patch}' is not a patch id", "Use a-z, 0-9, - and _, at most 64 characters"
                    )
                ]
            )
        return f"{self.group_of(skill)}/{skill}/patches/{patch}.md"

    def _lists(self, source: SkillSource, profile: str | None) -> tuple[list[str], list[str]]:
        if profile is None:
            return list(source.manifest.active), list(source.manifest.disabled)
        if profile not in source.manifest.profiles:
            known = ", ".join(sorted(source.manifest.profiles)) or "none"
            raise BankError(
                [Problem(source.manifest.file, 0, f"{source.name} has no profile '{profile}'", f"There are: {known}")]
            )
        chosen = source.manifest.profiles[profile]
        return list(chosen.active), list(chosen.disabled)

    def _change(
        self,
        skill: str,
        statuses: Mapping[str, PatchStatus],
        lists: tuple[str | None, tuple[list[str], list[str]]] | None,
        reason: str | None,
    ) -> dict[str, Patch]:
        """Writes new statuses and lists if the skill, and those that depend on it, compile with them."""
        bank = self.load()
        source = self._source(bank, skill)
        overlay: dict[str, bytes] = {}
        for patch, status in statuses.items():
            if patch not in source.patches:
                known = ", ".join(sorted(source.patches)) or "none"
                raise BankError(
                    bank.problems[skill]
                    or [Problem(source.manifest.file, 0, f"{skill} has no patch '{patch}'", f"There are: {known}")]
                )
            path = source.patches[patch].file
            overlay[path] = edit_status((self.root / path).read_text(encoding="utf-8"), status).encode("utf-8")
        if lists is not None:
            text = render_manifest(
                (self.root / source.manifest.file).read_text(encoding="utf-8"), source.manifest, *lists
            )
            overlay[source.manifest.file] = text.encode("utf-8")
        changed = self.load(overlay)
        involved = [name for name in changed.index.skills if skill in closure(changed, [name])]
        problems: set[Problem] = set()
        for name in involved:
            problems.update(self._problems(changed, name))
        if problems:
            raise BankError(sorted(problems))
        for path in sorted(overlay, key=lambda one: one == source.manifest.file):  # the manifest decides: it comes last
            write_bytes_atomic(self.root / path, overlay[path])
        return dict(changed.sources[skill].patches)


PATCH_ID_NUMBER = re.compile(r"(\d{3,})-")


def next_patch_id(existing: Iterable[str], slug: str) -> str:
    """`NNN-slug` with the next free number among the ids that begin with one."""
    numbers = [int(found[1]) for one in existing if (found := PATCH_ID_NUMBER.match(one)) is not None]
    return f"{max(numbers, default=0) + 1:03d}-{slug}"[:64].rstrip("-_")
