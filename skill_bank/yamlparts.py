"""What can be read of a YAML document with mistakes: every part of it that is right by itself.

A document that is not YAML is taken apart at its lines: the entries of its outermost block mapping or list, and those
of an entry that is wrong in turn. What is left is an entry of one line, or one written in braces, brackets or quotes:
of such a one only its first mistake is known, and nothing of it is read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from skill_bank.yamltree import Node, YamlProblem, read_tree

_KEY = re.compile(r"(?P<key>[\w.-]+|'[^']*'|\"[^\"]*\")\s*:(?P<rest>\s.*|)\Z")
_EMPTY = re.compile(r"\s*(?:#.*)?\Z")


@dataclass(frozen=True)
class Parts:
    """What was read of a document."""

    root: Node
    problems: tuple[YamlProblem, ...] = ()
    """In order of lines. Where there are any, what is not in the tree may stand in the document all the same."""
    lost: frozenset[tuple[str, ...]] = frozenset()
    """Keys that stand in the document and whose values cannot be read, each with those it lies below."""


def parse_parts(text: str, first_line: int = 1) -> Parts:
    """The tree of a document, or of its right parts; `first_line` is the line of the file where `text` begins."""
    try:
        root, refused = read_tree(text, first_line)
    except YamlProblem as problem:
        salvage = _Salvage()
        found = salvage.read(text.split("\n"), first_line, ())
        if not salvage.problems:
            salvage.problems.append(problem)
        wrong = sorted(salvage.problems, key=lambda one: one.line)
        return Parts(found or Node({}, first_line), tuple(wrong), frozenset(salvage.lost))
    return Parts(root, tuple(refused))


_MAX_DEPTH = 20
"""Blocks inside each other that are taken apart."""


@dataclass
class _Salvage:
    problems: list[YamlProblem] = field(default_factory=list)
    lost: set[tuple[str, ...]] = field(default_factory=set)

    def read(self, lines: list[str], first: int, path: tuple[str, ...], depth: int = 0) -> Node | None:
        """The tree of consecutive lines, as far as it can be read; None: nothing of it."""
        try:
            root, refused = read_tree("\n".join(lines), first)
        except YamlProblem as problem:
            pieces = list(_pieces(lines))
            if depth < _MAX_DEPTH and (len(pieces) > 1 or (pieces and _is_entry(pieces[0][1][0].lstrip()))):
                return self._join(pieces, first, path, depth + 1)
            self.problems.append(problem)
            return None
        self.problems += refused
        return root

    def _join(self, pieces: list[tuple[int, list[str]]], first: int, path: tuple[str, ...], depth: int) -> Node:
        fields: dict[str, Node] = {}
        items: list[Node] = []
        for start, piece in pieces:
            line = first + start
            bare = piece[0].lstrip()
            if bare.startswith("- "):
                inner = [piece[0].replace("- ", "  ", 1), *piece[1:]]
                if (item := self.read(inner, line, path, depth)) is not None:
                    items.append(item)
                continue
            key = _key_of(bare)
            if key in fields:
                self.problems.append(YamlProblem(line, f"the key '{key}' occurs twice"))
            elif (value := self._value(piece, key, line, path, depth)) is not None:
                fields[key] = value
            elif key:
                self.lost.add((*path, key))
        return Node(items if items and not fields else fields, first)

    def _value(self, piece: list[str], key: str, line: int, path: tuple[str, ...], depth: int) -> Node | None:
        """The value of one entry `key: …`."""
        children = _children(piece)
        try:
            entry, refused = read_tree("\n".join(piece), line)
        except YamlProblem as problem:
            if children is not None:
                inner = self.read(children, line + 1, (*path, key), depth)
                return None if inner is None else Node(inner.value, inner.line, inner.flow, line)
            self.problems.append(problem)
            return None
        self.problems += refused
        if not isinstance(entry.value, dict):
            self.problems.append(YamlProblem(line, "not YAML: a line that is no `key: value`"))
            return None
        return entry.value.get(key)


def _is_entry(bare: str) -> bool:
    return bare.startswith("- ") or _KEY.match(bare) is not None


def _key_of(bare: str) -> str:
    """The key of a line without its indentation; empty where it has none."""
    match = _KEY.match(bare)
    return "" if match is None else match["key"].strip("'\"")


def _children(piece: list[str]) -> list[str] | None:
    """The lines below an entry that is written as a block; None for any other."""
    match = _KEY.match(piece[0].lstrip())
    if match is None or _EMPTY.match(match["rest"]) is None or all(_EMPTY.match(one) for one in piece[1:]):
        return None
    return piece[1:]


def _pieces(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of each entry of the outermost block."""
    filled = [one for one in lines if _EMPTY.match(one) is None]
    if not filled:
        return
    depth = min(len(one) - len(one.lstrip(" ")) for one in filled)
    listed = all(one[depth:].startswith("- ") for one in filled if one[depth] != " ")
    start: int | None = None
    for number, one in enumerate(lines):
        begins = _EMPTY.match(one) is None and one[depth] != " " and (listed or not one[depth:].startswith("- "))
        if begins and start is not None:
            yield start, _trimmed(lines[start:number])
        if begins or start is None:
            start = number if _EMPTY.match(one) is None else start
    if start is not None:
        yield start, _trimmed(lines[start:])


def _trimmed(lines: list[str]) -> list[str]:
    """Without the empty lines at the end: what breaks off is told where it was written last."""
    end = len(lines)
    while end and _EMPTY.match(lines[end - 1]) is not None:
        end -= 1
    return lines[:end]
