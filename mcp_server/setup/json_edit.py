"""Editing a JSON text where something changes and nowhere else: spaces, order and numbers of the rest stay as they are.

A text is parsed into nodes that know where they stand (`parse`); each edit gives a new text. An inserted member or item
takes the layout of its neighbours, and taking it out again gives the text of before.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]
"""Keys and indices from the root."""


class JsonTextError(ValueError):
    """A text that is no JSON; the message says where and what was met."""


@dataclass(frozen=True)
class Node:
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Any
    members: dict[str, "Member"] = field(default_factory=dict)
    """Of an object."""
    items: tuple["Node", ...] = ()
    """Of an array."""


@dataclass(frozen=True)
class Member:
    """A key with its value."""

    start: int
    """Where the key begins."""
    node: Node


_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")


_DECODER = json.JSONDecoder()


def parse(text: str) -> Node:
    """The root. Raises JsonTextError for what is no JSON, has comments, a key twice, or is nested too deeply."""
    try:
        node = _value(text, _skip(text, 1 if text.startswith("\ufeff") else 0))
    except RecursionError as error:
        raise JsonTextError("it is nested too deeply") from error
    end = _skip(text, node.end)
    if end != len(text):
        raise _wrong(text, end, "something stands behind the document")
    return node


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _wrong(text: str, at: int, what: str) -> JsonTextError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    if text.startswith(("//", "/*"), at):
        what = "comments are not JSON"
    return JsonTextError(f"line {line}, column {column}: {what}")


def _value(text: str, at: int) -> Node:
    sign = text[at : at + 1]
    if sign == "{":
        return _object(text, at)
    if sign == "[":
        return _array(text, at)
    if sign == '"':
        value, end = _string(text, at)
        return Node(at, end, value)
    found = _PLAIN.match(text, at)
    if found is None:
        raise _wrong(text, at, "a value is missing" if sign else "the text ends too early")
    try:
        return Node(at, found.end(), json.loads(found[0]))
    except ValueError as error:  # a number of thousands of digits
        raise _wrong(text, at, str(error)) from error


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _wrong(text, error.pos, error.msg) from error
    return str(value), end


def _object(text: str, start: int) -> Node:
    members: dict[str, Member] = {}
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if members:
            if text[at : at + 1] != ",":
                raise _wrong(text, at, "a comma or } is missing")
            at = _skip(text, at + 1)
        if text[at : at + 1] != '"':
            raise _wrong(text, at, "a key in quotation marks is missing")
        begin = at
        key, at = _string(text, at)
        if key in members:
            raise _wrong(text, begin, f"the key {key[:40]!r} stands there twice")
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise _wrong(text, at, "a colon is missing")
        node = _value(text, _skip(text, at + 1))
        members[key] = Member(begin, node)
        at = _skip(text, node.end)
    return Node(start, at + 1, {key: member.node.value for key, member in members.items()}, members)


def _array(text: str, start: int) -> Node:
    items: list[Node] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        if items:
            if text[at : at + 1] != ",":
                raise _wrong(text, at, "a comma or ] is missing")
            at = _skip(text, at + 1)
        node = _value(text, at)
        items.append(node)
        at = _skip(text, node.end)
    return Node(start, at + 1, [node.value for node in items], items=tuple(items))


def find(node: Node, path: Path) -> Node | None:
    """The node at `path`, or None."""
    for step in path:
        if isinstance(step, str):
            if step not in node.members:
                return None
            node = node.members[step].node
        else:
            if not 0 <= step < len(node.items):
                return None
            node = node.items[step]
    return node


def set_member(text: str, path: Path, value: Any) -> str:
    """`text` with `value` under the last key of `path`, whose parent is an object that exists."""
    root = parse(text)
    parent = _existing(root, path[:-1])
    key = str(path[-1])
    if key in parent.members:
        old = parent.members[key].node
        return text[: old.start] + _laid_out(text, old.start, value) + text[old.end :]
    label = json.dumps(key, ensure_ascii=False) + ": "
    ends = [member.node.end for member in parent.members.values()]
    starts = [member.start for member in parent.members.values()]
    return _inserted(text, parent, starts, ends, lambda indent: label + _dumped(text, value, indent))


def append_item(text: str, path: Path, value: Any) -> str:
    """`text` with `value` at the end of the array at `path`."""
    parent = _existing(parse(text), path)
    starts, ends = [node.start for node in parent.items], [node.end for node in parent.items]
    return _inserted(text, parent, starts, ends, lambda indent: _dumped(text, value, indent))


def remove(text: str, path: Path) -> str:
    """`text` without the member or item at `path`, which exists."""
    parent = _existing(parse(text), path[:-1])
    step = path[-1]
    if isinstance(step, str):
        spans = [(member.start, member.node.end) for member in parent.members.values()]
        number = list(parent.members).index(step)
    else:
        spans = [(node.start, node.end) for node in parent.items]
        number = step
    if len(spans) == 1:
        return text[: parent.start + 1] + text[parent.end - 1 :]
    if number > 0:
        return text[: spans[number - 1][1]] + text[spans[number][1] :]
    return text[: spans[0][0]] + text[spans[1][0] :]


def _existing(root: Node, path: Path) -> Node:
    found = find(root, path)
    if found is None:
        raise KeyError(path)
    return found


def _inserted(text: str, parent: Node, starts: list[int], ends: list[int], made: Callable[[str], str]) -> str:
    """`text` with one more member or item behind the last one of `parent`."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    outer = _indent_at(text, parent.start)
    if not ends:
        inner = outer + unit_of(text)
        return f"{text[: parent.start + 1]}{line_end}{inner}{made(inner)}{line_end}{outer}{text[parent.end - 1 :]}"
    if "\n" in text[parent.start : starts[0]]:
        inner = _indent_at(text, starts[-1])
        return f"{text[: ends[-1]]},{line_end}{inner}{made(inner)}{text[ends[-1] :]}"
    return f"{text[: ends[-1]]}, {made(outer)}{text[ends[-1] :]}"


def _laid_out(text: str, at: int, value: Any) -> str:
    return _dumped(text, value, _indent_at(text, at))


def _dumped(text: str, value: Any, indent: str) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=unit_of(text)).split("\n")
    return f"{line_end}{indent}".join(lines)


def _indent_at(text: str, at: int) -> str:
    """The white space that the line of `at` begins with."""
    begin = text.rfind("\n", 0, at) + 1
    found = re.compile(r"[ \t]*").match(text, begin)
    return "" if found is None else found[0]


def unit_of(text: str) -> str:
    """What one level is indented by: as the first indented line, else two spaces."""
    found = re.search(r"\n([ \t]+)\S", text)
    return "  " if found is None else found[1]
