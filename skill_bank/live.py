"""The live side of a bank: its lock, its compiled folder, its versions, and changes that happen as a whole.

A change is first built in memory, with the new texts laid over the old ones; what does not compile, here or in a
skill that depends on it, changes nothing. Then texts are written, the manifest last (it alone decides what is in
force), then the compiled folder is exchanged, then the version is recorded. A kill in between leaves either the old
manifest or the new one; the next writer finishes the rest. A rollback and a squash change several texts that mean
nothing without each other: they write a journal first, and whoever comes next carries it out.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from skill_bank.cache import Mark, Marks, SourceCache, is_settled
from skill_bank.compile import NO_BANK, BuildCache, LoadedBank, closure, compile_skills
from skill_bank.files import lock_of, read_json, write_bytes_atomic, write_json_atomic
from skill_bank.manifest import edit_status, render_manifest
from skill_bank.packages.journal import finish_install
from skill_bank.pins import Pins
from skill_bank.squash import Folding, fold
from skill_bank.swap import recover, replace_folder, replace_folders
from skill_bank.types import BankError, BuiltSkill, PatchStatus, Problem, SkillSource
from skill_bank.versions import VersionRecord, VersionStore, sha256

JOURNAL_SCHEMA = 2
_JOURNAL = frozenset(("skill", "texts", "files", "digest", "sources", "profiles", "patches", "reason", "restored"))
_OLD_JOURNAL = frozenset(("skill", "number", "reason"))
"""Fields of a journal of schema 1, which had no texts."""
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


def build_all(bank: LoadedBank, skills: Sequence[str], cache: BuildCache | None = None) -> Built:
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
            done = compile_skills(bank, having, profile=profile, cache=cache)
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
        self.pins = Pins(root / "versions")
        self._lock = lock_of(root / ".bank")
        self.built = BuildCache()
        self._journal = root / "rollback.json"
        self._sources = SourceCache(root)
        self._compiled = str(root / COMPILED)
        self._marks = Marks()
        self._settled: dict[str, _Settled] = {}

    @property
    def lock(self) -> FileLock:
        """The lock of everything that writes. Raises BankError where there is no bank: a lock would make a folder."""
        if not (self.root / "bank.yaml").exists():
            raise BankError([NO_BANK])
        return self._lock

    def load(self, overlay: Mapping[str, bytes | None] | None = None) -> LoadedBank:
        """The sources as they are on disk, with `overlay` laid over them.

        A change that is not carried out yet, because its writer died, counts as carried out.
        """
        waiting = self._waiting()
        if waiting is not None and "texts" in waiting:
            texts = waiting["texts"]
            done = {path: None if one is None else self.versions.content(one) for path, one in texts.items()}
            return self._sources.load({**done, **(overlay or {})})
        return self._sources.load(overlay)

    def _waiting(self) -> dict[str, Any] | None:
        """The journal of a change that is not carried out yet."""
        if not self._journal.exists():
            return None
        why = "fields of it are missing"
        try:
            found = read_json(self._journal)
        except FileNotFoundError:  # carried out between the two lines
            return None
        except ValueError as error:
            found, why = None, str(error)
        if isinstance(found, dict) and (found.keys() >= _JOURNAL or found.keys() >= _OLD_JOURNAL):
            return found
        damaged = f"the journal of a change that was interrupted cannot be read ({why})"
        raise BankError([Problem(self._journal.name, 0, damaged, "Restore it, or remove it and compile again")])

    def folder(self, skill: str) -> Path:
        """Where the live SKILL.md and policy.json of a skill are."""
        return self.root / COMPILED / skill

    def recover(self) -> None:
        """Finishes what a killed writer left."""
        recover(self.root / COMPILED)
        finish_install(self.root)
        journal = self._waiting()
        if journal is None:
            return
        if "texts" in journal:
            self._finish(journal)
        else:  # a rollback that a version of this program before journals with texts began
            self._journal.unlink()
            self.rollback(journal["skill"], journal["number"], str(journal["reason"]))

    def compile(self, target: str, reason: str) -> "Compiled":
        """Compiles into the live folder.

        Pinned skills stay as they are; a target that is one of them raises BankError.
        """
        bank = self.load()
        targets = targets_of(bank, target)
        pins = self.pins.read()
        if target in pins:
            self.pins.check([target])
        built = build_all(bank, [one for one in targets if one not in pins], self.built)
        held = {name: pins[name] for name in targets if name in pins}
        records = {name: known.record for name in built.skills if (known := self._as_known(name, bank, built))}
        changed = {name: one for name, one in built.skills.items() if name not in records}
        for name in changed:  # a history that cannot be read is told before anything is written
            self.versions.latest(name)
        written = replace_folders({self.folder(name): one.files for name, one in changed.items()})
        records |= self._record_all(bank, built, changed, reason)
        for name in changed:
            self._remember(name, bank, built, records[name])
        return Compiled(built, tuple(name for name in changed if self.folder(name) in written), records, held)

    def _as_known(self, name: str, bank: LoadedBank, built: Built) -> "_Settled | None":
        """What was found at the last compile, if sources, output folder and history are still what they were."""
        known = self._settled.get(name)
        if known is None or known.source is not bank.sources[name] or known.built is not built.skills[name]:
            return None
        same = known.profiles == built.profiles[name] and known.mark == self._marks.of(f"{self._compiled}/{name}")
        return known if same and self.versions.latest(name) is known.record else None

    def _remember(self, name: str, bank: LoadedBank, built: Built, record: VersionRecord) -> None:
        now = time.time_ns()
        mark = self._marks.of(f"{self._compiled}/{name}")
        if is_settled(mark, now_ns=now):
            one = _Settled(bank.sources[name], built.skills[name], built.profiles[name], mark, record)
            self._settled[name] = one

    def commit(self, skill: str, overlay: Mapping[str, bytes | None]) -> None:
        """Writes new texts of a skill if it, and every skill that depends on it, compiles with them."""
        self._check(skill, overlay)
        self._write(overlay)

    def rollback(self, skill: str, number: int, reason: str, *, dry_run: bool = False) -> VersionRecord:
        """Makes the skill what it was in a version. Raises BankError; then nothing changed.

        Returns the new version; in a dry run the version gone back to.
        """
        source = source_of(self.load(), skill)
        record = self.versions.get(skill, number)
        texts: dict[str, bytes | None] = {
            path: self.versions.content(digest) for path, digest in record.sources.items()
        }
        for digest in record.files.values():
            self.versions.content(digest)
        for patch in _listed(source):
            path = source.patches[patch].file
            if path not in texts:
                texts[path] = edit_status(self._text(path), PatchStatus.ARCHIVED).encode("utf-8")
        if source.schema is not None and source.schema.file not in texts:
            texts[source.schema.file] = None
        self._check(skill, texts)
        if dry_run:
            return record
        return self._change(record, texts, reason, restored=number)

    def squash(self, skill: str, reason: str, *, dry_run: bool = False) -> tuple[Folding, VersionRecord | None]:
        """Makes the active patches part of the base (`skill_bank.squash`). Raises BankError; then nothing changed."""
        bank = self.load()
        before = build_all(bank, [skill], self.built)
        source = source_of(bank, skill)
        if not source.manifest.active:
            nothing = f"{skill} has no active patch"
            raise BankError([Problem(source.manifest.file, 0, nothing, "Squash a skill whose manifest lists one")])
        folding = fold(source)
        folder = source.base.file.rpartition("/")[0]
        texts: dict[str, bytes | None] = {source.base.file: folding.base.encode("utf-8")}
        if folding.kept is not None:
            texts[f"{folder}/{folding.kept[0]}"] = folding.kept[1].encode("utf-8")
        for patch in folding.archived:
            path = source.patches[patch].file
            texts[path] = edit_status(self._text(path), PatchStatus.ARCHIVED).encode("utf-8")
        manifest = render_manifest(self._text(source.manifest.file), folding.manifest)
        texts[source.manifest.file] = manifest.encode("utf-8")
        after = self._check(skill, texts)
        same = dict(after.built.skills[skill].files) == dict(before.skills[skill].files)
        if not same or after.built.profiles[skill] != before.profiles[skill]:
            cannot = f"squashing {skill} would change what it compiles to"
            raise BankError([Problem(source.base.file, 0, cannot, "Fold its patches into base.md by hand")])
        if dry_run:
            return folding, None
        fresh = after.bank.sources[skill]
        record = self._new_record(fresh, after.built.skills[skill], after.built.profiles[skill], reason)
        for path, digest in record.sources.items():
            data = texts[path] if path in texts else (self.root / path).read_bytes()
            assert data is not None
            assert sha256(data) == digest
            self.versions.put(data)
        self.versions.put_all(after.built.skills[skill].files.values())
        return folding, self._change(record, texts, reason, restored=None)

    def hashes(self, source: SkillSource) -> dict[str, str]:
        """Path → SHA-256 of each file that decides the skill."""
        paths = [source.base.file, source.manifest.file, *(one.file for one in source.bases.values())]
        if source.schema is not None:
            paths.append(source.schema.file)
        paths += [source.patches[one].file for one in _listed(source)]
        return {path: source.hashes[path] for path in sorted(paths)}

    def _text(self, path: str) -> str:
        return (self.root / path).read_text("utf-8")

    def _change(
        self, record: VersionRecord, texts: Mapping[str, bytes | None], reason: str, *, restored: int | None
    ) -> VersionRecord:
        """Writes the journal of a change that is complete or not at all, and carries it out."""
        journal = {
            "schema_version": JOURNAL_SCHEMA,
            "skill": record.skill,
            "texts": {path: None if data is None else self.versions.put(data) for path, data in texts.items()},
            "files": dict(record.files),
            "digest": record.digest,
            "sources": dict(record.sources),
            "profiles": dict(record.profiles),
            "patches": list(record.patches),
            "reason": reason,
            "restored": restored,
        }
        write_json_atomic(self._journal, journal)
        return self._finish(journal)

    def _finish(self, journal: Mapping[str, Any]) -> VersionRecord:
        """The part of a change behind its journal; doing it twice does no harm."""
        content = self.versions.content
        self._write({path: None if one is None else content(one) for path, one in journal["texts"].items()})
        replace_folder(self.folder(journal["skill"]), {name: content(one) for name, one in journal["files"].items()})
        latest = self.versions.latest(journal["skill"])
        if latest is None or dict(latest.sources) != journal["sources"] or latest.digest != journal["digest"]:
            latest = VersionRecord(
                number=latest.number + 1 if latest is not None else 1,
                skill=journal["skill"],
                digest=journal["digest"],
                sources=journal["sources"],
                files=journal["files"],
                profiles=journal["profiles"],
                patches=tuple(journal["patches"]),
                created_at=time.time(),
                reason=str(journal["reason"]),
                restored=journal["restored"],
            )
            self.versions.append(latest)
        self._journal.unlink()
        return latest

    def _check(self, skill: str, overlay: Mapping[str, bytes | None]) -> "_Checked":
        """Compiles the skill and those that depend on it with new texts. Raises BankError."""
        bank = self.load(overlay)
        names = [name for name in bank.index.skills if name == skill or skill in closure(bank, [name])]
        return _Checked(bank, build_all(bank, names, self.built))

    def _write(self, overlay: Mapping[str, bytes | None]) -> None:
        for path in sorted(overlay, key=lambda one: (one.endswith("/manifest.yaml"), one)):
            target, data = self.root / path, overlay[path]
            if data is None:
                target.unlink(missing_ok=True)
            elif not target.exists() or target.read_bytes() != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                write_bytes_atomic(target, data)

    def _record_all(
        self, bank: LoadedBank, built: Built, changed: Mapping[str, BuiltSkill], reason: str
    ) -> dict[str, VersionRecord]:
        """The newest version of each skill; one that changed gets a new one."""
        records: dict[str, VersionRecord] = {}
        fresh: dict[str, VersionRecord] = {}
        contents: list[bytes] = []
        for name, one in changed.items():
            source = bank.sources[name]
            latest = self.versions.latest(name)
            hashes = self.hashes(source)
            if latest is not None and latest.digest == one.digest and dict(latest.sources) == hashes:
                records[name] = latest
                continue
            records[name] = fresh[name] = self._new_record(source, one, built.profiles[name], reason)
            contents += [*self._contents(hashes), *one.files.values()]
        self.versions.put_all(contents)
        for record in fresh.values():
            self.versions.append(record)
        return records

    def _contents(self, hashes: Mapping[str, str]) -> list[bytes]:
        found = []
        for path, digest in hashes.items():
            if self.versions.has(digest):
                continue
            data = (self.root / path).read_bytes()
            if sha256(data) != digest:
                changed = f"{path} changed while it was compiled"
                raise BankError([Problem(path, 0, changed, "Compile again")])
            found.append(data)
        return found

    def _new_record(
        self, source: SkillSource, built: BuiltSkill, profiles: Mapping[str, str], reason: str
    ) -> VersionRecord:
        latest = self.versions.latest(source.name)
        return VersionRecord(
            number=latest.number + 1 if latest else 1,
            skill=source.name,
            digest=built.digest,
            sources=self.hashes(source),
            files={name: sha256(data) for name, data in sorted(built.files.items())},
            profiles=dict(sorted(profiles.items())),
            patches=built.patches,
            created_at=time.time(),
            reason=reason,
        )


@dataclass(frozen=True)
class Compiled:
    """What a compile into the live folder did."""

    built: Built
    written: tuple[str, ...]
    """Skills whose folder changed."""
    records: Mapping[str, VersionRecord]
    """Skill → its newest version."""
    pinned: Mapping[str, int]
    """Skills asked for that are held at a version."""


@dataclass(frozen=True)
class _Settled:
    """A skill that was compiled, written and recorded."""

    source: SkillSource
    built: BuiltSkill
    profiles: Mapping[str, str]
    mark: Mark
    """Of the compiled folder."""
    record: VersionRecord


@dataclass(frozen=True)
class _Checked:
    """A bank with new texts laid over it, and what it compiles to."""

    bank: LoadedBank
    built: Built


def _listed(source: SkillSource) -> list[str]:
    """The patches that the manifest or one of its profiles activates."""
    manifest = source.manifest
    names = dict.fromkeys((*manifest.active, *(one for each in manifest.profiles.values() for one in each.active)))
    return [one for one in names if one in source.patches]
