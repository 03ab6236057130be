"""Intervals for rates, and measures of level, spread, trend and agreement that a few wild values do not move. Pure."""

import math
from collections.abc import Sequence
from itertools import pairwise

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(successes: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a rate: `successes` of `n` independent trials.

    centre (p + z²/2n) / (1 + z²/n), half width z/(1 + z²/n) · sqrt(p(1-p)/n + z²/4n²) (Wilson 1927). Holds its level
    for small n and at 0 and 1, where the usual interval has no width. Raises ValueError unless
    0 <= successes <= n and n > 0.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials is not a rate")
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # at 0 and 1 the bound is exact; rounding must not push the rate out of its own interval
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def difference_interval(a: float, n_a: int, b: float, n_b: int, z: float = Z95) -> tuple[float, float]:
    """Newcombe's hybrid score interval of `b / n_b - a / n_a`, the difference of two independent rates.

    (d - sqrt((p_b - l_b)² + (u_a - p_a)²), d + sqrt((u_b - p_b)² + (p_a - l_a)²)) with Wilson bounds l, u
    (Newcombe 1998, method 10). `a` and `b` are counts of successes.
    """
    low_a, high_a = wilson(a, n_a, z)
    low_b, high_b = wilson(b, n_b, z)
    rate_a, rate_b = a / n_a, b / n_b
    difference = rate_b - rate_a
    return (
        difference - math.hypot(rate_b - low_b, high_a - rate_a),
        difference + math.hypot(high_b - rate_b, rate_a - low_a),
    )


def mean(values: list[float]) -> float:
    """Arithmetic mean. Raises ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values")
    return math.fsum(values) / len(values)


def standard_error(values: list[float]) -> float:
    """Standard error of the mean of independent values; NaN below two values."""
    if len(values) < 2:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1) / len(values))


def theil_sen_slope(values: list[float]) -> float:
    """Median of the slopes of all pairs: change per step, blind to a few wild values (Theil 1950, Sen 1968).

    Raises ValueError below two values. Series longer than 200 are thinned to 200
    evenly spaced points, since pairs grow as n².
    """
    if len(values) < 2:
        raise ValueError("a slope needs two values")
    count = min(len(values), 200)
    places = [round(i * (len(values) - 1) / (count - 1)) for i in range(count)]
    slopes = sorted((values[b] - values[a]) / (b - a) for k, a in enumerate(places) for b in places[k + 1 :] if b != a)
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError for no values."""
    if not values:
        raise ValueError("the median of no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def robust_sigma(values: Sequence[float]) -> float:
    """1.4826 times the median absolute deviation: the standard deviation of normal values (Hampel 1974)."""
    centre = median(values)
    return 1.4826 * median([abs(value - centre) for value in values])


def step_noise(values: Sequence[float]) -> float:
    """Standard deviation of one value around its trend: from the median step-to-step change, blind to a few jumps.

    For independent normal noise the median of |difference| is 0.954 standard deviations of one value. 0 below two
    values.
    """
    changes = [abs(after - before) for before, after in pairwise(values)]
    return median(changes) / 0.954 if changes else 0.0


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN where one side does not vary.

    Raises ValueError unless both have the same number of values, at least two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"a rank correlation needs two series of one length, not {len(a)} and {len(b)} values")
    x, y = _ranks(a), _ranks(b)
    centre = (len(a) - 1) / 2
    covariance = math.fsum((i - centre) * (j - centre) for i, j in zip(x, y, strict=True))
    spread = math.sqrt(math.fsum((i - centre) ** 2 for i in x) * math.fsum((j - centre) ** 2 for j in y))
    return covariance / spread if spread > 0 else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda place: values[place])
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in order[at : end + 1]:
            ranks[place] = (at + end) / 2
        at = end + 1
    return ranks
