"""Nominal levels of a group-sequential test: linear spending of a one-sided error over its looks.

With B the Brownian motion of the score and looks at information fractions t_k = n_k / n_K, the boundary z_k solves
P(no crossing before k, B(t_k) / sqrt(t_k) > z_k) = alpha (t_k - t_{k-1}); the level is 1 - Phi(z_k). Density by
recursive numerical integration (Armitage, McPherson and Rowe 1969; Lan and DeMets 1983 for the spending).
"""

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

_GRID = 2001
"""Points of the density grid: halving it moves no level by 1e-6."""

_REACH = 8.0
"""The grid ends this many standard deviations below zero."""


def derive_levels(looks: tuple[int, ...], spent: float) -> tuple[float, ...]:
    """One-sided nominal levels for looks at these numbers of pairs; `spent` is the whole one-sided error."""
    fractions = np.asarray(looks, dtype=float) / looks[-1]
    levels: list[float] = []
    grid = np.zeros(1)
    mass = np.ones(1)
    before = 0.0
    for fraction in fractions:
        step_sd = np.sqrt(fraction - before)
        share = spent * (fraction - before)

        def excess(
            score: float, grid: np.ndarray = grid, mass: np.ndarray = mass, sd: float = step_sd, share: float = share
        ) -> float:
            return float(np.sum(mass * norm.sf((score - grid) / sd)) - share)

        bound = brentq(excess, 0.0, _REACH)
        levels.append(float(norm.sf(bound / np.sqrt(fraction))))
        points = np.linspace(-_REACH * np.sqrt(fraction), bound, _GRID)
        density = (mass[None, :] * norm.pdf((points[:, None] - grid[None, :]) / step_sd)).sum(axis=1) / step_sd
        weights = np.full(_GRID, points[1] - points[0])
        weights[0] /= 2
        weights[-1] /= 2
        grid, mass, before = points, density * weights, fraction
    return tuple(levels)
