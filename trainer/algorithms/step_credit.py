"""Credit of single steps (ADCA-GRPO of AgentEvolver, arXiv 2511.10395): rewards of steps to advantages of steps. Pure.

A step is a turn of the model, labelled good or bad. With the step values p_ij of episode i, step j of K_i, its group's
z-score z (each episode weighs the same: μ = mean_i mean_j p_ij, σ² = mean_i mean_j (p_ij − μ)²) and the outcome's
advantage o_i:

    decouple:    p = +0.2 good, −0.2 bad
    allocation:  p = ± w_ij / Σ_k w_ik, + where the episode won; w = 1 where label and outcome agree, else 0.2
    r_ij = (α z(p)_ij + [j = K_i] o_i) / √K_i           (the division: length normalisation)
    A_ij = Σ_{k ≥ j} r_ik
"""

import math
from collections.abc import Sequence

BASE = 0.2
AGREES, DISAGREES = 1.0, 0.2
EPSILON = 1e-8
"""Added to the variance, as published: a group whose steps are all alike gets z = 0."""


def step_values(scheme: str, labels: Sequence[Sequence[bool]], won: Sequence[bool]) -> list[list[float]]:
    """p of each episode's steps. Raises ValueError for an unknown scheme."""
    if scheme == "decouple":
        return [[BASE if good else -BASE for good in one] for one in labels]
    if scheme == "allocation":
        values = []
        for one, success in zip(labels, won, strict=True):
            weights = [AGREES if good == success else DISAGREES for good in one]
            total = sum(weights)
            values.append([(weight if success else -weight) / total for weight in weights])
        return values
    raise ValueError(f"step credit {scheme!r}; allowed: decouple, allocation")


def z_scores(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of one group's episodes; those without steps have none."""
    filled = [one for one in values if one]
    if not filled:
        return [[] for _ in values]
    mean = sum(sum(one) / len(one) for one in filled) / len(filled)
    variance = sum(sum((v - mean) ** 2 for v in one) / len(one) for one in filled) / len(filled)
    return [[(v - mean) / math.sqrt(variance + EPSILON) for v in one] for one in values]


def step_advantages(
    values: Sequence[Sequence[float]], outcomes: Sequence[float], alpha: float, *, normalise_length: bool = True
) -> list[list[float]]:
    """A of each step of one group's episodes; `outcomes`: the advantage of each episode."""
    found = []
    for scores, outcome in zip(z_scores(values), outcomes, strict=True):
        steps = len(scores)
        scale = math.sqrt(steps) if normalise_length and steps else 1.0
        rewards = [(alpha * z + (outcome if j == steps - 1 else 0.0)) / scale for j, z in enumerate(scores)]
        suffix, total = [], 0.0
        for reward in reversed(rewards):
            total += reward
            suffix.append(total)
        found.append(suffix[::-1])
    return found
