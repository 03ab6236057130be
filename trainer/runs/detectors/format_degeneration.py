"""Calls that could be read once and no longer can."""

from trainer.runs.detectors.judging import REWARD, all_below, last_points
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View

TURNS_SLACK = 0.01
"""Mean turns this near to the limit mean that every episode used them all."""


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("format_degeneration"), view.history
    steps = int(limits["steps"])
    lost = _lost(view, steps)
    if lost is not None:
        return lost
    if history.now("parse_ok_rate") is not None:
        peak = history.peak("parse_ok_rate", int(limits["window"]))
        last = history.full_tail("parse_ok_rate", steps)
        if peak is not None and all_below(last, limits["share"] * peak.value):
            now = history.tail("parse_ok_rate", 1)[0]
            say = f"Only {now:.0%} of the attempted calls can be read, after {peak.value:.0%} at step {peak.step}."
            evidence = last_points(view, "parse_ok_rate", steps, limits["share"] * peak.value)
            return Sighting(Severity.CRITICAL, say, evidence)
        return None
    if history.now("turns_mean") is None:
        return Skipped("neither parse_ok_rate nor turns_mean was measured")
    return None


def _lost(view: View, steps: int) -> Sighting | None:
    """Every episode used all its turns and earned nothing."""
    turns, rewards = view.history.full_tail("turns_mean", steps), view.history.full_tail(REWARD, steps)
    most = view.plan.max_turns
    if most is None or most < 2 or turns is None or rewards is None or view.history.now("turns_mean") is None:
        return None
    if min(turns) < most - TURNS_SLACK or any(rewards):
        return None
    say = f"Every episode of the last {steps} steps used all {most} turns and earned nothing."
    return Sighting(Severity.CRITICAL, say, last_points(view, "turns_mean", steps, most), "all_turns")


DETECTOR = Detector(
    id="format_degeneration",
    number=16,
    severity=Severity.CRITICAL,
    rule="share of readable calls below `share` of its best mean over `window` steps for `steps` steps; or every "
    "episode at max_turns with reward 0 for `steps` steps",
    cause="the policy drifted away from the call format",
    advice="Go back to the best checkpoint, halve the learning rate; a small reward for the format helps.",
    source="catalogue 16",
    judge=judge,
)
