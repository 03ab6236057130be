"""The bank on disk: `bank.yaml`, and for each skill `base.md`, `manifest.yaml`, `policy_schema.yaml`, `patches/*.md`.

Reading is strict: what cannot be understood is a `Problem` with file, line and fix, never skipped. All problems of a
file that can be seen at once are reported at once. The single formats are `skill_bank.index` and `skill_bank.markdown`.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from skill_bank.index import SkillEntry, parse_manifest
from skill_bank.markdown import parse_base, parse_patch
from skill_bank.schema import Schema, SchemaProblem, parse_schema
from skill_bank.types import Patch, Problem, SkillSource

SCHEMA_FILE = "policy_schema.yaml"


class Reader:
    """Files of a bank, with an overlay: texts that are to be read as if they were written."""

    def __init__(self, root: Path, overlay: Mapping[str, bytes] | None = None) -> None:
        self.root = root
        self.overlay = dict(overlay or {})

    def read(self, path: str) -> bytes | None:
        """Content of a file by its path inside the bank; None where there is none."""
        if path in self.overlay:
            return self.overlay[path]
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def patches(self, folder: str) -> list[str]:
        """Paths of the `.md` files in a folder, sorted."""
        where = self.root / folder
        found = {f"{folder}/{one.name}" for one in where.glob("*.md")} if where.is_dir() else set()
        found.update(path for path in self.overlay if path.startswith(folder + "/") and path.endswith(".md"))
        return sorted(found)

    def text(self, path: str, problems: list[Problem]) -> str | None:
        """Content as text; what is wrong with it goes to `problems`."""
        data = self.read(path)
        if data is None:
            return None
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
    before = len(problems)
    text = reader.text(f"{folder}/manifest.yaml", problems)
    if text is None:
        if len(problems) == before:
            problems.append(
                Problem(
                    f"{folder}/manifest.yaml",
                    0,
                    "the skill has no manifest",
                    "Write one: `base: base.md`, `active: []`",
                )
            )
        manifest = None
    else:
        manifest, found = parse_manifest(text, f"{folder}/manifest.yaml")
        problems.extend(found)
    base_file = f"{folder}/{manifest.base if manifest is not None else 'base.md'}"
    before = len(problems)
    text = reader.text(base_file, problems)
    base = None
    if text is not None:
        base, more = parse_base(text, base_file, entry.name)
        problems.extend(more)
    elif len(problems) == before:
        problems.append(Problem(base_file, 0, "the base of the skill is missing", "Restore it or drop the skill"))
    patches: dict[str, Patch] = {}
    broken: list[str] = []
    for path in reader.patches(f"{folder}/patches"):
        text = reader.text(path, problems)
        patch, more = parse_patch(text, path, entry.name) if text is not None else (None, ())
        problems.extend(more)
        if patch is not None:
            patches[patch.id] = patch
        else:
            broken.append(PurePosixPath(path).stem)
    before = len(problems)
    schema = _read_schema(reader, f"{folder}/{SCHEMA_FILE}", problems)
    if len(problems) > before:
        broken.append(SCHEMA_FILE)
    if base is None or manifest is None:
        return None
    return SkillSource(entry.group, entry.name, base, manifest, patches, schema, frozenset(broken))


def _read_schema(reader: Reader, path: str, problems: list[Problem]) -> Schema | None:
    text = reader.text(path, problems)
    if text is None:
        return None
    try:
        return parse_schema(text, path)
    except SchemaProblem as problem:
        problems.append(Problem(path, problem.line, problem.message, "Correct the schema"))
        return None
