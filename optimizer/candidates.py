"""From a lever to values: which ones to try for a policy key, in which order.

1. The decision table of rllm-analyze names multipliers (or values to set), the most promising first. A value moves in
   log space: what a factor of three does to a learning rate does not depend on where it stands.
2. When those were tried and rejected, the square root of the first multiplier follows (the step overshot), then its
   square (far from the right value, small steps show nothing).
3. No value leaves the safe range of the policy; at the range's end there is nothing left to try in that direction.
"""

import math
from collections.abc import Iterator

from optimizer.types import Direction, Lever

_FURTHER = (0.5, 2.0)
"""Exponents of the first multiplier, after the table's own choices."""


def values_to_try(current: float, lever: Lever, low: float | None, high: float | None) -> Iterator[float]:
    """Values, best first, each different from the current one and from those before (by more than 1 %).

    Values are rounded to two significant digits; where the current one is an integer they are integers. Raises
    ValueError for a current value that cannot be multiplied.
    """
    if lever.direction is not Direction.SET and current <= 0:
        raise ValueError(f"{lever.key} {current} cannot be multiplied: a value above zero is needed")
    whole = isinstance(current, int)
    seen = [float(current)]
    for wanted in _wanted(current, lever):
        value = _clipped(wanted, low, high)
        value = max(round(value), 1) if whole else _clipped(float(f"{value:.1e}"), low, high)
        moved = {
            Direction.UP: value > current,
            Direction.DOWN: value < current,
            Direction.SET: True,
        }[lever.direction]
        if moved and all(abs(value - other) > 0.01 * abs(other) for other in seen):
            seen.append(float(value))
            yield value


def _wanted(current: float, lever: Lever) -> Iterator[float]:
    if lever.direction is Direction.SET:
        yield from lever.choices
        return
    yield from (current * choice for choice in lever.choices)
    for exponent in _FURTHER:
        yield current * math.exp(exponent * math.log(lever.choices[0]))


def _clipped(value: float, low: float | None, high: float | None) -> float:
    if low is not None and value < low:
        return low
    if high is not None and value > high:
        return high
    return value
