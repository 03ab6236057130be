"""`base.md` and `patches/*.md`: front matter, sections, prose and policy blocks."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from skill_bank.blocks import BlockProblem, parse_block
from skill_bank.index import ID, NAME, texts_of, unknown_fields
from skill_bank.policy import PolicyError, check_condition, implies
from skill_bank.types import Base, Patch, PatchAction, PatchStatus, PolicyBlock, Problem, Section, Text
from skill_bank.yamltree import Node, YamlProblem, parse_yaml

_OPEN = re.compile(r"<!-- section:([a-z0-9-]+) -->\s*\Z")
_CLOSE = re.compile(r"<!-- /section:([a-z0-9-]+) -->\s*\Z")
_MARKER = re.compile(r"<!--\s*/?\s*section\s*:")
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)\Z")
_COMMAND = re.compile(r"(?:^|\s)!`[^`]+`")
"""A command that an agent's client runs when it loads the skill; no patch may add one."""

SPEC_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Front matter fields of the Agent Skills specification."""
PATCH_FIELDS = (
    "id",
    "target_section",
    "action",
    "description",
    "source",
    "created",
    "scope",
    "depends_on",
    "conflicts_with",
    "supersedes",
    "superseded_by",
    "new_section",
    "metadata",
    "status",
)


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
    unknown_fields(problems, file, head.node, SPEC_FIELDS, "the front matter of a skill")
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
    unknown_fields(problems, file, head.node, PATCH_FIELDS, "a patch")

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
        return tuple(one for one, _ in texts_of(problems, file, fields.get(name), f"`{name}`"))

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
