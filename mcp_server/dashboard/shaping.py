"""What every document goes through on its way out: size, depth and characters are bounded here, in one place.

Recorded text comes from anywhere. It stays text (the page shows it through `textContent` only), and what a person
cannot see, or what turns words around, becomes a visible mark.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from skill_bank.visible import visible_text

MAX_TEXT = 20_000
"""Characters of one text."""

MAX_ITEMS = 5_000
"""Entries of one list or mapping."""

MAX_DEPTH = 12

MAX_LIMIT = 200
"""Rows of one page of a list."""

T = TypeVar("T")


class NotThere(LookupError):
    """There is no such document."""


class BadQuestion(ValueError):
    """A parameter that cannot be understood: says what is allowed."""


def shaped(value: Any, depth: int = 0) -> Any:
    """A JSON value within bounds: long texts and lists are cut, what is no number becomes null."""
    if isinstance(value, str):
        text = visible_text(value[: MAX_TEXT + 1])
        return text if len(value) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        kept = list(value.items())[:MAX_ITEMS]
        return {visible_text(str(key)[:200]): shaped(one, depth + 1) for key, one in kept}
    if isinstance(value, list | tuple):
        return [shaped(one, depth + 1) for one in value[:MAX_ITEMS]]
    return visible_text(str(value)[:MAX_TEXT])


@dataclass(frozen=True)
class Question:
    """The parameters that a document was asked for with."""

    values: Mapping[str, str]

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number in a range. Raises BadQuestion."""
        text = self.values.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not low <= int(text) <= high:
            raise BadQuestion(f"{name} must be a whole number from {low} to {high}")
        return int(text)

    def word(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """One of some words. Raises BadQuestion."""
        text = self.values.get(name, default)
        if text not in allowed:
            raise BadQuestion(f"{name} must be one of {', '.join(allowed)}")
        return text


def paged(items: Sequence[T], question: Question, default: int = 50) -> tuple[Sequence[T], dict[str, Any]]:
    """The part of a list that `cursor` and `limit` name, with `total` and the next `cursor`. Raises BadQuestion."""
    start = question.number("cursor", 0, 0, 10**9)
    limit = question.number("limit", default, 1, MAX_LIMIT)
    end = start + limit
    return items[start:end], {"total": len(items), "cursor": str(end) if end < len(items) else None}


def number_from(text: str, what: str) -> int:
    """A number in a path. Raises NotThere."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise NotThere(f"{text[:40]!r} is no {what}")
    return int(text)
