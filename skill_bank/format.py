"""The bank on disk: `bank.yaml`, and for each skill `base.md`, `manifest.yaml`, `policy_schema.yaml`, `patches/*.md`.

Reading is strict: what cannot be understood is a `Problem` with file, line and fix, never skipped. All problems of a
file that can be seen at once are reported at once.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from skill_bank.blocks import BlockProblem, parse_block
from skill_bank.policy import PolicyError, check_condition, implies
from skill_bank.schema import Schema, SchemaProblem, parse_schema
from skill_bank.types import (
    Base,
    Manifest,
    Patch,
    PatchAction,
    PatchStatus,
    PolicyBlock,
    Problem,
    Profile,
    Section,
    SkillSource,
    Text,
)
from skill_bank.yamltree import Node, YamlProblem, parse_yaml

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
"""Names of groups, skills and sections (the Agent Skills specification's rule for a skill)."""
ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
"""Ids of patches and names of profiles."""

_OPEN = re.compile(r"<!-- section:([a-z0-9-]+) -->\s*\Z")
_CLOSE = re.compile(r"<!-- /section:([a-z0-9-]+) -->\s*\Z")
_MARKER = re.compile(r"<!--\s*/?\s*section\s*:")
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)\Z")
_COMMAND = re.compile(r"(?:^|\s)!`[^`]+`")
"""A command that an agent's client runs when it loads the skill; no patch may add one."""

SPEC_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Front matter fields of the Agent Skills specification."""
PATCH_FIELDS = (
    "id target_section action description source created depends_on conflicts_with status superseded_by "
    "supersedes new_section scope metadata"
).split()


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


@dataclass(frozen=True)
class SkillEntry:
    """A skill as `bank.yaml` declares it."""

    group: str
    name: str
    line: int
    output: str | None = None
    children: tuple[str, ...] = ()
    """Skills that this one orchestrates: their segments lie inside its segment."""
    protected: tuple[str, ...] = ()
    """Sections that no patch may touch."""


@dataclass(frozen=True)
class BankIndex:
    """`bank.yaml`."""

    version: str
    groups: Mapping[str, str]
    """Group → description."""
    skills: Mapping[str, SkillEntry]
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    """`settings.limits`: skill_lines, patch_lines."""


def _no_default(problems: list[Problem], file: str, node: Node, known: tuple[str, ...] | list[str], what: str) -> None:
    assert isinstance(node.value, dict)
    for key, child in node.value.items():
        if key not in known:
            problems.append(
                Problem(file, child.key_line, f"{what} knows no field '{key}'", f"Known are {', '.join(known)}")
            )


def _mapping(problems: list[Problem], file: str, node: Node | None, what: str) -> dict[str, Node]:
    if node is None or node.value is None:
        return {}
    if not isinstance(node.value, dict):
        problems.append(Problem(file, node.line, f"{what} is not a mapping", "Write `key: value` lines"))
        return {}
    return node.value


def _texts(problems: list[Problem], file: str, node: Node | None, what: str) -> list[tuple[str, int]]:
    if node is None or node.value is None:
        return []
    items = node.value if isinstance(node.value, list) else [node]
    found: list[tuple[str, int]] = []
    for one in items:
        if not isinstance(one.value, str):
            problems.append(Problem(file, one.line, f"{what} holds {one.plain!r}, not text", "Put it in quotes"))
        elif one.value:
            found.append((one.value, one.line))
    return found


def parse_index(text: str, file: str = "bank.yaml") -> tuple[BankIndex, list[Problem]]:
    """`bank.yaml` and what is wrong with it."""
    problems: list[Problem] = []
    try:
        root = parse_yaml(text)
    except YamlProblem as problem:
        return BankIndex("", {}, {}), [Problem(file, problem.line, problem.message, "Correct the YAML")]
    top = _mapping(problems, file, root, "bank.yaml")
    version = str(top["version"].plain) if "version" in top else ""
    groups: dict[str, str] = {}
    skills: dict[str, SkillEntry] = {}
    for group, node in _mapping(problems, file, top.get("groups"), "groups").items():
        if NAME.match(group) is None:
            problems.append(Problem(file, node.key_line, f"'{group}' is not a group name", "Use a-z, 0-9 and hyphens"))
            continue
        fields = _mapping(problems, file, node, f"group {group}")
        groups[group] = str(fields["description"].plain) if "description" in fields else ""
        for name, entry in _mapping(problems, file, fields.get("skills"), f"skills of {group}").items():
            if NAME.match(name) is None or len(name) > 64:
                problems.append(
                    Problem(file, entry.key_line, f"'{name}' is not a skill name", "Use a-z, 0-9 and single hyphens")
                )
                continue
            if name in skills:
                problems.append(
                    Problem(file, entry.key_line, f"skill {name} is also in group {skills[name].group}", "Keep one")
                )
                continue
            given = _mapping(problems, file, entry, f"skill {name}")
            children = _texts(problems, file, given.get("children"), f"children of {name}")
            protected = _texts(problems, file, given.get("protected"), f"protected sections of {name}")
            output = str(given["output"].plain) if "output" in given else None
            skills[name] = SkillEntry(
                group,
                name,
                entry.key_line,
                output,
                tuple(one for one, _ in children),
                tuple(one for one, _ in protected),
            )
    settings = top["settings"].plain if "settings" in top and isinstance(top["settings"].value, dict) else {}
    limits: dict[str, int] = {}
    for key, value in (settings.get("limits") or {}).items():
        if type(value) is not int or value < 1:
            problems.append(
                Problem(file, top["settings"].line, f"settings.limits.{key} is {value!r}", "Write a positive integer")
            )
        else:
            limits[key] = value
    for entry in skills.values():
        for child in entry.children:
            if child not in skills:
                problems.append(
                    Problem(file, entry.line, f"skill {entry.name} declares the child '{child}', which is not here",
                            "Add the child to a group or drop it")
                )  # fmt: skip
    return BankIndex(version, groups, skills, settings, limits), problems


def parse_manifest(text: str, file: str) -> tuple[Manifest, list[Problem]]:
    """`manifest.yaml` and what is wrong with it."""
    problems: list[Problem] = []
    empty = Manifest(file, "base.md", (), (), {})
    try:
        root = parse_yaml(text)
    except YamlProblem as problem:
        return empty, [Problem(file, problem.line, problem.message, "Correct the YAML")]
    top = _mapping(problems, file, root, "the manifest")
    if top:
        _no_default(problems, file, root, ("base", "active", "disabled", "profiles"), "a manifest")
    base = top["base"].plain if "base" in top else "base.md"
    if not isinstance(base, str) or PurePosixPath(base).name != base or not base.endswith(".md"):
        problems.append(Problem(file, top["base"].line, f"base is {base!r}", "Name a .md file of this folder"))
        base = "base.md"
    lines: dict[str, int] = {}

    def ids(node: Node | None, what: str) -> tuple[str, ...]:
        found: list[str] = []
        for one, line in _texts(problems, file, node, what):
            if one in found:
                problems.append(Problem(file, line, f"{what} lists '{one}' twice", "Keep one"))
            else:
                found.append(one)
                lines[f"{what}.{one}"] = line
        return tuple(found)

    profiles: dict[str, Profile] = {}
    for name, node in _mapping(problems, file, top.get("profiles"), "profiles").items():
        if ID.match(name) is None:
            problems.append(Problem(file, node.key_line, f"'{name}' is not a profile name", "Use a-z, 0-9, - and _"))
            continue
        fields = _mapping(problems, file, node, f"profile {name}")
        if fields:
            _no_default(problems, file, node, ("description", "active", "disabled"), f"profile {name}")
        profiles[name] = Profile(
            name,
            str(fields["description"].plain) if "description" in fields else "",
            ids(fields.get("active"), f"profiles.{name}.active"),
            ids(fields.get("disabled"), f"profiles.{name}.disabled"),
            node.key_line,
        )
    found = Manifest(
        file, base, ids(top.get("active"), "active"), ids(top.get("disabled"), "disabled"), profiles, lines
    )
    return found, problems


@dataclass(frozen=True)
class _FrontMatter:
    raw: str
    node: Node
    body: str
    body_line: int


def _front_matter(text: str, file: str, problems: list[Problem]) -> _FrontMatter | None:
    lines = text.split("\n")
    if lines[0] != "---":
        problems.append(Problem(file, 1, "no front matter", "Start the file with a line `---`"))
        return None
    try:
        end = lines.index("---", 1)
    except ValueError:
        problems.append(Problem(file, 1, "the front matter never ends", "Close it with a line `---`"))
        return None
    raw = "\n".join(lines[1:end])
    try:
        node = parse_yaml(raw, 2)
    except YamlProblem as problem:
        problems.append(
            Problem(
                file, problem.line, f"front matter: {problem.message}", "Correct the YAML; quote text that holds `: `"
            )
        )
        return None
    if not isinstance(node.value, dict):
        problems.append(Problem(file, 2, "the front matter is not a mapping", "Write `key: value` lines"))
        return None
    return _FrontMatter(raw, node, "\n".join(lines[end + 1 :]), end + 2)


def _read_text(
    lines: list[str], first: int, problems: list[Problem], *, skill: str, section: str | None, patch: str, file: str
) -> Text:
    """Prose and policy blocks of consecutive lines; `section` None: outside of every section."""
    prose: list[tuple[str, int]] = []
    blocks: list[PolicyBlock] = []
    fence: str | None = None
    block: list[str] | None = None
    opened = 0
    for number, line in enumerate(lines, start=first):
        found = _FENCE.match(line)
        if fence is None and found is not None:
            fence, opened = found[2], number
            if found[3].split() == ["yaml", "policy"]:
                block = []
                continue
        elif fence is not None and found is not None and not found[3].strip() and found[2].startswith(fence):
            fence = None
            if block is not None:
                if section is None:
                    problems.append(
                        Problem(file, opened, "a policy block outside of every section", "Move it into a section")
                    )
                else:
                    try:
                        parsed = parse_block(
                            "\n".join(block), opened + 1, skill=skill, section=section, patch=patch, file=file
                        )
                        blocks.append(PolicyBlock(parsed, opened))
                    except BlockProblem as problem:
                        problems.append(Problem(file, problem.line, problem.message, problem.fix))
                block = None
                continue
        if block is not None:
            block.append(line)
        else:
            prose.append((line, number))
    if fence is not None:
        problems.append(Problem(file, opened, "a code fence that never ends", f"Close it with a line {fence}"))
    kept: list[tuple[str, int]] = []
    previous = first - 1
    for line, number in prose:
        # A block that is taken out leaves the blank lines before and after it behind: one of them is enough.
        if number != previous + 1 and not line.strip() and (not kept or not kept[-1][0].strip()):
            continue
        kept.append((line, number))
        previous = number
    while kept and not kept[0][0].strip():
        kept.pop(0)
    while kept and not kept[-1][0].strip():
        kept.pop()
    return Text("\n".join(line for line, _ in kept), tuple(blocks), first, tuple(number for _, number in kept))


@lru_cache(maxsize=8192)
def parse_base(text: str, file: str, skill: str) -> tuple[Base | None, tuple[Problem, ...]]:
    """`base.md` and what is wrong with it."""
    problems: list[Problem] = []
    head = _front_matter(text, file, problems)
    if head is None:
        return None, tuple(problems)
    _check_spec(head, file, skill, problems)
    parts: list[Section | Text] = []
    names: dict[str, int] = {}
    pending: list[str] = []
    start = head.body_line
    current: tuple[str, int] | None = None

    def close(section: str | None, behind: int) -> Text:
        nonlocal start, pending
        found = _read_text(pending, start, problems, skill=skill, section=section, patch="base", file=file)
        pending, start = [], behind + 1
        return found

    for number, line in enumerate(head.body.split("\n"), start=head.body_line):
        opening, closing = _OPEN.match(line), _CLOSE.match(line)
        if opening is not None:
            if current is not None:
                problems.append(
                    Problem(file, number, f"section '{opening[1]}' opens inside section '{current[0]}'",
                            f"Close it first: <!-- /section:{current[0]} -->")
                )  # fmt: skip
                continue
            if opening[1] in names:
                problems.append(
                    Problem(file, number, f"section '{opening[1]}' occurs twice (first in line {names[opening[1]]})",
                            "Give each section its own name")
                )  # fmt: skip
            names.setdefault(opening[1], number)
            parts.append(close(None, number))
            current = (opening[1], number)
        elif closing is not None:
            if current is None or closing[1] != current[0]:
                problems.append(
                    Problem(file, number, f"section '{closing[1]}' is closed and not open here", "Correct the markers")
                )
                continue
            parts.append(Section(current[0], close(current[0], number), current[1]))
            current = None
        else:
            if _MARKER.search(line) is not None:
                problems.append(
                    Problem(file, number, "a section marker that cannot be read",
                            "Write <!-- section:name --> alone on its line, name of a-z, 0-9 and hyphens")
                )  # fmt: skip
            pending.append(line)
    if current is not None:
        problems.append(
            Problem(file, current[1], f"section '{current[0]}' never ends", f"Add <!-- /section:{current[0]} -->")
        )
    parts.append(close(None if current is None else current[0], 0))
    return Base(file, head.raw, head.node.plain, tuple(parts)), tuple(problems)


def _check_spec(head: _FrontMatter, file: str, skill: str, problems: list[Problem]) -> None:
    """Front matter of a skill by the Agent Skills specification (https://agentskills.io/specification).

    Its reference validator reads StrictYAML, which has no flow style, and ends the front matter at the first `---`.
    """
    assert isinstance(head.node.value, dict)
    _no_default(problems, file, head.node, SPEC_FIELDS, "the front matter of a skill")
    if "---" in head.raw:
        problems.append(Problem(file, 2, "`---` inside the front matter", "Use another dash"))
    for key, node in head.node.value.items():
        children = list(node.value.values()) if isinstance(node.value, dict) else [node]
        for one in (node, *children):
            if one.flow:
                problems.append(
                    Problem(file, one.line, f"'{key}' is written in braces or brackets", "Write one item a line")
                )
            elif key != "metadata" and not isinstance(one.value, str):
                problems.append(Problem(file, one.line, f"'{key}' is not text", "Put it in quotes"))
    fields = head.node.plain
    name, description = fields.get("name"), fields.get("description")
    if name != skill:
        problems.append(Problem(file, 2, f"the name is {name!r} in the folder of {skill}", f"Write `name: {skill}`"))
    if not isinstance(description, str) or not description.strip():
        problems.append(Problem(file, 2, "no description", "Say what the skill does and when to use it"))
    elif len(description) > 1024:
        problems.append(
            Problem(file, 2, f"the description has {len(description)} characters", "Use at most 1024 (specification)")
        )
    compatibility = fields.get("compatibility", "")
    if isinstance(compatibility, str) and len(compatibility) > 500:
        problems.append(Problem(file, 2, "compatibility has more than 500 characters", "Shorten it (specification)"))


@lru_cache(maxsize=65536)
def parse_patch(text: str, file: str, skill: str) -> tuple[Patch | None, tuple[Problem, ...]]:
    """One patch file and what is wrong with it."""
    problems: list[Problem] = []
    head = _front_matter(text, file, problems)
    if head is None:
        return None, tuple(problems)
    assert isinstance(head.node.value, dict)
    fields = head.node.value
    _no_default(problems, file, head.node, PATCH_FIELDS, "a patch")

    def text_of(name: str, required: bool = False) -> str:
        node = fields.get(name)
        if node is None or node.value is None or node.value == "":
            if required:
                problems.append(Problem(file, 1, f"the patch has no `{name}`", f"Add `{name}: …` to the front matter"))
            return ""
        if not isinstance(node.value, str):
            problems.append(Problem(file, node.line, f"`{name}` is not text", "Put it in quotes"))
            return ""
        return node.value

    def ids(name: str) -> tuple[str, ...]:
        return tuple(one for one, _ in _texts(problems, file, fields.get(name), f"`{name}`"))

    def choice(name: str, allowed: type[PatchAction] | type[PatchStatus]) -> str:
        given = text_of(name, required=True)
        if given and given not in list(allowed):
            problems.append(
                Problem(file, fields[name].line, f"`{name}` is '{given}'", f"Allowed are {', '.join(allowed)}")
            )
            return ""
        return given

    id_ = text_of("id", required=True)
    stem = PurePosixPath(file).stem
    if id_ and ID.match(id_) is None:
        problems.append(Problem(file, fields["id"].line, f"'{id_}' is not an id", "Use a-z, 0-9, - and _, at most 64"))
    elif id_ and id_ != stem:
        problems.append(
            Problem(file, fields["id"].line, f"the id '{id_}' is not the file's name", f"Write `id: {stem}`")
        )
    target = text_of("target_section", required=True)
    action, status = choice("action", PatchAction), choice("status", PatchStatus)
    scope = _scope(fields.get("scope"), file, problems)
    new_section = text_of("new_section") or None
    if new_section is not None:
        if action and action != PatchAction.INSERT_AFTER:
            problems.append(
                Problem(file, fields["new_section"].line, "`new_section` belongs to insert_after only", "Drop it")
            )
        if NAME.match(new_section) is None:
            problems.append(
                Problem(file, fields["new_section"].line, f"'{new_section}' is not a section name", "Use a-z, 0-9, -")
            )
    lines = head.body.split("\n")
    for number, line in enumerate(lines, start=head.body_line):
        if _MARKER.search(line) is not None:
            problems.append(
                Problem(file, number, "a section marker inside the body of a patch",
                        "Take it out; a new section is named by `new_section` of an insert_after patch")
            )  # fmt: skip
        if _COMMAND.search(line) is not None:
            problems.append(
                Problem(file, number, "a patch adds a command (!`…`) that runs when the skill loads", "Take it out")
            )
    body = _read_text(
        lines, head.body_line, problems, skill=skill, section=new_section or target, patch=id_ or stem, file=file
    )
    if not body.prose and not body.blocks and action != PatchAction.REPLACE:
        problems.append(Problem(file, head.body_line, "the patch has no body", "Write what it adds"))
    if body.blocks and scope is None:
        problems.append(
            Problem(file, 1, "the patch sets policy and states no scope",
                    "Add `scope: {params: \"<10M\"}` (a condition), or `scope: all`")
        )  # fmt: skip
    for block in body.blocks:
        for one in block.assignments:
            if scope and not _inside(one.when, scope):
                problems.append(
                    Problem(file, one.origin.line, f"{one.key} is set outside of the patch's scope",
                            f"Put the scope into its rule: - {{when: {_flow(scope)}, …}}")
                )  # fmt: skip
    if problems:
        return None, tuple(problems)
    return (
        Patch(
            file=file,
            skill=skill,
            id=id_,
            target_section=target,
            action=PatchAction(action),
            status=PatchStatus(status),
            text=body,
            description=text_of("description"),
            source=text_of("source"),
            created=text_of("created"),
            depends_on=ids("depends_on"),
            conflicts_with=ids("conflicts_with"),
            supersedes=ids("supersedes"),
            superseded_by=text_of("superseded_by"),
            new_section=new_section,
            scope=scope,
            lines={name: node.key_line for name, node in fields.items()},
        ),
        tuple(problems),
    )


def _inside(when: Mapping[str, Any] | None, scope: Mapping[str, Any]) -> bool:
    return implies(when, scope)


def _flow(scope: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in scope.items()) + "}"


def _scope(node: Node | None, file: str, problems: list[Problem]) -> Mapping[str, Any] | None:
    if node is None or node.value is None:
        return None
    if node.value == "all":
        return {}
    plain = node.plain
    try:
        check_condition(plain)
    except PolicyError as problem:
        problems.append(
            Problem(file, node.line, f"scope: {problem}", 'Write a condition like {params: "<10M"}, or all')
        )
        return None
    return dict(plain)


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
    for path in reader.patches(f"{folder}/patches"):
        text = reader.text(path, problems)
        if text is None:
            continue
        patch, more = parse_patch(text, path, entry.name)
        problems.extend(more)
        if patch is not None:
            patches[patch.id] = patch
    schema = _read_schema(reader, f"{folder}/policy_schema.yaml", problems)
    if base is None or manifest is None:
        return None
    return SkillSource(entry.group, entry.name, base, manifest, patches, schema)


def _read_schema(reader: Reader, path: str, problems: list[Problem]) -> Schema | None:
    text = reader.text(path, problems)
    if text is None:
        return None
    try:
        return parse_schema(text, path)
    except SchemaProblem as problem:
        problems.append(Problem(path, problem.line, problem.message, "Correct the schema"))
        return None
