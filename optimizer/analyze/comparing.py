"""Comparators: whether numbers of a series are what a claim says, with the digits that are printed as tolerance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from optimizer.analyze.readings import Role, decimals, rounds_to, significant
from optimizer.analyze.series import Point

MIN_TREND_STEPS = 8
"""Steps behind a statement about a rise or a fall. With four, a series that only alternates looks like either."""

TREND_ERRORS = 2.0
"""Standard errors by which the last third has to differ from the first."""


class Comparator(StrEnum):
    """What is said of the value."""

    EQ = "eq"
    LT = "lt"
    GT = "gt"
    FALLS_TO = "falls_to"
    RISES_TO = "rises_to"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    """Steps that have a value."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Comparator.EQ: "is", Comparator.LT: "is below", Comparator.GT: "is above", Comparator.FALLS_TO: "falls to",
    Comparator.RISES_TO: "rises to", Comparator.MEAN: "has the mean", Comparator.MIN: "has the minimum",
    Comparator.MAX: "has the maximum", Comparator.COUNT: "is shown at so many steps:",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a comparison came to."""

    holds: bool
    reason: str
    value: float = math.nan
    n: int | None = None
    standard_error: float | None = None
    used: list[Point] = field(default_factory=list)


def compare(
    comparator: Comparator,
    printed: str,
    points: Sequence[Point],
    steps: tuple[float, float] | None,
    known_steps: int | None,
) -> Outcome:
    """Whether the points are what the claim says. `known_steps`: how many steps the run is known to have."""
    values = _by_step(points)
    if isinstance(values, str):
        return Outcome(False, values)
    if comparator is Comparator.EQ:
        return _equal(printed, points, values, steps, known_steps)
    if comparator in (Comparator.LT, Comparator.GT):
        return _bound(comparator, printed, points, values, steps, known_steps)
    if comparator is Comparator.COUNT:
        return _count(printed, values, known_steps)
    if comparator in (Comparator.MEAN, Comparator.MIN, Comparator.MAX):
        return _statistic(comparator, printed, points, values, steps, known_steps)
    return _trend(comparator, printed, values, steps, known_steps)


def same_number(value_printed: str, claimed: str) -> bool:
    """Whether the claimed number is the printed one, rounded to the claim's digits.

    A claim of one digit is accepted only where no more are printed: `0.5` says too little about `0.5474`.
    """
    if significant(claimed) < min(2, significant(value_printed)):
        return False
    if decimals(claimed) > decimals(value_printed):
        return float(claimed) == float(value_printed)
    return rounds_to(float(value_printed), claimed)


def _by_step(points: Sequence[Point]) -> dict[float, Point] | str:
    """Plain values by their step; a text where one step is shown with two values."""
    found: dict[float, Point] = {}
    for point in points:
        if point.step is None or point.role is not Role.VALUE:
            continue
        there = found.get(point.step)
        if there is not None and not same_number(*_coarser_last(there, point)):
            return f"step {point.step:g} is shown with two values, {there.reading.printed} and {point.reading.printed}"
        if there is None or significant(point.reading.printed) > significant(there.reading.printed):
            found[point.step] = point
    return dict(sorted(found.items()))


def _coarser_last(one: Point, other: Point) -> tuple[str, str]:
    first, second = one.reading.printed, other.reading.printed
    return (first, second) if decimals(first) >= decimals(second) else (second, first)


def _single(points: Sequence[Point]) -> list[Point]:
    """Numbers without a step that are plain values or the ends of `a -> b`."""
    return [point for point in points if point.step is None and point.role in (Role.VALUE, Role.FIRST, Role.LAST)]


def _equal(
    printed: str,
    points: Sequence[Point],
    values: dict[float, Point],
    steps: tuple[float, float] | None,
    known: int | None,
) -> Outcome:
    if values:
        gap = _gap(values, steps, known) if steps is None else None
        if gap is not None:
            return Outcome(False, f"say of which step: {gap}")
        differing = [point for point in values.values() if not same_number(point.reading.printed, printed)]
        if differing:
            one = differing[0]
            return Outcome(False, f"it is {one.reading.printed} at step {one.step:g} (line {one.line})")
        used = list(values.values())
        return Outcome(True, f"shown at {len(used)} step(s)", used[-1].value, len(used), used=used)
    single = _single(points)
    plain = [point for point in single if point.role is Role.VALUE] or single
    if not plain:
        roles = ", ".join(sorted({point.role.value for point in points}))
        return Outcome(False, f"the cited lines show only its {roles}")
    equal = [point for point in plain if same_number(point.reading.printed, printed)]
    differing = [point for point in plain if point not in equal]
    if not equal or (differing and plain[0].role is Role.VALUE):
        return Outcome(False, f"it is {differing[0].reading.printed} (line {differing[0].line})")
    role = equal[-1].role
    told = "shown as a single number" if role is Role.VALUE else f"shown as the {role} value of `a -> b`"
    return Outcome(True, told, equal[-1].value, 1, used=equal)


def _bound(
    comparator: Comparator,
    printed: str,
    points: Sequence[Point],
    values: dict[float, Point],
    steps: tuple[float, float] | None,
    known: int | None,
) -> Outcome:
    if values:
        gap = _gap(values, steps, known)
        if gap is not None:
            return Outcome(False, gap)
    used = list(values.values()) or [point for point in _single(points) if point.role is Role.VALUE]
    if not used:
        return Outcome(False, "the cited lines show no plain value of it")
    limit = float(printed)
    outside = [p for p in used if not (p.value < limit if comparator is Comparator.LT else p.value > limit)]
    if outside:
        return Outcome(False, f"it is {outside[0].reading.printed} in line {outside[0].line}")
    extreme = max(used, key=lambda p: p.value) if comparator is Comparator.LT else min(used, key=lambda p: p.value)
    return Outcome(True, f"all {len(used)} value(s) shown", extreme.value, len(used), used=used)


def _count(printed: str, values: dict[float, Point], known: int | None) -> Outcome:
    if float(printed) <= 0:
        return Outcome(False, "that something is not found in the events does not show that it was not measured")
    if len(values) != float(printed):
        return Outcome(False, f"the cited lines show {len(values)} step(s)")
    if known is not None and known > len(values):
        return Outcome(False, f"the cited lines show {len(values)} of the {known} steps that are known")
    used = list(values.values())
    return Outcome(True, "in the cited lines; others may not have been shown", len(used), len(used), used=used)


def _statistic(
    comparator: Comparator,
    printed: str,
    points: Sequence[Point],
    values: dict[float, Point],
    steps: tuple[float, float] | None,
    known: int | None,
) -> Outcome:
    role = {Comparator.MEAN: Role.MEAN, Comparator.MIN: Role.MIN, Comparator.MAX: Role.MAX}[comparator]
    stated = [point for point in points if point.role is role]
    if stated and not values:
        differing = [point for point in stated if not same_number(point.reading.printed, printed)]
        if differing:
            return Outcome(False, f"the {comparator} shown is {differing[0].reading.printed}")
        return Outcome(True, f"shown as the {comparator}", stated[-1].value, used=list(stated))
    if not values:
        return Outcome(False, f"the cited lines show neither its {comparator} nor its steps")
    gap = _gap(values, steps, known)
    if gap is not None:
        return Outcome(False, gap)
    used = list(values.values())
    numbers = [point.value for point in used]
    mean = sum(numbers) / len(numbers)
    found = {Comparator.MEAN: mean, Comparator.MIN: min(numbers), Comparator.MAX: max(numbers)}[comparator]
    if significant(printed) < min(2, significant(repr(found))) or not rounds_to(found, printed):
        return Outcome(False, f"the {comparator} of the {len(used)} step(s) shown is {found:.4g}")
    error = _standard_error(numbers) if comparator is Comparator.MEAN else None
    return Outcome(True, f"over {len(used)} step(s)", found, len(used), error, used)


def _trend(
    comparator: Comparator,
    printed: str,
    values: dict[float, Point],
    steps: tuple[float, float] | None,
    known: int | None,
) -> Outcome:
    used = list(values.values())
    averaged = sum(point.reading.n or 1 for point in used)
    if complete(used) != used:
        return Outcome(False, f"the last of its values is the mean of only {used[-1].reading.n} step(s)")
    if averaged < MIN_TREND_STEPS or len(used) < 3:
        return Outcome(
            False, f"{averaged} step(s) are too few to speak of a rise or fall: at least {MIN_TREND_STEPS} are needed"
        )
    gap = _gap(values, steps, known) if averaged == len(used) else None
    if gap is not None:
        return Outcome(False, gap)
    if not same_number(used[-1].reading.printed, printed):
        return Outcome(False, f"it ends at {used[-1].reading.printed}")
    sign = -1.0 if comparator is Comparator.FALLS_TO else 1.0
    numbers = [sign * point.value for point in used]
    if not trends_up(numbers, averaged):
        return Outcome(False, f"from {used[0].reading.printed} to {used[-1].reading.printed} is within its scatter")
    return Outcome(True, f"from {used[0].reading.printed} over {averaged} steps", used[-1].value, averaged, used=used)


def complete(points: Sequence[Point]) -> list[Point]:
    """The points without a last one that is the mean of fewer than half as many steps as others: an epoch begun."""
    most = max((point.reading.n or 1 for point in points), default=1)
    last = points[-1].reading.n if points else None
    if last is not None and last * 2 < most:
        return list(points[:-1])
    return list(points)


def trends_up(numbers: Sequence[float], averaged: int) -> bool:
    """Whether a series rises: strictly from value to value where each is the mean of several steps, else its last third
    lies `TREND_ERRORS` standard errors above its first."""
    strictly = all(later > earlier for earlier, later in pairwise(numbers))
    if strictly and averaged >= MIN_TREND_STEPS:
        return True
    third = len(numbers) // 3
    if third < 2:
        return False
    first, last = numbers[:third], numbers[-third:]
    difference = sum(last) / third - sum(first) / third
    error = math.hypot(_standard_error(first) or 0.0, _standard_error(last) or 0.0)
    return difference > 0 and difference >= TREND_ERRORS * error


def _standard_error(numbers: Sequence[float]) -> float | None:
    if len(numbers) < 2:
        return None
    mean = sum(numbers) / len(numbers)
    variance = sum((one - mean) ** 2 for one in numbers) / (len(numbers) - 1)
    return math.sqrt(variance / len(numbers))


def _gap(values: dict[float, Point], steps: tuple[float, float] | None, known: int | None) -> str | None:
    """Which steps of the range are not shown, or None. Without a range: of all steps that the run is known to have."""
    shown = {int(step) for step in values if float(step).is_integer()}
    if steps is not None:
        wanted = set(range(math.ceil(steps[0]), math.floor(steps[1]) + 1)) if steps[1] - steps[0] < 1e6 else set()
    else:
        wanted = set(range(min(shown), max(max(shown), known or 0) + 1)) if shown and (known or 0) < 1e6 else set()
        wanted |= {1} if shown and min(shown) > 1 else set()
    missing = sorted(wanted - shown)
    if not missing:
        return None
    return f"{len(missing)} of {len(wanted)} steps are not in the cited lines (the first is {missing[0]})"
