"""Policy values in prose: `{{policy.key}}` becomes the value, or all its values with their conditions.

A placeholder of a mapping that stands alone on its line becomes a table with a row for each rule.
"""

import json
import re
from typing import Any

from skill_bank.policy import Assignment, CompiledPolicy, describe_condition

PLACEHOLDER = re.compile(r"\{\{\s*policy\.([a-z0-9_.]+)\s*\}\}")
ANY_PLACEHOLDER = re.compile(r"\{\{\s*policy\b")


class UnknownKey(KeyError):
    """A placeholder names a key that no policy block sets."""


def show(value: Any) -> str:
    """A value as text: 0.0003, 1e-6, true, none, `a, b`."""
    if isinstance(value, float):
        text = repr(value)
        mantissa, mark, exponent = text.partition("e")
        return f"{mantissa}e{int(exponent)}" if mark else text
    if isinstance(value, list):
        return ", ".join(show(one) for one in value)
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _in_force(assignments: list[Assignment]) -> list[Assignment]:
    """Without those that a later one always overrides."""
    found: list[Assignment] = []
    for one in assignments:
        if one.when is None:
            found = [kept for kept in found if kept.key != one.key]
        else:
            found = [kept for kept in found if kept.key != one.key or kept.when != one.when]
        found.append(one)
    return found


def inline(policy: CompiledPolicy, key: str) -> str:
    """The values of a key on one line. Raises UnknownKey."""
    found = _in_force(list(policy.explain(key)))
    if not found:
        raise UnknownKey(key)
    if [one.key for one in found] == [key]:
        if found[0].when is None:
            return show(found[0].value)
        return f"{show(found[0].value)} ({describe_condition(found[0].when)})"
    if all(one.key == key for one in found):
        parts = [
            f"{show(one.value)} ({'otherwise' if one.when is None else describe_condition(one.when)})"
            for one in reversed(found)  # the last rule that matches wins, so it is read first
        ]
        return ", ".join(parts)
    names = dict.fromkeys(one.key for one in policy.explain(key))
    return "; ".join(f"{name[len(key) + 1 :]} {inline(policy, name)}" for name in names)


def table(policy: CompiledPolicy, key: str) -> str:
    """The values below a mapping as a Markdown table, a row for each child and condition. Raises UnknownKey.

    Rows are in order of merging: of the rows that fit, the lower one wins, cell by cell. Columns, and the children that
    rows belong to, stand in the order in which they were first set, so that setting one again moves nothing else.
    """
    written = list(policy.explain(key))
    found = _in_force(written)
    if not found:
        raise UnknownKey(key)
    if any(one.key == key for one in found):
        return inline(policy, key)
    nested = any("." in one.key[len(key) + 1 :] for one in found)

    def place(one: Assignment) -> tuple[str, str]:
        """(child, column) of a cell."""
        name = one.key[len(key) + 1 :]
        child, _, column = name.partition(".") if nested else ("", "", name)
        return child, column or "value"

    cells_of: dict[tuple[str, str], dict[str, str]] = {}
    for one in found:
        child, column = place(one)
        cells_of.setdefault((child, describe_condition(one.when)), {})[column] = show(one.value)
    children = list(dict.fromkeys(child for child, _ in map(place, written)))
    rows = dict(sorted(cells_of.items(), key=lambda row: children.index(row[0][0])))
    used = {column for cells in rows.values() for column in cells}
    columns = [column for column in dict.fromkeys(column for _, column in map(place, written)) if column in used]
    conditional = any(condition != "always" for _, condition in rows)
    head = ([""] if nested else []) + (["when"] if conditional else []) + columns
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (child, condition), cells in rows.items():
        row = ([f"`{child}`"] if nested else []) + ([condition] if conditional else [])
        row += [cells.get(column, "") for column in columns]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def fill_line(policy: CompiledPolicy, line: str) -> str:
    """A line of prose with its placeholders filled. Raises UnknownKey, or ValueError for one that cannot be read."""
    alone = PLACEHOLDER.fullmatch(line.strip())
    if alone is not None and not line.startswith(" "):
        return table(policy, alone[1])
    filled = PLACEHOLDER.sub(lambda match: inline(policy, match[1]), line)
    if ANY_PLACEHOLDER.search(filled) is not None:
        raise ValueError("a placeholder that cannot be read")
    return filled
