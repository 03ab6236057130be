"""The YAML that almost every front matter consists of, read without a YAML parser, twenty times faster.

`parse_simple` knows lines `key: value` whose value is a plain word or sentence, a quoted text without escapes, a list
of those in brackets, or a mapping in braces of words to quoted texts. It gives exactly the tree that `parse_yaml`
gives, or None for a text that holds anything else; then the caller asks `parse_yaml`. A property test holds the two
together.
"""

import re

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


def parse_simple(text: str, first_line: int) -> Node | None:
    """The tree of a text of simple lines; None for any other text."""
    found: dict[str, Node] = {}
    for line, row in enumerate(text.split("\n"), start=first_line):
        match = _LINE.match(row)
        if match is None:
            return None
        key = match["key"]
        if key in found or not isinstance(scalar_of(key), str):
            return None
        value = _value(match, line)
        if value is None:
            return None
        found[key] = value
    return Node(found, first_line) if found else None


def _value(match: re.Match[str], line: int) -> Node | None:
    kind = match.lastgroup
    if kind == "plain":
        return Node(scalar_of(match["plain"]), line, False, line)
    if kind == "quoted":
        return Node(match["quoted"][1:-1], line, False, line)
    if kind == "map":
        pairs: dict[str, Node] = {}
        for name, quoted in _PAIRS.findall(match["map"]):
            if name in pairs or not isinstance(scalar_of(name), str):
                return None
            pairs[name] = Node(quoted[1:-1], line, False, line)
        return Node(pairs, line, True, line)
    items = _ITEMS.findall(match["list"]) if kind == "list" else []
    values = [one[1:-1] if one[0] in "'\"" else scalar_of(one) for one in items]
    return Node([Node(one, line) for one in values], line, True, line)
