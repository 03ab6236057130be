"""Compiled skills in a client's skills folder, for instance `.claude/skills`, and out of it again.

`.mcp-evo-installed.json` in that folder lists every file that we wrote with its SHA-256, and the folders that we made.
A file that differs from what we wrote was edited by hand, and one that is not on the list is somebody else's: neither
is overwritten or removed unless that is asked for. All new files are first written beside their places, then renamed,
then the list: whoever is killed leaves files that are the old or the new ones, and the next install goes on.
Links are refused throughout: what is behind one may belong to anybody.
"""

import difflib
import hashlib
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from skill_bank.files import read_json, write_json_atomic

MANIFEST = ".mcp-evo-installed.json"
SCHEMA_VERSION = 2


class InstallError(ValueError):
    """An installation that cannot be done: says why and what to do. Nothing was changed."""


@dataclass(frozen=True)
class Objection:
    """A file that is not as we wrote it, where one of ours would go or be removed."""

    skill: str
    file: str
    """Path inside the skill's folder."""
    path: Path
    edited: bool
    """We wrote it and it was edited; False: it is somebody else's."""
    difference: tuple[str, ...]
    """Unified difference, from what we wrote (or would write) to what is there."""

    def __str__(self) -> str:
        return f"{self.path} {'was edited by hand' if self.edited else 'was not written by mcp-evo'}"


@dataclass(frozen=True)
class Plan:
    """What an installation would do."""

    target: Path
    written: tuple[str, ...]
    """Skills of which a file changes."""
    unchanged: tuple[str, ...]
    objections: tuple[Objection, ...]
    writes: Mapping[str, bytes] = field(default_factory=dict)
    """Path below the target → content."""
    removals: tuple[str, ...] = ()
    """Paths below the target that we wrote once and that no longer belong to the skill."""
    record: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The list afterwards: skill → file → SHA-256."""


@dataclass(frozen=True)
class Removed:
    """What an uninstallation did or would do."""

    target: Path
    removed: tuple[str, ...]
    """Skills."""
    kept: tuple[str, ...]
    """Paths below the target that were edited by hand and stay."""
    objections: tuple[Objection, ...] = ()


@dataclass(frozen=True)
class _Record:
    skills: dict[str, dict[str, str]]
    created: list[str]
    """`.` the target, `..` its parent: folders that we made."""


def plan_install(skills: Mapping[str, Mapping[str, bytes]], target: Path) -> Plan:
    """What installing would do; writes nothing. `skills`: name → file → content. Raises InstallError."""
    target = target.expanduser().absolute()
    _check_target(target)
    known = _read_record(target)
    written: list[str] = []
    unchanged: list[str] = []
    objections: list[Objection] = []
    writes: dict[str, bytes] = {}
    removals: list[str] = []
    record = dict(known.skills)
    for name, files in skills.items():
        mine = known.skills.get(name, {})
        changed = False
        for file, data in files.items():
            path = _inside(target, name, file)
            there = path.read_bytes() if path.is_file() else None
            if there == data:
                continue
            changed = True
            writes[f"{name}/{file}"] = data
            if there is not None and _hash(there) != mine.get(file):
                objections.append(Objection(name, file, path, file in mine, _difference(there, data)))
        for file in sorted(mine.keys() - files.keys()):
            path = _inside(target, name, file)
            if path.is_file():
                changed = True
                removals.append(f"{name}/{file}")
                there = path.read_bytes()
                if _hash(there) != mine[file]:
                    objections.append(Objection(name, file, path, True, _difference(there, b"")))
        record[name] = {file: _hash(data) for file, data in files.items()}
        (written if changed else unchanged).append(name)
    return Plan(target, tuple(written), tuple(unchanged), tuple(objections), writes, tuple(removals), record)


def install(plan: Plan, *, force: bool = False) -> None:
    """Carries a plan out. `force`: also where it has objections. Raises InstallError; then nothing was changed."""
    if plan.objections and not force:
        raise InstallError("; ".join(map(str, plan.objections)))
    target = plan.target
    created = [*_read_record(target).created, *_missing(target)]
    staged: dict[Path, Path] = {}
    made: list[Path] = []
    try:
        _sweep(target, plan.record)
        for path, data in plan.writes.items():
            place = target / path
            _make_folder(place.parent, made)
            staged[place] = _stage(place, data)
        _make_folder(target, made)
        for place, waiting in staged.items():
            os.replace(waiting, place)
        for path in plan.removals:
            (target / path).unlink(missing_ok=True)
        _write_record(target, _Record({name: dict(files) for name, files in plan.record.items()}, created))
    except OSError as error:
        for waiting in staged.values():
            waiting.unlink(missing_ok=True)
        for folder in reversed(made):
            _remove_if_empty(folder)
        where = error.filename or target
        raise InstallError(f"{where}: {error.strerror or error}. Nothing was installed by halves; "
                           f"name a folder that can be written (--to DIR).") from error  # fmt: skip


def plan_uninstall(target: Path, skills: Collection[str] | None = None) -> Removed:
    """What uninstalling would do; None: every skill on the list. Raises InstallError."""
    target = target.expanduser().absolute()
    _check_target(target)
    known = _read_record(target)
    chosen = list(known.skills) if skills is None else list(skills)
    unknown = [one for one in chosen if one not in known.skills]
    if unknown or not chosen:
        have = ", ".join(known.skills) or "nothing"
        missing = f"{', '.join(unknown)} was not installed there. " if unknown else ""
        raise InstallError(f"{missing}mcp-evo installed {have} in {target}.")
    objections: list[Objection] = []
    for name in chosen:
        for file, digest in known.skills[name].items():
            path = _inside(target, name, file)
            if path.is_file() and _hash(path.read_bytes()) != digest:
                objections.append(Objection(name, file, path, True, ()))
    return Removed(target, tuple(chosen), tuple(f"{one.skill}/{one.file}" for one in objections), tuple(objections))


def uninstall(plan: Removed, *, force: bool = False, keep_edited: bool = False) -> Removed:
    """Removes what we wrote, and the folders that we made where nothing else is in them.

    Files that were edited by hand: `force` removes them, too; `keep_edited` leaves them where they are; else
    InstallError, and nothing is removed.
    """
    if plan.objections and not (force or keep_edited):
        edited = "; ".join(map(str, plan.objections))
        raise InstallError(f"{edited}. Nothing was removed: --keep-edited leaves such files, --force removes them.")
    target = plan.target
    known = _read_record(target)
    kept = () if force else plan.kept
    try:
        _sweep(target, known.skills)
        for name in plan.removed:
            folders: set[Path] = {target / name}
            for file in known.skills.get(name, {}):
                path = target / name / file
                if f"{name}/{file}" not in kept:
                    path.unlink(missing_ok=True)
                folders.update(target / name / parent for parent in PurePosixPath(file).parents)
            for folder in sorted(folders, key=lambda one: -len(one.parts)):
                _remove_if_empty(folder)
        left = {name: files for name, files in known.skills.items() if name not in plan.removed}
        if left:
            _write_record(target, _Record(left, known.created))
        else:
            (target / MANIFEST).unlink(missing_ok=True)
            for mark in sorted(known.created, key=len):
                _remove_if_empty(Path(os.path.normpath(target / mark)))
    except OSError as error:
        raise InstallError(f"{error.filename or target}: {error.strerror or error}. What was removed stays removed; "
                           "uninstall again when the folder can be written.") from error  # fmt: skip
    return Removed(target, plan.removed, kept)


def _check_target(target: Path) -> None:
    """Raises InstallError for a target that is a link, no folder, or cannot be written."""
    if target.is_symlink():
        raise InstallError(f"{target} is a link to {os.readlink(target)}; name the folder itself (--to DIR).")
    place = target
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise InstallError(f"{place} is no folder; name another one (--to DIR).")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InstallError(f"{place} cannot be written; name another folder (--to DIR) or change its rights.")


def _inside(target: Path, name: str, file: str) -> Path:
    """The path of a file of a skill, of which no part is a link. Raises InstallError."""
    parts = PurePosixPath(name, file).parts
    if ".." in parts or PurePosixPath(file).is_absolute():
        raise InstallError(f"{name}/{file} leads out of the skill's folder.")
    path = target
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise InstallError(f"{path} is a link, which is left alone; remove it or name another folder (--to DIR).")
        if path.exists() and part != parts[-1] and not path.is_dir():
            raise InstallError(f"{path} is a file where a folder has to be; move it.")
    if path.is_dir():
        raise InstallError(f"{path} is a folder where a file has to be; move it.")
    if path.exists() and not os.access(path.parent, os.W_OK):
        raise InstallError(f"{path.parent} cannot be written; change its rights or name another folder (--to DIR).")
    return path


def _missing(target: Path) -> list[str]:
    """`.` and `..`, where they are not there yet."""
    found = [] if target.exists() else ["."]
    return found if target.parent.exists() else [*found, ".."]


def _make_folder(folder: Path, made: list[Path]) -> None:
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    made.extend(reversed(new))


def _stage(place: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{place.name[:40]}.", suffix=".tmp", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _sweep(target: Path, skills: Mapping[str, Collection[str]]) -> None:
    """Removes what a killed installation was about to rename into place."""
    places = [target / name / file for name, files in skills.items() for file in files]
    for place in [target / MANIFEST, *places]:
        for left in place.parent.glob(f".{place.name[:40]}.*.tmp") if place.parent.is_dir() else ():
            left.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def _read_record(target: Path) -> _Record:
    try:
        document: Any = read_json(target / MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return _Record({}, [])
    except ValueError as error:
        raise InstallError(f"{error}. Remove {target / MANIFEST}, then install with --force.") from error
    skills = document.get("skills") if isinstance(document, dict) else None
    if not isinstance(skills, dict) or not all(isinstance(one, dict) for one in skills.values()):
        raise InstallError(f"{target / MANIFEST} is not the list that mcp-evo wrote. Remove it, then use --force.")
    created = document.get("created")
    marks = [one for one in created if one in (".", "..")] if isinstance(created, list) else []
    return _Record({name: dict(files) for name, files in skills.items()}, marks)


def _write_record(target: Path, record: _Record) -> None:
    document = {"schema_version": SCHEMA_VERSION, "skills": record.skills, "created": record.created}
    write_json_atomic(target / MANIFEST, document)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _difference(there: bytes, wanted: bytes) -> tuple[str, ...]:
    ours = wanted.decode("utf-8", errors="replace").splitlines()
    theirs = there.decode("utf-8", errors="replace").splitlines()
    return tuple(difflib.unified_diff(ours, theirs, "compiled", "there", n=1, lineterm=""))
