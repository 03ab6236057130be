"""A policy that stops exploring before it has succeeded."""

import math
from collections.abc import Sequence

from trainer.runs.detectors.judging import has_risen, is_rising, is_solved, last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean, median

MIN_FIT = 0.5
"""Share of the variance of log entropy that the line must explain before its arrival is believed."""


GONE = 0.3
"""Share of the early entropy up to which a forecast is made: what is far from the floor may still level off."""


def line(values: Sequence[float]) -> tuple[float, float]:
    """(slope, share of variance explained) of the least-squares line of the logarithms."""
    logs = [math.log(value) for value in values]
    centre, middle = mean(logs), (len(logs) - 1) / 2
    spread = math.fsum((place - middle) ** 2 for place in range(len(logs)))
    slope = math.fsum((place - middle) * (log - centre) for place, log in enumerate(logs)) / spread
    total = math.fsum((log - centre) ** 2 for log in logs)
    return slope, slope**2 * spread / total if total > 0 else 0.0


def judge(view: View) -> Sighting | None:
    """Success makes entropy small: nothing is said while the task is solved or reward is on its way up.

    No absolute floor: what is a collapse for one model (0.01) is where another one works.
    """
    limits, history = view.limits("entropy_collapse"), view.history
    window = int(limits["window"])
    early = history.early("entropy", int(limits["early"]))
    if early is None or early <= 0 or is_solved(view) or is_rising(view, window):
        return None
    return _at_the_floor(view, early) or _dropped(view) or _arriving(view, early, window)


def _at_the_floor(view: View, early: float) -> Sighting | None:
    limits, history = view.limits("entropy_collapse"), view.history
    steps = int(limits["floor_steps"])
    last = history.full_tail("entropy", steps)
    if last is None:
        return None
    floor = limits["floor_share"] * early
    if max(last) >= floor:
        return None
    say = (
        f"Entropy has been at {mean(last):.3g} for {steps} steps, below {floor:.3g} (it began at {early:.3g}), and "
        "reward does not rise."
    )
    return Sighting(Severity.CRITICAL, say, last_points(view, "entropy", steps, floor), "floor")


def _dropped(view: View) -> Sighting | None:
    limits, history = view.limits("entropy_collapse"), view.history
    steps, window = int(limits["drop_steps"]), int(limits["window"])
    values = history.full_tail("entropy", window + steps)
    if values is None:
        return None
    before = median(values[:-steps])
    bound = (1 - limits["drop_share"]) * before
    # all values before lay above, so that this is a drop and no lull of a noisy series
    if max(values[-steps:]) >= bound or min(values[:-steps]) <= bound:
        return None
    say = f"Entropy fell from {before:.3g} to {median(values[-steps:]):.3g} within {steps} steps; reward does not rise."
    return Sighting(Severity.CRITICAL, say, last_points(view, "entropy", steps, bound), "drop")


def _arriving(view: View, early: float, window: int) -> Sighting | None:
    limits, planned = view.limits("entropy_collapse"), view.plan.planned_steps
    values = view.history.full_tail("entropy", window)
    if values is None or planned is None or min(values) <= 0:
        return None
    floor, now = limits["floor_share"] * early, median(values[-5:])
    slope, explained = line(values)
    # the line must explain the series and fall to a half at least over the window: else it is scatter
    if slope * (window - 1) > -math.log(2) or explained < MIN_FIT or now > GONE * early or now <= floor:
        return None
    left = math.log(floor / now) / slope
    if left >= limits["arrival_share"] * planned or view.history.last_step + left > planned:
        return None
    say = (
        f"Entropy is at {now:.3g} of {early:.3g} at the start and reaches {floor:.3g} in about {left:.0f} steps; "
        "reward does not rise."
    )
    severity = Severity.INFO if has_risen(view, window) else Severity.WARN
    return Sighting(severity, say, (present(view, "entropy", floor, now),), "arriving")


DETECTOR = Detector(
    id="entropy_collapse",
    number=10,
    severity=Severity.CRITICAL,
    rule="while reward neither rises nor is high: below `floor_share` of its early median for "
    "`floor_steps`; a drop by `drop_share` in `drop_steps`; or a fit that reaches the floor within `arrival_share` "
    "of the plan (info where reward has risen since the start)",
    cause="the policy commits to one answer before it has found a good one",
    advice="Raise the temperature by 0.2 or the upper clip range; lower the learning rate.",
    source="catalogue 10 (without its absolute floor)",
    judge=judge,
    needs=("entropy", "reward_mean"),
)
