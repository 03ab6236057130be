"""`house_rules`: an operator whose meaning every house draws for itself, so that weights alone cannot know a new house.

`env_args`: `houses` = "new" (default: each split has houses of its own) or "fixed" (the same `count` houses in every
split, new numbers at test time: what can be learned into the weights). `shuffle` (with "fixed"): which houses;
another number, other houses.
"""

import random
import re
from typing import Any

from trainer.envs.arithmetic import evaluate, show
from trainer.envs.base import Row, Split, draw, split_of
from trainer.envs.number_task import NumberTask

MEANINGS = ("{a} + {b}", "{a} - {b}", "{a} * {b}", "{b} - {a}", "({a} + {b}) * 2")
"""What `a @ b` may mean."""
QUESTIONS = ("In house {h}, what is {a} @ {b}?", "House {h}: compute {a} @ {b}.", "Work out {a} @ {b} in house {h}.")
HOUSES = range(100, 1000)


def meaning(house: int) -> str:
    """The form that `a @ b` takes in a house: a fixed draw."""
    return random.Random(f"house/{house}").choice(MEANINGS)


def fixed_houses(count: int, shuffle: int = 0) -> list[int]:
    """The first `count` houses of a fixed shuffle, of which there is one for each number."""
    houses = list(HOUSES)
    random.Random(f"fixed houses/{shuffle}" if shuffle else "fixed houses").shuffle(houses)
    return houses[:count]


def expression(house: int, a: int, b: int) -> str:
    """`a @ b` in the house, written out."""
    return meaning(house).format(a=a, b=b)


class HouseRules(NumberTask):
    """Arithmetic with an operator of the house."""

    @classmethod
    def tasks(
        cls,
        split: Split,
        n: int,
        seed: int,
        difficulty: str = "mixed",
        houses: str = "new",
        count: int = 8,
        shuffle: int = 0,
        **env_args: Any,
    ) -> list[Row]:
        """Rows with `prompt`, `answer` and `house`."""
        if env_args or houses not in ("new", "fixed"):
            raise ValueError("house_rules takes env_args houses ('new' or 'fixed'), count and shuffle (with 'fixed').")
        split = Split(split)
        own = [h for h in HOUSES if split_of(("house", h)) is split]
        pool = fixed_houses(count, shuffle) if houses == "fixed" else own
        top = {"simple": 9, "mixed": 20, "hard": 99}[difficulty]
        scope = ["house_rules", difficulty, houses, count, *([shuffle] if shuffle else [])]

        def make(rng: random.Random) -> tuple[tuple[int, int, int], Row]:
            house, a, b = rng.choice(pool), rng.randint(2, top), rng.randint(2, top)
            row = {
                "prompt": rng.choice(QUESTIONS).format(h=house, a=a, b=b),
                "answer": show(evaluate(expression(house, a, b))),
                "house": house,
            }
            return (house, a, b), row

        return draw(make, split, n, seed, scope="/".join(map(str, scope)))

    @classmethod
    def solution(cls, row: Row) -> list[tuple[str, dict[str, Any]]]:
        """What the operator means in the house, written out, then its result."""
        written = expression(row["house"], *_asked(row))
        return [("calculate", {"expression": written}), ("finish", {"answer": row["answer"]})]

    @classmethod
    def owner(cls, row: Row) -> Split:
        """The split of house and numbers. With new houses those of a training house are never tested."""
        return split_of((row["house"], *_asked(row)))


def _asked(row: Row) -> tuple[int, int]:
    """The numbers of a question. Raises ValueError."""
    found = re.search(r"(\d+) @ (\d+)", row["prompt"])
    if found is None:
        raise ValueError("there is no `x @ y` in the prompt")
    return int(found.group(1)), int(found.group(2))
