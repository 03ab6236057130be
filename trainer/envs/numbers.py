"""The number that an answer in words names: `$1,200.50`, `-3 degrees`, `50%`, `3/4`, `#### 42`, `\\boxed{42}`.

A text with several different numbers and no mark that says which one is the answer names none: otherwise listing every
number would be a winning strategy. Everything is bounded, since the text comes from a model. A comma groups thousands,
a point is the decimal point.
"""

import re
from fractions import Fraction

MAX_CHARACTERS = 2000
"""Longer answers are read from their end."""
MAX_DIGITS = 40
"""Longer numbers are not read."""

_PLAIN_SIGNS = str.maketrans(
    {**dict.fromkeys("\u2212\u2010\u2011\u2013\uff0d", "-"), **{chr(0xFF10 + digit): str(digit) for digit in range(10)}}
)
"""Typographic minus signs and full-width digits, as phones and Chinese keyboards write them."""
_NUMBER = re.compile(
    r"""(?<![A-Za-z0-9_.])                          # not inside a word or another number
    (?P<sign>[-+]?)\s?[$\u20ac\u00a3\u00a5\uffe5]?\s?(?P<inner>[-+]?)   # -$5 and $-5
    (?P<digits>(?>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9]|,[0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+))
    (?![eE][-+]?[0-9]{3})                           # 1e999 is no number, and not 1 either
    (?:[eE](?P<exponent>[-+]?[0-9]{1,2}))?
    (?:\s?/\s?(?P<denominator>(?>[0-9]+))(?![.,][0-9]))?
    """,
    re.VERBOSE,
)
_MARKS = ("####", "\\boxed{", "=")
"""What the answer stands behind, the strongest first; the last occurrence counts."""


def _marked(text: str) -> str:
    """The part of a text that holds its answer."""
    for mark in _MARKS:
        if mark in text:
            behind = text.rpartition(mark)[2]
            return {"####": behind.strip().partition("\n")[0], "\\boxed{": behind.partition("}")[0]}.get(mark, behind)
    return text


def number_in(text: str) -> Fraction | None:
    """The number that a text names, or None where it names none or several different ones."""
    tail = _marked(text[-MAX_CHARACTERS:].translate(_PLAIN_SIGNS))
    values = {_value(match) for match in _NUMBER.finditer(tail)}
    return values.pop() if len(values) == 1 else None


def _value(match: re.Match[str]) -> Fraction | None:
    digits, denominator = match["digits"].replace(",", ""), match["denominator"]
    if max(len(digits), len(denominator or "")) > MAX_DIGITS or (denominator is not None and int(denominator) == 0):
        return None
    value = Fraction(digits) * Fraction(10) ** int(match["exponent"] or 0) / int(denominator or 1)
    return -value if (match["sign"] + match["inner"]).count("-") == 1 else value


def names_number(text: str, expected: Fraction) -> bool:
    """Whether a text names this number."""
    return number_in(text) == expected
