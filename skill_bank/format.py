"""The bank on disk: `bank.yaml`, and for each skill `base.md`, `manifest.yaml`, `policy_schema.yaml`, `patches/*.md`.

Reading is strict: what cannot be understood is a `Problem` with file, line and fix, never skipped. All problems of a
file that can be seen at once are reported at once. The single formats are `skill_bank.index` and `skill_bank.markdown`.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from skill_bank.index import SkillEntry, parse_manifest
from skill_bank.markdown import parse_base
from skill_bank.patchfile import read_patch
from skill_bank.schema import Schema, parse_schema
from skill_bank.types import Base, Manifest, Patch, PatchStatus, Problem, Profile, SkillSource

SCHEMA_FILE = "policy_schema.yaml"
_BLOCK = 1 << 16
_KEPT_BASE = re.compile(r"base-[0-9a-f]{12}\.md\Z")


class Reader:
    """Files of a bank, with an overlay: texts that are to be read as if they were written (None: as if not there)."""

    def __init__(self, root: Path, overlay: Mapping[str, bytes | None] | None = None) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self.overlay = dict(overlay or {})

    def read(self, path: str) -> bytes | None:
        """Content of a file by its path inside the bank; None where there is none."""
        if path in self.overlay:
            return self.overlay[path]
        try:
            handle = os.open(f"{self._prefix}{path}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            parts = [os.read(handle, _BLOCK)]
            while len(parts[-1]) == _BLOCK:
                parts.append(os.read(handle, _BLOCK))
        finally:
            os.close(handle)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders in a folder, sorted."""
        try:
            found = set(os.listdir(f"{self._prefix}{folder}"))
        except (FileNotFoundError, NotADirectoryError):
            found = set()
        prefix = folder + "/"
        for path, data in self.overlay.items():
            if path.startswith(prefix) and "/" not in path[len(prefix) :]:
                (found.discard if data is None else found.add)(path[len(prefix) :])
        return sorted(found)

    def text(self, path: str, problems: list[Problem]) -> str | None:
        """Content as text; what is wrong with it goes to `problems`."""
        data = self.read_or_tell(path, problems)
        return None if data is None else as_text(data, path, problems)

    def read_or_tell(self, path: str, problems: list[Problem]) -> bytes | None:
        """`read`; a file that the system does not let us read is a problem."""
        try:
            return self.read(path)
        except OSError as error:  # a folder of that name, a link to itself, no permission, a failing disk
            why = error.strerror or str(error)
            problems.append(Problem(path, 0, f"it cannot be read: {why}", "Put a readable file in its place"))
            return None


def as_text(data: bytes, path: str, problems: list[Problem]) -> str | None:
    """UTF-8 with LF line ends; anything else goes to `problems`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problems.append(Problem(path, line, "not UTF-8", "Save the file as UTF-8"))
        return None
    if "\r" in text or text.startswith("\ufeff"):
        line = text[: text.find("\r")].count("\n") + 1 if "\r" in text else 1
        problems.append(
            Problem(path, line, "a carriage return or byte order mark", "Save with LF line ends, without a mark")
        )
        return None
    return text


def read_skill(reader: Reader, entry: SkillEntry, problems: list[Problem]) -> SkillSource | None:
    """Everything of one skill on disk; None where its base or manifest cannot be used."""
    folder = f"{entry.group}/{entry.name}"
    files = _Files(reader, folder, problems)
    manifest = _read_manifest(files, folder, problems)
    name = manifest.base if manifest is not None else "base.md"
    before = len(problems)
    base = _read_base(files, name, entry.name, problems)
    broken: list[str] = [name] if len(problems) > before else []
    damaged: dict[str, Patch] = {}
    unusable: dict[str, str | None] = {}
    own = {one.base for one in manifest.profiles.values() if one.base is not None} if manifest is not None else set()
    bases = {one: read for one in sorted(own) if (read := _read_base(files, one, entry.name, problems)) is not None}
    patches: dict[str, Patch] = {}
    known = {"manifest.yaml", SCHEMA_FILE, "patches", name, *own}
    warnings = [_left_out(f"{folder}/{one}") for one in reader.names(folder) if one not in known and _of_note(one)]
    for file in reader.names(f"{folder}/patches"):
        path = f"{folder}/patches/{file}"
        if not file.endswith(".md"):
            warnings += [_left_out(path)] if _of_note(file) else []
            continue
        before = len(problems)
        text = files.text(path)
        patch, more = read_patch(text, path, entry.name) if text is not None else (None, ())
        problems.extend(more)
        if text is None and len(problems) == before:
            problems.append(Problem(path, 0, "a link to nothing", "Restore the file or remove the link"))
        if patch is None or more:
            broken.append(PurePosixPath(path).stem)
        if patch is None:
            unusable[PurePosixPath(path).stem] = text
            continue
        (damaged if more else patches)[patch.id] = patch
    before = len(problems)
    schema = _read_schema(files, f"{folder}/{SCHEMA_FILE}", problems)
    if len(problems) > before:
        broken.append(SCHEMA_FILE)
    if base is None or manifest is None:
        return None
    warnings += _unlisted(manifest, patches) if manifest.whole else []
    return SkillSource(
        entry.group,
        entry.name,
        base,
        manifest,
        patches,
        schema,
        frozenset(broken),
        bases,
        files.hashes,
        tuple(id_ for id_, patch in patches.items() if patch.is_foreign),
        damaged,
        unusable,
        tuple(warnings),
    )


def _unlisted(manifest: Manifest, patches: Mapping[str, Patch]) -> list[Problem]:
    """Patches that say they are active and that nothing lists: they would be lost without a word."""
    lists: tuple[Manifest | Profile, ...] = (manifest, *manifest.profiles.values())
    named = {one for each in lists for one in (*each.active, *each.disabled, *each.folded)}
    return [
        Problem(
            patch.file,
            patch.line_of("status"),
            f"patch '{id_}' has status active and no list of the manifest names it, so it does not compile",
            "List it, or set another status",
        )
        for id_, patch in patches.items()
        if patch.status is PatchStatus.ACTIVE and id_ not in named
    ]


def _of_note(name: str) -> bool:
    """Whether a file that the format does not know is worth a word: hidden ones and kept bases are not."""
    return not name.startswith(".") and _KEPT_BASE.match(name) is None


def _left_out(path: str) -> Problem:
    return Problem(
        path, 0, "the format knows no such file, so it is not compiled", "Put its text into a section or a patch"
    )


class _Files:
    """The files of one skill, with the hash of each that was read."""

    def __init__(self, reader: Reader, folder: str, problems: list[Problem]) -> None:
        self._reader = reader
        self.folder = folder
        self._problems = problems
        self.hashes: dict[str, str] = {}

    def text(self, path: str) -> str | None:
        """Content as text; what is wrong with it goes to the problems."""
        data = self._reader.read_or_tell(path, self._problems)
        if data is None:
            return None
        self.hashes[path] = hashlib.sha256(data).hexdigest()
        return as_text(data, path, self._problems)


def _read_manifest(files: _Files, folder: str, problems: list[Problem]) -> Manifest | None:
    path = f"{folder}/manifest.yaml"
    before = len(problems)
    text = files.text(path)
    if text is None:
        if len(problems) == before:
            fix = "Write one: `base: base.md`, `active: []`"
            problems.append(Problem(path, 0, "the skill has no manifest", fix))
        return None
    manifest, found = parse_manifest(text, path)
    problems.extend(found)
    return manifest


def _read_base(files: _Files, name: str, skill: str, problems: list[Problem]) -> Base | None:
    path = f"{files.folder}/{name}"
    before = len(problems)
    text = files.text(path)
    if text is None:
        if len(problems) == before:
            problems.append(Problem(path, 0, "the base of the skill is missing", "Restore it or drop the skill"))
        return None
    base, found = parse_base(text, path, skill)
    problems.extend(found)
    return base


def _read_schema(files: _Files, path: str, problems: list[Problem]) -> Schema | None:
    text = files.text(path)
    if text is None:
        return None
    schema, wrong = parse_schema(text, path)
    problems.extend(Problem(path, line, message, "Correct the schema") for line, message in wrong)
    return schema
