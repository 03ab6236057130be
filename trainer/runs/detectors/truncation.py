"""Episodes that are cut off before they could answer."""

from trainer.runs.detectors.history import History
from trainer.runs.detectors.judging import last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean, wilson


def lowest_rate(history: History, window: int, back: int) -> float | None:
    """Lower bound of the share of cut episodes over `window` steps, `back` steps ago: of the Wilson interval where the
    number of episodes is known, else the plain mean. Single cut episodes of small batches are no trend."""
    rates = history.tail("truncated_rate", window + back)[: window or None]
    if len(rates) < window:
        return None
    counts = history.tail("episodes", window + back)[:window]
    if len(counts) < window:
        return mean(rates)
    total = sum(counts)
    cut = sum(rate * count for rate, count in zip(rates, counts, strict=True))
    return wilson(min(cut, total), int(total))[0]


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("truncation"), view.history
    steps, repeat, window = int(limits["critical_steps"]), int(limits["warn_steps"]), int(limits["window"])
    cap = view.plan.max_completion_tokens
    of_cap = "" if cap is None else f" of {cap} tokens"
    last = history.full_tail("truncated_rate", steps)
    if last is not None and min(last) >= limits["critical"]:
        say = f"The cap{of_cap} cut {min(last):.0%} or more of the episodes in {steps} steps in a row."
        return Sighting(Severity.CRITICAL, say, last_points(view, "truncated_rate", steps, limits["critical"]))
    lengths = history.full_tail("completion_mean", steps)
    if cap is not None and lengths is not None and last is not None and min(last) >= limits["warn"]:
        bound = limits["length_share"] * cap
        if min(lengths) >= bound:
            say = f"Episodes are {lengths[-1]:.0f} tokens long on average in {steps} steps; the cap is {cap}."
            evidence = last_points(view, "completion_mean", steps, bound)
            return Sighting(Severity.CRITICAL, say, evidence, "length")
    lows = [lowest_rate(history, window, back) for back in range(repeat)]
    found = [low for low in lows if low is not None and low >= limits["warn"]]
    if len(found) < repeat:
        return None
    rate = mean(history.tail("truncated_rate", window))
    say = f"The cap{of_cap} cut {rate:.0%} of the episodes of {window} steps."
    return Sighting(Severity.WARN, say, (present(view, "truncated_rate", limits["warn"], rate),))


DETECTOR = Detector(
    id="truncation",
    number=14,
    severity=Severity.CRITICAL,
    rule="lower bound of the share cut over `window` steps from `warn`, `warn_steps` in a row; share from `critical`, "
    "or mean length from `length_share` of the cap, for `critical_steps`",
    cause="the completion cap is too small, or the agent rambles",
    advice="Double max_completion_tokens; if length grew during the run, look at length_runaway.",
    source="catalogue 14",
    judge=judge,
    needs=("truncated_rate",),
)
