"""Gradient norms far outside their usual spread."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from trainer.runs.detectors.history import Point
from trainer.runs.detectors.judging import last_points, present
from trainer.runs.detectors.types import Detector, Evidence, Severity, Sighting, View
from trainer.runs.statistics import median, robust_sigma

MIN_REFERENCE = 10
"""Gradients that must be known before one can stand out."""


def spikes(points: Sequence[Point], window: int, limits: Mapping[str, float]) -> list[tuple[Point, float]]:
    """(point, bound) of those among the last `window` that stand out of the values before them.

    Steps without any gradient (all groups flat) say nothing about its usual size and are left out.
    """
    reference = int(limits["reference"])
    live = [point for point in points[-(window + reference) :] if point.value > 0]
    first = points[-window:][0].step
    found = []
    for place, point in enumerate(live):
        if point.step >= first:
            bound = bound_after([one.value for one in live[max(0, place - reference) : place]], limits)
            if bound is not None and point.value > bound:
                found.append((point, bound))
    return found


def bound_after(before: Sequence[float], limits: Mapping[str, float]) -> float | None:
    """Gradient norm above which the next one stands out; None where too few are known."""
    if len(before) < MIN_REFERENCE:
        return None
    usual, logs = median(before), [math.log(value) for value in before]
    # norms scatter by factors, the more the fewer groups carry signal: a spike stands out of that scatter, too
    by_factor = math.exp(median(logs) + limits["log_sigma"] * robust_sigma(logs))
    return max(usual + limits["sigma"] * robust_sigma(before), limits["factor"] * usual, by_factor)


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("grad_spike"), view.history
    points = history.points("grad_norm")
    now, absolute = points[-1].value, limits["absolute"]
    if now > absolute:
        say = f"The gradient norm is {now:.3g} at step {history.last_step}, above {absolute:g}."
        return Sighting(Severity.CRITICAL, say, (present(view, "grad_norm", absolute),))
    before = [point.value for point in points[-int(limits["reference"]) - 1 : -1] if point.value > 0]
    bound = bound_after(before, limits)
    if bound is None or now <= bound:
        return None
    steps, growth = int(limits["growth_steps"]), 1 + limits["growth"]
    last = history.tail("grad_norm", steps + 1)
    grew = len(last) == steps + 1 and last[0] > 0 and all(b >= growth * a for a, b in pairwise(last))
    if grew and now > limits["factor"] * bound:
        say = f"The gradient norm grew by {limits['growth']:.0%} or more {steps} times in a row, to {now:.3g}."
        return Sighting(Severity.CRITICAL, say, last_points(view, "grad_norm", steps + 1, bound), "growing")
    found = spikes(points, int(limits["window"]), limits)
    if len(found) < limits["count"]:
        return None
    say = (
        f"{len(found)} of the last {int(limits['window'])} gradient norms stand out, now {now:.3g} against a bound of "
        f"{bound:.3g}."
    )
    return Sighting(
        Severity.WARN, say, tuple(Evidence(point.step, "grad_norm", point.value, bound) for point, bound in found)
    )


DETECTOR = Detector(
    id="grad_spike",
    number=3,
    severity=Severity.CRITICAL,
    rule="above `sigma` robust deviations (`log_sigma` of the logarithm) and `factor` times the median, `count` times "
    "in `window` steps; or above "
    "`absolute`; or a spike of `factor` times the bound that grew `growth_steps` times in a row by `growth`",
    cause="learning rate too high, or single episodes with an extreme advantage",
    advice="Halve the learning rate and clip gradients at 0.5.",
    source="catalogue 3",
    judge=judge,
    needs=("grad_norm",),
)
