"""Splitting an update by tokens: by hand, and what must hold of any split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.microbatch import AGGREGATION, merge_metrics, part_weight, split_rows
from trainer.config import TrainingConfig


def test_by_hand() -> None:
    """Header 10, two groups of prompts of 14 tokens (4 beyond the header): a part is 10 + 4 a group + its rows."""
    groups, prompts, rows = [0, 0, 1, 1], [14, 14, 14, 14], [5, 6, 7, 8]
    assert split_rows(groups, prompts, rows, 10, 10 + 4 + 5 + 6 + 4 + 7 + 8) == [0, 0, 0, 0]
    assert split_rows(groups, prompts, rows, 10, 43) == [0, 0, 0, 1]  # 36 with the third, 44 with the fourth
    assert split_rows(groups, prompts, rows, 10, 25) == [0, 0, 1, 2]  # 10+4+5+6 = 25; 10+4+7 = 21; 10+4+8 = 22
    assert split_rows(groups, prompts, rows, 10, 1) == [0, 1, 2, 3]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.lists(st.integers(1, 50), min_size=1, max_size=5)), min_size=1),
    st.integers(0, 20),
    st.integers(1, 300),
)
def test_parts_fit_and_none_could_take_the_next_row(
    sizes: list[tuple[int, list[int]]], header: int, budget: int
) -> None:
    groups = [number for number, (_, rows) in enumerate(sizes) for _ in rows]
    prompts = [header + rest for rest, rows in sizes for _ in rows]
    rows = [length for _, lengths in sizes for length in lengths]
    parts = split_rows(groups, prompts, rows, header, budget)
    assert parts[0] == 0
    assert all(b - a in (0, 1) for a, b in pairwise(parts))

    def cost(members: list[int]) -> int:
        rests = {groups[i]: prompts[i] - header for i in members}
        return header + sum(rests.values()) + sum(rows[i] for i in members)

    for part in range(parts[-1] + 1):
        members = [i for i, number in enumerate(parts) if number == part]
        assert cost(members) <= budget or len(members) == 1
        if members[-1] + 1 < len(parts):
            assert cost([*members, members[-1] + 1]) > budget


def test_weights() -> None:
    assert part_weight("dapo", 2, 8, 30, 300) == 1.0
    assert part_weight("grpo", 2, 8, 30, 300) == part_weight("gspo", 2, 8, 30, 300) == 0.25
    assert part_weight("bnpo", 2, 8, 30, 300) == pytest.approx(0.1)
    assert part_weight("bnpo", 2, 8, 0, 0) == 0.0


def test_every_loss_type_has_a_weight() -> None:
    from typing import get_args

    assert set(get_args(TrainingConfig.model_fields["loss_type"].annotation)) == set(AGGREGATION)


def test_metrics_are_merged_by_tokens() -> None:
    metrics = {"entropy": [0.5, 1.0, 4.0], "once": [7.0]}
    merge_metrics({"entropy": 1, "once": 0}, metrics, [30, 10])
    assert metrics == {"entropy": [0.5, (1.0 * 30 + 4.0 * 10) / 40], "once": [7.0]}


def test_clip_ranges_of_the_losses() -> None:
    assert TrainingConfig().clip_range == (0.2, 0.2)
    assert TrainingConfig(loss_type="gspo").clip_range == (3e-4, 4e-4)
    assert TrainingConfig(loss_type="cispo").clip_range[1] == 5.0
    assert TrainingConfig(epsilon_high=0.28).clip_range == (0.2, 0.28)
    with pytest.raises(ValueError, match="largest probability ratio"):
        TrainingConfig(loss_type="cispo", epsilon_high=0.2)
