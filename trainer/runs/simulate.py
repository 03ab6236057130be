"""Scripted runs to judge detectors by: healthy ones, drawn so that they look like recorded runs, and the hooks through
which `trainer.runs.simulate_faults` spoils them.

A run is a latent state for each step (success, entropy, lengths, …) from which the metrics of a step are drawn as the
trainer would measure them: groups of episodes of problems that differ in difficulty, binomial rates, norms and
entropies that scatter by factors. The scatter is that of recorded runs of the bundled model: the logarithm changes from
step to step by 0.13 to 0.42 (entropy), 0.43 to 0.84 (gradient norm), 0.03 to 0.08 (length), 0.2 to 0.36 (seconds).
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer.runs.detectors.types import Plan, ProcessFacts

Row = dict[str, Any]


@dataclass
class Latent:
    """What is true in one step."""

    success: float
    """Mean probability that an episode succeeds."""
    entropy: float
    length: float
    """Tokens of an episode."""
    gradient: float
    heterogeneity: float = 1.2
    """Standard deviation of the problems' difficulty in logits."""
    copies: float = 0.0
    """Share of the episodes of a group that are copies of its first one."""
    cut: float = 0.002
    parse: float = 0.99
    calls: float = 0.995
    submits: float = 0.95
    refused: float = 0.01
    failed: float = 0.0
    """Share of episodes that the environment fails."""
    validation: float | None = None
    """Success on the validation split where it is another than in training."""
    seconds: float = 1.0
    """Of one step."""


@dataclass(frozen=True)
class Shape:
    """What stays the same over a run."""

    groups: int
    size: int
    cap: int
    validation_problems: int
    environment_share: float
    """Environment tokens per model token."""
    steps: int

    @property
    def plan(self) -> Plan:
        return Plan(self.steps, self.cap, 4, self.size)


@dataclass
class Scripted:
    """A whole run."""

    rows: list[Row]
    events: list[Row]
    plan: Plan
    process: ProcessFacts | None = None
    onset: int | None = None
    """First step of the fault."""


LatentHook = Callable[[Latent, int], None]
"""Changes the state of a step; the number is the step."""

RowHook = Callable[[Row, int], None]
"""Changes the metrics of a step."""


def healthy(
    seed: int,
    steps: int = 200,
    *,
    latent: LatentHook | None = None,
    row: RowHook | None = None,
    success: tuple[float, float] | None = None,
) -> Scripted:
    """A run that learns. `success`: its probability at the start and at the end, drawn where it is not given."""
    rng = random.Random(f"healthy|{seed}")
    shape = Shape(
        groups=rng.choice((2, 4, 8)),
        size=rng.choice((4, 8)),
        cap=rng.choice((192, 256)),
        validation_problems=rng.choice((64, 128)),
        environment_share=rng.uniform(0.25, 0.4),
        steps=steps,
    )
    start, end = success or (rng.uniform(0.2, 0.5), rng.uniform(0.7, 0.97))
    pace = rng.uniform(4, 12) / steps
    entropy, length = rng.uniform(0.04, 0.4), rng.uniform(55, 130)
    gradient, seconds = rng.uniform(0.15, 1.0), rng.uniform(0.4, 3.0)
    exams = [rng.gauss(0, 1.0) for _ in range(shape.validation_problems)]
    rows, events = [], []
    for step in range(1, steps + 1):
        chance = end - (end - start) * math.exp(-pace * step)
        state = Latent(
            success=chance,
            entropy=entropy * (0.08 + (1 - chance) / max(1 - start, 0.05) * 0.92),
            length=length,
            gradient=gradient,
            submits=0.97 - 0.2 * math.exp(-pace * step),
            seconds=seconds,
        )
        if latent is not None:
            latent(state, step)
        line = _row(rng, shape, state, step)
        if row is not None:
            row(line, step)
        rows.append(line)
        if step % 5 == 0:
            events.append(_validation(rng, shape, state, step, exams))
    return Scripted(rows, events, shape.plan)


def _logit(rate: float) -> float:
    bounded = min(1 - 1e-6, max(1e-6, rate))
    return math.log(bounded / (1 - bounded))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _spread(rate: float, heterogeneity: float) -> float:
    """Logit around which difficulties of this standard deviation have about this mean success (probit rule)."""
    return _logit(rate) * math.sqrt(1 + math.pi * heterogeneity**2 / 8)


def _binomial(rng: random.Random, n: int, rate: float) -> float:
    return sum(rng.random() < rate for _ in range(n)) / n


def _group(rng: random.Random, size: int, state: Latent) -> list[float]:
    chance = _sigmoid(_spread(state.success, state.heterogeneity) + rng.gauss(0, state.heterogeneity))
    if state.success <= 0:
        chance = 0.0
    rewards = [float(rng.random() < chance)]
    for _ in range(size - 1):
        rewards.append(rewards[0] if rng.random() < state.copies else float(rng.random() < chance))
    return rewards


def _row(rng: random.Random, shape: Shape, state: Latent, step: int) -> Row:
    groups = [_group(rng, shape.size, state) for _ in range(shape.groups)]
    rewards = [reward for group in groups for reward in group]
    episodes, size = len(rewards), shape.size
    mean = sum(rewards) / episodes
    ones, zeros = (sum(set(group) == {value} for group in groups) / shape.groups for value in (1.0, 0.0))
    flat = ones + zeros
    length = state.length * math.exp(rng.gauss(0, 0.05))
    tokens = length * episodes
    model = tokens / (1 + shape.environment_share)
    seconds = state.seconds * math.exp(rng.gauss(0, 0.25))
    unique = max(1 / size, (1 - state.copies) * min(1.0, 0.2 + 0.9 * (1 - mean) + rng.uniform(0, 0.15)))
    line: Row = {
        "step": step,
        "time_s": round(seconds, 4),
        "episodes": episodes,
        "reward_mean": mean,
        "reward_std": math.sqrt(mean * (1 - mean) * episodes / max(1, episodes - 1)),
        "reward_max": max(rewards),
        "reward_std_group": sum(_std(group) for group in groups) / shape.groups,
        "frac_zero_variance": flat,
        "frac_groups_all_one": ones,
        "frac_groups_all_zero": zeros,
        "entropy": state.entropy * math.exp(rng.gauss(0, 0.3)),
        "loss": rng.gauss(0, 0.09) if flat < 1 else 0.0,
        "grad_norm": state.gradient * math.exp(rng.gauss(0, 0.45)) / math.sqrt(1.05 - flat) if flat < 1 else 0.0,
        "learning_rate": 2e-4,
        "clip_low": 0.0,
        "clip_high": 0.0,
        "tokens_model": round(model),
        "tokens_environment": round(tokens - model),
        "trained_tokens": min(round(model), round(model * (1 - flat) * math.exp(rng.gauss(0, 0.05)))),
        "completion_mean": length,
        "unique_completions": unique,
        "prompt_similarity": rng.gauss(0.2, 0.03),
        "repetition_rate": _binomial(rng, episodes, 0.01),
        "new_script_rate": 0.0,
        "logp_gap": 0.004 * math.exp(rng.gauss(0, 0.4)),
        "ess": rng.uniform(0.93, 1.0),
        "logp_correlation": rng.uniform(0.99, 1.0),
        "tool_call_rate": _binomial(rng, episodes, state.calls),
        "parse_ok_rate": _binomial(rng, 2 * episodes, state.parse),
        "finish_rate": _binomial(rng, episodes, state.submits),
        "truncated_rate": _binomial(rng, episodes, state.cut),
        "tool_error_rate": _binomial(rng, 2 * episodes, state.refused),
        "env_error_rate": _binomial(rng, episodes, state.failed),
        "turns_mean": 2.0 + rng.gauss(0, 0.05),
        "seconds": {
            "generate": round(seconds * 0.7, 4),
            "environment": round(seconds * 0.04, 4),
            "logprob": 0.0,
            "update": round(seconds * 0.25, 4),
            "other": round(seconds * 0.01, 4),
        },
    }
    if flat >= 1:
        line["update_skipped"] = True
    return line


def _std(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))


def _validation(rng: random.Random, shape: Shape, state: Latent, step: int, exams: list[float]) -> Row:
    rate = state.success if state.validation is None else state.validation
    centre = _spread(rate, 1.0)
    solved = sum(rng.random() < (_sigmoid(centre + exam) if rate > 0 else 0.0) for exam in exams)
    n = shape.validation_problems
    return {"kind": "validation", "step": step, "eval": {"mean": solved / n, "n": n}}
