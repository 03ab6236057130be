"""An agent that stops calling tools, or never needed them."""

from trainer.runs.detectors.judging import REWARD, all_below, last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("tools_abandoned"), view.history
    steps = int(limits["steps"])
    last, peak = history.full_tail("tool_call_rate", steps), history.peak("tool_call_rate", steps)
    if last is None:
        return None
    if peak is not None and peak.value > limits["before"] and all_below(last, limits["after"]):
        say = f"{mean(last):.0%} of the episodes call a tool, after {peak.value:.0%} at step {peak.step}."
        return Sighting(Severity.WARN, say, last_points(view, "tool_call_rate", steps, limits["after"]))
    rewards = history.full_tail(REWARD, steps)
    never = not any(point.value for point in history.points("tool_call_rate"))
    if never and rewards is not None and mean(rewards) > limits["unused_reward"]:
        say = f"No episode has called a tool, and the reward is {mean(rewards):.2f}: the task does not need them."
        return Sighting(Severity.INFO, say, (present(view, "tool_call_rate", 0.0),), "not_needed")
    return None


DETECTOR = Detector(
    id="tools_abandoned",
    number=17,
    severity=Severity.WARN,
    rule="tool-call rate below `after` for `steps` steps after a mean above `before`; info where there never was a "
    "call and reward is above `unused_reward`",
    cause="a shortcut around the tools, or calls that are no longer understood",
    advice="Read episodes; make the shortcut earn nothing.",
    source="catalogue 17",
    judge=judge,
    needs=("tool_call_rate",),
)
