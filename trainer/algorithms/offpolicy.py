"""Rows that were sampled with lessons in the prompt and are trained without: their clip range, ratio and statistics.

With r = exp(logp − old) and advantage A, a stripped row's loss is AgentEvolver's (arXiv 2511.10395, het_core_algos):

    C = max(−A r, −A clip(r, 1 − low, 1 + high));  A < 0: C = min(−A c, C)

which is TRL's two-sided clip with low, high and `delta` = c of that row. For A < 0 and r ≤ c it does not depend on
`high`; a larger `high` is wider: gradient survives up to 1 + high. Axis names: B rows, T tokens of the completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClipBounds:
    """What TRL's loss takes for one batch, each (B, 1)."""

    low: Tensor
    high: Tensor
    delta: Tensor
    """Largest ratio; infinite where there is none."""


@dataclass(frozen=True)
class ClipRange:
    """Distances from 1, and the bound c of the dual clip."""

    low: float
    high: float
    dual: float | None = None


def row_bounds(stripped_B: Tensor, on: ClipRange, off: ClipRange) -> ClipBounds:
    """The bounds of each row: `off` where it was stripped, else `on`."""

    def each(there: float, here: float) -> Tensor:
        return torch.where(stripped_B.bool(), there, here).float()[:, None]

    inf = float("inf")
    return ClipBounds(
        each(off.low, on.low),
        each(off.high, on.high),
        each(inf if off.dual is None else off.dual, inf if on.dual is None else on.dual),
    )


def old_logps(current_BT: Tensor, sampled_BT: Tensor, stripped_B: Tensor) -> Tensor:
    """(B, T) what the ratio is to: the sampling policy (with lessons) for stripped rows, else the present one."""
    return torch.where(stripped_B.bool()[:, None], sampled_BT, current_BT.detach())


@dataclass(frozen=True)
class LossPart:
    """Log-probabilities of one part of an update, detached."""

    current: Tensor
    """(B, T) of the training prompt."""
    old: Tensor
    """(B, T) that the loss used."""
    sampled: Tensor
    """(B, T) as they were sampled."""
    advantages: Tensor
    """(B,) or (B, T)."""
    stripped: Tensor
    """(B,) bool."""
    mask: Tensor
    """(B, T) bool: tokens that are learned from."""


def off_policy_metrics(parts: Sequence[LossPart], on: ClipRange, off: ClipRange) -> dict[str, float]:
    """Of all parts of an update:

    clip_on, clip_off: share of trained tokens of the two kinds of rows that the clip range holds back (or the dual
    clip); ratio_used, ratio_behaviour: mean ratio of stripped rows to what the loss used, and to the policy as it
    sampled; ess_stripped: effective sample size of the weights w = ratio_behaviour as a share, (Σ w)² / (S Σ w²).
    Without tokens of a kind its values are left out.
    """
    clipped_on, clipped_off, used, behaviour = [], [], [], []
    for part in parts:
        ratio = (part.current - part.old).double().clamp(-50, 50).exp()
        advantages = part.advantages if part.advantages.ndim == 2 else part.advantages[:, None]
        bounds = row_bounds(part.stripped, on, off)
        held = ((ratio < 1 - bounds.low) | (ratio > bounds.delta)) & (advantages < 0)
        held |= (ratio > 1 + bounds.high) & (advantages > 0)
        off_tokens = part.mask & part.stripped.bool()[:, None]
        clipped_off.append(held[off_tokens])
        clipped_on.append(held[part.mask & ~part.stripped.bool()[:, None]])
        used.append(ratio[off_tokens])
        behaviour.append((part.current - part.sampled).double().clamp(-50, 50).exp()[off_tokens])
    values: dict[str, float] = {}
    for name, found in (("clip_on", clipped_on), ("clip_off", clipped_off)):
        if sum(map(len, found)):
            values[name] = float(torch.cat(found).double().mean())
    if sum(map(len, used)):
        weights = torch.cat(behaviour)
        values["ratio_used"] = float(torch.cat(used).mean())
        values["ratio_behaviour"] = float(weights.mean())
        values["ess_stripped"] = float(weights.sum().square() / (len(weights) * weights.square().sum()))
    return values
