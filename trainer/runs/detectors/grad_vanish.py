"""Gradients near zero although the groups carry signal."""

from trainer.runs.detectors.history import History
from trainer.runs.detectors.judging import is_solved, last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View


def with_signal(history: History, window: int) -> list[float]:
    """The last gradient norms of steps that had a group with variance (or do not say)."""
    return [
        point.value
        for point in history.points("grad_norm")[-window:]
        if (history.at("frac_zero_variance", point.step) or 0.0) < 1.0
        and history.at("update_skipped", point.step) is None
    ]


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("grad_vanish"), view.history
    if is_solved(view):
        return None
    window, repeat = int(limits["window"]), int(limits["repeat"])
    live = with_signal(history, window)
    if len(live) >= window // 2:
        zeros = sum(value == 0.0 for value in live) / len(live)
        if zeros >= limits["zero_warn"]:
            severity = Severity.CRITICAL if zeros >= limits["zero_critical"] else Severity.WARN
            bound = limits["zero_critical" if severity is Severity.CRITICAL else "zero_warn"]
            say = f"{zeros:.0%} of the last {len(live)} steps with signal had a gradient of exactly zero."
            return Sighting(severity, say, (present(view, "grad_norm", bound, zeros),), "zero")
    usual = history.early("grad_norm", int(limits["early"]))
    last = live[-repeat:]
    if usual is None or len(last) < repeat or max(last) >= limits["share"] * usual or max(last) == 0.0:
        return None
    say = f"The gradient norm has been below {limits['share']:.0%} of its early median {usual:.3g} for {repeat} steps."
    return Sighting(Severity.WARN, say, last_points(view, "grad_norm", repeat, limits["share"] * usual))


DETECTOR = Detector(
    id="grad_vanish",
    number=4,
    severity=Severity.CRITICAL,
    rule="below `share` of the early median for `repeat` steps with signal; or exactly zero in `zero_warn` or "
    "`zero_critical` of the last `window` of them; not while the task is solved",
    cause="advantages that are all alike, a mask that hides everything, or a policy that is saturated",
    advice="Look at zero_variance and mask_integrity first.",
    source="catalogue 4",
    judge=judge,
    needs=("grad_norm", "reward_mean"),
)
