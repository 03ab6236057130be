"""`SkillBank`: the facade over a bank on disk. Reading needs no lock; every change holds the bank's lock."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from skill_bank.collection import without_collection
from skill_bank.compile import compile_skills
from skill_bank.index import ID
from skill_bank.live import build_all, targets_of
from skill_bank.manifest import edit_status, render_manifest, render_patch
from skill_bank.patchfile import parse_patch
from skill_bank.reading import ReadableBank
from skill_bank.seeding import SHIPPED, copy_shipped
from skill_bank.squash import Folding
from skill_bank.swap import remove_abandoned, replace_folders, same_files
from skill_bank.types import (
    BankError,
    BuiltSkill,
    Manifest,
    Patch,
    PatchAction,
    PatchStatus,
    PatchText,
    Problem,
    SkillSource,
)
from skill_bank.versions import VersionRecord


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
    pinned: dict[str, int] = field(default_factory=dict)
    """Skills that were left as they are, and the version that each is pinned to."""
    would_write: tuple[str, ...] = ()
    """Dry run: skills whose folder would change; `unchanged` are the others."""

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What does not forbid the skills and ought to be mended, in order of file and line."""
        return tuple(sorted({one for skill in self.skills.values() for one in skill.warnings}))


@dataclass(frozen=True)
class SquashReport:
    """What a squash did, or would do."""

    skill: str
    folding: Folding
    version: VersionRecord | None
    """None: a dry run."""


class SkillBank(ReadableBank):
    """A bank on disk."""

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
                copy_shipped(dest)
        bank = cls(dest)
        if any(bank._live.versions.latest(name) is None for name in bank.skills()):
            bank.compile("all", reason="seed")
        return bank

    @without_collection()
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
                done = self._live.compile(target, reason)
            skills = done.built.skills
            unchanged = tuple(name for name in skills if name not in done.written)
            records, pinned = dict(done.records), dict(done.pinned)
            return CompileReport(skills, done.written, unchanged, records, self.root / "compiled", pinned)
        overlay, candidates = self._candidates(target, extra_patches)
        bank = self._live.load(overlay)
        skills = compile_skills(
            bank, targets_of(bank, target), profile=profile, candidates=candidates, cache=self._live.built
        )
        if dry_run:
            return self._would(skills, self.root / "compiled" if out is None else Path(out))
        if out is None:
            return CompileReport(skills, (), tuple(skills))
        folder = Path(out)
        remove_abandoned(folder)
        replaced = replace_folders({folder / name: one.files for name, one in skills.items()})
        changed = tuple(name for name in skills if folder / name in replaced)
        return CompileReport(skills, changed, tuple(name for name in skills if name not in changed), {}, folder)

    def _would(self, skills: dict[str, BuiltSkill], folder: Path) -> CompileReport:
        differ = tuple(name for name, one in skills.items() if not same_files(folder / name, one.files))
        return CompileReport(skills, (), tuple(name for name in skills if name not in differ), would_write=differ)

    def check(self, target: str = "all") -> tuple[Problem, ...]:
        """Every problem of a skill, a group or all, under the manifest and under each profile; writes nothing."""
        bank = self._live.load()
        try:
            build_all(bank, targets_of(bank, target), self._live.built)
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
            self._live.pins.check([skill])
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
            self._live.pins.check([skill])
            source = self.source(skill)
            _check_not_folded(source, patch, profile)
            active, disabled = _lists(source, profile)
            overlay = self._lists_overlay(source, profile, [one for one in active if one != patch], disabled)
            elsewhere = [one.active for name, one in source.manifest.profiles.items() if name != profile]
            if profile is not None:
                elsewhere.append(source.manifest.active)
            if not any(patch in one for one in elsewhere):
                overlay.update(self._status_overlay(source, patch, PatchStatus(status)))
            self._live.commit(skill, overlay)
            return self.compile(skill, reason=reason or f"deactivate {patch}")

    def rollback(self, skill: str, number: int, *, reason: str | None = None, dry_run: bool = False) -> VersionRecord:
        """Makes the skill what it was in a version, source and output byte for byte; the result is a new version.

        Patches that the version did not activate stay on disk, out of force; those that were in force are archived.
        A dry run checks it and returns the version gone back to. Raises BankError; then nothing changed.
        """
        with self._live.lock:
            self._live.recover()
            self._live.pins.check([skill])
            return self._live.rollback(skill, number, reason or f"rollback to {number}", dry_run=dry_run)

    def squash(self, skill: str, *, reason: str | None = None, dry_run: bool = False) -> "SquashReport":
        """Makes the active patches part of the base, and archives them; the compiled bytes stay what they are.

        Raises BankError; then nothing changed.
        """
        with self._live.lock:
            self._live.recover()
            self._live.pins.check([skill])
            folding, record = self._live.squash(skill, reason or "squash", dry_run=dry_run)
        return SquashReport(skill, folding, record)

    def pin(self, skill: str, number: int | None = None) -> int:
        """Holds a skill at a version (None: the newest), after a rollback to it where it is another.

        Until it is let go, compiling leaves the skill as it is, and activating, squashing or rolling back is refused.
        Returns the newest version, at which it is held. Raises BankError.
        """
        with self._live.lock:
            self._live.recover()
            record = self._pinnable(skill)
            if number is not None and number != record.number:
                record = self._live.rollback(skill, number, f"pin {number}")
            self._live.pins.set(skill, record.number)
            return record.number

    def check_pin(self, skill: str, number: int | None = None) -> int:
        """The version whose content `pin` would hold; writes nothing. Raises BankError where `pin` would."""
        with self._live.lock:
            self._live.recover()
            record = self._pinnable(skill)
            if number is not None and number != record.number:
                record = self._live.rollback(skill, number, f"pin {number}", dry_run=True)
            return record.number

    def _pinnable(self, skill: str) -> VersionRecord:
        """The newest version of a skill that is not pinned. Raises BankError."""
        self._live.pins.check([skill])
        record = self.version(skill)
        if record is None:
            never = Problem(f"compiled/{skill}", 0, f"{skill} was never compiled", f"mcp-evo skills compile {skill}")
            raise BankError([never])
        return record

    def unpin(self, skill: str) -> bool:
        """Lets a skill go; False where it was not pinned."""
        self.group_of(skill)
        with self._live.lock:
            self._live.recover()
            held = skill in self.pins()
            if held:
                self._live.pins.set(skill, None)
            return held

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
        manifest = _with_lists(source.manifest, profile, active, disabled)
        text = render_manifest((self.root / path).read_text("utf-8"), manifest)
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


def _check_not_folded(source: SkillSource, patch: str, profile: str | None) -> None:
    """Raises BankError for a patch that a squash made part of the base: no list can take it out of force."""
    if patch in source.folded(profile):
        within = f"patch '{patch}' is part of the base since a squash"
        fix = f"Go back to a version before it: mcp-evo skills history {source.name}"
        raise BankError([Problem(source.manifest.file, 0, within, fix)])


def _with_lists(manifest: Manifest, profile: str | None, active: Sequence[str], disabled: Sequence[str]) -> Manifest:
    if profile is None:
        return replace(manifest, active=tuple(active), disabled=tuple(disabled))
    changed = replace(manifest.profiles[profile], active=tuple(active), disabled=tuple(disabled))
    return replace(manifest, profiles={**manifest.profiles, profile: changed})


PATCH_NUMBER = re.compile(r"(\d{3,})-")


def next_patch_id(existing: Iterable[str], slug: str) -> str:
    """`NNN-slug` with the next free number among the ids that begin with one."""
    numbers = [int(found[1]) for one in existing if (found := PATCH_NUMBER.match(one)) is not None]
    return f"{max(numbers, default=0) + 1:03d}-{slug}"[:64].rstrip("-_")
