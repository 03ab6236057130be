"""`calculator`: arithmetic in words, a `calculate` tool and a `finish` tool. Reward 1 for the right final answer."""

import random
import re
from typing import Any

from trainer.envs.arithmetic import evaluate, show
from trainer.envs.base import Row, Split, draw, split_of
from trainer.envs.number_task import NumberTask

QUESTIONS = ("What is {e}?", "Compute {e}.", "Calculate {e}", "Please work out {e}.", "Find the value of {e}.")


def simple_problem(rng: random.Random) -> str:
    """Two numbers from 2 to 20."""
    return f"{rng.randint(2, 20)} {rng.choice('+-*')} {rng.randint(2, 20)}"


EXPRESSION = re.compile(r"[(\d][\d ()+*-]*[\d)]")
"""The expression in a question."""

MAX_RESULT = 9999
"""Results of hard problems have at most four digits: the task is to choose the calls, not to copy long numbers."""


def wide_problem(rng: random.Random) -> str:
    """Three numbers from 2 to 99, half of them with brackets, of any result."""
    a, b, c = (rng.randint(2, 99) for _ in range(3))
    o1, o2 = rng.choice("+-*"), rng.choice("+-*")
    return rng.choice((f"{a} {o1} {b} {o2} {c}", f"({a} {o1} {b}) {o2} {c}"))


def hard_problem(rng: random.Random) -> str:
    """Three numbers from 2 to 99, half of them with brackets, results within ±9999."""
    while True:
        expression = wide_problem(rng)
        if abs(evaluate(expression)) <= MAX_RESULT:
            return expression


def problem(rng: random.Random, difficulty: str) -> str:
    """An expression; `mixed` is simple and hard in equal shares."""
    hard = difficulty == "hard" or (difficulty == "mixed" and rng.random() < 0.5)
    return hard_problem(rng) if hard else simple_problem(rng)


class Calculator(NumberTask):
    """Arithmetic with a calculator."""

    @classmethod
    def tasks(cls, split: Split, n: int, seed: int, difficulty: str = "mixed", **env_args: Any) -> list[Row]:
        """Rows with `prompt` and `answer`; problems of different splits never share an expression."""
        if env_args:
            raise ValueError(f"calculator takes no env_args; got {', '.join(sorted(env_args))}.")

        def make(rng: random.Random) -> tuple[str, Row]:
            expression = problem(rng, difficulty)
            question = rng.choice(QUESTIONS).format(e=expression)
            return expression, {"prompt": question, "answer": show(evaluate(expression))}

        return draw(make, Split(split), n, seed, scope=f"calculator/{difficulty}")

    @classmethod
    def solution(cls, row: Row) -> list[tuple[str, dict[str, Any]]]:
        """The question's own expression, then its result."""
        return [("calculate", {"expression": _asked(row)}), ("finish", {"answer": row["answer"]})]

    @classmethod
    def owner(cls, row: Row) -> Split:
        """The split of the expression."""
        return split_of(_asked(row))


def _asked(row: Row) -> str:
    """The expression of a question. Raises ValueError."""
    found = EXPRESSION.search(row["prompt"])
    if found is None:
        raise ValueError("there is no expression in the prompt")
    return found.group()
