"""Rules about what training had to work with: the environment, the format, the cap, diversity, difficulty."""

from trainer.runs.findings import Evidence, Finding, FindingKind, clamp, learned, rounded
from trainer.runs.wording import counted

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
            f"Updates were not finite after {counted(evidence.series.steps, 'step')} at learning rate {rate:g}: "
            f"{failure.message}"
        )
        return Finding(FindingKind.NONFINITE, sentence, {**numbers, "learning_rate": rate}, 0.9, "learning_rate")
    sentence = f"The run failed after {counted(evidence.series.steps, 'step')} ({failure.kind}): {failure.message}"
    return Finding(FindingKind.FAILED, sentence, numbers, 1.0)


def environment_errors(evidence: Evidence) -> Finding | None:
    """Rewards of an environment that raises are noise."""
    rate = evidence.series.average("env_error_rate")
    if rate is None or rate < evidence.thresholds.environment_errors:
        return None
    sentence = (
        f"The environment raised or timed out in {rate:.0%} of the episodes over {evidence.series.steps} steps, "
        f"so its rewards are noise: mend the environment first (the `error` of each line in episodes/ names them)."
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
        "completion_mean": rounded(series.third("completion_mean", 0), 1),
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
        "parse_ok_rate": rounded(parsed),
        "tool_call_rate": rounded(called),
        "reward_mean": rounded(reward),
    }
    return Finding(FindingKind.PARSER_NEVER_MATCHES, sentence, numbers, 0.9, "model")


def no_diversity(evidence: Evidence) -> Finding | None:
    """Episodes of one problem are alike before learning has made them so."""
    series, limits = evidence.series, evidence.thresholds
    unique, flat = series.third("unique_completions", 0), series.third("frac_zero_variance", 0)
    reward, start = series.third("reward_mean", 0), evidence.success_at_start
    if unique is None or flat is None or reward is None or start is None or learned(evidence):
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
        "entropy": rounded(series.third("entropy", 0)),
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
        "frac_groups_all_one": rounded(series.average("frac_groups_all_one")),
        "frac_groups_all_zero": rounded(series.average("frac_groups_all_zero")),
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
