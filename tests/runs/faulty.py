"""Environments and rewards with a fault, as a user could write them: copied into the folder of a run."""

import math
import random
import time
from typing import Any

from trainer.envs.calculator import Calculator

_dice = random.Random(7)
_calls = 0


def constant(episode: Any, environment: Any) -> float:
    """Every episode earns the same."""
    return 0.5


def sometimes_nan(episode: Any, environment: Any) -> float:
    """No number in half of the episodes."""
    return math.nan if _dice.random() < 0.5 else float(environment.get_reward())


class RaisingCalculator(Calculator):
    """Tools that raise in 60 % of their calls."""

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression, e.g. 3*(4+5).
        """
        _raise_sometimes()
        return super().calculate(expression)

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final number.
        """
        _raise_sometimes()
        return super().finish(answer)


def _raise_sometimes() -> None:
    if _dice.random() < 0.6:
        raise RuntimeError("the service behind this tool is down")


class StallingCalculator(Calculator):
    """A tool that does not return from its hundredth call."""

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression, e.g. 3*(4+5).
        """
        global _calls
        _calls += 1
        if _calls >= 100:
            time.sleep(3600)
        return super().calculate(expression)
