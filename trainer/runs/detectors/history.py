"""The series of a run up to one moment, as detectors read it: windows, early values, peaks. Grows line by line.

Everything it answers is a function of the lines given so far; what it remembers besides them is only a cache. A line
for a step that is already there (after a resume) takes back that step and what came after it.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from trainer.runs.statistics import mean, median, step_noise

MIN_EARLY = 5
"""Values below which there is no early level to compare with."""

NOISE_WINDOW = 50
"""Values over which the step-to-step noise is measured."""


class Point(NamedTuple):
    """A measured value."""

    step: int
    value: float


class Validation(NamedTuple):
    """Success on the validation split after a step."""

    step: int
    mean: float
    n: int | None


class BadUpdate(NamedTuple):
    """An update whose gradient was not finite."""

    step: int
    in_a_row: int


class History:
    """What is known of a run."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        """Steps with a line, ascending."""
        self.validations: list[Validation] = []
        self.bad_updates: list[BadUpdate] = []
        self.not_numbers: list[tuple[int, str]] = []
        """(step, metric) of values that are there and are NaN or infinite."""
        self._points: dict[str, list[Point]] = {}
        self._peaks: dict[tuple[str, int], tuple[int, Point | None]] = {}

    @property
    def last_step(self) -> int:
        """The last step with a line; 0 before the first."""
        return self.steps[-1] if self.steps else 0

    # ---- growing

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a metrics line. Nested numbers get dotted names, their sum the plain name;
        a line without a step follows the last one."""
        given = row.get("step")
        step = given if isinstance(given, int) and not isinstance(given, bool) else self.last_step + 1
        if step <= self.last_step:
            self.rewind(step)
        self.steps.append(step)
        for name, value in row.items():
            if name != "step":
                self._add(step, name, value)

    def _add(self, step: int, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for inner, one in value.items():
                self._add(step, f"{name}.{inner}", one)
            numbers = [one for one in value.values() if isinstance(one, (int, float)) and math.isfinite(one)]
            if numbers:
                self._points.setdefault(name, []).append(Point(step, math.fsum(numbers)))
        elif isinstance(value, (int, float)):
            if math.isfinite(value):
                self._points.setdefault(name, []).append(Point(step, float(value)))
            else:
                self.not_numbers.append((step, name))

    def rewind(self, step: int) -> None:
        """Takes back `step` and what came after it."""
        self.steps = [one for one in self.steps if one < step]
        self.validations = [one for one in self.validations if one.step < step]
        self.not_numbers = [one for one in self.not_numbers if one[0] < step]
        # a bad update of this very step is told before its line: it stays
        self.bad_updates = [one for one in self.bad_updates if one.step <= step]
        self._points = {name: [one for one in points if one.step < step] for name, points in self._points.items()}
        self._peaks.clear()

    # ---- reading

    def names(self, prefix: str = "") -> list[str]:
        """Metrics that were measured at least once, sorted."""
        return sorted(name for name, points in self._points.items() if points and name.startswith(prefix))

    def points(self, name: str) -> Sequence[Point]:
        """All measured values of a metric."""
        return self._points.get(name, [])

    def now(self, name: str) -> float | None:
        """The value of the present line."""
        points = self.points(name)
        return points[-1].value if points and points[-1].step == self.last_step else None

    def at(self, name: str, step: int) -> float | None:
        """The value at one step."""
        points = self.points(name)
        place = bisect_left(points, step, key=lambda point: point.step)
        return points[place].value if place < len(points) and points[place].step == step else None

    def tail(self, name: str, count: int) -> list[float]:
        """The last `count` measured values, or all where there are fewer."""
        return [point.value for point in self.points(name)[-count:]]

    def full_tail(self, name: str, count: int) -> list[float] | None:
        """The last `count` measured values; None where there are fewer."""
        values = self.tail(name, count)
        return values if len(values) == count else None

    def since(self, name: str, step: int) -> list[float]:
        """Values after `step`."""
        points = self.points(name)
        return [point.value for point in points[bisect_left(points, step + 1, key=lambda point: point.step) :]]

    def early(self, name: str, count: int) -> float | None:
        """Median of the first `count` values, of all where there are fewer; None below `MIN_EARLY` values."""
        points = self.points(name)[:count]
        return median([point.value for point in points]) if len(points) >= MIN_EARLY else None

    def window_mean(self, name: str, window: int, back: int = 0) -> float | None:
        """Mean of the last `window` values, `back` values ago; None where there are fewer."""
        points = self.points(name)
        end = len(points) - back
        return mean([point.value for point in points[end - window : end]]) if end >= window else None

    def window_means(self, name: str, window: int, count: int) -> list[float] | None:
        """The last `count` means over `window` values, oldest first; None where there are fewer."""
        found = [self.window_mean(name, window, back) for back in range(count - 1, -1, -1)]
        return [one for one in found if one is not None] if None not in found else None

    def peak(self, name: str, window: int, last_too: bool = False) -> Point | None:
        """The highest mean over `window` values (its step is the window's last); the present one only if asked for."""
        points = self.points(name)
        done, best = self._peaks.get((name, window), (0, None))
        for end in range(max(done, window - 1), len(points) - 1):
            value = mean([point.value for point in points[end - window + 1 : end + 1]])
            if best is None or value > best.value:
                best = Point(points[end].step, value)
        self._peaks[(name, window)] = (max(done, len(points) - 1), best)
        if last_too and len(points) >= window:
            present = mean([point.value for point in points[-window:]])
            if best is None or present > best.value:
                return Point(points[-1].step, present)
        return best

    def noise(self, name: str) -> float:
        """Standard deviation of one value around its trend, over the last values: the larger of the robust estimate
        (which takes a series with many equal values for quiet) and the mean square of the changes (which does not)."""
        values = self.tail(name, NOISE_WINDOW)
        if len(values) < 2:
            return 0.0
        squares = mean([(after - before) ** 2 for before, after in pairwise(values)])
        return max(step_noise(values), math.sqrt(squares / 2))
