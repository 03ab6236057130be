"""Group-relative advantages (GRPO, arXiv 2402.03300) over episodes of which some may be no evidence.

Axis names: B episodes, G generations of a group, N = B / G groups.
"""

import torch
from torch import Tensor

FLAT_STD = 1e-6
"""A group whose rewards differ by less than this carries no signal."""

EPSILON = 1e-4
"""Added to the standard deviation, as in TRL, so that both give the same number."""


def group_moments(rewards_B: Tensor, valid_B: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and sample standard deviation of each group's valid rewards, and how many there are: each (N,) float32.

    The standard deviation divides by (count - 1), as in TRL, and is 0 for groups with fewer than two valid rewards.
    """
    rewards = rewards_B.float().view(-1, group_size)
    valid = valid_B.view(-1, group_size).float()
    count = valid.sum(1)
    mean = (rewards * valid).sum(1) / count.clamp_min(1)
    deviation = (rewards - mean[:, None]) * valid
    variance = deviation.square().sum(1) / (count - 1).clamp_min(1)
    return mean, variance.sqrt(), count


def group_advantages(rewards_B: Tensor, valid_B: Tensor, group_size: int, scale: str = "group") -> Tensor:
    """(B,) advantages: reward minus the mean of its group's valid rewards, divided by `scale`.

    scale: "group" by the group's standard deviation + 1e-4, "batch" by that of all valid rewards + 1e-4, "none" by 1
    (Dr. GRPO, arXiv 2503.20783). Invalid episodes get 0.
    """
    mean, std, _ = group_moments(rewards_B, valid_B, group_size)
    advantages = (rewards_B.float() - mean.repeat_interleave(group_size)) * valid_B.float()
    if scale == "group":
        return advantages / (std.repeat_interleave(group_size) + EPSILON)
    if scale == "batch":
        kept = rewards_B.float()[valid_B.bool()]
        spread = kept.std() if kept.numel() > 1 else torch.zeros(())
        return advantages / (spread + EPSILON)
    if scale == "none":
        return advantages
    raise ValueError(f"scale_rewards {scale!r}; allowed: group, batch, none")


def flat_groups(rewards_B: Tensor, valid_B: Tensor, group_size: int) -> Tensor:
    """(N,) bool: groups whose valid rewards do not differ. Tested on rewards: equal ones may give tiny advantages."""
    _, std, _ = group_moments(rewards_B, valid_B, group_size)
    return std < FLAT_STD


def kept_rows(rewards_B: Tensor, valid_B: Tensor, group_size: int) -> Tensor:
    """(B,) bool: valid episodes of groups with signal: the only rows that a forward pass is spent on."""
    return ~flat_groups(rewards_B, valid_B, group_size).repeat_interleave(group_size) & valid_B.bool()


def cohorts(valid_B: Tensor, guided_B: Tensor, group_size: int) -> Tensor:
    """(B,) number of the baseline that a row is compared with: its group, or its half of it.

    A group's guided and unguided episodes have baselines of their own where both have at least two valid members:
    else a lesson that helps makes every unguided episode look bad. Numbers 2 n and 2 n + 1 belong to group n.
    """
    valid, guided = valid_B.bool().view(-1, group_size), guided_B.bool().view(-1, group_size)
    apart = ((valid & guided).sum(1) >= 2) & ((valid & ~guided).sum(1) >= 2)
    first = 2 * torch.arange(len(valid))[:, None]
    return (first + (guided & apart[:, None])).reshape(-1)


def cohort_advantages(
    rewards_B: Tensor, valid_B: Tensor, guided_B: Tensor, group_size: int, scale: str = "group"
) -> tuple[Tensor, Tensor]:
    """((B,) advantages, (B,) bool rows with signal) with the baselines of `cohorts`.

    Without guided rows exactly `group_advantages` and `kept_rows`. `scale` as there; "group": that of the cohort.
    """
    if not bool(guided_B.any()):
        return group_advantages(rewards_B, valid_B, group_size, scale), kept_rows(rewards_B, valid_B, group_size)
    rewards, valid = rewards_B.float(), valid_B.bool()
    number = cohorts(valid_B, guided_B, group_size)
    mean, std = torch.zeros_like(rewards), torch.zeros_like(rewards)
    for one in number.unique():
        rows = number == one
        own = rewards[rows & valid]
        if len(own):
            mean[rows] = own.mean()
        if len(own) > 1:
            std[rows] = own.std()
    advantages = (rewards - mean) * valid.float()
    if scale == "group":
        advantages = advantages / (std + EPSILON)
    elif scale == "batch":
        kept = rewards[valid]
        advantages = advantages / ((kept.std() if kept.numel() > 1 else torch.zeros(())) + EPSILON)
    elif scale != "none":
        raise ValueError(f"scale_rewards {scale!r}; allowed: group, batch, none")
    return advantages, (std >= FLAT_STD) & valid
