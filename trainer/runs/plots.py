"""The curves of a run: what is drawn, and drawing it in a terminal. `plots_png` draws the same as an image.

Reward is the mean over the episodes of a step; its band is ± 1.96 standard errors over those episodes (reward_std /
sqrt(episodes)), the noise of one step, not of the run. Validations are held-out and carry their own interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.runs.curves import sparkline, thin
from trainer.runs.report import PHASES, phase_seconds
from trainer.runs.rundir import RunDirectory
from trainer.runs.series import RunSeries
from trainer.runs.statistics import Z95
from trainer.runs.types import Eval

MEAN, BAND, MARK = "●", "░", "◆"

BAR = 30
"""Columns of the longest bar of the phases."""


@dataclass(frozen=True)
class Point:
    """A value at a step with the bounds of its band; both bounds are the value where it has none."""

    step: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curves:
    """Everything that is drawn of one run."""

    run_id: str
    title: str
    reward: tuple[Point, ...]
    validation: tuple[Point, ...]
    before: Eval | None
    after: Eval | None
    entropy: tuple[tuple[int, float], ...]
    length_mean: tuple[tuple[int, float], ...]
    length_max: tuple[tuple[int, float], ...]
    length_cap: int
    phases: dict[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Phase → (step, seconds)."""
    phase_totals: dict[str, float] = field(default_factory=dict)
    """Phase → seconds over the run, in the order of `PHASES`."""

    @property
    def empty(self) -> bool:
        """Whether the run has taken no step and validated nothing."""
        return not self.reward and not self.validation


def curves_of(directory: RunDirectory) -> Curves:
    """Reads the curves of a run in whatever state it is. Raises RunError."""
    document, config = directory.read_document(), directory.read_config()
    rows = directory.metrics()
    series = RunSeries(rows)
    totals = phase_seconds(rows)
    ordered = [*PHASES, *(name for name in totals if name not in PHASES)]
    return Curves(
        run_id=document.run_id,
        title=f"{config.model} on {config.env} ({config.difficulty}), seed {config.seed}, {document.state}",
        reward=tuple(point for row in rows if (point := _reward(row)) is not None),
        validation=tuple(_validations(directory)),
        before=document.eval.get("before"),
        after=document.eval.get("after"),
        entropy=tuple(series.points("entropy")),
        length_mean=tuple(series.points("completion_mean")),
        length_max=tuple(series.points("completion_max")),
        length_cap=config.max_completion_tokens,
        phases={name: tuple(_phase(rows, name)) for name in ordered if totals.get(name, 0) > 0},
        phase_totals={name: totals[name] for name in ordered if totals.get(name, 0) > 0},
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _reward(row: dict[str, Any]) -> Point | None:
    value, spread, episodes = (_number(row.get(name)) for name in ("reward_mean", "reward_std", "episodes"))
    step = row.get("step")
    if value is None or not isinstance(step, int):
        return None
    half = Z95 * spread / math.sqrt(episodes) if spread is not None and episodes else 0.0
    return Point(step, value, value - half, value + half)


def _validations(directory: RunDirectory) -> list[Point]:
    points = []
    for event in directory.events():
        result, step = event.get("eval"), event.get("step")
        if event.get("kind") != "validation" or not isinstance(result, dict) or not isinstance(step, int):
            continue
        found = Eval.model_validate(result)
        points.append(Point(step, found.mean, *found.ci95))
    return points


def _phase(rows: Sequence[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    found = []
    for row in rows:
        seconds, step = row.get("seconds"), row.get("step")
        value = _number(seconds.get(name)) if isinstance(seconds, dict) else None
        if value is not None and isinstance(step, int):
            found.append((step, value))
    return found


def plot_lines(curves: Curves, *, width: int = 80) -> list[str]:
    """The curves as plain text."""
    lines = [f"{curves.run_id}: {curves.title}"]
    if curves.empty:
        return [*lines, "no step yet: nothing to draw"]
    lines += ["", f"Reward by step ({MEAN} mean, {BAND} ± 1.96 standard errors, {MARK} validation, held-out)"]
    lines += text_band(curves.reward, curves.validation, width=max(20, min(100, width - 8)))
    for name, result in (("before", curves.before), ("after", curves.after)):
        if result is not None:
            low, high = result.ci95
            lines.append(f"  test {name:6} {result.mean:.3f} [{low:.3f}, {high:.3f}] n={result.n}")
    columns = max(10, min(60, width - 40))
    series = (
        ("entropy, nats a token", curves.entropy, "{:.3f}"),
        ("tokens, mean", curves.length_mean, "{:.0f}"),
        (f"tokens, longest (cap {curves.length_cap})", curves.length_max, "{:.0f}"),
    )
    lines.append("")
    for name, points, form in series:
        if points:
            values = [value for _, value in thin(points, columns)]
            lines.append(f"{name:28} {sparkline(values)}  {form.format(min(values))} … {form.format(max(values))}")
    return [*lines, *_phase_lines(curves)]


def _phase_lines(curves: Curves) -> list[str]:
    total = sum(curves.phase_totals.values())
    if total <= 0:
        return []
    longest = max(curves.phase_totals.values())
    lines = ["", f"Time of the steps: {total:.1f} s"]
    for name, seconds in curves.phase_totals.items():
        bar = "█" * max(1, round(BAR * seconds / longest))
        lines.append(f"  {name:12} {bar:{BAR}} {seconds:8.1f} s {seconds / total:5.0%}")
    return lines


def text_band(
    points: Sequence[Point],
    marks: Sequence[Point] = (),
    *,
    width: int = 60,
    height: int = 10,
    low: float = 0.0,
    high: float = 1.0,
) -> list[str]:
    """A curve with its band and marks on it; the scale grows where a value lies outside `low` … `high`.

    Wide runs are thinned: neighbours are averaged, so are the bounds of their bands.
    """
    steps = [one.step for one in (*points, *marks)]
    if not steps:
        return []
    first, last = min(steps), max(steps)
    values = [one.value for one in (*points, *marks)]
    bottom, top = min(low, *values), max(high, *values)
    columns = max(1, min(width, (last - first + 1) * 3))
    grid = [[" "] * columns for _ in range(height)]

    def column(step: int) -> int:
        return 0 if last == first else round((step - first) / (last - first) * (columns - 1))

    def row(value: float) -> int:
        share = (min(top, max(bottom, value)) - bottom) / (top - bottom) if top > bottom else 0.0
        return height - 1 - round(share * (height - 1))

    bunches: dict[int, list[Point]] = {}
    for one in points:
        bunches.setdefault(column(one.step), []).append(one)
    for at, bunch in bunches.items():
        lower, upper, value = (
            math.fsum(values) / len(bunch)
            for values in ([one.low for one in bunch], [one.high for one in bunch], [one.value for one in bunch])
        )
        for line in range(row(upper), row(lower) + 1):
            grid[line][at] = BAND
        grid[row(value)][at] = MEAN
    for one in marks:
        grid[row(one.value)][column(one.step)] = MARK
    lines = []
    for number, cells in enumerate(grid):
        share = (height - 1 - number) / (height - 1)
        label = f"{bottom + share * (top - bottom):5.2f}" if number in (0, height // 2, height - 1) else "     "
        lines.append(f"{label} ┤{''.join(cells)}".rstrip())
    ends = f"step {first}", str(last)
    lines.append(f"       {ends[0]}{' ' * max(1, columns - len(ends[0]) - len(ends[1]))}{ends[1]}")
    return lines
