"""An environment of your own: one class; its public methods are the tools that the model may call.

    reset(**row)        receives a row of tasks.jsonl without `prompt`; returns a text to add to the prompt, or None
    public methods      tools: the model sees their names, type hints and docstrings
    get_reward()        grades the episode when it is over, 0 to 1; above 0.5 counts as a success
    finished            optional: True ends the episode
    close(), seed(n)    optional: called at the end, and before reset with a number for your own random choices

Each episode gets a new object. Whatever raises here is told to the model (in a tool) or recorded on the episode.
"""

import ast
import operator

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value_of(text: str) -> int:
    """The value of an expression of whole numbers, + - * and brackets, without `eval`."""
    return _value(ast.parse(text.strip(), mode="eval").body)


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError("use whole numbers, + - * and brackets")


class MyEnv:
    """Two tools and a reward: the right answer counts 0.9, getting there in one calculation 0.1 more."""

    system_prompt = "Solve the task with the tools."

    def __init__(self) -> None:
        self.finished = False
        self._expected = ""
        self._given: str | None = None
        self._calculations = 0

    def reset(self, answer: str = "", **row: object) -> str | None:
        self._expected = str(answer)
        return None

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression, e.g. 3*(4+5).
        """
        self._calculations += 1
        return str(value_of(expression))

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final number.
        """
        self._given = str(answer).strip()
        self.finished = True
        return "done"

    def get_reward(self) -> float:
        if self._given != self._expected:
            return 0.0
        return 1.0 if self._calculations == 1 else 0.9
