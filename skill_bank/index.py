"""`bank.yaml` and `manifest.yaml`: which skills there are, and which of their patches are in force."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from skill_bank.types import Manifest, Problem, Profile
from skill_bank.yamltree import Node, YamlProblem, parse_yaml

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
"""Names of groups, skills and sections (the Agent Skills specification's rule for a skill)."""
ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
"""Ids of patches and names of profiles."""


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
            children = texts_of(problems, file, given.get("children"), f"children of {name}")
            protected = texts_of(problems, file, given.get("protected"), f"protected sections of {name}")
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
    for parent in skills.values():
        for child in parent.children:
            if child not in skills:
                problems.append(
                    Problem(file, parent.line, f"skill {parent.name} declares the child '{child}', which is not here",
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
        unknown_fields(problems, file, root, ("base", "active", "disabled", "profiles"), "a manifest")
    base = top["base"].plain if "base" in top else "base.md"
    if not isinstance(base, str) or PurePosixPath(base).name != base or not base.endswith(".md"):
        problems.append(Problem(file, top["base"].line, f"base is {base!r}", "Name a .md file of this folder"))
        base = "base.md"
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
            unknown_fields(problems, file, node, ("description", "active", "disabled"), f"profile {name}")
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
