"""A policy that moves too far, from the start model or in one update."""

from trainer.runs.detectors.judging import all_above, is_rising, last_points
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("kl_runaway"), view.history
    repeat = int(limits["repeat"])
    if history.now("kl") is None and history.now("approx_kl") is None:
        return Skipped("neither kl nor approx_kl was measured (kl: only with beta above 0)")
    if history.now("kl") is not None:
        last = history.full_tail("kl", repeat)
        if all_above(last, limits["critical"]) and not is_rising(view, 10):
            return _says(view, Severity.CRITICAL, "kl", limits["critical"], repeat, "the start model")
        if all_above(last, limits["warn"]):
            return _says(view, Severity.WARN, "kl", limits["warn"], repeat, "the start model")
    if history.now("approx_kl") is not None:
        last = history.full_tail("approx_kl", repeat)
        for severity, bound in (
            (Severity.CRITICAL, limits["update_critical"]),
            (Severity.WARN, limits["update_warn"]),
        ):
            if all_above(last, bound):
                return _says(view, severity, "approx_kl", bound, repeat, "the policy before the update")
    return None


def _says(view: View, severity: Severity, metric: str, bound: float, repeat: int, what: str) -> Sighting:
    now = view.history.tail(metric, 1)[0]
    say = f"The distance to {what} has been above {bound:g} for {repeat} steps (now {now:.3g})."
    kind = "reference" if metric == "kl" else "update"
    return Sighting(severity, say, last_points(view, metric, repeat, bound), kind)


DETECTOR = Detector(
    id="kl_runaway",
    number=12,
    severity=Severity.CRITICAL,
    rule="KL to the start model above `warn`, or above `critical` with reward not rising; KL of one update above "
    "`update_warn` or `update_critical`; `repeat` steps in a row",
    cause="learning rate too high, or too many updates on the same episodes",
    advice="Halve the learning rate; fewer updates a step; raise beta.",
    source="catalogue 12 (without its three-sigma rule, which says nothing above these bounds)",
    judge=judge,
)
