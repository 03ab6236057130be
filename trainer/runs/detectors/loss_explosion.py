"""A loss far beyond its usual size."""

from trainer.runs.detectors.judging import last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import median


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("loss_explosion"), view.history
    now, absolute = abs(history.tail("loss", 1)[0]), limits["absolute"]
    if now > absolute:
        say = f"The loss is {now:.3g} in size at step {history.last_step}, above {absolute:g}."
        return Sighting(Severity.CRITICAL, say, (present(view, "loss", absolute),))
    repeat, window = int(limits["repeat"]), int(limits["window"])
    sizes = [abs(value) for value in history.tail("loss", window + repeat)]
    if len(sizes) < window + repeat:
        return None
    usual = median(sizes[:-repeat])
    bound = max(limits["factor"] * usual, limits["floor"])
    if min(sizes[-repeat:]) <= bound:
        return None
    say = f"The loss was above {bound:.3g} in size for {repeat} steps (now {now:.3g}); its usual size is {usual:.3g}."
    return Sighting(Severity.WARN, say, last_points(view, "loss", repeat, bound))


DETECTOR = Detector(
    id="loss_explosion",
    number=2,
    severity=Severity.CRITICAL,
    rule="|loss| above `absolute`, or above `factor` times its rolling median and `floor` for `repeat` steps",
    cause="learning rate too high, or a loss mask that is wrong",
    advice="Halve the learning rate; if it comes at once, check the mask.",
    source="catalogue 2",
    judge=judge,
    needs=("loss",),
)
