"""Advantages against numbers worked out by hand, and their invariances."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.advantages import flat_groups, group_advantages, kept_rows

ALL = torch.ones(8, dtype=torch.bool)


def test_by_hand() -> None:
    # group 1: 1 0 0 0: mean .25, sample variance (.75² + 3 · .25²) / 3 = .25, std .5
    # group 2: 1 1 1 1: flat
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1])
    expected = torch.tensor([0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0])
    assert torch.allclose(group_advantages(rewards, ALL, 4, "group"), expected / (0.5 + 1e-4))
    assert torch.allclose(group_advantages(rewards, ALL, 4, "none"), expected)
    # over the batch: mean .625, variance (5 · .375² + 3 · .625²) / 7 = .26786, std .51755
    assert torch.allclose(group_advantages(rewards, ALL, 4, "batch"), expected / (0.5175492 + 1e-4))
    assert flat_groups(rewards, ALL, 4).tolist() == [False, True]
    assert kept_rows(rewards, ALL, 4).tolist() == [True] * 4 + [False] * 4


def test_two_generations_of_zero_and_one_give_seven_tenths_not_one() -> None:
    # sample std of {0, 1} is .7071, so TRL's advantages are ±.5 / .7072 = ±.7070
    advantages = group_advantages(torch.tensor([1.0, 0.0]), torch.ones(2, dtype=torch.bool), 2)
    assert advantages.tolist() == pytest.approx([0.70701, -0.70701], abs=1e-4)


def test_an_invalid_episode_is_in_no_mean() -> None:
    rewards = torch.tensor([1.0, 0.0, 9.0, 0.0])
    valid = torch.tensor([True, True, False, True])
    # mean of 1 0 0 is 1/3, variance (4/9 + 1/9 + 1/9) / 2 = 1/3
    expected = torch.tensor([2 / 3, -1 / 3, 0.0, -1 / 3]) / (3**-0.5 + 1e-4)
    assert torch.allclose(group_advantages(rewards, valid, 4), expected)
    assert kept_rows(rewards, valid, 4).tolist() == [True, True, False, True]


def test_a_group_with_one_valid_episode_is_flat() -> None:
    valid = torch.tensor([True, False, False, False])
    assert flat_groups(torch.tensor([1.0, 0, 0, 0]), valid, 4).tolist() == [True]


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed: group, batch, none"):
        group_advantages(torch.zeros(2), torch.ones(2, dtype=torch.bool), 2, "std")


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_advantages_of_a_group_sum_to_zero_and_follow_the_rewards(groups: list[list[float]]) -> None:
    rewards = torch.tensor([r for g in groups for r in g])
    valid = torch.ones(len(rewards), dtype=torch.bool)
    advantages = group_advantages(rewards, valid, 4).view(-1, 4)
    assert advantages.sum(1).abs().max() < 1e-3
    shuffled = group_advantages(rewards.view(-1, 4).flip(1).reshape(-1), valid, 4).view(-1, 4).flip(1)
    assert torch.allclose(advantages, shuffled, atol=1e-5)
    moved = group_advantages(rewards + 3.0, valid, 4).view(-1, 4)
    assert torch.allclose(advantages, moved, atol=1e-3)
