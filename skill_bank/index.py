"""`bank.yaml` and `manifest.yaml`: which skills there are, and which of their patches are in force."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from skill_bank.types import Manifest, Problem, Profile
from skill_bank.yamlparts import parse_parts
from skill_bank.yamltree import Node

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
"""Names of groups, skills and sections (the Agent Skills specification's rule for a skill)."""
ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
"""Ids of patches and names of profiles."""


LIMITS = ("skill_lines", "skill_tokens", "patch_lines", "patch_tokens")
"""Lines and tokens of a compiled SKILL.md, and those that one patch changes."""
DEFAULT_WARN = {"skill_lines": 500, "skill_tokens": 5000}
"""What the Agent Skills specification recommends (https://agentskills.io/specification, progressive disclosure)."""
CHECKS = {"contradictions": "warn", "policy_numbers": "error"}
"""Checks of numbers in prose and what they do by default (`skill_bank.prose`)."""
SETTINGS = ("compiled_dir", "output_base", "layout", "limits", "warn", "checks")
_SEVERITIES = ("error", "warn", "off")


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
    steps: tuple[str, ...] = ()
    """Tools that working by the skill means to call: what a reader of the record may expect to find."""


@dataclass(frozen=True)
class BankIndex:
    """`bank.yaml`."""

    version: str
    groups: Mapping[str, str]
    """Group → description."""
    skills: Mapping[str, SkillEntry]
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    """`settings.limits`: what is refused beyond, by the names in `LIMITS`."""
    warn: Mapping[str, int] = field(default_factory=dict)
    """`settings.warn`: what is warned about beyond, by the same names."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """`settings.checks`: error, warn or off for each name in `CHECKS`."""
    whole: bool = True
    """False: not all of it can be read, so there may be more."""
    unread: frozenset[str] | None = frozenset()
    """Groups whose skills cannot be read; None: which groups there are cannot be read either."""

    @property
    def verbatim(self) -> bool:
        """`settings.layout: verbatim` (imported banks): blank lines of the base are kept as they stand."""
        return bool(self.settings.get("layout") == "verbatim")


def unknown_fields(problems: list[Problem], file: str, node: Node, known: tuple[str, ...], what: str) -> None:
    """Reports the keys of a mapping that are not among `known`: a misspelt field must not be ignored."""
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


def texts_of(problems: list[Problem], file: str, node: Node | None, what: str) -> list[tuple[str, int]]:
    """The texts of a list (or of one text) with their lines; what is no text is reported."""
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
    parts = parse_parts(text)
    problems = [Problem(file, one.line, one.message, "Correct the YAML") for one in parts.problems]
    root = parts.root
    top = _mapping(problems, file, root, "bank.yaml")
    if top:
        unknown_fields(problems, file, root, ("version", "groups", "settings"), "bank.yaml")
    version = str(top["version"].plain) if "version" in top else ""
    groups: dict[str, str] = {}
    skills: dict[str, SkillEntry] = {}
    for group, node in _mapping(problems, file, top.get("groups"), "groups").items():
        if NAME.match(group) is None:
            problems.append(Problem(file, node.key_line, f"'{group}' is not a group name", "Use a-z, 0-9 and hyphens"))
            continue
        fields = _mapping(problems, file, node, f"group {group}")
        if fields:
            unknown_fields(problems, file, node, ("description", "skills"), f"group {group}")
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
            if given:
                known = ("output", "description", "children", "protected", "steps")
                unknown_fields(problems, file, entry, known, f"skill {name}")
            children = texts_of(problems, file, given.get("children"), f"children of {name}")
            protected = texts_of(problems, file, given.get("protected"), f"protected sections of {name}")
            steps = texts_of(problems, file, given.get("steps"), f"steps of {name}")
            output = str(given["output"].plain) if "output" in given else None
            skills[name] = SkillEntry(
                group,
                name,
                entry.key_line,
                output,
                tuple(one for one, _ in children),
                tuple(one for one, _ in protected),
                tuple(one for one, _ in steps),
            )
    lost = [path for path in sorted(parts.lost) if path[0] == "groups"]
    for group, name in ((path[1], path[3]) for path in lost if len(path) == 4 and path[2] == "skills"):
        if NAME.match(group) and NAME.match(name):
            skills.setdefault(name, SkillEntry(group, name, 0))  # what lies in its folder is checked all the same
    settings = _mapping(problems, file, top.get("settings"), "settings")
    if settings:
        unknown_fields(problems, file, top["settings"], SETTINGS, "settings")
    limits = _numbers(problems, file, settings.get("limits"), "settings.limits")
    warn = {**DEFAULT_WARN, **_numbers(problems, file, settings.get("warn"), "settings.warn")}
    checks = dict(CHECKS)
    for key, node in _mapping(problems, file, settings.get("checks"), "settings.checks").items():
        if key not in CHECKS or node.value not in _SEVERITIES:
            problems.append(
                Problem(file, node.key_line, f"settings.checks.{key} is {node.plain!r}",
                        f"Known are {', '.join(CHECKS)}, each {', '.join(_SEVERITIES)}")
            )  # fmt: skip
        else:
            checks[key] = str(node.value)
    if "layout" in settings and settings["layout"].value not in ("plain", "verbatim"):
        layout = f"settings.layout is {settings['layout'].plain!r}"
        problems.append(Problem(file, settings["layout"].line, layout, "Allowed are plain, verbatim"))
    for parent in skills.values():
        for child in parent.children:
            if child not in skills and not parts.problems:  # else it may stand where nothing can be read
                problems.append(
                    Problem(file, parent.line, f"skill {parent.name} declares the child '{child}', which is not here",
                            "Add the child to a group or drop it")
                )  # fmt: skip
    plain = {key: node.plain for key, node in settings.items()}
    whole = not parts.problems
    unread = frozenset(path[1] for path in lost if len(path) in (2, 3)) if whole or "groups" in top else None
    return BankIndex(version, groups, skills, plain, limits, warn, checks, whole, unread), problems


def _numbers(problems: list[Problem], file: str, node: Node | None, what: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, one in _mapping(problems, file, node, what).items():
        if key not in LIMITS:
            problems.append(Problem(file, one.key_line, f"there is no {what}.{key}", f"Known are {', '.join(LIMITS)}"))
        elif type(one.value) is not int or one.value < 1:
            problems.append(Problem(file, one.line, f"{what}.{key} is {one.plain!r}", "Write a positive integer"))
        else:
            found[key] = one.value
    return found


def parse_manifest(text: str, file: str) -> tuple[Manifest, list[Problem]]:
    """`manifest.yaml` and what is wrong with it."""
    parts = parse_parts(text)
    problems = [Problem(file, one.line, one.message, "Correct the YAML") for one in parts.problems]
    root = parts.root
    top = _mapping(problems, file, root, "the manifest")
    if top:
        unknown_fields(problems, file, root, ("base", "folded", "active", "disabled", "profiles"), "a manifest")
    base = _base_name(problems, file, top.get("base")) or "base.md"
    lines: dict[str, int] = {}

    def ids(node: Node | None, what: str) -> tuple[str, ...]:
        found: list[str] = []
        for one, line in texts_of(problems, file, node, what):
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
            known = ("description", "base", "folded", "active", "disabled")
            unknown_fields(problems, file, node, known, f"profile {name}")
        profiles[name] = Profile(
            name,
            str(fields["description"].plain) if "description" in fields else "",
            ids(fields.get("active"), f"profiles.{name}.active"),
            ids(fields.get("disabled"), f"profiles.{name}.disabled"),
            node.key_line,
            _base_name(problems, file, fields.get("base")),
            ids(fields.get("folded"), f"profiles.{name}.folded"),
        )
    found = Manifest(
        file,
        base,
        ids(top.get("active"), "active"),
        ids(top.get("disabled"), "disabled"),
        profiles,
        lines,
        ids(top.get("folded"), "folded"),
        not parts.problems,
    )
    return found, problems


def _base_name(problems: list[Problem], file: str, node: Node | None) -> str | None:
    if node is None:
        return None
    name = node.plain
    if not isinstance(name, str) or PurePosixPath(name).name != name or not name.endswith(".md"):
        problems.append(Problem(file, node.line, f"base is {name!r}", "Name a .md file of this folder"))
        return None
    return name
