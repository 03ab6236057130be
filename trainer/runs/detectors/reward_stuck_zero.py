"""No episode earns anything."""

from trainer.runs.detectors.judging import REWARD, last_points, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("reward_stuck_zero"), view.history
    steps = int(limits["steps"])
    best, means = history.full_tail("reward_max", steps), history.full_tail(REWARD, steps)
    if best is None or means is None or any(best) or any(means):
        return None
    planned = view.plan.planned_steps
    never = not any(point.value for point in history.points("reward_max"))
    if never and planned is not None and history.last_step >= max(2 * steps, limits["critical_share"] * planned):
        say = f"No episode has earned anything in {history.last_step} of {planned} steps."
        return Sighting(Severity.CRITICAL, say, (present(view, "reward_max", 0.0),))
    say = f"No episode of the last {steps} steps earned anything."
    return Sighting(Severity.WARN, say, last_points(view, "reward_max", steps, 0.0))


DETECTOR = Detector(
    id="reward_stuck_zero",
    number=6,
    severity=Severity.CRITICAL,
    rule="mean and best reward 0 for `steps` steps; critical when nothing was earned in `critical_share` of the plan",
    cause="problems too hard, a format that never fits, or a grader that never says yes",
    advice="Read two raw episodes; grade a right answer by hand; take easier problems.",
    source="catalogue 6",
    judge=judge,
    needs=(REWARD, "reward_max"),
)
