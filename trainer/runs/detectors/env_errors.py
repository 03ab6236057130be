"""An environment that fails: its rewards are noise."""

from trainer.runs.detectors.judging import last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("env_errors"), view.history
    steps = int(limits["steps"])
    last = history.full_tail("env_error_rate", steps)
    if last is None:
        return None
    if min(last) > limits["critical"]:
        say = f"The environment failed in {min(last):.0%} or more of the episodes of {steps} steps: rewards are noise."
        return Sighting(Severity.CRITICAL, say, last_points(view, "env_error_rate", steps, limits["critical"]))
    if mean(last) > limits["warn"]:
        say = f"The environment failed in {mean(last):.0%} of the episodes of {steps} steps."
        return Sighting(Severity.WARN, say, (present(view, "env_error_rate", limits["warn"], mean(last)),))
    refused = history.full_tail("tool_error_rate", steps)
    if refused is None or history.now("tool_error_rate") is None or min(refused) <= limits["tool_warn"]:
        return None
    say = f"Tools refused {min(refused):.0%} or more of the calls in {steps} steps: they fail, or are called wrongly."
    return Sighting(Severity.WARN, say, last_points(view, "tool_error_rate", steps, limits["tool_warn"]), "tools")


DETECTOR = Detector(
    id="env_errors",
    number=28,
    severity=Severity.CRITICAL,
    rule="mean share of episodes that the environment failed above `warn` over `steps` steps, each above `critical`; "
    "tools: share of calls refused above `tool_warn` for `steps` steps",
    cause="a broken environment or tool, or a reward that is no number",
    advice="Mend the environment first; `error` in episodes/ names what failed.",
    source="catalogue 28",
    judge=judge,
    needs=("env_error_rate",),
)
