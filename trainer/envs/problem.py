"""When two rows are the same problem: what is asked, and the world in which it is asked.

Two rows ask in the same *world* where their other fields agree: those that hold no answer and do not merely number or
grade the problem. A field that one of them lacks does not tell them apart.
"""

import json
from collections.abc import Iterable

from trainer.datafiles import Row

NOT_THE_PROBLEM = frozenset({"answer", "solution", "id", "index", "uid", "category", "level", "difficulty"})
"""Fields of a row that do not make it another problem, whatever the environment."""

World = tuple[tuple[str, str], ...]
"""(field, value as JSON), sorted."""


def world_of(row: Row, answers: Iterable[str] = ()) -> World:
    """The world in which a row's question is asked; `answers`: further fields that hold what is to be found."""
    left_out = {"prompt", *answers, *NOT_THE_PROBLEM}
    return tuple(
        sorted(
            (key, json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))
            for key, value in row.items()
            if key not in left_out
        )
    )


def same_world(a: World, b: World) -> bool:
    """Whether no field that both have tells them apart."""
    other = dict(b)
    return all(other.get(key, value) == value for key, value in a)
