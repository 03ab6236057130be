"""Episodes that grow without earning more."""

import math

from trainer.runs.detectors.judging import REWARD, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean, rank_correlation

EDGE = 5
"""Steps of the mean at both ends of the window."""


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("length_runaway"), view.history
    steps = int(limits["steps"])
    lengths, rewards = history.full_tail("completion_mean", steps), history.full_tail(REWARD, steps)
    if lengths is None or rewards is None:
        return _fast(view)
    before, after = mean(lengths[:EDGE]), mean(lengths[-EDGE:])
    growth = after / before - 1 if before > 0 else 0.0
    if growth < limits["growth"]:
        return _fast(view)
    agreement = rank_correlation(lengths, rewards)
    start = history.points(REWARD)[-steps].step
    held_out = [one.mean for one in history.validations if one.step >= start]
    gain = held_out[-1] - held_out[0] if len(held_out) > 1 else mean(rewards[-EDGE:]) - mean(rewards[:EDGE])
    if gain >= limits["gain_share"] * growth:
        return None
    hacked = len(held_out) > 1 and not math.isnan(agreement) and agreement >= limits["correlation"]
    where = "validation" if len(held_out) > 1 else "reward"
    say = (
        f"Episodes grew by {growth:.0%} in {steps} steps (to {after:.0f} tokens) while {where} moved by {gain:+.2f}"
        f"{f'; length and reward agree ({agreement:.2f})' if hacked else ''}."
    )
    evidence = (present(view, "completion_mean", (1 + limits["growth"]) * before, after),)
    return Sighting(Severity.WARN, say, evidence, "hacking" if hacked else "rambling")


def _fast(view: View) -> Sighting | None:
    """Growth worth a line: two windows of `info_steps`, the later longer by `info_growth` and beyond the noise."""
    limits, history = view.limits("length_runaway"), view.history
    steps = int(limits["info_steps"])
    values = history.full_tail("completion_mean", 2 * steps)
    if values is None:
        return None
    before, after = mean(values[:steps]), mean(values[steps:])
    if before <= 0 or after < (1 + limits["info_growth"]) * before:
        return None
    if after - before < 3 * history.noise("completion_mean") * math.sqrt(2 / steps):
        return None
    say = f"Episodes grew by {after / before - 1:.0%} in {steps} steps, to {after:.0f} tokens."
    evidence = (present(view, "completion_mean", (1 + limits["info_growth"]) * before, after),)
    return Sighting(Severity.INFO, say, evidence, "growing")


DETECTOR = Detector(
    id="length_runaway",
    number=15,
    severity=Severity.WARN,
    rule="mean length `growth` up over `steps` steps while validation (else reward) gained less than `gain_share` of "
    "that; hacking where length and reward agree from `correlation`; info from `info_growth` in `info_steps`",
    cause="length is rewarded, or the agent rambles",
    advice="loss_type dr_grpo does not favour length; look at the longest episodes.",
    source="catalogue 15",
    judge=judge,
    needs=("completion_mean", REWARD),
)
