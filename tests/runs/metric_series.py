"""Metrics as a run of the bundled model writes them, for runs with known faults. Magnitudes are drawn at random."""

import math
import random
from typing import Any

from trainer.runs.statistics import wilson
from trainer.runs.types import Eval

EPISODES, GROUP = 32, 8


def evaluation(mean: float, n: int = 128, **more: float) -> Eval:
    hits = round(mean * n)
    return Eval.model_validate({"split": "test", "n": n, "mean": hits / n, "ci95": wilson(hits, n), **more})


def step_row(
    rng: random.Random,
    step: int,
    success: float,
    *,
    entropy: float,
    unique: float = 0.8,
    flat: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One line: success per group scattered around its mean, as problems differ."""
    groups = []
    for _ in range(EPISODES // GROUP):
        rate = min(1.0, max(0.0, rng.gauss(success, 0.25)))
        if flat is not None and rng.random() < flat:
            groups.append(float(rng.random() < success))
        else:
            groups.append(sum(rng.random() < rate for _ in range(GROUP)) / GROUP)
    ones, zeros = (sum(group == value for group in groups) / len(groups) for value in (1.0, 0.0))
    row = {
        "step": step,
        "episodes": EPISODES,
        "reward_mean": sum(groups) / len(groups),
        "frac_zero_variance": ones + zeros,
        "frac_groups_all_one": ones,
        "frac_groups_all_zero": zeros,
        "entropy": max(0.0, entropy * rng.uniform(0.9, 1.1)),
        "grad_norm": rng.uniform(0.5, 1.5),
        "completion_mean": 60.0,
        "unique_completions": unique,
        "parse_ok_rate": 0.97,
        "tool_call_rate": 0.99,
        "finish_rate": 0.9,
        "truncated_rate": 0.0,
        "env_error_rate": 0.0,
    }
    return row | more


def healthy(rng: random.Random, steps: int = 40) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start, end = rng.uniform(0.2, 0.5), rng.uniform(0.9, 0.99)
    pace = rng.uniform(4, 8) / steps
    curve = [end - (end - start) * math.exp(-pace * i) for i in range(steps)]
    rows = [
        step_row(rng, i + 1, value, entropy=0.1 * (1 - value) + 0.005, unique=1 - value * 0.7)
        for i, value in enumerate(curve)
    ]
    return rows, {"before": evaluation(start), "after": evaluation(curve[-1])}


def collapsed(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start, onset = rng.uniform(0.25, 0.5), rng.randint(2, 8)
    curve = [
        start + 0.02 * i if i < onset else start * math.exp(-(i - onset) * rng.uniform(0.6, 1.0)) for i in range(steps)
    ]
    rows = [
        step_row(
            rng,
            i + 1,
            value,
            entropy=0.08 if i < onset else 0.08 * math.exp(-(i - onset)),
            truncated_rate=0.0 if i <= onset else 0.9,
            parse_ok_rate=0.97 if i <= onset else 0.2,
            grad_norm=1.0 if i < onset else rng.uniform(3, 40),
        )
        for i, value in enumerate(curve)
    ]
    return rows, {"before": evaluation(start), "after": evaluation(0.01)}


def too_slow(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start = rng.uniform(0.2, 0.5)
    end = start + rng.uniform(-0.02, 0.06)
    rows = [
        step_row(rng, i + 1, start + (end - start) * i / steps, entropy=0.07 - 0.005 * i / steps) for i in range(steps)
    ]
    return rows, {"before": evaluation(start), "after": evaluation(end)}


def alike(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start = rng.uniform(0.3, 0.5)
    unique = rng.uniform(1.05, 2.4) / GROUP
    rows = [step_row(rng, i + 1, start + 0.002 * i, entropy=0.01, unique=unique, flat=0.9) for i in range(steps)]
    return rows, {"before": evaluation(start), "after": evaluation(start + 0.03)}


def cut(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    share = rng.uniform(0.5, 1.0)
    rows = [
        step_row(rng, i + 1, 0.35 * (1 - share), entropy=0.07, truncated_rate=share, finish_rate=0.3 * (1 - share))
        for i in range(steps)
    ]
    return rows, {"before": evaluation(0.3 * (1 - share)), "after": evaluation(0.32 * (1 - share))}


def too_easy(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start = rng.uniform(0.95, 0.99)
    rows = [step_row(rng, i + 1, start, entropy=0.02, flat=0.8) for i in range(steps)]
    return rows, {"before": evaluation(start), "after": evaluation(start)}


def too_hard(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    rows = [step_row(rng, i + 1, 0.01, entropy=0.3, flat=0.9) for i in range(steps)]
    return rows, {"before": evaluation(0.01), "after": evaluation(0.02)}


def unparsed(rng: random.Random, steps: int = 30) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    rows = [
        step_row(rng, i + 1, 0.0, entropy=1.2, parse_ok_rate=rng.uniform(0, 0.05), tool_call_rate=0.01, finish_rate=0.0)
        for i in range(steps)
    ]
    return rows, {"before": evaluation(0.0), "after": evaluation(0.0)}


def still_rising(rng: random.Random, steps: int = 20) -> tuple[list[dict[str, Any]], dict[str, Eval]]:
    start, end = rng.uniform(0.2, 0.3), rng.uniform(0.65, 0.8)
    rows = [
        step_row(rng, i + 1, start + (end - start) * i / steps, entropy=0.08 - 0.05 * i / steps) for i in range(steps)
    ]
    return rows, {"before": evaluation(start), "after": evaluation(end)}
