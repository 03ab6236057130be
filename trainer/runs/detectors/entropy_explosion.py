"""Entropy that grows while reward falls."""

from itertools import pairwise

from trainer.runs.detectors.judging import REWARD, last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("entropy_explosion"), view.history
    early = history.early("entropy", int(view.limits("entropy_collapse")["early"]))
    if early is None:
        return None
    window, rising = int(limits["window"]), int(limits["rising"])
    means = history.window_means("entropy", window, rising + 1)
    first, rewards = history.early(REWARD, window), history.window_means(REWARD, window, rising + 1)
    if means is not None and rewards is not None and first is not None:
        grew = all(b > a for a, b in pairwise(means)) and means[-1] > limits["factor"] * early
        if grew and rewards[-1] < rewards[0] and rewards[-1] < first:
            say = (
                f"Entropy rose to {means[-1]:.3g} ({early:.3g} early) in {rising} windows in a row while reward fell "
                f"to {rewards[-1]:.2f}."
            )
            bound = limits["factor"] * early
            evidence = (present(view, "entropy", bound, means[-1]), present(view, REWARD, first, rewards[-1]))
            return Sighting(Severity.CRITICAL, say, evidence)
    repeat = int(limits["repeat"])
    bound = max(limits["absolute"], limits["factor"] * early)
    last = history.full_tail("entropy", repeat)
    if last is None or min(last) <= bound:
        return None
    say = f"Entropy has been above {bound:.3g} for {repeat} steps (now {last[-1]:.3g}; {early:.3g} early)."
    return Sighting(Severity.WARN, say, last_points(view, "entropy", repeat, bound))


DETECTOR = Detector(
    id="entropy_explosion",
    number=11,
    severity=Severity.CRITICAL,
    rule="above `absolute` and `factor` times the early median for `repeat` steps; critical when means over `window` "
    "rise `rising` times in a row above `factor` times it while reward falls",
    cause="learning rate too high, or episodes that the policy did not produce",
    advice="Halve the learning rate; a KL term holds the policy back.",
    source="catalogue 11",
    judge=judge,
    needs=("entropy", REWARD),
)
