"""Sampling by keyed random streams: a token's random number depends on where it stands, not on what was drawn before.

The stream of a turn is Philox keyed by (run seed, task, occurrence, generation, turn). So an episode does not depend on
the batch it runs in, and two configurations that meet the same task share their noise (common random numbers), which
makes their difference less noisy. One uniform number a token and the inverse of the cumulative distribution keep the
coupling strong: near policies mostly pick the same token.
"""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor


def stream(seed: int, task: int, occurrence: int, generation: int, turn: int, length: int) -> np.ndarray:
    """(length,) float64 uniform numbers in (0, 1]; a longer stream begins with the shorter one."""
    text = f"{seed}|{task}|{occurrence}|{generation}|{turn}"
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
    return 1.0 - np.random.Generator(np.random.Philox(key=key)).random(length)


def truncated(scaled: Tensor, top_p: float, top_k: int) -> Tensor:
    """(R, V) logits with -inf outside the `top_k` likeliest tokens (0: all) and then outside the smallest set of them
    that holds probability `top_p` (1: all); the likeliest token always stays, of equals the first."""
    order = scaled.argsort(dim=-1, descending=True, stable=True)
    ranked = scaled.gather(-1, order)
    outside = torch.zeros_like(ranked, dtype=torch.bool)
    if top_k > 0:
        outside[:, top_k:] = True
    if top_p < 1.0:
        probabilities = ranked.masked_fill(outside, float("-inf")).double().softmax(-1)
        outside |= probabilities.cumsum(-1) - probabilities >= top_p  # what stands before it is enough already
    outside[:, 0] = False
    return scaled.masked_fill(torch.zeros_like(outside).scatter(-1, order, outside), float("-inf"))


def sample(
    logits: Tensor, uniforms: Tensor, temperature: float, top_p: float = 1.0, top_k: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws one token a row from softmax(logits / temperature), cut to `top_k` and `top_p` where these are set.

    logits: (R, V) any float type; uniforms: (R,) float64 in (0, 1] (0 would draw tokens that have no probability).
    Returns (R,) tokens, (R,) float32 exact log-probabilities under that distribution, and (R,) float32 entropies in
    nats.
    """
    scaled = logits.float()
    if temperature != 1.0:
        scaled = scaled / temperature
    if top_p < 1.0 or top_k > 0:
        scaled = truncated(scaled, top_p, top_k)
    logp = scaled.log_softmax(-1)
    # exp of very negative numbers is slow on CPUs (denormal results); e^-80 is no probability anybody will draw
    bounded = logp.clamp_min(-80.0)
    probabilities = bounded.exp()
    cumulative = probabilities.double().cumsum(-1)
    threshold = uniforms.to(cumulative.device)[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, threshold)[:, 0].clamp_max(logits.shape[-1] - 1)  # the first not below it
    chosen = logp.gather(-1, token[:, None])[:, 0]
    entropy = -torch.linalg.vecdot(probabilities, bounded)
    return token, chosen, entropy


def max_entropy(vocabulary: int) -> float:
    """Entropy in nats of the uniform distribution over a vocabulary."""
    return math.log(vocabulary)
