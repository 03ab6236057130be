"""A run that does not move although it could."""

from trainer.runs.detectors.judging import REWARD, present, slope_per_step
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import mean


def judge(view: View) -> Sighting | None:
    """In the first half of a plan a run may just be slow."""
    limits, history, planned = view.limits("lr_flat"), view.history, view.plan.planned_steps
    rewards = [point.value for point in history.points(REWARD)]
    if len(rewards) < limits["min_steps"] or (planned is not None and 2 * len(rewards) < planned):
        return None
    third = max(1, len(rewards) // 3)
    gain, now = mean(rewards[-third:]) - mean(rewards[:third]), mean(rewards[-third:])
    if gain >= limits["gain"] or now >= limits["reward_below"]:
        return None
    early, late = history.early("entropy", third), history.window_mean("entropy", third)
    flat = mean(history.tail("frac_zero_variance", len(rewards)))
    if early is None or late is None or late < limits["entropy_share"] * early or flat >= limits["max_zero_variance"]:
        return None
    if abs(slope_per_step(rewards)) >= limits["slope"]:
        return None
    say = (
        f"Reward moved by {gain:+.2f} in {len(rewards)} steps (now {now:.2f}) although groups "
        "differ and entropy is where it was."
    )
    return Sighting(Severity.INFO, say, (present(view, REWARD, limits["gain"], gain),))


DETECTOR = Detector(
    id="lr_flat",
    number=32,
    severity=Severity.INFO,
    rule="in the second half of the plan: gain of the last third over the first below `gain`, slope within `slope`, "
    "entropy from `entropy_share` of the early one, flat groups below `max_zero_variance`, reward below `reward_below`",
    cause="learning rate too low",
    advice="Raise the learning rate three times in the next run; the diagnosis at the end decides.",
    source="finding learning_rate_too_low",
    judge=judge,
    needs=(REWARD, "entropy", "frac_zero_variance"),
)
