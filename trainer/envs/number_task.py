"""What number tasks share: a `calculate` tool, a `finish` tool, reward 1 for the right final number."""

from typing import Any

from trainer.envs.arithmetic import evaluate, same_number, show


class NumberTask:
    """An episode whose answer is a number."""

    system_prompt = "Solve the task with the tools."

    def __init__(self) -> None:
        self._expected = ""
        self._reward = 0.0
        self.finished = False

    def reset(self, answer: str | float = "", **_: Any) -> None:
        """Takes the expected answer, as text or as the number that a data file holds."""
        self._expected, self._reward, self.finished = str(answer), 0.0, False

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression, e.g. 3*(4+5).
        """
        return show(evaluate(expression))

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final number.
        """
        self._reward = float(self._is_right(str(answer)))
        self.finished = True
        return "done"

    def _is_right(self, answer: str) -> bool:
        return same_number(answer, self._expected)

    def get_reward(self) -> float:
        """1 for the right answer, else 0."""
        return self._reward
