"""Signs that a policy stopped making sense: repetition, or scripts that nobody used."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

LONG = 32
"""Tokens from which a completion can be said to repeat itself."""

MOST = 0.5
"""One token that is more than this share of a completion: it repeats itself."""

DISTINCT = 0.2
"""Fewer different 4-grams than this share of all: it repeats itself."""


def repeats_itself(ids: Sequence[int]) -> bool:
    """Whether a completion of at least 32 tokens is mostly one token, or mostly the same 4-grams."""
    if len(ids) < LONG:
        return False
    if max(Counter(ids).values()) > MOST * len(ids):
        return True
    grams = [tuple(ids[at : at + 4]) for at in range(len(ids) - 3)]
    return len(set(grams)) < DISTINCT * len(grams)


def repetition_rate(completions: Sequence[Sequence[int]]) -> float | None:
    """Share of completions that repeat themselves; None without completions."""
    return sum(map(repeats_itself, completions)) / len(completions) if completions else None


@lru_cache(maxsize=65536)
def script_of(character: str) -> str | None:
    """The script of a letter as Unicode names it (LATIN, CJK, CYRILLIC …); None for anything else."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "UNNAMED").split()[0].split("-")[0]


def scripts(text: str) -> set[str]:
    """The scripts of the letters in a text."""
    return {script for character in set(text) if (script := script_of(character)) is not None}


def new_script_rate(episodes: Sequence[tuple[str, str]]) -> float | None:
    """Share of (what it was told, what it said) where a letter's script occurs in nothing it was told."""
    if not episodes:
        return None
    return sum(bool(scripts(said) - scripts(told)) for told, said in episodes) / len(episodes)
