"""The rules of `trainer.runs.diagnose`, in the order in which they explain one another."""

import math

from trainer.runs.findings import Evidence, Finding, FindingKind, Rule, clamp, rates_text

NEARLY_NOTHING = 0.2
"""Share of the best reward that is left after a collapse beyond doubt."""


SLOW_STEPS = 15
"""Steps from which slow progress says something about the learning rate and not only about the budget."""

HIDDEN_FAILURES = 0.2
"""Training reward that far above the start's success: sampling coldly hides what the model gets wrong."""


def failed(evidence: Evidence) -> Finding | None:
    """The run's own word about its end."""
    failure = evidence.failure
    if failure is None:
        return None
    numbers: dict[str, float | int | str | None] = {"kind": failure.kind, "steps": evidence.series.steps}
    rate = evidence.config.learning_rate
    if failure.kind == "nonfinite":
        sentence = (
            f"Updates were not finite after {evidence.series.steps} steps at learning rate {rate:g}: {failure.message}"
        )
        return Finding(FindingKind.NONFINITE, sentence, {**numbers, "learning_rate": rate}, 0.9, "learning_rate")
    sentence = f"The run failed after {evidence.series.steps} steps ({failure.kind}): {failure.message}"
    return Finding(FindingKind.FAILED, sentence, numbers, 1.0)


def environment_errors(evidence: Evidence) -> Finding | None:
    """Rewards of an environment that raises are noise."""
    rate = evidence.series.average("env_error_rate")
    if rate is None or rate < evidence.thresholds.environment_errors:
        return None
    sentence = (
        f"The environment raised or timed out in {rate:.0%} of the episodes over {evidence.series.steps} steps, "
        f"so its rewards are noise: mend the environment first (events.jsonl names the errors)."
    )
    return Finding(
        FindingKind.ENVIRONMENT_ERRORS, sentence, {"env_error_rate": round(rate, 3)}, clamp(rate + 0.3), "env"
    )


def truncation(evidence: Evidence) -> Finding | None:
    """Many episodes hit the cap from the start; a policy that collapsed rambles too, but only later."""
    series = evidence.series
    first, last = series.third("truncated_rate", 0), series.third("truncated_rate", 2)
    start = evidence.at_start("truncated_rate")
    if first is None or start is None or last is None:
        return None
    limit = evidence.thresholds.truncated
    if start < limit or first < limit:
        return None
    cap = evidence.config.max_completion_tokens
    reward = series.third("reward_mean", 0)
    shown = "" if reward is None else f", with a reward of {reward:.2f}"
    sentence = (
        f"The completion cap of {cap} tokens cut {first:.0%} of the episodes in the first third of the run "
        f"({last:.0%} in the last){shown}: an episode that is cut cannot answer."
    )
    numbers: dict[str, float | int | str | None] = {
        "max_completion_tokens": cap,
        "truncated_rate_first": round(first, 3),
        "truncated_rate_last": round(last, 3),
        "completion_mean": _rounded(series.third("completion_mean", 0), 1),
    }
    return Finding(FindingKind.TRUNCATION, sentence, numbers, clamp(0.5 + first / 2), "max_completion_tokens")


def parser_never_matches(evidence: Evidence) -> Finding | None:
    """No call parses, or none is made, from the start."""
    series, limits = evidence.series, evidence.thresholds
    parsed, called = evidence.at_start("parse_ok_rate"), evidence.at_start("tool_call_rate")
    reward = series.average("reward_mean")
    if parsed is not None and parsed < limits.parse_ok:
        what = f"only {parsed:.0%} of the tool calls that the model attempted could be parsed"
    elif called is not None and called < limits.tool_call and (reward is None or reward < limits.hard_reward):
        what = f"only {called:.0%} of the episodes made a valid tool call"
    else:
        return None
    shown = "" if reward is None else f" and the mean reward was {reward:.2f}"
    sentence = (
        f"The tool-call format does not match: {what} at the start{shown}. "
        f"Look at two raw episodes; the model may need another prompt or supervised warm-up."
    )
    numbers: dict[str, float | int | str | None] = {
        "parse_ok_rate": _rounded(parsed),
        "tool_call_rate": _rounded(called),
        "reward_mean": _rounded(reward),
    }
    return Finding(FindingKind.PARSER_NEVER_MATCHES, sentence, numbers, 0.9, "model")


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
        "entropy_first": _rounded(entropy_first),
        "entropy_last": _rounded(entropy_last),
        "gain": None if gain is None else round(gain[0], 3),
        "grad_norm_max": _rounded(max(series.values("grad_norm"), default=None)),
    }
    return Finding(FindingKind.LEARNING_RATE_TOO_HIGH, sentence, numbers, clamp(0.4 + 0.6 * strength), "learning_rate")


def no_diversity(evidence: Evidence) -> Finding | None:
    """Episodes of one problem are alike before learning has made them so."""
    series, limits = evidence.series, evidence.thresholds
    unique, flat = series.third("unique_completions", 0), series.third("frac_zero_variance", 0)
    reward, start = series.third("reward_mean", 0), evidence.success_at_start
    if unique is None or flat is None or reward is None or start is None or _learned(evidence):
        return None
    if unique >= limits.unique or flat < limits.flat_groups or start >= limits.easy_reward:
        return None
    size = evidence.config.num_generations
    temperature = evidence.config.temperature
    hidden = ""
    if reward - start > HIDDEN_FAILURES:
        hidden = f"; its reward of {reward:.2f} hides the failures that the test before training shows ({start:.2f})"
    sentence = (
        f"There was nothing to prefer: at temperature {temperature:g} the {size} episodes of a problem held only "
        f"{unique * size:.1f} different ones, and {flat:.0%} of the groups had one and the same reward "
        f"(first third of {series.steps} steps){hidden}."
    )
    numbers: dict[str, float | int | str | None] = {
        "temperature": temperature,
        "unique_completions": round(unique, 3),
        "frac_zero_variance": round(flat, 3),
        "reward_mean": round(reward, 3),
        "success_at_start": round(start, 3),
        "entropy": _rounded(series.third("entropy", 0)),
    }
    strength = (limits.unique - unique) / limits.unique + (flat - limits.flat_groups)
    return Finding(FindingKind.NO_DIVERSITY, sentence, numbers, clamp(0.6 + 0.3 * strength), "temperature")


def groups_too_easy(evidence: Evidence) -> Finding | None:
    """All right from the start."""
    series, limits = evidence.series, evidence.thresholds
    flat, reward = series.third("frac_zero_variance", 0), series.third("reward_mean", 0)
    start = evidence.success_at_start
    if flat is None or reward is None or start is None or min(reward, start) < limits.easy_reward:
        return None
    if flat < limits.flat_groups:
        return None
    return _difficulty_finding(evidence, FindingKind.GROUPS_TOO_EASY, flat, reward, "all right from the start")


def groups_too_hard(evidence: Evidence) -> Finding | None:
    """All wrong, to the end."""
    series, limits = evidence.series, evidence.thresholds
    flat, reward = series.average("frac_zero_variance"), series.average("reward_mean")
    zero = series.average("frac_groups_all_zero")
    start = evidence.success_at_start
    if flat is None or reward is None or start is None or max(reward, start) > limits.hard_reward:
        return None
    if (flat if zero is None else zero) < limits.flat_groups:
        return None
    return _difficulty_finding(evidence, FindingKind.GROUPS_TOO_HARD, flat, reward, "all wrong")


def _difficulty_finding(evidence: Evidence, kind: FindingKind, flat: float, reward: float, what: str) -> Finding:
    word = "easy" if kind is FindingKind.GROUPS_TOO_EASY else "hard"
    level = evidence.config.difficulty
    sentence = (
        f"The problems are too {word} (difficulty {level}): {flat:.0%} of the groups had no variance, most of them "
        f"{what} (mean reward {reward:.2f}), so they taught nothing."
    )
    series = evidence.series
    numbers: dict[str, float | int | str | None] = {
        "difficulty": level,
        "frac_zero_variance": round(flat, 3),
        "reward_mean": round(reward, 3),
        "frac_groups_all_one": _rounded(series.average("frac_groups_all_one")),
        "frac_groups_all_zero": _rounded(series.average("frac_groups_all_zero")),
    }
    confidence = clamp((0.5 + flat / 2) * evidence.steps_weight(8))
    return Finding(kind, sentence, numbers, confidence, "difficulty")


def never_submits(evidence: Evidence) -> Finding | None:
    """Calls are made, answers are not given."""
    series = evidence.series
    finished, called = series.average("finish_rate"), series.average("tool_call_rate")
    if finished is None or called is None or finished >= evidence.thresholds.finish or called < 0.5:
        return None
    sentence = (
        f"Only {finished:.0%} of the episodes submitted an answer although {called:.0%} called a tool: "
        f"the prompt must say how to finish, or max_turns ({evidence.config.max_turns}) is too small."
    )
    numbers: dict[str, float | int | str | None] = {
        "finish_rate": round(finished, 3),
        "tool_call_rate": round(called, 3),
        "max_turns": evidence.config.max_turns,
    }
    return Finding(FindingKind.NEVER_SUBMITS, sentence, numbers, 0.7, "max_turns")


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


def _learned(evidence: Evidence) -> bool:
    """Whether the run has nothing to be asked for: goal met, or high success."""
    after = evidence.evals.get("after")
    if evidence.goal_reached:
        return True
    return (
        evidence.config.target_reward is None
        and after is not None
        and after.mean >= evidence.thresholds.healthy_success
    )


def learning_rate_too_low(evidence: Evidence) -> Finding | None:
    """Signal was there, and neither reward nor policy moved."""
    series, limits = evidence.series, evidence.thresholds
    first, last = series.third("reward_mean", 0), series.third("reward_mean", 2)
    flat, taken = series.average("frac_zero_variance"), _room_taken(evidence)
    if first is None or last is None or taken is None or flat is None or _learned(evidence):
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
    sentence = (
        f"The learning rate {rate:g} is {'' if still else 'probably '}too low: in {series.steps} steps reward only went "
        f"{first:.2f} → {last:.2f}{entropy}{', ' + rates if rates else ''}, {max(0.0, taken):.0%} of what there was to "
        f"gain, although {1 - flat:.0%} of the groups carried signal."
    )
    numbers: dict[str, float | int | str | None] = {
        "learning_rate": rate,
        "steps": series.steps,
        "reward_first": round(first, 3),
        "reward_last": round(last, 3),
        "entropy_change": _rounded(moved),
        "frac_zero_variance": round(flat, 3),
        "room_taken": round(taken, 3),
        "grad_norm": _rounded(series.average("grad_norm")),
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
    if middle is None or last is None or series.steps < evidence.thresholds.min_steps or _learned(evidence):
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
    why = f"{steps} steps are too few to say why" if few else "no known cause explains it"
    sentence = f"No clear gain and no clear fault after {steps} steps{measured}: {why}."
    numbers: dict[str, float | int | str | None] = {"steps": steps, "gain": None if gain is None else round(gain[0], 3)}
    return Finding(FindingKind.INCONCLUSIVE, sentence, numbers, 0.3)


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def last_word(evidence: Evidence) -> Finding:
    """`healthy` where it is true, else `inconclusive`."""
    return healthy(evidence) or inconclusive(evidence)


RULES: tuple[Rule, ...] = (
    failed,
    environment_errors,
    truncation,
    parser_never_matches,
    learning_rate_too_high,
    no_diversity,
    groups_too_easy,
    groups_too_hard,
    never_submits,
    learning_rate_too_low,
    budget_too_small,
    last_word,
)
"""In order of explanatory power."""

_K = FindingKind
_LEARNING = {_K.LEARNING_RATE_TOO_LOW, _K.BUDGET_TOO_SMALL, _K.INCONCLUSIVE}
EXPLAINS: dict[FindingKind, frozenset[FindingKind]] = {
    _K.FAILED: frozenset({_K.INCONCLUSIVE, _K.BUDGET_TOO_SMALL, _K.LEARNING_RATE_TOO_LOW}),
    _K.NONFINITE: frozenset({_K.LEARNING_RATE_TOO_HIGH, *_LEARNING}),
    _K.ENVIRONMENT_ERRORS: frozenset({_K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, *_LEARNING}),
    _K.TRUNCATION: frozenset(
        {_K.PARSER_NEVER_MATCHES, _K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.NO_DIVERSITY, *_LEARNING}
    ),
    _K.PARSER_NEVER_MATCHES: frozenset({_K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.NO_DIVERSITY, *_LEARNING}),
    _K.LEARNING_RATE_TOO_HIGH: frozenset(
        {_K.NO_DIVERSITY, _K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.HEALTHY, *_LEARNING}
    ),
    _K.NO_DIVERSITY: frozenset({_K.GROUPS_TOO_HARD, _K.GROUPS_TOO_EASY, *_LEARNING}),
    _K.GROUPS_TOO_EASY: frozenset(_LEARNING),
    _K.GROUPS_TOO_HARD: frozenset({_K.NEVER_SUBMITS, *_LEARNING}),
    _K.NEVER_SUBMITS: frozenset(_LEARNING),
    _K.LEARNING_RATE_TOO_LOW: frozenset({_K.BUDGET_TOO_SMALL, _K.INCONCLUSIVE}),
    _K.BUDGET_TOO_SMALL: frozenset({_K.INCONCLUSIVE}),
}
"""Finding → findings that it explains away."""
