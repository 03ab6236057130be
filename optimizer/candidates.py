"""From a lever to values: which numbers to try for a policy key, in which order.

1. A value moves in log space: what a factor of three does to a learning rate does not depend on where it stands.
2. It never leaves the safe range of the policy. At the range's end there is nothing left to try in that direction.
3. If a step was rejected before, others follow: the factor itself, its square (far from the right value small steps
   show nothing), its square root (the step overshot).
"""

import math
from collections.abc import Iterator

from optimizer.types import Direction

_LADDER = (1.0, 2.0, 0.5)
"""Exponents of the factor, in order of trying."""


def ladder(
    current: float, direction: Direction, factor: float, low: float | None, high: float | None
) -> Iterator[float]:
    """Values to try, best first, each different from the current one and from those before (by more than 1 %).

    `current` and `factor` are above zero. Values are rounded to two significant digits, integers stay integers.
    """
    if current <= 0 or factor <= 1:
        raise ValueError(f"a value above zero and a factor above one are needed: {current}, {factor}")
    whole = isinstance(current, int)
    seen = [float(current)]
    sign = 1 if direction is Direction.RAISE else -1
    for exponent in _LADDER:
        value = math.exp(math.log(current) + sign * exponent * math.log(factor))
        value = _rounded(_clipped(value, low, high), whole)
        value = _clipped(value, low, high)  # rounding must not leave the range
        if whole:
            value = round(value)
        moved = value > current if direction is Direction.RAISE else value < current
        if moved and all(abs(value - other) > 0.01 * other for other in seen):
            seen.append(float(value))
            yield value


def _clipped(value: float, low: float | None, high: float | None) -> float:
    if low is not None and value < low:
        return low
    if high is not None and value > high:
        return high
    return value


def _rounded(value: float, whole: bool) -> float:
    if whole:
        return max(round(value), 1)
    return float(f"{value:.1e}")
