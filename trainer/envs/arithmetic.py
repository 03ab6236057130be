"""Safe evaluation of arithmetic: digits, + - * /, brackets and unary minus; exact, and bounded in time and size."""

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

MAX_LENGTH = 200
MAX_MAGNITUDE = 10**30

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ArithmeticFault(ValueError):
    """An expression that is not arithmetic; the text is an answer for the model."""


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            result = Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left), _value(right)
            if isinstance(op, ast.Div) and b == 0:
                raise ArithmeticFault("division by zero")
            result = _OPERATORS[type(op)](a, b)
        case _:
            raise ArithmeticFault("only numbers, + - * / and brackets are allowed")
    if abs(result) > MAX_MAGNITUDE:
        raise ArithmeticFault("the number is too large")
    return result


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression. Raises ArithmeticFault with a text that can be shown to the model."""
    if len(expression) > MAX_LENGTH:
        raise ArithmeticFault(f"the expression is longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArithmeticFault("the expression cannot be read") from error
    return _value(tree.body)


def show(value: Fraction) -> str:
    """An integer as digits, anything else as a decimal with at most 6 places."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.6f}".rstrip("0").rstrip(".")


def same_number(text: str, expected: str) -> bool:
    """Whether two texts name the same number (`12`, `12.0`, ` 12 `); anything unreadable is not equal."""
    try:
        return Fraction(text.strip().replace(",", "")) == Fraction(expected.strip())
    except (ValueError, ZeroDivisionError):
        return False
