"""A reading: one number that a text shows, with its name and place. What parsers produce and series are made of.

A reading is never made up: a dash, `None`, `nan` or an empty cell gives none, because missing is not zero.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

MAX_MAGNITUDE = 1e18
"""Larger numbers are ids or times, no metrics."""

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PLAIN = re.compile(rf"({NUMBER})(s|ms|%|x|G|GB|MB|k|st)?\Z")


class Role(StrEnum):
    """What a number says about its series."""

    VALUE = "value"
    """The value at a step, or the only one."""
    FIRST = "first"
    """`a -> b`: where it began."""
    LAST = "last"
    """`a -> b`: where it ended."""
    MEAN = "mean"
    MIN = "min"
    MAX = "max"


class Axis(StrEnum):
    """What a series runs over."""

    STEP = "step"
    EPOCH = "epoch"
    ROUND = "round"
    INDEX = "index"
    """Place in a list whose steps nobody states."""
    NONE = "none"
    """A single number."""


@dataclass(frozen=True)
class Reading:
    """One number of a text."""

    name: str
    printed: str
    """The digits as they stand there."""
    row: int
    """Line inside the text."""
    step: float | None = None
    axis: Axis = Axis.NONE
    role: Role = Role.VALUE
    n: int | None = None
    """Steps that the number is the mean of, where the text says so."""
    total: int | None = None
    """N of `k/N`."""
    setting: bool = False
    """A value of a configuration, not a measurement."""
    run: str | None = None
    """The run that the same document names."""

    @property
    def value(self) -> float:
        return float(self.printed)


def number_in(cell: str) -> str | None:
    """The digits of a cell that is a number, with or without a unit; None for anything else (a dash, nan, a time)."""
    match = _PLAIN.match(cell.strip())
    if match is None or abs(float(match[1])) > MAX_MAGNITUDE:
        return None
    return match[1]


def decimals(printed: str) -> int:
    """Digits behind the point that the printed number is exact to; `5e-06` has six, `1e2` has -2."""
    mantissa, _, exponent = printed.lower().partition("e")
    _, _, fraction = mantissa.partition(".")
    return len(fraction) - (int(exponent) if exponent else 0)


def significant(printed: str) -> int:
    """Significant digits as printed: `0.250` has three, `0` none."""
    mantissa = printed.lower().partition("e")[0].lstrip("+-").replace(".", "").lstrip("0")
    return len(mantissa)


def rounds_to(value: float, printed: str) -> bool:
    """Whether `value`, rounded to the digits of `printed`, is that number (half a unit in the last place)."""
    unit = 10.0 ** -decimals(printed)
    return abs(value - float(printed)) <= 0.5 * unit * (1 + 1e-9) + 1e-15
