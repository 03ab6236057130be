"""The live side of a bank: its lock, its compiled folder, its versions, and changes that happen as a whole.

A change is first built in memory, with the new texts laid over the old ones; what does not compile, here or in a
skill that depends on it, changes nothing. Then texts are written, the manifest last (it alone decides what is in
force), then the compiled folder is exchanged, then the version is recorded. A kill in between leaves either the old
manifest or the new one; the next writer finishes the rest. A rollback writes a journal first, so that it too is
finished.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skill_bank.compile import LoadedBank, closure, compile_skills, load_bank
from skill_bank.files import lock_of, read_json, write_bytes_atomic, write_json_atomic
from skill_bank.format import Reader
from skill_bank.manifest import edit_status
from skill_bank.swap import recover, replace_folder
from skill_bank.types import BankError, BuiltSkill, PatchStatus, Problem, SkillSource
from skill_bank.versions import VersionRecord, VersionStore, sha256

COMPILED = "compiled"
"""Folder of the live output inside the bank."""


@dataclass(frozen=True)
class Built:
    """Skills compiled under the manifest's own lists, and what each profile would give."""

    skills: dict[str, BuiltSkill]
    profiles: dict[str, dict[str, str]]
    """Skill → profile → digest."""


def unknown_skill(skill: str, known: Iterable[str]) -> BankError:
    """The error for a skill that the bank does not have."""
    return BankError([Problem("bank.yaml", 0, f"there is no skill '{skill}'", f"There are: {', '.join(known)}")])


def targets_of(bank: LoadedBank, target: str) -> list[str]:
    """The skills that a skill name, a group name or `all` means. Raises BankError."""
    if bank.index_problems and not bank.index.skills:
        raise BankError(bank.index_problems)
    if target == "all":
        return list(bank.index.skills)
    if target in bank.index.skills:
        return [target]
    if target in bank.index.groups:
        return [name for name, entry in bank.index.skills.items() if entry.group == target]
    known = ", ".join((*bank.index.groups, *bank.index.skills, "all"))
    raise BankError([Problem("bank.yaml", 0, f"there is no skill or group '{target}'", f"There are: {known}")])


def source_of(bank: LoadedBank, skill: str) -> SkillSource:
    """The sources of a skill. Raises BankError if there is none or it cannot be read."""
    if skill not in bank.index.skills:
        raise unknown_skill(skill, bank.index.skills)
    if skill not in bank.sources:
        raise BankError(bank.problems[skill])
    return bank.sources[skill]


def build_all(bank: LoadedBank, skills: Sequence[str]) -> Built:
    """Compiles skills under the manifest and under each profile. Raises BankError with the problems of all of them."""
    names = sorted({name for one in skills if one in bank.sources for name in bank.sources[one].manifest.profiles})
    problems: set[Problem] = set()
    built: dict[str, BuiltSkill] = {}
    profiles: dict[str, dict[str, str]] = {skill: {} for skill in skills}
    for profile in (None, *names):
        having = [
            one
            for one in skills
            if profile is None or (one in bank.sources and profile in bank.sources[one].manifest.profiles)
        ]
        try:
            done = compile_skills(bank, having, profile=profile)
        except BankError as error:
            problems.update(error.problems)
            continue
        if profile is None:
            built = done
        else:
            for skill, one in done.items():
                profiles[skill][profile] = one.digest
    if problems:
        raise BankError(sorted(problems))
    return Built(built, profiles)


class LiveBank:
    """A bank that is written to. Methods that change it are called with `lock` held, after `recover()`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.versions = VersionStore(root / "versions")
        self.lock = lock_of(root / ".bank")
        self._journal = root / "rollback.json"

    def load(self, overlay: Mapping[str, bytes] | None = None) -> LoadedBank:
        """The sources as they are on disk, with `overlay` laid over them."""
        return load_bank(Reader(self.root, overlay))

    def folder(self, skill: str) -> Path:
        """Where the live SKILL.md and policy.json of a skill are."""
        return self.root / COMPILED / skill

    def recover(self) -> None:
        """Finishes what a killed writer left."""
        recover(self.root / COMPILED)
        if self._journal.exists():
            self._finish_rollback(read_json(self._journal))

    def compile(self, target: str, reason: str) -> tuple[Built, list[str], dict[str, VersionRecord]]:
        """Compiles into the live folder; (what was built, skills whose folder changed, newest versions)."""
        bank = self.load()
        built = build_all(bank, targets_of(bank, target))
        written: list[str] = []
        records: dict[str, VersionRecord] = {}
        for name, one in built.skills.items():
            if replace_folder(self.folder(name), one.files):
                written.append(name)
            records[name] = self._record(bank.sources[name], one, built.profiles[name], reason)
        return built, written, records

    def commit(self, skill: str, overlay: Mapping[str, bytes]) -> None:
        """Writes new texts of a skill if it, and every skill that depends on it, compiles with them."""
        self._check(skill, overlay)
        self._write(overlay)

    def hashes(self, source: SkillSource) -> dict[str, str]:
        """Path → SHA-256 of each file that decides the skill."""
        return {path: sha256(data) for path, data in self._texts(source).items()}

    def rollback(self, skill: str, number: int, reason: str) -> VersionRecord:
        """Makes the skill what it was in a version. Raises BankError; then nothing changed."""
        source = source_of(self.load(), skill)
        record = self.versions.get(skill, number)
        overlay = {path: self.versions.content(digest) for path, digest in record.sources.items()}
        for digest in record.files.values():
            self.versions.content(digest)
        retired = [one for one in _listed(source) if source.patches[one].file not in overlay]
        for patch in retired:
            path = source.patches[patch].file
            overlay[path] = edit_status((self.root / path).read_text("utf-8"), PatchStatus.ARCHIVED).encode("utf-8")
        self._check(skill, overlay)
        journal = {"skill": skill, "number": number, "reason": reason, "retired": retired}
        write_json_atomic(self._journal, journal)
        return self._finish_rollback(journal)

    def _finish_rollback(self, journal: Mapping[str, Any]) -> VersionRecord:
        """The part of a rollback behind its journal; doing it twice does no harm."""
        record = self.versions.get(journal["skill"], journal["number"])
        overlay = {path: self.versions.content(digest) for path, digest in record.sources.items()}
        folder = next(iter(path for path in overlay if path.endswith("/manifest.yaml"))).rpartition("/")[0]
        for patch in journal["retired"]:
            path = f"{folder}/patches/{patch}.md"
            overlay[path] = edit_status((self.root / path).read_text("utf-8"), PatchStatus.ARCHIVED).encode("utf-8")
        self._write(overlay)
        files = {name: self.versions.content(digest) for name, digest in record.files.items()}
        replace_folder(self.folder(record.skill), files)
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

    def _check(self, skill: str, overlay: Mapping[str, bytes]) -> None:
        bank = self.load(overlay)
        build_all(bank, [name for name in bank.index.skills if name == skill or skill in closure(bank, [name])])

    def _write(self, overlay: Mapping[str, bytes]) -> None:
        for path in sorted(overlay, key=lambda one: (one.endswith("/manifest.yaml"), one)):
            target = self.root / path
            if not target.exists() or target.read_bytes() != overlay[path]:
                target.parent.mkdir(parents=True, exist_ok=True)
                write_bytes_atomic(target, overlay[path])

    def _texts(self, source: SkillSource) -> dict[str, bytes]:
        paths = [source.base.file, source.manifest.file]
        if source.schema is not None:
            paths.append(source.schema.file)
        paths += [source.patches[one].file for one in _listed(source)]
        return {path: (self.root / path).read_bytes() for path in sorted(paths)}

    def _record(
        self, source: SkillSource, built: BuiltSkill, profiles: Mapping[str, str], reason: str
    ) -> VersionRecord:
        texts = self._texts(source)
        hashes = {path: sha256(data) for path, data in texts.items()}
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


def _listed(source: SkillSource) -> list[str]:
    """The patches that the manifest or one of its profiles activates."""
    manifest = source.manifest
    names = dict.fromkeys((*manifest.active, *(one for each in manifest.profiles.values() for one in each.active)))
    return [one for one in names if one in source.patches]
