"""What the training numbers of a session show by themselves: facts, with n, and never a cause.

Rules: `still_rising`: a reward or score over steps or epochs whose end still rises beyond its scatter.
`zero_reward_at_cap`: steps whose reward is zero are exactly those where the response length stands at its largest
value, which it reaches at least twice. It is a co-occurrence in n steps.
`gradient_norm_high`: a printed mean of the gradient's norm above ten, ten times the usual clipping at one.
Needs: series that the agent did not write itself.
Does not claim: why. Four steps in which two things go together are four steps.
"""

import re

from optimizer.analyze.comparing import complete, trends_up
from optimizer.analyze.detectors.common import finding
from optimizer.analyze.readings import Axis, Role
from optimizer.analyze.series import Point, Series
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

HIGH_NORM = 10.0
"""Gradients are usually clipped at norm 1; ten times that says that clipping does nearly all of the work."""

MIN_RISE_STEPS = 8
MIN_RISE_POINTS = 9
"""Single steps in the tail of a series: three in each third of it."""
_REWARD = re.compile(r"(?:\A|[/_ ])(?:avg|mean|train)?_?(?:r|reward|score)s?(?:/mean|_mean)?\Z|\Aavgr\Z", re.IGNORECASE)
_LENGTH = re.compile(r"(?:response|completion)_?(?:len|length)|avg_response_len|\Alen\Z", re.IGNORECASE)
_NORM = re.compile(r"\Agrad(?:ient)?[ _]?norm\Z|/grad_norm\Z", re.IGNORECASE)


def detect(view: View) -> list[Finding]:
    """All three rules."""
    return [*_still_rising(view), *_zero_at_cap(view), *_high_norm(view)]


def _still_rising(view: View) -> list[Finding]:
    found = []
    for series in _longest(view):
        axis = series.key.axis
        points = complete(series.measured())
        averaged = sum(point.reading.n or 1 for point in points)
        tail = points[-3:] if axis is Axis.EPOCH else points[len(points) // 2 :]
        if len(points) < 3 or averaged < MIN_RISE_STEPS or (axis is Axis.STEP and len(tail) < MIN_RISE_POINTS):
            continue
        flat = tail[-1].value <= tail[-2].value == tail[-3].value
        if flat or not trends_up([p.value for p in tail], sum(p.reading.n or 1 for p in tail)):
            continue
        ends = ", ".join(point.reading.printed for point in points[-3:])
        reach = f"{axis}s {points[-3].step:g} to {points[-1].step:g}, {averaged} steps in all"
        what = (
            f"{series.name}{_of(series)} still rises at the end of what is shown: {ends} ({reach}); "
            f"on split {series.key.split or 'not stated'}"
        )
        metric = _metric(series, points[-1], averaged)
        key = (series.name, series.key.run, axis)
        lines = [point.line for point in points]
        found.append(finding(view, "still_rising", key, what, lines, confidence=0.9, metrics=[metric]))
    return found


def _longest(view: View) -> list[Series]:
    """For each launch of a run the reward series that reaches furthest: by epochs where there are any, because steps
    say the same with more noise."""
    best: dict[tuple[str | None, int], tuple[tuple[bool, float, int], Series]] = {}
    for axis in (Axis.EPOCH, Axis.STEP):
        for series in view.book.training(axis):
            points = complete(series.measured())
            if not _REWARD.search(series.name) or len(points) < 3:
                continue
            reach = (axis is Axis.EPOCH, points[-1].step or 0.0, len(points))
            place = (series.key.run, series.key.launch)
            if place not in best or reach > best[place][0]:
                best[place] = (reach, series)
    return [series for _, series in best.values()]


def _zero_at_cap(view: View) -> list[Finding]:
    found = []
    steps = view.book.training(Axis.STEP)
    for reward in (one for one in steps if _REWARD.search(one.name)):
        for length in (one for one in steps if _LENGTH.search(one.name) and one.key.run == reward.key.run):
            values = {point.step: point for point in length.measured()}
            both = [(point, values[point.step]) for point in reward.measured() if point.step in values]
            zero = {point.step for point, _ in both if point.value == 0}
            top = max((size.value for _, size in both), default=0.0)
            capped = {size.step for _, size in both if size.value == top}
            if len(capped) < 2 or zero != capped or len(both) <= len(zero):
                continue
            what = (
                f"{reward.name}{_of(reward)} is 0 in {len(zero)} of {len(both)} steps, the same in which {length.name} "
                f"stands at its largest value {top:g}: a co-occurrence in {len(both)} steps, not a cause"
            )
            metrics = [
                Metric(name=reward.name, split=reward.key.split, value=0.0, n=len(zero), run=reward.key.run),
                Metric(name=length.name, split=length.key.split, value=top, n=len(capped), run=length.key.run),
            ]
            lines = {point.line for pair in both for point in pair} | set(reward.lines)
            key = (reward.name, length.name, reward.key.run)
            found.append(finding(view, "zero_reward_at_cap", key, what, lines, confidence=0.8, metrics=metrics))
    return found


def _high_norm(view: View) -> list[Finding]:
    found = []
    for series in view.book.series.values():
        if not _NORM.search(series.name) or series.key.setting:
            continue
        means = [point for point in series.points if point.role is Role.MEAN and not point.own]
        if not means or means[-1].value <= HIGH_NORM:
            continue
        largest = [point for point in series.points if point.role is Role.MAX and not point.own]
        told = f", largest {largest[-1].reading.printed}" if largest else ""
        what = f"{series.name}{_of(series)} has the mean {means[-1].reading.printed}{told}"
        metrics = [_metric(series, means[-1], None)]
        key = (series.name, series.key.run)
        lines = series.lines
        found.append(finding(view, "gradient_norm_high", key, what, lines, confidence=0.9, metrics=metrics))
    return found


def _of(series: Series) -> str:
    return f" of {series.key.run}" if series.key.run else ""


def _metric(series: Series, point: Point, n: int | None) -> Metric:
    return Metric(name=series.name, split=series.key.split, value=point.value, n=n, run=series.key.run)
