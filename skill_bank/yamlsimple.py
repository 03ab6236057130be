"""The YAML that almost every front matter consists of, read without a YAML parser, twenty times faster.

`parse_simple` knows lines `key: value` whose value is a plain word or sentence, a quoted text without escapes, a list
of those in brackets, or a mapping in braces of words to quoted texts. It gives exactly the tree that `parse_yaml`
gives, or None for a text that holds anything else; then the caller asks `parse_yaml`. A property test holds the two
together.
"""

import re
from functools import lru_cache
from typing import Any

from skill_bank.yamltree import Node, scalar_of

_KEY = r"[A-Za-z_][A-Za-z0-9_-]*"
_PLAIN = r"[A-Za-z0-9](?:[A-Za-z0-9_./()+;=<>$%^ -]*[A-Za-z0-9_./()+;=<>$%^-])?"
"""No colon, no number sign, no quote, no comma: nothing that means something inside a plain scalar, block or flow."""
_SENTENCE = r"[A-Za-z0-9](?:[A-Za-z0-9_./()+;=<>$%^, -]*[A-Za-z0-9_./()+;=<>$%^,-])?"
_QUOTED = r"'[A-Za-z0-9_./()+;:=<>$%^,# -]*'|\"[A-Za-z0-9_./()+;:=<>$%^,# -]*\""
_ITEM = rf"(?:{_PLAIN}|{_QUOTED})"
_LINE = re.compile(
    rf"(?P<key>{_KEY}):(?: +(?:(?P<plain>{_SENTENCE})|(?P<quoted>{_QUOTED})"
    rf"|\[ *(?P<list>{_ITEM}(?: *, *{_ITEM})*)? *\]"
    rf"|\{{(?P<map>{_KEY}: +(?:{_QUOTED})(?:, +{_KEY}: +(?:{_QUOTED}))*)\}}))\Z"
)
_ITEMS = re.compile(_ITEM)
_PAIRS = re.compile(rf"({_KEY}): +({_QUOTED})")


_NO_WORD = frozenset("null Null NULL true True TRUE false False FALSE".split())  # noqa: SIM905
"""Words that are no text."""


def parse_simple(text: str, first_line: int) -> Node | None:
    """The tree of a text of simple lines; None for any other text."""
    found: dict[str, Node] = {}
    for line, row in enumerate(text.split("\n"), start=first_line):
        read = _read_row(row)
        if read is None or read[0] in found:
            return None
        key, kind, value = read
        if kind == "list":
            found[key] = Node([Node(one, line) for one in value], line, True, line)
        elif kind == "map":
            found[key] = Node({name: Node(one, line, False, line) for name, one in value}, line, True, line)
        else:
            found[key] = Node(value, line, False, line)
    return Node(found, first_line) if found else None


@lru_cache(maxsize=4096)
def _read_row(row: str) -> tuple[str, str, Any] | None:
    """(key, kind of value, value) of one line. The same few lines stand in nearly every front matter."""
    match = _LINE.match(row)
    if match is None or match["key"] in _NO_WORD:
        return None
    kind = match.lastgroup
    if kind == "plain":
        return match["key"], kind, scalar_of(match["plain"])
    if kind == "quoted":
        return match["key"], kind, match["quoted"][1:-1]
    if kind == "map":
        pairs = [(name, quoted[1:-1]) for name, quoted in _PAIRS.findall(match["map"])]
        names = {name for name, _ in pairs}
        return None if len(names) < len(pairs) or names & _NO_WORD else (match["key"], kind, pairs)
    items = _ITEMS.findall(match["list"]) if kind == "list" else []
    return match["key"], "list", [one[1:-1] if one[0] in "'\"" else scalar_of(one) for one in items]
