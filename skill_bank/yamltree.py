"""Strict YAML with line numbers: the core schema of YAML 1.2, and nothing that surprises.

`3e-4` is a number, `on` and `2026-05-11` are text. Duplicate keys, anchors, aliases, tags and several documents are
errors. A parsed value is a tree of `Node`s, so that every message can name its line.
"""

import re
from typing import Any, NamedTuple

import yaml

_Parser: Any
try:
    import yaml._yaml

    _Parser = yaml._yaml.CParser
except ImportError:  # PyYAML was built without libyaml: the same tree, several times slower
    _Parser = None


class YamlProblem(ValueError):
    """Text that is not strict YAML."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


class Node(NamedTuple):
    """A value and where it stands."""

    value: "str | int | float | bool | list[Node] | dict[str, Node] | None"
    line: int
    flow: bool = False
    """Written in braces or brackets."""
    key_line: int = 0
    """Line of the key it belongs to, in a mapping."""

    @property
    def plain(self) -> Any:
        """The value without line numbers."""
        if isinstance(self.value, dict):
            return {key: one.plain for key, one in self.value.items()}
        if isinstance(self.value, list):
            return [one.plain for one in self.value]
        return self.value


_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]{1,4000}\Z")
"""Longer than what Python reads: a float then, infinite, which nobody takes for a number."""
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TAG = "tag:yaml.org,2002:"
_STR = _TAG + "str"
_TYPES = ((_TAG + "null", _NULL), (_TAG + "bool", _BOOL), (_TAG + "int", _INT), (_TAG + "float", _FLOAT))
_TELLING = frozenset("~nNtTfF-+.0123456789")
"""First characters of everything that may be no text."""
_COLLECTIONS = {yaml.SequenceNode: _TAG + "seq", yaml.MappingNode: _TAG + "map"}


def _tag_of(text: str) -> str:
    """The tag of a plain scalar by the core schema (https://yaml.org/spec/1.2.2/#103-core-schema), without octal, inf
    and nan."""
    if text and text[0] not in _TELLING:
        return _STR
    return next((tag for tag, pattern in _TYPES if pattern.match(text) is not None), _STR)


class _Core:
    """What a parser asks for the tag of a node that has none."""

    def resolve(self, kind: type[Any], value: str, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _tag_of(value) if implicit[0] else _STR
        return _COLLECTIONS[kind]

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Nothing depends on where a node stands."""

    def ascend_resolver(self) -> None:
        """Nothing depends on where a node stands."""


if _Parser is not None:

    class _Loader(_Parser, _Core):
        def __init__(self, text: str) -> None:
            _Parser.__init__(self, text)

else:

    class _Loader(  # type: ignore[no-redef]
        yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, _Core
    ):
        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)


def _scalar(tag: str, text: str) -> str | int | float | bool | None:
    if tag == _STR:
        return text
    if tag == _TAG + "null":
        return None
    if tag == _TAG + "bool":
        return text.lower() == "true"
    if tag == _TAG + "int":
        return int(text)
    if tag == _TAG + "float":
        return float(text)
    return text


def scalar_of(text: str) -> str | int | float | bool | None:
    """What a plain scalar means: null, a boolean, a number, or text."""
    return _scalar(_tag_of(text), text)


MAX_DEPTH = 100
"""Collections inside each other that are read: nobody writes more, and every reader of a tree goes down it."""
_ALLOWED_TAGS = frozenset(_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map"))


class _Tree:
    """Makes the tree of one document; what strict YAML refuses goes to `refused` and is left out of the tree."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._seen: set[int] = set()
        self.refused: list[YamlProblem] = []

    def convert(self, node: Any, key_line: int = 0, depth: int = 0) -> Node | None:
        """The tree below a node of the parser; None where it is refused."""
        line = node.start_mark.line + self._shift
        if depth > MAX_DEPTH:
            self._refuse(line, f"more than {MAX_DEPTH} mappings and lists inside each other")
            return None
        if id(node) in self._seen:
            self._refuse(line, "anchors and aliases (&, *) are not allowed; write the value out")
            return None
        self._seen.add(id(node))
        if node.tag not in _ALLOWED_TAGS:
            self._refuse(line, f"the tag {node.tag} is not allowed; write plain values")
            return None
        if isinstance(node, yaml.ScalarNode):
            return Node(_scalar(node.tag, node.value), line, False, key_line)
        if isinstance(node, yaml.SequenceNode):
            items = [found for one in node.value if (found := self.convert(one, 0, depth + 1)) is not None]
            return Node(items, line, bool(node.flow_style), key_line)
        fields: dict[str, Node] = {}
        for key, value in node.value:
            at = key.start_mark.line + self._shift
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (_TAG + "str", _TAG + "int"):
                self._refuse(at, "a key must be a word")
            elif key.value in fields:
                self._refuse(at, f"the key '{key.value}' occurs twice")
            elif (child := self.convert(value, at, depth + 1)) is not None:
                fields[key.value] = child
        return Node(fields, line, bool(node.flow_style), key_line)

    def _refuse(self, line: int, message: str) -> None:
        self.refused.append(YamlProblem(line, message))


def read_tree(text: str, first_line: int = 1) -> tuple[Node, list[YamlProblem]]:
    """The tree of one document and what strict YAML refuses in it; what is refused is left out of the tree.

    `first_line` is the line of the file where `text` begins. Empty text is null. Raises YamlProblem with the line of
    the file for text that is not YAML.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The end of the text is reported as the line behind it.
        line = first_line + (min(mark.line, text.count("\n")) if mark is not None else 0)
        what = error.problem or error.context or "not YAML"
        raise YamlProblem(line, f"not YAML: {what}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlProblem(first_line, f"not YAML: {error}") from error
    if node is None:
        return Node(None, first_line), []
    tree = _Tree(first_line)
    return tree.convert(node) or Node(None, first_line), tree.refused


def parse_yaml(text: str, first_line: int = 1) -> Node:
    """`read_tree` of a document of which nothing is refused. Raises YamlProblem."""
    root, refused = read_tree(text, first_line)
    if refused:
        raise refused[0]
    return root
