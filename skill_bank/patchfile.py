"""`patches/*.md`: one patch, its front matter and its body."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from skill_bank.executable import holds_command
from skill_bank.index import ID, NAME, texts_of, unknown_fields
from skill_bank.markdown import MARKER, front_matter, read_text
from skill_bank.policy import PolicyError, check_condition, implies
from skill_bank.types import Patch, PatchAction, PatchStatus, Problem
from skill_bank.yamltree import Node

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


_VALUES = {kind: frozenset(one.value for one in kind) for kind in (PatchAction, PatchStatus)}


def parse_patch(text: str, file: str, skill: str) -> tuple[Patch | None, tuple[Problem, ...]]:
    """One patch file and what is wrong with it; None where anything is."""
    patch, problems = read_patch(text, file, skill)
    return None if problems else patch, problems


@lru_cache(maxsize=65536)
def read_patch(text: str, file: str, skill: str) -> tuple[Patch | None, tuple[Problem, ...]]:
    """What can be read of one patch file, and what is wrong with it; None where nobody can say what it changes.

    A patch with problems is for finding more of them, not for use.
    """
    problems: list[Problem] = []
    head = front_matter(text, file, problems)
    if head is None:
        return None, tuple(problems)
    assert isinstance(head.node.value, dict)
    fields = head.node.value
    readable = head.readable
    unknown_fields(problems, file, head.node, PATCH_FIELDS, "a patch")

    def text_of(name: str, required: bool = False) -> str:
        node = fields.get(name)
        if node is None or node.value is None or node.value == "":
            if required and readable:
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
        if given and given not in _VALUES[allowed]:
            problems.append(
                Problem(file, fields[name].line, f"`{name}` is '{given}'", f"Allowed are {', '.join(allowed)}")
            )
            return ""
        return given

    id_ = text_of("id", required=True)
    stem = file.rpartition("/")[2].removesuffix(".md")
    if id_ and ID.match(id_) is None:
        problems.append(Problem(file, fields["id"].line, f"'{id_}' is not an id", "Use a-z, 0-9, - and _, at most 64"))
    elif id_ and id_ != stem:
        problems.append(
            Problem(file, fields["id"].line, f"the id '{id_}' is not the file's name", f"Write `id: {stem}`")
        )
    target = text_of("target_section", required=True)
    action, status = choice("action", PatchAction), choice("status", PatchStatus)
    stated = fields.get("scope")
    scope = _scope(stated, file, problems)
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
    suspicious = lines if "<!--" in head.body or "!" in head.body else ()
    for number, line in enumerate(suspicious, start=head.body_line):
        if "<!--" in line and MARKER.search(line) is not None:
            problems.append(
                Problem(file, number, "a section marker inside the body of a patch",
                        "Take it out; a new section is named by `new_section` of an insert_after patch")
            )  # fmt: skip
        if holds_command(line):
            problems.append(
                Problem(file, number, "a patch adds a command (!`…`) that runs when the skill loads", "Take it out")
            )
    body = read_text(
        lines, head.body_line, problems, skill=skill, section=new_section or target, patch=id_ or stem, file=file
    )
    if not body.prose and not body.blocks and action != PatchAction.REPLACE:
        problems.append(Problem(file, head.body_line, "the patch has no body", "Write what it adds"))
    if body.blocks and readable and (stated is None or stated.value is None):
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
    if not target or not action:
        return None, tuple(problems)
    return (
        Patch(
            file=file,
            skill=skill,
            id=stem,
            target_section=target,
            action=PatchAction(action),
            status=PatchStatus(status or PatchStatus.ACTIVE),
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
