"""The benchmark's environment: arithmetic with `calculate` and `finish`, in the words of TRL's `environment_factory`.

The same class drives both sides. It has no `finished` member, which TRL does not know: on both sides an episode ends
with a turn that calls no tool, with the last turn or with the token cap, so both play the same number of tokens. A call
after the first submission changes nothing. Where TRL ends an episode at a call that cannot be read, so do we
(`max_parse_errors=1`).
"""

from trainer.envs.arithmetic import evaluate, same_number, show


class Arithmetic:
    """One episode."""

    def reset(self, answer: str = "", **_: object) -> None:
        self._expected, self._reward = answer, -1.0

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
        if self._reward < 0:
            self._reward = float(same_number(str(answer), self._expected))
        return "done"

    def get_reward(self) -> float:
        """1 for the right answer, else 0."""
        return max(self._reward, 0.0)


class FinishingArithmetic(Arithmetic):
    """The same with our member `finished`: an episode ends when the answer is submitted. TRL has no such thing."""

    @property
    def finished(self) -> bool:
        return self._reward >= 0


SYSTEM_PROMPT = "Solve the task with the tools."
