"""From scores of episodes to rates, pass@k, tables and comparisons. Pure."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from trainer.evaluation.types import (
    CategoryResult,
    Comparison,
    EpisodeScore,
    Judgement,
    Rate,
    SeedResult,
    SplitName,
    SplitResult,
)
from trainer.runs.proportions import clustered_wilson, paired_interval, paired_test, pass_at_k

LEVEL = 0.05
"""A difference is called one below this two-sided p value."""


def split_result(scores: Sequence[EpisodeScore], split: SplitName, ks: Iterable[int], seconds: float) -> SplitResult:
    """All that is known of one subject on one split. Raises ValueError for no scores."""
    if not scores:
        raise ValueError(f"no episodes of the {split} split")
    problems = _by_problem(scores)
    success = _rate(problems)
    fewest = min(len(attempts) for attempts in problems.values())
    called = [one for one in scores if one.tool_calls > 0]
    attempted = sum(one.attempted_calls for one in scores)
    answered = sum(one.tool_calls + one.tool_errors for one in scores)
    return SplitResult(
        metric="success",
        split=split,
        n=len(scores),
        mean=success.mean,
        ci95=success.ci95,
        problems=len(problems),
        samples=fewest,
        parse_ok_rate=1 - sum(one.parse_errors for one in scores) / attempted if attempted else None,
        tool_call_rate=_share(scores, lambda one: one.tool_calls > 0),
        correct_given_valid_call=_share(called, lambda one: one.success),
        finish_rate=_share(scores, lambda one: one.stop_reason == "finished"),
        truncated_rate=_share(scores, lambda one: one.stop_reason == "max_tokens"),
        tool_error_rate=sum(one.tool_errors for one in scores) / answered if answered else None,
        env_error_rate=_share(scores, lambda one: one.stop_reason in ("environment_error", "tool_timeout")),
        turns_mean=math.fsum(one.turns for one in scores) / len(scores),
        tokens_mean=math.fsum(one.tokens for one in scores) / len(scores),
        seconds=round(seconds, 3),
        pass_at={str(k): _pass_rate(problems, k) for k in sorted(set(ks)) if k <= fewest},
        categories=_categories(scores),
        by_seed=_by_seed(scores),
    )


def _by_problem(scores: Iterable[EpisodeScore]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for one in scores:
        found[one.problem].append(one.success)
    return found


def _rate(problems: dict[str, list[bool]]) -> Rate:
    """Success over problems; `n` is their number."""
    values = [sum(attempts) / len(attempts) for attempts in problems.values()]
    episodes = sum(len(attempts) for attempts in problems.values())
    mean = math.fsum(values) / len(values)
    return Rate(n=len(values), mean=mean, ci95=clustered_wilson(values, episodes))


def _pass_rate(problems: dict[str, list[bool]], k: int) -> Rate:
    """pass@k of every problem, averaged; a problem counts once, however often it was tried."""
    values = [pass_at_k(len(attempts), sum(attempts), k) for attempts in problems.values()]
    episodes = sum(len(attempts) // k for attempts in problems.values())  # disjoint k-subsets: independent trials
    return Rate(n=len(values), mean=math.fsum(values) / len(values), ci95=clustered_wilson(values, episodes))


def _share(scores: Sequence[EpisodeScore], holds: Callable[[EpisodeScore], bool]) -> float | None:
    return sum(holds(one) for one in scores) / len(scores) if scores else None


def _categories(scores: Sequence[EpisodeScore]) -> list[CategoryResult]:
    kinds: dict[str, list[EpisodeScore]] = defaultdict(list)
    for one in scores:
        kinds[one.category].append(one)
    return [
        CategoryResult(category=kind, episodes=len(kinds[kind]), **_rate(_by_problem(kinds[kind])).model_dump())
        for kind in sorted(kinds)
    ]


def _by_seed(scores: Sequence[EpisodeScore]) -> list[SeedResult]:
    seeds: dict[int, list[EpisodeScore]] = defaultdict(list)
    for one in scores:
        seeds[one.seed].append(one)
    return [SeedResult(seed=seed, **_rate(_by_problem(seeds[seed])).model_dump()) for seed in sorted(seeds)]


def compare_subjects(
    first: Sequence[EpisodeScore], second: Sequence[EpisodeScore], split: SplitName, names: tuple[str, str]
) -> Comparison:
    """The second subject against the first on the same problems and random streams.

    With one attempt a problem: exact McNemar test and the interval of Bonett and Price. With several, attempts at one
    problem are no independent trials, so the unit is the problem: paired t test and interval over the differences of
    the problems' rates. Raises ValueError where the two did not meet the same problems.
    """
    rates_a, rates_b = _by_problem(first), _by_problem(second)
    if set(rates_a) != set(rates_b) or any(len(rates_a[one]) != len(rates_b[one]) for one in rates_a):
        raise ValueError(f"{names[0]} and {names[1]} did not meet the same {split} problems")
    order = sorted(rates_a)
    differences = [sum(rates_b[one]) / len(rates_b[one]) - sum(rates_a[one]) / len(rates_a[one]) for one in order]
    difference = math.fsum(differences) / len(differences)
    if all(len(attempts) == 1 for attempts in rates_a.values()):
        lost, gained = sum(one < 0 for one in differences), sum(one > 0 for one in differences)
        test = paired_test(lost, gained)
        interval, name, p = paired_interval(lost, gained, len(order)), test.name, test.p
    else:
        interval, name, p = _paired_t(differences)
    verdict: Judgement = "no difference shown" if p >= LEVEL else ("better" if difference > 0 else "worse")
    return Comparison(
        split=split,
        first=names[0],
        second=names[1],
        problems=len(order),
        difference=difference,
        ci95=interval,
        test=name,
        p=p,
        verdict=verdict,
        sentence=_sentence(split, names, len(order), difference, interval, name, p, verdict),
    )


def _paired_t(differences: Sequence[float]) -> tuple[tuple[float, float], str, float]:
    """(95 % interval, test, two-sided p) of the mean of the differences.

    Where all differences are equal there is no spread to judge by, and their signs are tested instead.
    """
    n = len(differences)
    mean = math.fsum(differences) / n
    error = math.sqrt(math.fsum((one - mean) ** 2 for one in differences) / max(1, n - 1) / n)
    if error < 1e-12:
        lost, gained = (n if mean < 0 else 0), (n if mean > 0 else 0)
        return paired_interval(lost, gained, n), "sign test over problems", paired_test(lost, gained).p
    from scipy.special import stdtr, stdtrit  # the server plans evaluations without it

    half = float(stdtrit(n - 1, 0.975)) * error
    interval = (max(-1.0, mean - half), min(1.0, mean + half))
    return interval, "paired t test over problems", float(2 * stdtr(n - 1, -abs(mean) / error))


def _sentence(
    split: str,
    names: tuple[str, str],
    n: int,
    difference: float,
    interval: tuple[float, float],
    test: str,
    p: float,
    verdict: Judgement,
) -> str:
    shown = f"{difference:+.3f} [{interval[0]:+.3f}, {interval[1]:+.3f}] on {n} {split} problems ({test}, p = {p:.2g})"
    if verdict == "no difference shown":
        return f"No difference between {names[0]} and {names[1]} is shown: {shown}."
    return f"{names[1]} is {verdict} than {names[0]}: {shown}."
