"""Episodes of a group that are copies of each other before the task is solved."""

from trainer.runs.detectors.judging import REWARD, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.detectors.zero_variance import flat_beyond_chance


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("no_diversity"), view.history
    window = int(limits["window"])
    unique, reward = history.window_mean("unique_completions", window), history.window_mean(REWARD, window)
    if unique is None or reward is None or reward >= limits["reward_below"] or unique >= limits["unique_share"]:
        return None
    # a sharp policy repeats itself and still tells good from bad: only with flat groups is there nothing to prefer
    found = flat_beyond_chance(view, window)
    if found is None:
        return None
    flat, _, bound = found
    say = (
        f"Only {unique:.0%} of the episodes of a group differ and {flat:.0%} of the groups are flat over {window} "
        f"steps, at a reward of {reward:.2f}."
    )
    evidence = (
        present(view, "unique_completions", limits["unique_share"], unique),
        present(view, "frac_zero_variance", bound, flat),
    )
    return Sighting(Severity.WARN, say, evidence)


DETECTOR = Detector(
    id="no_diversity",
    number=33,
    severity=Severity.WARN,
    rule="distinct episodes below `unique_share` of a group and more flat groups than chance makes (as zero_variance), "
    "over `window` steps, with reward below `reward_below`",
    cause="temperature too low, or a policy that is frozen",
    advice="Raise the temperature.",
    source="finding no_diversity; preflight 3 of the catalogue",
    judge=judge,
    needs=("unique_completions", "frac_zero_variance", REWARD),
)
