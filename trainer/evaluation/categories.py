"""Kinds of problems, for tables of results by kind. Pure.

What the row says about itself comes first; else what its text shows: how many operators it asks to combine, or how many
links it asks to follow.
"""

import re
from collections.abc import Mapping
from typing import Any

NAMED_BY_ROW = ("category", "level", "difficulty", "subject", "type")
"""Fields of a row that name its kind, the first one found counts."""

_OPERATOR = re.compile(r"(?<=[\d)])\s*[-+*/@×÷^%]\s*(?=[\d(-])")
_LINK = re.compile(r"\bof the \w+")
UNNAMED = "all"


def category_of(row: Mapping[str, Any]) -> str:
    """The kind of a problem: its row's field, `2 operators`, `2 links`, or `all`."""
    for name in NAMED_BY_ROW:
        value = row.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()[:60]
    text = _text(row.get("prompt"))
    operators = len(_OPERATOR.findall(text))
    if operators:
        return f"{operators} operator{'' if operators == 1 else 's'}"
    links = len(_LINK.findall(text))
    if links:
        return f"{links} link{'' if links == 1 else 's'}"
    return UNNAMED


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        return "\n".join(str(one.get("content", "")) for one in prompt if isinstance(one, dict))
    return ""
