"""The task is solved: the difficulty can go up."""

from trainer.runs.detectors.judging import REWARD, last_points
from trainer.runs.detectors.types import Detector, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("too_easy"), view.history
    steps = int(limits["steps"])
    reward, flat = history.full_tail(REWARD, steps), history.full_tail("frac_zero_variance", steps)
    if reward is None or flat is None or min(reward) < limits["reward"] or min(flat) < limits["share"]:
        return None
    start = history.early(REWARD, steps)
    always = start is not None and start >= limits["reward"]
    say = (
        f"Reward was at least {min(reward):.2f} for {steps} steps with {min(flat):.0%} of the groups flat"
        f"{', as it was from the start' if always else ''}: raise the difficulty or finish."
    )
    return Sighting(Severity.WARN if always else Severity.INFO, say, last_points(view, REWARD, steps, limits["reward"]))


DETECTOR = Detector(
    id="too_easy",
    number=9,
    severity=Severity.WARN,
    rule="reward from `reward` and flat groups from `share` for `steps` steps; a warning only where it was so from the "
    "start",
    cause="the task is solved",
    advice="Raise the difficulty one level, or finish.",
    source="catalogue 9",
    judge=judge,
    needs=(REWARD, "frac_zero_variance"),
    cooldown_steps=50,
)
