"""A run that has stopped getting better."""

from trainer.runs.detectors.judging import REWARD, present, slope_per_step
from trainer.runs.detectors.types import Detector, Evidence, Severity, Sighting, View

WINDOW = 5
"""Steps of the mean whose best is looked for: single steps are too noisy to be a best."""


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("reward_plateau"), view.history
    points = history.points(REWARD)
    if len(points) < limits["min_steps"]:
        return None
    best = history.peak(REWARD, WINDOW, last_too=True)
    if best is None or history.last_step - best.step < limits["behind_share"] * history.last_step:
        return None
    tail = [point.value for point in points[-round(limits["tail_share"] * len(points)) :]]
    slope = slope_per_step(tail)
    if abs(slope) >= limits["slope"]:
        return None
    say = (
        f"Reward has had no slope for {len(tail)} steps ({slope:+.4f} a step); its best mean {best.value:.2f} was at "
        f"step {best.step}."
    )
    evidence = (Evidence(best.step, REWARD, best.value), present(view, REWARD, limits["slope"], slope))
    return Sighting(Severity.INFO, say, evidence)


DETECTOR = Detector(
    id="reward_plateau",
    number=7,
    severity=Severity.INFO,
    rule="Theil-Sen slope of the last `tail_share` within `slope` and the best window at least `behind_share` of the "
    "run behind",
    cause="converged",
    advice="Stop and keep the best checkpoint, or take harder problems.",
    source="catalogue 7",
    judge=judge,
    needs=(REWARD,),
)
