"""Metrics of a run as series: what `metrics.jsonl` holds, with missing values left out. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.runs.statistics import mean, step_noise


class RunSeries:
    """Values by name over the steps of a run."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = list(rows)

    @property
    def steps(self) -> int:
        """Number of steps with a line."""
        return len(self._rows)

    def points(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of the steps where `name` was measured and is finite."""
        found: list[tuple[int, float]] = []
        for row in self._rows:
            value = row.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                continue
            found.append((int(row.get("step", len(found) + 1)), float(value)))
        return found

    def values(self, name: str) -> list[float]:
        """The measured values of `name` in order."""
        return [value for _, value in self.points(name)]

    def average(self, name: str) -> float | None:
        """Mean over the run."""
        values = self.values(name)
        return mean(values) if values else None

    def third(self, name: str, part: int) -> float | None:
        """Mean over the first (0), middle (1) or last (2) third of the measured steps; at least one step each."""
        values = self.values(name)
        if not values:
            return None
        size = max(1, len(values) // 3)
        chosen = {0: values[:size], 1: values[size : len(values) - size], 2: values[len(values) - size :]}[part]
        return mean(chosen) if chosen else None

    def early(self, name: str) -> float | None:
        """Mean over the first steps, at most three: the policy as it began."""
        values = self.values(name)[:3]
        return mean(values) if values else None

    def late(self, name: str, steps: int = 3) -> float | None:
        """Mean over the last `steps` measured steps."""
        values = self.values(name)[-steps:]
        return mean(values) if values else None

    def smoothed(self, name: str, window: int = 3) -> list[tuple[int, float]]:
        """(step, mean of the last up to `window` values)."""
        points = self.points(name)
        return [
            (step, mean([value for _, value in points[max(0, i - window + 1) : i + 1]]))
            for i, (step, _) in enumerate(points)
        ]

    def peak(self, name: str, window: int = 3) -> tuple[int, float] | None:
        """(step, value) of the highest smoothed value over full windows; of any window in a shorter series."""
        points = self.smoothed(name, window)
        full = points[window - 1 :] or points
        return max(full, key=lambda point: point[1]) if full else None

    def noise(self, name: str) -> float:
        """Standard deviation of one step around its trend, blind to a few jumps; 0 below two values."""
        return step_noise(self.values(name))
