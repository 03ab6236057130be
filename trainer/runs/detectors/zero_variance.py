"""Groups whose episodes all earn the same, so that they teach nothing."""

from trainer.runs.detectors.judging import REWARD, present
from trainer.runs.detectors.types import Detector, Severity, Sighting, View
from trainer.runs.statistics import wilson

SURE = 3.0
"""Standard deviations of the interval whose lower end counts: it is looked at in every step of a run."""


def expected_flat(success: float, group_size: int) -> float:
    """Share of flat groups if every episode succeeded with this probability: p^G + (1 - p)^G.

    Problems of different difficulty make it larger; so it is a floor to measure an excess against, not a forecast.
    """
    return success**group_size + (1 - success) ** group_size


def flat_beyond_chance(view: View, window: int) -> tuple[float, float, float] | None:
    """(share of flat groups over `window` steps, share that chance makes at this reward, bound that the share has to
    exceed), where it does: the lower end of its Wilson interval lies `excess` above chance and the share itself above
    `warn`. None where it does not, or is not known."""
    limits, history = view.limits("zero_variance"), view.history
    flat, reward = history.window_mean("frac_zero_variance", window), history.window_mean(REWARD, window)
    if flat is None or reward is None or flat < limits["warn"]:
        return None
    size = view.plan.num_generations
    expected = expected_flat(min(1.0, max(0.0, reward)), size) if size is not None else 0.0
    counts = history.full_tail("episodes", window)
    lowest = flat
    if size is not None and counts is not None:
        groups = round(sum(counts) / size)
        lowest = wilson(min(flat * groups, groups), groups, z=SURE)[0] if groups else flat
    bound = expected + limits["excess"]
    return (flat, expected, bound) if lowest >= bound else None


def judge(view: View) -> Sighting | None:
    limits, history = view.limits("zero_variance"), view.history
    window = int(limits["window"])
    flat, reward = history.window_mean("frac_zero_variance", window), history.window_mean(REWARD, window)
    if flat is None or reward is None or flat < limits["info"]:
        return None
    if reward >= limits["easy_reward"]:
        return _too_easy(view, flat, reward, window)
    level = "critical" if flat >= limits["critical"] else "warn" if flat >= limits["warn"] else "info"
    if reward <= limits["hard_reward"]:
        say = f"{flat:.0%} of the groups of {window} steps had no variance at a reward of {reward:.2f}: too hard."
        return Sighting(Severity(level), say, (present(view, "frac_zero_variance", limits[level], flat),), "too_hard")
    found = flat_beyond_chance(view, window)
    if found is None:
        return None
    _, expected, bound = found
    severity = Severity.CRITICAL if flat >= bound + limits["excess"] and level == "critical" else Severity.WARN
    say = (
        f"{flat:.0%} of the groups of {window} steps had no variance at a reward of {reward:.2f}, where chance alone "
        f"makes {expected:.0%}: the episodes of a group are graded alike."
    )
    return Sighting(severity, say, (present(view, "frac_zero_variance", bound, flat),), "flat")


def _too_easy(view: View, flat: float, reward: float, window: int) -> Sighting | None:
    """Success is no fault: only groups that were all right from the start are an alarm, and none is critical."""
    limits = view.limits("zero_variance")
    start = view.history.early(REWARD, window)
    if start is None or start < limits["easy_reward"] or flat < limits["warn"]:
        if flat < limits["critical"]:
            return None
        say = f"{flat:.0%} of the groups have no variance because reward has reached {reward:.2f}: little is left."
        evidence = (present(view, "frac_zero_variance", limits["critical"], flat),)
        return Sighting(Severity.INFO, say, evidence, "too_easy")
    say = f"{flat:.0%} of the groups had no variance at a reward of {reward:.2f}, from the start: too easy."
    return Sighting(Severity.WARN, say, (present(view, "frac_zero_variance", limits["warn"], flat),), "too_easy")


DETECTOR = Detector(
    id="zero_variance",
    number=8,
    severity=Severity.CRITICAL,
    rule="share of flat groups over `window` steps from `info`, `warn`, `critical`; too_easy from `easy_reward` (warn "
    "only where it was so from the start), too_hard up to `hard_reward`, between them flat from `excess` over chance",
    cause="problems too easy or too hard, or a reward or sampling that does not tell episodes apart",
    advice="too_hard: easier problems or more generations. too_easy: harder ones. flat: see reward, temperature.",
    source="catalogue 8",
    judge=judge,
    needs=("frac_zero_variance", REWARD),
)
