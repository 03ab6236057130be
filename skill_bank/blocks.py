"""Policy blocks: fenced `yaml policy` blocks inside a section, parsed into assignments.

A key holds a plain value, a mapping, or a list of *rules*: mappings with an optional `when`. Mappings may nest, and
a list of rules may stand at any depth. A rule `{when: …, value: x}` sets a plain key under a condition.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from skill_bank.policy import Assignment, Origin, PolicyError, check_condition
from skill_bank.yamlparts import parse_parts
from skill_bank.yamltree import Node

_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


class BlockProblem(ValueError):
    """A mistake in a policy block."""

    def __init__(self, line: int, message: str, fix: str) -> None:
        self.line = line
        self.message = message
        self.fix = fix
        super().__init__(f"line {line}: {message}. {fix}")


def parse_block(
    text: str, first_line: int, *, skill: str, section: str, patch: str, file: str
) -> tuple[tuple[Assignment, ...], tuple[BlockProblem, ...]]:
    """The assignments of one block in the order written, those that can be read, and everything that is wrong."""
    parts = parse_parts(text, first_line)
    wrong = [BlockProblem(one.line, f"the policy block is {one.message}", "Correct the YAML") for one in parts.problems]
    root = parts.root
    if not isinstance(root.value, dict) or not root.value:
        if not wrong:
            wrong.append(
                BlockProblem(first_line, "the policy block is not a mapping of keys", "Write `key: value` lines")
            )
        return (), tuple(wrong)
    found: list[Assignment] = []

    def add_children(parent: str, children: Mapping[str, Node], when: Mapping[str, Any] | None) -> None:
        for name, child in children.items():
            try:
                add(_join(parent, name, child), child, when)
            except BlockProblem as problem:
                wrong.append(problem)

    def add(key: str, node: Node, when: Mapping[str, Any] | None) -> None:
        if isinstance(node.value, dict):
            if not node.value:
                raise BlockProblem(node.line, f"policy key '{key}' is an empty mapping", "Give it values or drop it")
            add_children(key, node.value, when)
        elif isinstance(node.value, list) and node.value and all(isinstance(one.value, dict) for one in node.value):
            if when is not None:
                raise BlockProblem(
                    node.line, f"policy key '{key}' has rules inside a rule", "Join the conditions in one `when`"
                )
            for rule in node.value:
                try:
                    add_rule(key, rule)
                except BlockProblem as problem:
                    wrong.append(problem)
        else:
            found.append(
                Assignment(
                    key, _plain(key, node), when, Origin(skill, section, patch, file, node.key_line or node.line)
                )
            )

    def add_rule(key: str, rule: Node) -> None:
        assert isinstance(rule.value, dict)
        when: Mapping[str, Any] | None = None
        values = dict(rule.value)
        if "when" in values:
            condition = values.pop("when")
            when = condition.plain
            try:
                check_condition(when)
            except PolicyError as problem:
                raise BlockProblem(condition.line, f"policy key '{key}': {problem}", "Correct the condition") from None
        if not values:
            raise BlockProblem(rule.line, f"a rule of policy key '{key}' sets nothing", "Add a value beside `when`")
        if set(values) == {"value"}:
            add(key, values["value"], when)
            return
        add_children(key, values, when)

    add_children("", root.value, None)
    return tuple(found), tuple(wrong)


def _join(parent: str, name: str, node: Node) -> str:
    line = node.key_line or node.line
    if name == "when":
        raise BlockProblem(
            line,
            f"`when` stands in a mapping of '{parent or 'the block'}', not in a rule",
            "Write a list: `- {when: …}`",
        )
    if _WORD.match(name) is None:
        raise BlockProblem(line, f"'{name}' is not a policy key", "Use lower-case letters, digits and _ after a letter")
    return f"{parent}.{name}" if parent else name


def _plain(key: str, node: Node) -> Any:
    values = node.value if isinstance(node.value, list) else [node]
    for one in values:
        if isinstance(one.value, (dict, list)):
            raise BlockProblem(
                one.line, f"policy key '{key}' mixes rules, lists and values", "A plain list holds plain values only"
            )
        if isinstance(one.value, float) and not math.isfinite(one.value):
            raise BlockProblem(
                one.line, f"policy key '{key}' is not a finite number", "Write a number that fits a float"
            )
    return node.plain
