"""How well the probabilities of sampling and of training agree on the same tokens. They should: it is one policy.

Axis names: S trained tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def agreement(pairs: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """From [(training, sampling) log-probabilities (S,)] of the parts of an update:

    logp_gap: mean |difference| in nats; ess: effective sample size of the weights w = exp(training - sampling) as a
    share, (Σ w)² / (S Σ w²); logp_correlation: Pearson's, of the probabilities, left out where one of them is constant.
    Empty without tokens.
    """
    if not pairs or not sum(len(trained) for trained, _ in pairs):
        return {}
    trained = torch.cat([one for one, _ in pairs]).double()
    sampled = torch.cat([one for _, one in pairs]).double()
    difference = trained - sampled
    weights = difference.clamp(-50, 50).exp()
    values = {
        "logp_gap": float(difference.abs().mean()),
        "ess": float(weights.sum().square() / (len(weights) * weights.square().sum())),
    }
    p, q = trained.exp(), sampled.exp()
    p, q = p - p.mean(), q - q.mean()
    scale = float(p.norm() * q.norm())
    if scale > 1e-12:
        values["logp_correlation"] = float((p * q).sum()) / scale
    return {key: value for key, value in values.items() if value == value}
