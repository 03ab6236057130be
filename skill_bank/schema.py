"""The policy schema that a skill declares in `policy_schema.yaml`.

```yaml
schema_version: 1
required: [learning_rate]              # keys that must have a value in every context
keys:
  learning_rate: {type: mapping, order: [min, default, max], fields: {default: {type: number, above: 0}, …}}
```
Types: number, integer, boolean, string, list (`of`), mapping (`fields`), names (`of`: free names to one type).
Constraints: min, max, above, below, enum, nullable; of a mapping `required` and `order` (the named fields, where
set, never decrease). The models of `skill_bank.kinds` validate the document; the model that they make of it validates
the policy (`skill_bank.policy_check`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from skill_bank.kinds import KINDS, Declaration
from skill_bank.yamlparts import parse_parts
from skill_bank.yamltree import Node

Wrong = tuple[int, str]
"""A line of the file, and what is wrong there."""

_WANTED = {
    "int_type": "a number",
    "float_type": "a number",
    "finite_number": "a number that fits a float",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping of name to type",
    "too_short": "a mapping of name to type",
    "model_type": "a mapping with a `type`",
    "model_attributes_type": "a mapping with a `type`",
    "string_pattern_mismatch": "lower-case letters, digits and _ after a letter",
}
"""Type of a pydantic error → what is allowed."""


@dataclass(frozen=True)
class Schema:
    """The schema of one skill."""

    file: str
    declared: Declaration
    whole: bool = True
    """False: some of it cannot be used, so there may be more keys than it declares."""


def parse_schema(text: str, file: str) -> tuple[Schema | None, tuple[Wrong, ...]]:
    """The schema of one `policy_schema.yaml`, as far as it can be used, and everything that is wrong with it."""
    declared, wrong = _declared(text)
    return None if declared is None else Schema(file, declared, not wrong), wrong


@lru_cache(maxsize=4096)
def _declared(text: str) -> tuple[Declaration | None, tuple[Wrong, ...]]:
    """What a text declares, and what is wrong with it. Skills with the same text share one model."""
    parts = parse_parts(text)
    root, wrong = parts.root, [(one.line, one.message) for one in parts.problems]
    if not isinstance(root.value, dict):
        return None, (*wrong, (1, "the schema is not a mapping with `schema_version` and `keys`"))
    plain = root.plain
    errors: list[ErrorDetails] = []
    declared = _validated(plain, errors)
    if declared is None:  # what is right by itself is used all the same, to find what else is wrong
        bad = {one["loc"][1] for one in errors if len(one["loc"]) > 1 and one["loc"][0] == "keys"}
        keys, required = plain.get("keys"), plain.get("required")
        good = {name: one for name, one in keys.items() if name not in bad} if isinstance(keys, dict) else {}
        known = [one for one in required if one not in bad] if isinstance(required, list) else []
        rest = {"schema_version": 1, "keys": good}
        declared = (_validated({**rest, "required": known}, errors) or _validated(rest, [])) if good else None
    lost = {path[-1] for path in parts.lost}
    return declared, (*wrong, *_told(root, [one for one in errors if _missed(one) not in lost]))


def _validated(document: Any, errors: list[ErrorDetails]) -> Declaration | None:
    try:
        return Declaration.model_validate(document)
    except ValidationError as error:
        errors += error.errors(include_url=False)
        return None


def _missed(error: ErrorDetails) -> str:
    """The name that an error says is not there; empty for any other error."""
    if error["type"] == "missing":
        return str(error["loc"][-1])
    return str(error["ctx"]["name"]) if error["type"] == "unknown_field" else ""


def _told(root: Node, errors: Sequence[ErrorDetails]) -> Iterator[Wrong]:
    """The errors of the models as lines of the file and sentences; one for each place."""
    seen: set[tuple[str, str]] = set()
    for error in errors:
        place = _place(root, error["loc"])
        field = place.field or str(error.get("ctx", {}).get("what", ""))
        if (place.key, field) not in seen:
            seen.add((place.key, field))
            node = _child(place.node, field)
            yield node.key_line or node.line, _sentence(place, field, error)


@dataclass(frozen=True)
class _Place:
    """Where in the document an error is."""

    node: Node
    """The declaration of a key, or the whole document."""
    key: str
    """Dotted; empty: the document."""
    field: str
    """What of the declaration is wrong; empty: all of it."""


def _place(root: Node, location: tuple[int | str, ...]) -> _Place:
    """Location of an error of the models, which names keys, fields and, behind each, the `type` it was read by."""
    node, steps = root, list(location)
    names: list[str] = []
    while steps:
        step = steps.pop(0)
        if not steps or step not in ("keys", "fields", "of"):
            return _Place(node, ".".join(names), str(step))
        node = _child(node, str(step))
        if step != "of":
            step = steps.pop(0)
            node = _child(node, str(step))
        names.append(str(step))
        del steps[:1]  # the type, or `[key]`
    return _Place(node, ".".join(names), "")


def _child(node: Node, name: str) -> Node:
    """What stands below a name; the node itself where nothing does."""
    return node.value.get(name, node) if isinstance(node.value, dict) else node


def _sentence(place: _Place, field: str, error: ErrorDetails) -> str:
    where = f"'{place.key}'" if place.key else "the schema"
    about, kind = error.get("ctx", {}), error["type"]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        known = str(about.get("expected_tags", ", ".join(KINDS))).replace("'", "")
        inner = f"{where}: `{field}`" if field else where
        return f"{inner} has {'no type' if 'tag' not in about else 'type ' + repr(about['tag'])}; known are {known}"
    if kind == "extra_forbidden":
        model = KINDS.get(str(_child(place.node, "type").value), Declaration) if place.key else Declaration
        return f"{where} has unknown {field}; known are {', '.join(sorted(model.model_fields))}"
    if kind == "missing":
        return f"{where} needs `{field}`"
    if kind == "literal_error":
        return f"{where} must say `{field}: {about['expected']}`"
    if kind == "unknown_field":
        return f"{where}: `{field}` {error['msg']}"
    wanted = "an integer" if kind == "int_type" and error["loc"][-1] != "int" else _WANTED.get(kind)
    said = f"must be {wanted}" if wanted is not None else f"cannot be used: {error['msg']}"
    return f"{where}: `{field}` {said}" if field else f"{where} {said}"
