"""What several detectors judge alike: whether reward has room, whether it moved, the evidence of a series' end."""

import math
from collections.abc import Sequence

from trainer.runs.detectors.history import History, Validation
from trainer.runs.detectors.types import Evidence, View
from trainer.runs.statistics import difference_interval, mean, theil_sen_slope

REWARD = "reward_mean"

SLOPE_POINTS = 50


def present(view: View, metric: str, threshold: float | None = None, value: float | None = None) -> Evidence:
    """Evidence of the present step: the metric's value, or the one given."""
    shown = view.history.now(metric) if value is None else value
    return Evidence(view.history.last_step, metric, shown, threshold)


def last_points(view: View, metric: str, count: int, threshold: float | None = None) -> tuple[Evidence, ...]:
    """Evidence of the last values of a metric."""
    return tuple(Evidence(point.step, metric, point.value, threshold) for point in view.history.points(metric)[-count:])


def is_solved(view: View, window: int = 5) -> bool:
    """Whether the mean reward of the last steps is so high that little entropy, few signals and alike episodes are
    what success looks like. The limit is the one at which flat groups mean "too easy"."""
    values = view.history.tail(REWARD, window)
    return bool(values) and mean(values) >= view.limits("zero_variance")["easy_reward"]


def change(history: History, metric: str, window: int) -> tuple[float, float] | None:
    """(mean of the last `window` values minus mean of the `window` values before, its standard error by the step
    noise); None where there are fewer."""
    after, before = history.window_mean(metric, window), history.window_mean(metric, window, back=window)
    if after is None or before is None:
        return None
    return after - before, history.noise(metric) * math.sqrt(2 / window)


def is_rising(view: View, window: int) -> bool:
    """Whether reward rose by more than one standard error from the window before to the last one."""
    moved = change(view.history, REWARD, window)
    return moved is not None and moved[0] > moved[1] and moved[0] > 0


def has_risen(view: View, window: int) -> bool:
    """Whether the last `window` rewards lie above the first ones by more than two standard errors."""
    history = view.history
    first, last = [point.value for point in history.points(REWARD)[:window]], history.tail(REWARD, window)
    if len(first) < window:
        return False
    return mean(last) - mean(first) > 2 * history.noise(REWARD) * math.sqrt(2 / window)


def slope_per_step(values: Sequence[float]) -> float:
    """Theil-Sen slope of at most `SLOPE_POINTS` evenly spaced values, per value: cheap enough for every step."""
    if len(values) <= SLOPE_POINTS:
        return theil_sen_slope(list(values))
    gap = (len(values) - 1) / (SLOPE_POINTS - 1)
    return theil_sen_slope([values[round(place * gap)] for place in range(SLOPE_POINTS)]) / gap


def all_above(values: Sequence[float] | None, bound: float) -> bool:
    """Whether there are enough values and each is above the bound."""
    return values is not None and all(value > bound for value in values)


def all_below(values: Sequence[float] | None, bound: float) -> bool:
    """Whether there are enough values and each is below the bound."""
    return values is not None and all(value < bound for value in values)


def errors_between(a: Validation, b: Validation) -> float:
    """(b - a) in standard errors of the difference of two rates; with an unknown number of problems, infinite."""
    if a.n is None or b.n is None:
        return math.copysign(math.inf, b.mean - a.mean) if a.mean != b.mean else 0.0
    low, high = difference_interval(a.mean * a.n, a.n, b.mean * b.n, b.n, z=1.0)
    difference = b.mean - a.mean
    error = high - difference if difference < 0 else difference - low
    return difference / error if error > 0 else 0.0
