"""The policy schema that a skill declares in `policy_schema.yaml`, and the check of a policy against it.

```yaml
schema_version: 1
required: [learning_rate]              # keys that must have a value in every context
keys:
  learning_rate: {type: mapping, order: [min, default, max], fields: {default: {type: number, above: 0}, …}}
```
Types: number, integer, boolean, string, list (`of`), mapping (`fields`), names (`of`: free names to one type).
Constraints: min, max, above, below, enum, nullable; of a mapping `required` and `order` (the named fields, where
set, never decrease). Constraints between values are checked in every context that the conditions can tell apart.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from skill_bank.policy import Assignment, describe_condition, matches, parse_params
from skill_bank.types import Problem
from skill_bank.yamltree import Node, YamlProblem, parse_yaml

MAX_CONTEXTS = 50_000
"""Contexts of one key that are checked; more means conditions nobody can read any more."""

_SCALARS = ("number", "integer", "boolean", "string")
_TYPES = (*_SCALARS, "list", "mapping", "names")
_ATTRIBUTES = frozenset(
    "type description enum min max above below nullable of fields required order".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Kind:
    """What values a key may take."""

    type: str
    description: str = ""
    enum: tuple[Any, ...] = ()
    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    nullable: bool = False
    of: "Kind | None" = None
    fields: "Mapping[str, Kind]" = field(default_factory=dict)
    required: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """All keys of a skill's policy."""

    file: str
    root: Kind
    """A mapping of the keys."""


class SchemaProblem(ValueError):
    """A schema that cannot be used."""

    others: "tuple[SchemaProblem, ...]" = ()
    """What else is wrong with it."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


def parse_schema(text: str, file: str) -> Schema:
    """The schema of one `policy_schema.yaml`. Raises SchemaProblem with the line, and with what else is wrong."""
    try:
        root = parse_yaml(text)
    except YamlProblem as problem:
        raise SchemaProblem(problem.line, problem.message) from problem
    if not isinstance(root.value, dict):
        raise SchemaProblem(1, "the schema is not a mapping with `schema_version` and `keys`")
    wrong: list[SchemaProblem] = []
    for name in sorted(set(root.value) - {"schema_version", "required", "keys"}):
        wrong.append(SchemaProblem(root.value[name].key_line, f"the schema knows no {name}"))
    if "schema_version" not in root.value or root.value["schema_version"].value != 1:
        wrong.append(SchemaProblem(1, "the schema must say `schema_version: 1`"))
    keys = root.value.get("keys")
    fields: dict[str, Kind] = {}
    required: tuple[str, ...] = ()
    if keys is None or not isinstance(keys.value, dict) or not keys.value:
        wrong.append(SchemaProblem(root.line, "the schema needs `keys`, a mapping of key to type"))
    else:
        for name, node in keys.value.items():
            try:
                fields[name] = _kind(name, node)
            except SchemaProblem as problem:
                wrong.append(problem)
        try:
            required = _names(root.value.get("required"), keys.value, "required")
        except SchemaProblem as problem:
            wrong.append(problem)
    if wrong:
        wrong[0].others = tuple(wrong[1:])
        raise wrong[0]
    return Schema(file, Kind("mapping", fields=fields, required=required))


def _names(node: Node | None, fields: Mapping[str, Any], what: str) -> tuple[str, ...]:
    if node is None:
        return ()
    names = node.plain
    if not isinstance(names, list) or not all(isinstance(one, str) and one in fields for one in names):
        raise SchemaProblem(node.line, f"`{what}` must be a list of the fields {', '.join(fields)}")
    return tuple(names)


def _kind(name: str, node: Node) -> Kind:
    if not isinstance(node.value, dict):
        raise SchemaProblem(node.line, f"'{name}' must be a mapping with a `type`")
    unknown = set(node.value) - _ATTRIBUTES
    if unknown:
        raise SchemaProblem(
            node.line, f"'{name}' has unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(_ATTRIBUTES))}"
        )
    given = {key: one.plain for key, one in node.value.items()}
    kind = given.get("type")
    if kind not in _TYPES:
        raise SchemaProblem(node.line, f"'{name}' has type {kind!r}; known are {', '.join(_TYPES)}")
    bounds: dict[str, float | None] = {}
    for bound in ("min", "max", "above", "below"):
        value = given.get(bound)
        if value is not None and (kind not in ("number", "integer") or type(value) not in (int, float)):
            raise SchemaProblem(node.line, f"'{name}': `{bound}` must be a number and belongs to number or integer")
        bounds[bound] = value
    of, fields = node.value.get("of"), node.value.get("fields")
    if (kind in ("list", "names")) != (of is not None):
        raise SchemaProblem(node.line, f"'{name}': list and names need `of`, no other type has it")
    if (kind == "mapping") != (fields is not None):
        raise SchemaProblem(node.line, f"'{name}': a mapping needs `fields`, no other type has them")
    children: dict[str, Kind] = {}
    if fields is not None:
        if not isinstance(fields.value, dict) or not fields.value:
            raise SchemaProblem(fields.line, f"'{name}': `fields` must be a mapping of name to type")
        children = {child: _kind(f"{name}.{child}", one) for child, one in fields.value.items()}
    enum = given.get("enum", [])
    if not isinstance(enum, list):
        raise SchemaProblem(node.line, f"'{name}': `enum` must be a list")
    inner = None if of is None else _kind(f"{name}.of", of)
    if kind == "list" and inner is not None and inner.type not in _SCALARS:
        raise SchemaProblem(node.line, f"'{name}': a list holds plain values")
    nullable = given.get("nullable", False)
    if not isinstance(nullable, bool):
        raise SchemaProblem(node.line, f"'{name}': `nullable` must be true or false")
    return Kind(
        kind,
        str(given.get("description", "")),
        tuple(enum),
        bounds["min"],
        bounds["max"],
        bounds["above"],
        bounds["below"],
        nullable,
        inner,
        children,
        _names(node.value.get("required"), children, "required"),
        _names(node.value.get("order"), children, "order"),
    )


def _find(root: Kind, key: str) -> Kind | str:
    """The kind of a dotted key, or what is wrong with the key."""
    kind = root
    path: list[str] = []
    for part in key.split("."):
        if kind.type == "names" and kind.of is not None:
            kind = kind.of
        elif kind.type == "mapping":
            if part not in kind.fields:
                where = f"'{'.'.join(path)}' has no '{part}'" if path else f"there is no policy key '{part}'"
                return f"{where}. Known: {', '.join(sorted(kind.fields))}"
            kind = kind.fields[part]
        else:
            return f"'{'.'.join(path)}' is a {kind.type}, it has no '{part}'"
        path.append(part)
    if kind.type in ("mapping", "names"):
        return f"'{key}' needs a mapping{' of ' + ', '.join(sorted(kind.fields)) if kind.fields else ''}"
    return kind


def _complaint(kind: Kind, value: Any) -> str | None:
    """What is wrong with a value, or None."""
    if value is None:
        return None if kind.nullable else "it may not be null"
    if kind.type == "list":
        if not isinstance(value, list):
            return f"it must be a list of {kind.of.type if kind.of else 'values'}"
        for one in value:
            inner = None if kind.of is None else _complaint(kind.of, one)
            if inner is not None:
                return f"{one!r}: {inner}"
        return None
    right = {
        "number": type(value) in (int, float),
        "integer": type(value) is int,
        "boolean": type(value) is bool,
        "string": type(value) is str,
    }[kind.type]
    if not right:
        return f"it must be a {kind.type}"
    if kind.enum and value not in kind.enum:
        return f"allowed are {', '.join(str(one) for one in kind.enum)}"
    if kind.min is not None and value < kind.min:
        return f"it must be at least {kind.min}"
    if kind.max is not None and value > kind.max:
        return f"it must be at most {kind.max}"
    if kind.above is not None and value <= kind.above:
        return f"it must be above {kind.above}"
    if kind.below is not None and value >= kind.below:
        return f"it must be below {kind.below}"
    return None


def contexts(assignments: list[Assignment]) -> Iterator[dict[str, Any]]:
    """One context for each class of contexts that the conditions of these assignments can tell apart.

    Sizes change sides only at the bounds of a range, so each bound stands for the sizes from it to the next one.
    """
    values: dict[str, list[Any]] = {}
    for one in assignments:
        for key, asked in (one.when or {}).items():
            known = values.setdefault(key, [None])
            if key == "params":
                found = parse_params(asked)
                known.extend(point for point in (0, found.low, found.high) if point not in known and point < 1e18)
            else:
                known.extend(item for item in (asked if isinstance(asked, list) else [asked]) if item not in known)
    names = sorted(values)
    for combination in itertools.product(*(values[name] for name in names)):
        yield dict(zip(names, combination, strict=True))


def check_policy(schema: Schema, assignments: list[Assignment]) -> list[Problem]:
    """Everything in which the assignments break the schema."""
    problems: list[Problem] = []
    good: dict[str, list[Assignment]] = {name: [] for name in schema.root.fields}
    for one in assignments:
        kind = _find(schema.root, one.key)
        if isinstance(kind, str):
            problems.append(
                Problem(one.origin.file, one.origin.line, f"policy: {kind}", f"{schema.file} lists what is allowed")
            )
            continue
        complaint = _complaint(kind, one.value)
        if complaint is not None:
            shown = json.dumps(one.value, ensure_ascii=False)
            problems.append(
                Problem(
                    one.origin.file,
                    one.origin.line,
                    f"policy: {one.key} is {shown}: {complaint}",
                    f"Choose a value that {schema.file} allows",
                )
            )
            continue
        good[one.key.split(".")[0]].append(one)
    if problems:  # relations between values mean nothing while single values are wrong
        return problems
    for name, kind in schema.root.fields.items():
        if good[name]:
            problems.extend(_check_relations(schema, name, kind, good[name]))
        elif name in schema.root.required:
            problems.append(
                Problem(schema.file, 0, f"policy: '{name}' is required and nothing sets it", "Set it in base.md")
            )
    return problems


def _relations(name: str, kind: Kind) -> bool:
    children = (*kind.fields.values(), *((kind.of,) if kind.of is not None else ()))
    return bool(kind.required or kind.order) or any(_relations(name, child) for child in children)


def _check_relations(schema: Schema, name: str, kind: Kind, assignments: list[Assignment]) -> list[Problem]:
    must = name in schema.root.required
    if not must and not _relations(name, kind):
        return []
    problems: dict[tuple[str, int, str], Problem] = {}
    for count, context in enumerate(contexts(assignments)):
        if count >= MAX_CONTEXTS:
            last = assignments[-1].origin
            return [
                Problem(
                    last.file,
                    last.line,
                    f"policy: the conditions of '{name}' tell more than {MAX_CONTEXTS} contexts apart",
                    "Use fewer rules with fewer keys each",
                )
            ]
        winners: dict[str, int] = {}
        for index, one in enumerate(assignments):
            if matches(one.when, context):
                winners[one.key] = index
        shown = describe_condition({key: value for key, value in context.items() if value is not None})
        where = "" if shown == "always" else f" (where {shown})"
        if must and not winners:
            found = Problem(
                schema.file, 0, f"policy: '{name}' is required and nothing sets it{where}", "Add a rule without `when`"
            )
            problems.setdefault((schema.file, 0, name), found)
        for message, culprit in _relation_complaints(name, kind, winners, assignments):
            origin = assignments[culprit].origin
            problems.setdefault(
                (origin.file, origin.line, message),
                Problem(origin.file, origin.line, f"policy: {message}{where}", "Change one of the values"),
            )
    return list(problems.values())


def _relation_complaints(
    name: str, kind: Kind, winners: Mapping[str, int], assignments: list[Assignment]
) -> Iterator[tuple[str, int]]:
    """(what is wrong, index of the assignment to blame) for a key in one context."""
    below = {key: index for key, index in winners.items() if key.startswith(name + ".")}
    if not below:
        return
    if kind.type == "names" and kind.of is not None:
        for child in sorted({key[len(name) + 1 :].split(".")[0] for key in below}):
            yield from _relation_complaints(f"{name}.{child}", kind.of, winners, assignments)
        return
    for child, inner in kind.fields.items():
        yield from _relation_complaints(f"{name}.{child}", inner, winners, assignments)
    for child in kind.required:
        if not any(key == f"{name}.{child}" or key.startswith(f"{name}.{child}.") for key in below):
            yield f"'{name}' needs '{child}'", max(below.values())
    ordered = [f"{name}.{child}" for child in kind.order]
    stated = [key for key in ordered if key in below and assignments[below[key]].value is not None]
    for low, high in itertools.pairwise(stated):
        small, large = assignments[below[low]].value, assignments[below[high]].value
        if small > large:
            yield f"{low} {small} is above {high} {large}", max(below[low], below[high])
