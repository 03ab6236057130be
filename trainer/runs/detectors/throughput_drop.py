"""Steps that became slow."""

from trainer.runs.detectors.history import History
from trainer.runs.detectors.judging import present
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View
from trainer.runs.statistics import median

PHASES = "seconds."

TOTAL = "seconds"
"""Their sum, which the history adds up."""
RECENT = 5


def seconds_of(history: History, step: int) -> float:
    """Sum over the phases of a step; 0 where none was measured."""
    return history.at(TOTAL, step) or 0.0


def step_seconds(history: History, count: int) -> list[float]:
    """Seconds of the last `count` steps that say them."""
    return [total for total in (seconds_of(history, step) for step in history.steps[-count:]) if total > 0]


def tokens_per_second(history: History, count: int) -> list[float]:
    """Tokens that the model wrote per second of a step, of the last `count` steps that say both."""
    pairs = [(point.value, seconds_of(history, point.step)) for point in history.points("tokens_model")[-count:]]
    return [tokens / seconds for tokens, seconds in pairs if seconds > 0]


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("throughput_drop"), view.history
    if not history.names(PHASES):
        return Skipped("seconds of the phases were not measured")
    window, repeat = int(limits["window"]), int(limits["repeat"])
    rates = tokens_per_second(history, window + repeat)
    if len(rates) == window + repeat:
        usual = median(rates[:-repeat])
        bound = limits["share"] * usual
        if max(rates[-repeat:]) < bound:
            say = f"{rates[-1]:.0f} tokens/s for {repeat} steps; the median was {usual:.0f}."
            return Sighting(Severity.WARN, say, (present(view, "tokens_per_second", bound, rates[-1]),))
    return _bottleneck(view, window)


def _bottleneck(view: View, window: int) -> Sighting | None:
    """A phase that takes most of the step now, twice the share of early steps, and longer."""
    limits, history = view.limits("throughput_drop"), view.history
    phases = history.names(PHASES)
    if min(len(history.points(name)) for name in phases) < window + RECENT:
        return None
    early = {name: history.early(name, window) or 0.0 for name in phases}
    now = {name: median(history.tail(name, RECENT)) for name in phases}
    name = max(now, key=lambda one: now[one])
    share, share_early = now[name] / (sum(now.values()) or 1.0), early[name] / (sum(early.values()) or 1.0)
    bound = limits["phase_share"]
    if share <= bound or 2 * share_early > share or now[name] <= (1 + limits["phase_growth"]) * early[name]:
        return None
    say = (
        f"{name.removeprefix(PHASES)} takes {share:.0%} of a step ({now[name]:.2f} s), {share_early:.0%} early "
        f"({early[name]:.2f} s)."
    )
    return Sighting(
        Severity.INFO, say, (present(view, name, (1 + limits["phase_growth"]) * early[name]),), "bottleneck"
    )


DETECTOR = Detector(
    id="throughput_drop",
    number=27,
    severity=Severity.WARN,
    rule="tokens a second below `share` of their median over `window` steps, `repeat` in a row; info where a phase "
    "came to take `phase_share` of the step and `phase_growth` longer",
    cause="memory pressure, heat, other work on the machine, or slow tools",
    advice="See what else runs; bottleneck: look at that phase.",
    source="catalogue 27",
    judge=judge,
    needs=("tokens_model",),
)
