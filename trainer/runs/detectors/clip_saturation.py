"""Too many tokens whose probability ratio is clipped."""

from trainer.runs.detectors.judging import present
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("clip_saturation"), view.history
    if not any(point.value for name in ("clip_low", "clip_high") for point in history.points(name)):
        return Skipped("0 in every step, as it is by construction with one update a step")
    window = int(limits["window"])
    low, high = history.window_mean("clip_low", window), history.window_mean("clip_high", window)
    if low is None or high is None:
        return None
    total = low + high
    for severity in (Severity.CRITICAL, Severity.WARN, Severity.INFO):
        bound = limits[severity.value]
        if total >= bound:
            say = f"{total:.0%} of the tokens were clipped over {window} steps."
            return Sighting(severity, say, (present(view, "clip_low+clip_high", bound, total),))
    if low >= limits["low"] and low >= limits["ratio"] * high:
        say = f"{low:.1%} of the tokens are clipped below, {high:.1%} above: a higher upper range would let more in."
        return Sighting(Severity.INFO, say, (present(view, "clip_low", limits["low"], low),), "one_sided")
    return None


DETECTOR = Detector(
    id="clip_saturation",
    number=13,
    severity=Severity.CRITICAL,
    rule="clipped share over `window` steps from `info`, `warn`, `critical`; or low from `low` and `ratio` times high",
    cause="steps too big",
    advice="Halve the learning rate; one_sided: raise epsilon_high.",
    source="catalogue 13",
    judge=judge,
    needs=("clip_low", "clip_high"),
)
