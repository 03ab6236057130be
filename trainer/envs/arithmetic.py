"""Safe evaluation of arithmetic: numbers, + - * /, brackets and signs; exact, and bounded in time and size.

A recursive-descent parser of its own instead of `ast`: literals stay exact decimals (`ast` would round them to floats,
and read `1e999` as infinity), and nothing but ASCII digits, operators and brackets is ever looked at.

    sum     = product (("+" | "-") product)*
    product = factor (("*" | "/") factor)*
    factor  = ("+" | "-") factor | "(" sum ")" | number
    number  = digits ["." [digits]] | "." digits, with an optional exponent of at most two digits
"""

import re
from fractions import Fraction

MAX_LENGTH = 200
"""Characters of an expression: bounds the depth of brackets and the number of operations, so time and memory too."""
MAX_MAGNITUDE = 10**30
"""Results beyond this are refused at every step, so that no intermediate number grows."""

_TOKEN = re.compile(r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)|(?P<symbol>[-+*/()]))")


class ArithmeticFault(ValueError):
    """An expression that is not arithmetic; the text is an answer for the model."""


def _tokens(expression: str) -> list[str]:
    """Numbers and symbols in order. Raises ArithmeticFault on anything else."""
    found: list[str] = []
    at, text = 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticFault("only numbers, + - * / and brackets are allowed")
        token = match.group("number") or match.group("symbol")
        if token == "*" and found and found[-1] == "*" and text[match.end() - 2] == "*":
            raise ArithmeticFault("only numbers, + - * / and brackets are allowed")  # a power
        found.append(token)
        at = match.end()
    return found


class _Parser:
    """Reads one expression and computes it on the way."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def value(self) -> Fraction:
        result = self._sum()
        if self._at < len(self._tokens):
            raise ArithmeticFault("the expression cannot be read")
        return result

    def _next(self, *allowed: str) -> str | None:
        """The next token if it is one of these, and then it is consumed."""
        if self._at < len(self._tokens) and self._tokens[self._at] in allowed:
            self._at += 1
            return self._tokens[self._at - 1]
        return None

    def _sum(self) -> Fraction:
        result = self._product()
        while (operator := self._next("+", "-")) is not None:
            other = self._product()
            result = _bounded(result + other if operator == "+" else result - other)
        return result

    def _product(self) -> Fraction:
        result = self._factor()
        while (operator := self._next("*", "/")) is not None:
            other = self._factor()
            if operator == "/" and other == 0:
                raise ArithmeticFault("division by zero")
            result = _bounded(result * other if operator == "*" else result / other)
        return result

    def _factor(self) -> Fraction:
        sign = self._next("+", "-")
        if sign is not None:
            return -self._factor() if sign == "-" else self._factor()
        if self._next("(") is not None:
            result = self._sum()
            if self._next(")") is None:
                raise ArithmeticFault("the expression cannot be read")
            return result
        if self._at >= len(self._tokens) or self._tokens[self._at] in "+-*/()":
            raise ArithmeticFault("the expression cannot be read")
        self._at += 1
        return _bounded(Fraction(self._tokens[self._at - 1]))


def _bounded(value: Fraction) -> Fraction:
    if abs(value) > MAX_MAGNITUDE:
        raise ArithmeticFault("the number is too large")
    return value


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression. Raises ArithmeticFault with a text that can be shown to the model."""
    if not isinstance(expression, str):  # arguments come from a model: any JSON value is possible
        raise ArithmeticFault(f"the expression must be a text, not {type(expression).__name__}")
    if len(expression) > MAX_LENGTH:
        raise ArithmeticFault(f"the expression is longer than {MAX_LENGTH} characters")
    return _Parser(_tokens(expression)).value()


DECIMALS = 6
"""Places after the point in what the model is shown."""


def show(value: Fraction) -> str:
    """An integer as digits, anything else as a decimal rounded to at most 6 places (halves to even)."""
    scaled = round(value * 10**DECIMALS)
    whole, rest = divmod(abs(scaled), 10**DECIMALS)
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}.{rest:0{DECIMALS}d}".rstrip("0").rstrip(".")


_PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?|[+-]?[0-9]+/[0-9]+")


def plain_number(text: str) -> Fraction | None:
    """A text that is a number and nothing else (thousands separators allowed); None for anything else.

    Not `Fraction(text)`: that computes `1e999999999` digit by digit.
    """
    stripped = text.strip().replace(",", "")
    if len(stripped) > MAX_LENGTH or _PLAIN.fullmatch(stripped) is None:
        return None
    try:
        return Fraction(stripped)
    except ZeroDivisionError:  # 1/00
        return None


def same_number(text: str, expected: str) -> bool:
    """Whether two texts are the same number (`12`, `12.0`, ` 12 `); anything that is no number is not equal."""
    value = plain_number(text)
    return value is not None and value == plain_number(expected)
