"""Rules about what training did: too much, too little, still on its way, well."""

import math

from trainer.runs.findings import Evidence, Finding, FindingKind, clamp, learned, rates_text, rounded
from trainer.runs.wording import counted

NEARLY_NOTHING = 0.2
"""Share of the best reward that is left after a collapse beyond doubt."""

SLOW_STEPS = 15
"""Steps from which slow progress says something about the learning rate and not only about the budget."""


def learning_rate_too_high(evidence: Evidence) -> Finding | None:
    """The best reward is lost, test success fell, or the policy froze without a gain."""
    series, limits = evidence.series, evidence.thresholds
    window = max(3, series.steps // 5)
    first, last = series.early("reward_mean"), series.late("reward_mean", window)
    peak = series.peak("reward_mean", window)
    if first is None or last is None or peak is None:
        return None
    best, best_when = peak[1], f"around step {peak[0]}"
    start = evidence.success_at_start
    if start is not None and start > best:
        best, best_when = start, "at the start"
    rate = evidence.config.learning_rate
    entropy_first, entropy_last = series.early("entropy"), series.late("entropy")
    reasons = []
    strength = 0.0
    drop = best - last
    # the mean of a few steps of a few problems jumps by itself: either nearly all is gone, or more than noise explains
    real = last <= NEARLY_NOTHING * best or drop > 4 * series.noise("reward_mean") * math.sqrt(2 / window)
    if best >= limits.collapse_peak and drop >= limits.collapse_drop * best and real and series.steps >= 3:
        reasons.append(f"reward fell from {best:.2f} ({best_when}) to {last:.2f} (last {window} steps)")
        strength = drop / best
    gain = evidence.gain
    if gain is not None and gain[2] < 0:
        reasons.append(rates_text(evidence).replace("test success", "test success fell,"))
        strength = max(strength, min(1.0, -gain[0] / max(evidence.evals["before"].mean, 0.05)))
    if (
        entropy_first
        and entropy_last is not None
        and entropy_last < limits.frozen_entropy * entropy_first
        and last - first < 0.05
        and last < limits.easy_reward  # above it there is nothing left to gain, whatever froze the policy
        and series.steps >= limits.min_steps
        and start is not None
        and start < limits.easy_reward
    ):
        reasons.append(f"the policy froze without a gain (reward {first:.2f} → {last:.2f})")
        strength = max(strength, 0.6)
    if not reasons:
        return None
    if entropy_first is not None and entropy_last is not None:
        reasons.append(f"entropy went from {entropy_first:.2f} to {entropy_last:.2f}")
    sentence = f"The learning rate {rate:g} is too high: {', '.join(reasons)} in {series.steps} steps."
    numbers: dict[str, float | int | str | None] = {
        "learning_rate": rate,
        "reward_best": round(best, 3),
        "best_when": best_when,
        "reward_last": round(last, 3),
        "entropy_first": rounded(entropy_first),
        "entropy_last": rounded(entropy_last),
        "gain": None if gain is None else round(gain[0], 3),
        "grad_norm_max": rounded(max(series.values("grad_norm"), default=None)),
    }
    return Finding(FindingKind.LEARNING_RATE_TOO_HIGH, sentence, numbers, clamp(0.4 + 0.6 * strength), "learning_rate")


def _room_taken(evidence: Evidence) -> float | None:
    """Share of the room above the first reward that was gained, by test success where it was measured twice."""
    gain = evidence.gain
    if gain is not None:
        room = 1.0 - evidence.evals["before"].mean
        return gain[0] / room if room > 0 else 1.0
    first, last = evidence.series.third("reward_mean", 0), evidence.series.third("reward_mean", 2)
    if first is None or last is None:
        return None
    return (last - first) / (1.0 - first) if first < 1.0 else 1.0


def learning_rate_too_low(evidence: Evidence) -> Finding | None:
    """Signal was there, and neither reward nor policy moved."""
    series, limits = evidence.series, evidence.thresholds
    first, last = series.third("reward_mean", 0), series.third("reward_mean", 2)
    flat, taken = series.average("frac_zero_variance"), _room_taken(evidence)
    if first is None or last is None or taken is None or flat is None or learned(evidence):
        return None
    if series.steps < limits.min_steps or taken >= limits.slow_room or flat > limits.signal_groups:
        return None
    entropy_first, entropy_last = series.third("entropy", 0), series.third("entropy", 2)
    moved: float | None = None
    entropy = ""
    if entropy_first and entropy_last is not None:
        moved = abs(entropy_last - entropy_first) / entropy_first
        entropy = f", entropy {entropy_first:.3f} → {entropy_last:.3f}"
    still = taken < limits.flat_room and (moved is None or moved <= limits.moved_entropy)
    if not still and series.steps < SLOW_STEPS:
        return None
    rate = evidence.config.learning_rate
    rates = rates_text(evidence)
    sure = "" if still else "probably "
    sentence = (
        f"The learning rate {rate:g} is {sure}too low: in {series.steps} steps reward only went "
        f"{first:.2f} → {last:.2f}{entropy}{', ' + rates if rates else ''}, {max(0.0, taken):.0%} of what there was to "
        f"gain, although {1 - flat:.0%} of the groups carried signal."
    )
    numbers: dict[str, float | int | str | None] = {
        "learning_rate": rate,
        "steps": series.steps,
        "reward_first": round(first, 3),
        "reward_last": round(last, 3),
        "entropy_change": rounded(moved),
        "frac_zero_variance": round(flat, 3),
        "room_taken": round(taken, 3),
        "grad_norm": rounded(series.average("grad_norm")),
    }
    if still:
        confidence = clamp((0.5 + 0.5 * (1 - max(0.0, taken) / limits.flat_room)) * evidence.steps_weight())
    else:
        confidence = clamp(0.3 + 0.3 * (1 - max(0.0, taken) / limits.slow_room))
    return Finding(FindingKind.LEARNING_RATE_TOO_LOW, sentence, numbers, confidence, "learning_rate")


def budget_too_small(evidence: Evidence) -> Finding | None:
    """It rose to the end and had not arrived."""
    series = evidence.series
    middle, last = series.third("reward_mean", 1), series.third("reward_mean", 2)
    if middle is None or last is None or series.steps < evidence.thresholds.min_steps or learned(evidence):
        return None
    if last - middle < evidence.thresholds.rising or last >= 0.95:
        return None
    rates = rates_text(evidence)
    sentence = (
        f"It was still improving when its {series.steps} steps were spent: reward {middle:.2f} → {last:.2f} from the "
        f"middle to the last third{'; ' + rates if rates else ''}. More steps should bring more."
    )
    numbers: dict[str, float | int | str | None] = {
        "steps": series.steps,
        "reward_middle": round(middle, 3),
        "reward_last": round(last, 3),
    }
    confidence = clamp((0.4 + 2 * (last - middle)) * evidence.steps_weight(9))
    return Finding(FindingKind.BUDGET_TOO_SMALL, sentence, numbers, confidence, "max_steps")


def healthy(evidence: Evidence) -> Finding | None:
    """Test success rose beyond chance, or the goal was met."""
    gain = evidence.gain
    if gain is not None and (gain[1] > 0 or evidence.goal_reached):
        goal = evidence.config.target_reward
        missed = f" The goal of {goal:g} was missed." if goal is not None and evidence.goal_reached is False else ""
        sentence = (
            f"It learned: {rates_text(evidence)}, a gain of {gain[0]:+.2f} [{gain[1]:+.2f}, {gain[2]:+.2f}] "
            f"in {evidence.series.steps} steps.{missed}"
        )
        numbers: dict[str, float | int | str | None] = {
            "gain": round(gain[0], 3),
            "gain_low": round(gain[1], 3),
            "gain_high": round(gain[2], 3),
            "steps": evidence.series.steps,
        }
        return Finding(FindingKind.HEALTHY, sentence, numbers, clamp(0.6 + gain[1]))
    first, last = evidence.series.third("reward_mean", 0), evidence.series.third("reward_mean", 2)
    if gain is None and first is not None and last is not None and last - first > 0.1 and evidence.series.steps >= 5:
        sentence = (
            f"Reward rose from {first:.2f} to {last:.2f} in {evidence.series.steps} steps; no test was measured twice."
        )
        return Finding(
            FindingKind.HEALTHY, sentence, {"reward_first": round(first, 3), "reward_last": round(last, 3)}, 0.5
        )
    return None


def inconclusive(evidence: Evidence) -> Finding:
    """Nothing above has spoken."""
    steps = evidence.series.steps
    gain = evidence.gain
    measured = (
        "" if gain is None else f" ({rates_text(evidence)}, 95 % of the difference {gain[1]:+.2f} … {gain[2]:+.2f})"
    )
    few = steps < evidence.thresholds.min_steps
    amount = counted(steps, "step")
    why = f"{amount} {'is' if steps == 1 else 'are'} too few to say why" if few else "no known cause explains it"
    sentence = f"No clear gain and no clear fault after {amount}{measured}: {why}."
    numbers: dict[str, float | int | str | None] = {"steps": steps, "gain": None if gain is None else round(gain[0], 3)}
    return Finding(FindingKind.INCONCLUSIVE, sentence, numbers, 0.3)


def last_word(evidence: Evidence) -> Finding:
    """`healthy` where it is true, else `inconclusive`."""
    return healthy(evidence) or inconclusive(evidence)
