"""Episodes that end without an answer."""

from trainer.runs.detectors.judging import REWARD, all_below, last_points
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean


def judge(view: View) -> Sighting | None:
    """An environment that has no end of its own is graded without one: reward says that it is no fault."""
    limits, history = view.limits("never_submits"), view.history
    steps = int(limits["steps"])
    last, rewards = history.full_tail("finish_rate", steps), history.full_tail(REWARD, steps)
    calls = history.tail("tool_call_rate", steps)
    if not all_below(last, limits["finish"]) or last is None or not all_below(rewards, limits["reward_below"]):
        return None
    if calls and mean(calls) < limits["called"]:
        return None
    say = f"Only {mean(last):.0%} of the episodes of {steps} steps submitted an answer."
    return Sighting(Severity.WARN, say, last_points(view, "finish_rate", steps, limits["finish"]))


DETECTOR = Detector(
    id="never_submits",
    number=18,
    severity=Severity.WARN,
    rule="share of finished episodes below `finish` for `steps` steps, while `called` of them call tools and reward is "
    "below `reward_below`",
    cause="nothing tells the agent to finish, or it has too few turns",
    advice="Say in the prompt how to finish; raise max_turns.",
    source="catalogue 18",
    judge=judge,
    needs=("finish_rate", REWARD),
)
