"""Curves in a terminal: plain text, no dependency."""

import math
from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """One character a value, from the lowest block at `low` to the full one at `high` (the extremes by default)."""
    if not values:
        return ""
    bottom = min(values) if low is None else low
    top = max(values) if high is None else high
    span = top - bottom
    levels = len(_BLOCKS) - 2
    return "".join(
        _BLOCKS[1 + (round(min(1.0, max(0.0, (value - bottom) / span)) * levels) if span > 0 else 0)]
        for value in values
    )


def thin(points: Sequence[tuple[int, float]], columns: int) -> list[tuple[int, float]]:
    """At most `columns` points: neighbours are averaged, the last step of each bunch names it."""
    if len(points) <= columns:
        return list(points)
    bunches = []
    for column in range(columns):
        bunch = points[column * len(points) // columns : (column + 1) * len(points) // columns]
        bunches.append((bunch[-1][0], math.fsum(value for _, value in bunch) / len(bunch)))
    return bunches


def text_curve(
    points: Sequence[tuple[int, float]],
    *,
    width: int = 60,
    height: int = 8,
    low: float = 0.0,
    high: float = 1.0,
) -> list[str]:
    """Lines of a bar curve over steps with its scale; none for no points."""
    if not points:
        return []
    shown = thin(points, width)
    stretch = max(1, min(3, width // len(shown)))
    span = high - low if high > low else 1.0
    lines = []
    for row in range(height, 0, -1):
        label = f"{low + span * row / height:5.2f}" if row in (height, (height + 1) // 2) else "     "
        cells = []
        for _, value in shown:
            filled = min(1.0, max(0.0, (value - low) / span)) * height - (row - 1)
            block = _BLOCKS[round(min(1.0, max(0.0, filled)) * (len(_BLOCKS) - 1))]
            cells.append(block * stretch)
        lines.append(f"{label} ┤{''.join(cells)}".rstrip())
    lines.append(f"{low:5.2f} └{'─' * (len(shown) * stretch)}")
    first, last = f"step {shown[0][0]}", f"{shown[-1][0]}"
    gap = max(1, len(shown) * stretch - len(first) - len(last))
    lines.append(f"       {first}{' ' * gap}{last}")
    return lines
