"""Success on the validation split that falls."""

import math
from itertools import pairwise

from trainer.runs.detectors.history import Validation
from trainer.runs.detectors.judging import errors_between
from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    limits, seen = view.limits("eval_regression"), view.history.validations
    if len(seen) < 2:
        return None
    best, last = max(seen[:-1], key=lambda one: one.mean), seen[-1]
    fall, errors = best.mean - last.mean, -errors_between(best, last)
    # the best of k is lucky by about sqrt(2 ln k) standard deviations, sqrt(ln k) errors of a difference
    luck = math.sqrt(math.log(len(seen)))
    say = (
        f"Validation is at {last.mean:.3f} after {best.mean:.3f} at step {best.step}, {errors:.1f} standard errors less"
    )
    evidence = _evidence(best, last, best.mean * (1 - limits["drop_share"]))
    if fall > limits["drop_share"] * best.mean and errors > limits["errors"] + luck:
        return Sighting(Severity.WARN, f"{say}.", evidence)
    drops = int(limits["drops"])
    tail = [one.mean for one in seen[-(drops + 1) :]]
    falling = len(tail) == drops + 1 and all(b < a for a, b in pairwise(tail))
    if falling and errors > limits["drop_errors"] + luck:
        return Sighting(Severity.WARN, f"{say}, and fell {drops} times in a row.", evidence, "in_a_row")
    return None


def _evidence(best: Validation, last: Validation, bound: float) -> tuple[Evidence, ...]:
    return Evidence(best.step, "validation", best.mean), Evidence(last.step, "validation", last.mean, bound)


DETECTOR = Detector(
    id="eval_regression",
    number=23,
    severity=Severity.WARN,
    rule="a fall from the best by `drop_share` and `errors` standard errors; or `drops` falls in a row and "
    "`drop_errors` below the best (both beyond the luck of the best of so many)",
    cause="the policy got worse, or fits the training problems only",
    advice="Stop; the best checkpoint is kept. Halve the learning rate or take more problems.",
    source="catalogue 23",
    judge=judge,
    occasions=frozenset({Occasion.VALIDATION}),
)
