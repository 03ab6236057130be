"""Reward that was there and is gone."""

import math

from trainer.runs.detectors.judging import REWARD, present
from trainer.runs.detectors.types import Detector, Evidence, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("reward_collapse"), view.history
    window, repeat = int(limits["window"]), int(limits["repeat"])
    peak, means = history.peak(REWARD, window), history.window_means(REWARD, window, repeat)
    if peak is None or means is None or peak.value <= limits["peak"]:
        return None
    worst = max(means)
    if worst < limits["critical_share"] * peak.value:
        severity, bound = Severity.CRITICAL, limits["critical_share"] * peak.value
    else:
        severity, bound = Severity.WARN, limits["warn_share"] * peak.value
        # a fall that the step-to-step noise of two windows explains is none
        bound = min(bound, peak.value - limits["noise"] * history.noise(REWARD) * math.sqrt(2 / window))
        if worst >= bound:
            return None
    say = (
        f"The mean reward of {window} steps fell from {peak.value:.2f} (step {peak.step}) to {means[-1]:.2f}, "
        f"{repeat} windows in a row."
    )
    return Sighting(
        severity,
        say,
        (Evidence(peak.step, REWARD, peak.value, limits["peak"]), present(view, REWARD, bound, means[-1])),
    )


DETECTOR = Detector(
    id="reward_collapse",
    number=5,
    severity=Severity.CRITICAL,
    rule="means over `window` steps below `critical_share` (critical) or `warn_share` (warn, and beyond `noise` "
    "standard errors) of their peak, `repeat` in a row; the peak was above `peak`",
    cause="updates too large, or a reward with a hole",
    advice="Stop, go back to the best checkpoint, halve the learning rate; a KL term (beta 0.02) holds it back.",
    source="catalogue 5",
    judge=judge,
    needs=(REWARD,),
)
