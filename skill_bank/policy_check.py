"""The check of a policy against the schema of its skill.

Every value that a base or a patch sets is validated by the schema's pydantic model, alone: a part of a policy in which
nothing else is set. What holds between values (`required`, `order`) is then checked in every context that the
conditions can tell apart, because only there it is known which values meet, and which of them is to blame.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from skill_bank.kinds import Declaration, ListKind, MappingKind, NamesKind
from skill_bank.policy import Assignment, describe_condition, matches, parse_params
from skill_bank.schema import Schema
from skill_bank.types import Problem

MAX_CONTEXTS = 50_000
"""Contexts of one key that are checked; more means conditions nobody can read any more."""

_SAID = {
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "greater_than": "it must be above {gt}",
    "less_than": "it must be below {lt}",
    "not_allowed": "allowed are {allowed}",
}
"""Type of a pydantic error → what is allowed."""


def check_policy(schema: Schema, assignments: list[Assignment], *, whole: bool = True) -> list[Problem]:
    """Everything in which the assignments break the schema. `whole`: what they do not set, nothing sets."""
    problems: list[Problem] = []
    keys = schema.declared.keys
    good: dict[str, list[Assignment]] = {name: [] for name in keys}
    for one in assignments:
        name, _, rest = one.key.partition(".")
        if name not in keys and not schema.whole:
            continue
        try:
            schema.declared.model.model_validate({name: _nested(rest, one.value)})
        except ValidationError as error:
            problems.extend(_told(schema, one, error.errors(include_url=False)))
        else:
            good[name].append(one)
    if problems:  # relations between values mean nothing while single values are wrong
        return problems
    for name, kind in keys.items():
        must = whole and schema.whole and name in schema.declared.required
        if good[name]:
            problems.extend(_check_relations(schema, name, kind, good[name], must=must, whole=whole))
        elif must:
            problems.append(
                Problem(schema.file, 0, f"policy: '{name}' is required and nothing sets it", "Set it in base.md")
            )
    return problems


def _nested(key: str, value: Any) -> Any:
    for part in reversed(key.split(".") if key else ()):
        value = {part: value}
    return value


def _told(schema: Schema, one: Assignment, errors: Sequence[ErrorDetails]) -> Iterator[Problem]:
    """The errors of one value as problems that say what is allowed."""
    file, line = one.origin.file, one.origin.line
    kind = _declared(schema.declared, one.key)
    if isinstance(kind, str):
        yield Problem(file, line, f"policy: {kind}", f"{schema.file} lists what is allowed")
        return
    said: dict[int | None, str] = {}  # item of a list → the first error: a number has one for each of its types
    for error in errors:
        item = next((step for step in error["loc"] if isinstance(step, int)), None)
        said.setdefault(item, _complaint(kind, item, error))
    for item, complaint in said.items():
        shown = json.dumps(one.value, ensure_ascii=False)
        wrong = complaint if item is None else f"{one.value[item]!r}: {complaint}"
        fix = f"Choose a value that {schema.file} allows"
        yield Problem(file, line, f"policy: {one.key} is {shown}: {wrong}", fix)


def _complaint(kind: Any, item: int | None, error: ErrorDetails) -> str:
    if error["input"] is None:
        return "it may not be null"
    if error["type"] in _SAID:
        return _SAID[error["type"]].format(**error["ctx"])
    if isinstance(kind, ListKind):
        return f"it must be a list of {kind.of.type}" if item is None else f"it must be {_article(kind.of.type)}"
    return f"it must be {_article(kind.type)}"


def _article(type_: str) -> str:
    return f"{'an' if type_ == 'integer' else 'a'} {type_}"


def _declared(declared: Declaration, key: str) -> Any:
    """The kind of value that a dotted key takes, or a sentence that says why it takes none."""
    kind: Any = None
    fields: Mapping[str, Any] = declared.keys
    path: list[str] = []
    for part in key.split("."):
        where = f"'{'.'.join(path)}'"
        if isinstance(kind, NamesKind):
            kind = kind.of
        elif path and not isinstance(kind, MappingKind):
            return f"{where} is {_article(kind.type)}, it has no '{part}'"
        elif part not in fields:
            missing = f"{where} has no '{part}'" if path else f"there is no policy key '{part}'"
            return f"{missing}. Known: {', '.join(sorted(fields))}"
        else:
            kind = fields[part]
        fields = kind.fields if isinstance(kind, MappingKind) else {}
        path.append(part)
    if isinstance(kind, MappingKind | NamesKind):
        return f"'{key}' needs a mapping{' of ' + ', '.join(sorted(fields)) if fields else ''}"
    return kind


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


def _has_relations(kind: Any) -> bool:
    if isinstance(kind, NamesKind):
        return _has_relations(kind.of)
    if not isinstance(kind, MappingKind):
        return False
    return bool(kind.required or kind.order) or any(_has_relations(child) for child in kind.fields.values())


def _check_relations(
    schema: Schema, name: str, kind: Any, assignments: list[Assignment], *, must: bool, whole: bool
) -> list[Problem]:
    if not must and not _has_relations(kind):
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
        for message, culprit in _relation_complaints(name, kind, winners, assignments, whole):
            origin = assignments[culprit].origin
            problems.setdefault(
                (origin.file, origin.line, message),
                Problem(origin.file, origin.line, f"policy: {message}{where}", "Change one of the values"),
            )
    return list(problems.values())


def _relation_complaints(
    name: str, kind: Any, winners: Mapping[str, int], assignments: list[Assignment], whole: bool
) -> Iterator[tuple[str, int]]:
    """(what is wrong, index of the assignment to blame) for a key in one context."""
    below = {key: index for key, index in winners.items() if key.startswith(name + ".")}
    if not below:
        return
    if isinstance(kind, NamesKind):
        for child in sorted({key[len(name) + 1 :].split(".")[0] for key in below}):
            yield from _relation_complaints(f"{name}.{child}", kind.of, winners, assignments, whole)
        return
    if not isinstance(kind, MappingKind):
        return
    for child, inner in kind.fields.items():
        yield from _relation_complaints(f"{name}.{child}", inner, winners, assignments, whole)
    for child in kind.required if whole else ():
        if not any(key == f"{name}.{child}" or key.startswith(f"{name}.{child}.") for key in below):
            yield f"'{name}' needs '{child}'", max(below.values())
    ordered = [f"{name}.{child}" for child in kind.order]
    stated = [key for key in ordered if key in below and assignments[below[key]].value is not None]
    for low, high in itertools.pairwise(stated):
        small, large = assignments[below[low]].value, assignments[below[high]].value
        if small > large:
            yield f"{low} {small} is above {high} {large}", max(below[low], below[high])
