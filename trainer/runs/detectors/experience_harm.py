"""Experience in the prompt that does not help."""

from trainer.runs.detectors.judging import present
from trainer.runs.detectors.types import Detector, Severity, Sighting, Skipped, View
from trainer.runs.statistics import mean


def judge(view: View) -> Sighting | Skipped | None:
    limits, history = view.limits("experience_harm"), view.history
    steps = int(limits["steps"])
    guided, plain = history.points("reward_guided"), history.points("reward_unguided")
    both = sorted({one.step for one in guided} & {one.step for one in plain})[-steps:]
    if not both:
        return Skipped("reward_guided and reward_unguided were not measured")
    off = history.full_tail("experience_clip", 3)
    if off is not None and history.now("experience_clip") is not None and min(off) > limits["off_clip"]:
        say = f"{min(off):.0%} or more of the tokens written under experience are clipped."
        return Sighting(Severity.WARN, say, (present(view, "experience_clip", limits["off_clip"]),), "off_clip")
    if len(both) < steps or both[-1] != history.last_step:
        return None
    pairs = [(history.at("reward_guided", step), history.at("reward_unguided", step)) for step in both]
    uplift = mean([a - b for a, b in pairs if a is not None and b is not None])
    if uplift > 0:
        return None
    say = f"Episodes with experience earn {uplift:+.3f} more than those without, over {steps} steps: it does not help."
    return Sighting(Severity.INFO, say, (present(view, "reward_guided-reward_unguided", 0.0, uplift),), "not_useful")


DETECTOR = Detector(
    id="experience_harm",
    number=31,
    severity=Severity.WARN,
    rule="mean reward with experience not above that without over `steps` steps (info); clipped share of guided tokens "
    "above `off_clip` (warn)",
    cause="experience that is stale or wrong",
    advice="Lower the share of guided episodes, or refresh the pool.",
    source="catalogue 31",
    judge=judge,
)
