"""Files of a bank of the original's format: text, front matter, sections, patches, lists."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from skill_bank.importing.types import (
    FrontMatter,
    Kind,
    Oddity,
    RawBank,
    RawBase,
    RawManifest,
    RawPatch,
    RawProfile,
    RawSection,
    RawSkill,
    Severity,
    shown,
)
from skill_bank.yamltree import YamlProblem, parse_yaml

_OPEN = re.compile(r"<!--\s*section:([a-z0-9-]+)\s*-->")
_CLOSE = re.compile(r"<!--\s*/section:([a-z0-9-]+)\s*-->")
MARKER_LIKE = re.compile(r"<!--\s*/?\s*section\s*:", re.IGNORECASE)
"""What was meant as a marker, even if it is none."""
_FENCE = re.compile(r"---\s*\Z")
MAX_BYTES = 16 * 1024 * 1024
"""No skill is that long (the longest known base has 60 KB); a larger file is something else."""


class Notes:
    """Collects oddities about one skill, or about the bank."""

    def __init__(self, skill: str = "") -> None:
        self.skill = skill
        self.found: list[Oddity] = []

    def add(self, file: str, line: int, kind: Kind, message: str, severity: Severity = Severity.WARNING) -> None:
        self.found.append(Oddity(file, line, kind, message, severity, self.skill))

    def error(self, file: str, line: int, kind: Kind, message: str) -> None:
        self.add(file, line, kind, message, Severity.ERROR)

    def note(self, file: str, line: int, kind: Kind, message: str) -> None:
        self.add(file, line, kind, message, Severity.NOTE)


def read_text(root: Path, file: str, notes: Notes, severity: Severity = Severity.ERROR) -> str | None:
    """A file as text, every kind of line end as a line feed; None where it cannot be read (reported as `severity`)."""
    path = root / file
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            notes.add(file, 0, Kind.UNREADABLE, "a link that leads out of the bank, which is not followed", severity)
            return None
        if path.stat().st_size > MAX_BYTES:
            notes.add(file, 0, Kind.UNREADABLE, f"larger than {MAX_BYTES // 2**20} MB", severity)
            return None
        data = path.read_bytes()
    except OSError as error:
        notes.add(file, 0, Kind.UNREADABLE, f"cannot be read: {error.strerror or error}", severity)
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        guess = "looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte 0x{data[error.start]:02x}"
        notes.add(file, line, Kind.ENCODING, f"not UTF-8 ({guess}); save it as UTF-8", severity)
        return None
    if text.startswith("\ufeff"):
        notes.add(file, 1, Kind.ENCODING, "a byte order mark: the front matter behind it is not seen")
    if "\r" in text:
        line = text[: text.find("\r")].count("\n") + 1
        notes.add(file, line, Kind.ENCODING, "carriage returns, which become line feeds")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        notes.add(file, text[: text.find("\0")].count("\n") + 1, Kind.ENCODING, "a zero byte")
    return text


def read_yaml(text: str, file: str, first: int, notes: Notes, severity: Severity, what: str) -> tuple[Any, bool]:
    """(what the YAML says by version 1.1, whether it could be parsed); what strict reading finds is reported, too."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = first + (min(mark.line, text.count("\n")) if mark is not None else 0)
        why = (error.problem if isinstance(error, yaml.MarkedYAMLError) else None) or type(error).__name__
        notes.add(file, line, Kind.FRONT_MATTER if what == "front matter" else Kind.UNREADABLE,
                  f"the {what} cannot be parsed: {why}", severity)  # fmt: skip
        return None, False
    try:
        parse_yaml(text, first)
    except YamlProblem as problem:
        if "occurs twice" in problem.message:
            notes.add(file, problem.line, Kind.DUPLICATE_KEY, f"{problem.message}; the last one counts")
        else:
            notes.add(file, problem.line, Kind.FIELD, f"{what}: {problem.message}")
    except RecursionError:
        notes.add(file, first, Kind.FIELD, f"{what}: nested very deeply")
    return value, True


def key_lines(text: str, first: int) -> dict[str, int]:
    """Top-level key → line of the file, for YAML that can be parsed."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): key.start_mark.line + first for key, _ in node.value}


def read_front_matter(text: str, file: str, notes: Notes, severity: Severity) -> FrontMatter:
    """Front matter and body. What cannot be parsed is reported as `severity` and counts as empty."""
    lines = text.split("\n")
    end = next((n for n in range(1, len(lines)) if _FENCE.match(lines[n])), None) if _FENCE.match(lines[0]) else None
    if end is None:
        why = "no front matter" if _FENCE.match(lines[0]) is None else "the front matter never ends"
        notes.add(file, 1, Kind.FRONT_MATTER, f"{why}; everything counts as text", severity)
        return FrontMatter({}, text, 1, parsed=False)
    raw = "\n".join(lines[1:end])
    value, parsed = read_yaml(raw, file, 2, notes, severity, "front matter")
    found = key_lines(raw, 2) if parsed else {}
    return FrontMatter(value or {}, "\n".join(lines[end + 1 :]), end + 2, found, parsed)


def read_base(text: str, file: str, notes: Notes) -> RawBase | None:
    """`base.md`; None where its markers do not match, which the original refuses."""
    head = read_front_matter(text, file, notes, Severity.WARNING)
    sections: list[RawSection] = []
    gaps: dict[int, str] = {}
    names: dict[str, int] = {}
    current: tuple[str, int] | None = None
    content: list[str] = []
    gap: list[str] = []
    broken = False

    def end_gap() -> None:
        stripped = "\n".join(gap).strip("\n")
        gap.clear()
        if stripped:
            gaps[len(sections)] = stripped

    for number, line in enumerate(head.body.split("\n"), start=head.body_line):
        bare = line.strip()
        opening, closing = _OPEN.match(bare), _CLOSE.match(bare)
        marker = opening or closing
        if marker is not None and marker.end() != len(bare):
            notes.add(file, number, Kind.MARKER, f"text behind a marker is lost: {bare[marker.end() :].strip()!r}")
        if opening is not None:
            if current is not None:
                inside = f"section '{opening[1]}' opens inside section '{current[0]}' (line {current[1]})"
                notes.error(file, number, Kind.MARKER, inside)
                broken = True
            if opening[1] in names:
                twice = f"section '{opening[1]}' occurs twice (first in line {names[opening[1]]}): both show the last"
                notes.add(file, number, Kind.DUPLICATE_SECTION, twice)
            names.setdefault(opening[1], number)
            end_gap()
            current, content = (opening[1], number), []
        elif closing is not None:
            if current is None or current[0] != closing[1]:
                is_open = "none is open" if current is None else f"'{current[0]}' is open"
                notes.error(file, number, Kind.MARKER, f"section '{closing[1]}' is closed and {is_open}")
                broken = True
                continue
            joined = "\n".join(content)
            joined = joined[1:] if joined.startswith("\n") else joined
            joined = joined[:-1] if joined.endswith("\n") else joined
            sections.append(RawSection(current[0], joined, current[1]))
            current = None
        else:
            if MARKER_LIKE.search(line) is not None:
                notes.add(file, number, Kind.MARKER, f"no marker, though it looks like one: {bare[:60]!r}")
            (gap if current is None else content).append(line)
    if current is not None:
        notes.error(file, current[1], Kind.MARKER, f"section '{current[0]}' never ends")
        broken = True
    end_gap()
    return None if broken else RawBase(file, head, tuple(sections), gaps)


def read_patch(text: str, file: str, notes: Notes) -> RawPatch:
    """A patch file. Whether front matter that cannot be parsed matters is for the compiler of the skill to say."""
    head = read_front_matter(text, file, notes, Severity.WARNING)
    body = head.body.strip()
    before = head.body[: len(head.body) - len(head.body.lstrip())]
    return RawPatch(file, PurePosixPath(file).stem, head, body, head.body_line + before.count("\n"), text)


def _texts(value: Any, file: str, lines: dict[str, int], what: str, rows: list[int], notes: Notes) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        notes.error(file, rows[0] if rows else 0, Kind.FIELD, f"`{what}` is not a list: {shown(value)}")
        return ()
    found: list[str] = []
    for index, one in enumerate(value):
        line = rows[index] if index < len(rows) else 0
        if not isinstance(one, str):
            notes.add(file, line, Kind.FIELD, f"`{what}` holds {shown(one)}, not text; it means '{one}'")
        if str(one) in found:
            notes.add(file, line, Kind.LISTED, f"`{what}` lists '{one}' twice")
            continue
        found.append(str(one))
        lines[f"{what}.{one}"] = line
    return tuple(found)


def _rows(node: Any, *path: str) -> list[int]:
    """Lines of the items of the list (or of the value) below a path of keys."""
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            return []
        node = next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode):
        return [one.start_mark.line + 1 for one in node.value] or [node.start_mark.line + 1]
    return [] if node is None else [node.start_mark.line + 1]


def read_manifest(text: str, file: str, notes: Notes) -> RawManifest | None:
    """`manifest.yaml`; None where it cannot be used."""
    value, parsed = read_yaml(text, file, 1, notes, Severity.ERROR, "manifest")
    if not parsed:
        return None
    value = value or {}
    if not isinstance(value, dict):
        notes.error(file, 1, Kind.UNREADABLE, "the manifest is not a mapping")
        return None
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    own = key_lines(text, 1)
    for key in value:
        if key not in ("base", "active", "disabled", "profiles"):
            notes.add(file, own.get(str(key), 0), Kind.UNKNOWN_KEY, f"`{key}` means nothing in a manifest")
    base = value.get("base", "base.md")
    if not isinstance(base, str) or not base or ".." in PurePosixPath(base).parts or PurePosixPath(base).is_absolute():
        notes.error(file, own.get("base", 0), Kind.FIELD, f"`base` is {shown(base)}, not a file of the skill's folder")
        return None
    lines: dict[str, int] = {}
    before = len(notes.found)
    active = _texts(value.get("active"), file, lines, "active", _rows(node, "active"), notes)
    unusable = any(one.severity is Severity.ERROR for one in notes.found[before:])
    disabled = _texts(value.get("disabled"), file, lines, "disabled", _rows(node, "disabled"), notes)
    profiles: dict[str, RawProfile] = {}
    given = value.get("profiles") or {}
    if not isinstance(given, dict):
        notes.add(file, own.get("profiles", 0), Kind.FIELD, "`profiles` is not a mapping")
        given = {}
    for name, one in given.items():
        line = _rows(node, "profiles", str(name))[:1]
        at = line[0] - 1 if line else own.get("profiles", 0)
        if not isinstance(one, dict):
            notes.add(file, at, Kind.PROFILE, f"profile '{name}' is not a mapping")
            continue
        for key in one:
            if key not in ("description", "active", "disabled"):
                notes.add(file, at, Kind.UNKNOWN_KEY, f"`{key}` means nothing in a profile")
        prefix = f"{name}."
        profiles[str(name)] = RawProfile(
            str(one.get("description") or ""),
            _texts(one.get("active"), file, lines, f"{prefix}active", _rows(node, "profiles", name, "active"), notes),
            _texts(one.get("disabled"), file, lines, f"{prefix}disabled",
                   _rows(node, "profiles", name, "disabled"), notes),
            at,
        )  # fmt: skip
    return None if unusable else RawManifest(file, base, active, disabled, profiles, lines)


def read_skill(root: Path, group: str, name: str, line: int) -> RawSkill:
    """Everything of a declared skill."""
    notes = Notes(name)
    folder = f"{group}/{name}"
    if not (root / folder).is_dir():
        notes.add("bank.yaml", line, Kind.NOT_IN_BANK, f"skill {name} is declared and {folder}/ is not here")
        return RawSkill(name, group, folder, line, False, oddities=tuple(notes.found))
    manifest_file = f"{folder}/manifest.yaml"
    manifest: RawManifest | None = None
    if not (root / manifest_file).is_file():
        notes.error(manifest_file, 0, Kind.MISSING_FILE, f"{name} has no manifest.yaml")
    else:
        text = read_text(root, manifest_file, notes)
        manifest = read_manifest(text, manifest_file, notes) if text is not None else None
    base_file = f"{folder}/{manifest.base if manifest is not None else 'base.md'}"
    base: RawBase | None = None
    if not (root / base_file).is_file():
        notes.error(base_file, 0, Kind.MISSING_BASE, f"the base of {name} is missing")
    else:
        text = read_text(root, base_file, notes)
        base = read_base(text, base_file, notes) if text is not None else None
    patches: dict[str, RawPatch] = {}
    where = root / folder / "patches"
    for path in sorted(where.iterdir()) if where.is_dir() else []:
        file = f"{folder}/patches/{path.name}"
        if path.suffix != ".md" or not path.is_file():
            notes.note(file, 0, Kind.LEFT_OUT, "not a patch file (.md)")
            continue
        text = read_text(root, file, notes, Severity.WARNING)
        if text is not None:
            patches[path.stem] = read_patch(text, file, notes)
    for path in sorted((root / folder).rglob("*")):
        relative = path.relative_to(root / folder)
        if path.is_file() and relative.parts[0] != "patches" and relative.as_posix() not in (
            "manifest.yaml", manifest.base if manifest is not None else "base.md",
        ):  # fmt: skip
            notes.note(f"{folder}/{relative.as_posix()}", 0, Kind.LEFT_OUT, "no compiled text uses this file")
    return RawSkill(name, group, folder, line, True, manifest, base, patches, tuple(notes.found))


def read_bank(root: Path) -> RawBank:
    """A whole bank. What cannot be read at all leaves a bank without skills and an oddity that says why."""
    notes = Notes()
    empty: Mapping[str, str] = {}

    def nothing() -> RawBank:
        return RawBank("", empty, {}, {}, empty, tuple(notes.found))

    if not (root / "bank.yaml").is_file():
        notes.error("bank.yaml", 0, Kind.MISSING_FILE, f"there is no bank.yaml in {root}")
        return nothing()
    text = read_text(root, "bank.yaml", notes)
    if text is None:
        return nothing()
    value, parsed = read_yaml(text, "bank.yaml", 1, notes, Severity.ERROR, "bank.yaml")
    if not parsed:
        return nothing()
    if not isinstance(value, dict) or not isinstance(value.get("groups"), dict):
        notes.error("bank.yaml", 1, Kind.UNREADABLE, "bank.yaml has no mapping `groups`")
        return nothing()
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    own = key_lines(text, 1)
    for key in value:
        if key not in ("version", "groups", "settings"):
            notes.add("bank.yaml", own.get(str(key), 0), Kind.UNKNOWN_KEY, f"`{key}` means nothing in bank.yaml")
    settings = value.get("settings") or {}
    if not isinstance(settings, dict):
        notes.add("bank.yaml", own.get("settings", 0), Kind.FIELD, "`settings` is not a mapping")
        settings = {}
    for key in settings:
        if key not in ("compiled_dir", "output_base"):
            at = _rows(node, "settings", str(key))
            notes.add("bank.yaml", at[0] if at else 0, Kind.UNKNOWN_KEY, f"`settings.{key}` means nothing here")
    groups: dict[str, str] = {}
    skills: dict[str, RawSkill] = {}
    outputs: dict[str, str] = {}
    for group, entry in value["groups"].items():
        at = _rows(node, "groups", str(group))
        if not isinstance(entry, dict) or not _plain_name(group):
            notes.add("bank.yaml", at[0] if at else 0, Kind.FIELD, f"group {shown(group)} cannot be used")
            continue
        for key in entry:
            if key not in ("description", "skills"):
                notes.add("bank.yaml", at[0] if at else 0, Kind.UNKNOWN_KEY, f"`{key}` means nothing in a group")
        groups[str(group)] = str(entry.get("description") or "")
        given = entry.get("skills") or {}
        if not isinstance(given, dict):
            notes.add("bank.yaml", at[0] if at else 0, Kind.FIELD, f"`skills` of group {group} is not a mapping")
            continue
        for name, fields in given.items():
            rows = _rows(node, "groups", str(group), "skills", str(name))
            row = rows[0] if rows else 0
            line = (
                row - 1 if isinstance(fields, dict) and row > 1 and f"{name}:" not in text.split("\n")[row - 1] else row
            )
            if not _plain_name(name):
                notes.add("bank.yaml", line, Kind.FIELD, f"{shown(name)} is no folder name; the skill cannot be used")
                continue
            if name in skills:
                taken = f"skill {name} is also in group {skills[name].group}, which is the one that counts"
                notes.add("bank.yaml", line, Kind.LISTED, taken)
                continue
            for key in fields if isinstance(fields, dict) else ():
                if key != "output":
                    notes.add("bank.yaml", line, Kind.UNKNOWN_KEY, f"`{key}` means nothing for a skill")
            output = fields.get("output") if isinstance(fields, dict) else None
            if not isinstance(output, str):
                notes.add("bank.yaml", line, Kind.FIELD, f"skill {name} has no `output`; the original cannot write it")
            else:
                outputs[name] = output
            skills[name] = read_skill(root, str(group), name, line)
    _undeclared(root, groups, skills, notes)
    return RawBank(str(value.get("version", "")), groups, skills, settings, outputs, tuple(notes.found))


def _plain_name(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _undeclared(root: Path, groups: Mapping[str, str], skills: Mapping[str, RawSkill], notes: Notes) -> None:
    for group in groups:
        where = root / group
        for path in sorted(where.iterdir()) if where.is_dir() else []:
            declared = path.name in skills and skills[path.name].group == group
            if path.is_dir() and not declared and any((path / one).exists() for one in ("manifest.yaml", "base.md")):
                notes.note(f"{group}/{path.name}", 0, Kind.UNDECLARED, "a skill that bank.yaml does not declare")
