"""Credit of single turns: the published formulas by hand, labels from what the verifier saw, fallbacks counted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_grpo import make

from trainer.algorithms.step_credit import step_advantages, step_values, z_scores
from trainer.credit import StepCredit, labels_of, turns_of
from trainer.rollout.types import Episode, EpisodeRequest, StopReason

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")


def test_decouple_by_hand() -> None:
    """A: good, bad, outcome 1; B: bad, outcome -1. μ = (0 - 0.2) / 2 = -0.1, σ² = (0.05 + 0.01) / 2 = 0.03."""
    values = step_values("decouple", [[True, False], [False]], [True, False])
    assert values == [[0.2, -0.2], [-0.2]]
    z = z_scores(values)
    assert z[0] == pytest.approx([0.3 / 0.03**0.5, -0.1 / 0.03**0.5], rel=1e-5)
    first, second = step_advantages(values, [1.0, -1.0], 0.1, normalise_length=False)
    assert first == pytest.approx([0.173205 - 0.057735 + 1, -0.057735 + 1], abs=1e-5)
    assert second == pytest.approx([-0.057735 - 1], abs=1e-5)
    shorter = step_advantages(values, [1.0, -1.0], 0.1)
    assert shorter[0] == pytest.approx([value / 2**0.5 for value in first])
    assert shorter[1] == second


def test_allocation_by_hand() -> None:
    """Won with good, bad: 1 / 1.2 and 0.2 / 1.2. Lost with bad: -1. μ = -0.25, σ² = (0.673611 + 0.5625) / 2."""
    values = step_values("allocation", [[True, False], [False]], [True, False])
    assert values[0] == pytest.approx([1 / 1.2, 0.2 / 1.2])
    assert values[1] == [-1.0]
    assert z_scores(values)[0][0] == pytest.approx(1.083333 / 0.618056**0.5, abs=1e-4)
    assert sum(step_values("allocation", [[True, False, False]], [False])[0]) == pytest.approx(-1)


def test_alike_steps_and_no_weight_leave_the_outcome() -> None:
    values = step_values("decouple", [[True], [True, True], []], [True, False, False])
    assert z_scores(values) == [[0.0], [0.0, 0.0], []]
    assert step_advantages(values, [0.5, -0.5, 0.0], 0.1, normalise_length=False) == [[0.5], [-0.5, -0.5], []]
    with pytest.raises(ValueError, match="decouple, allocation"):
        step_values("other", [], [])


def episode(turns: list[tuple[list[dict[str, Any]], list[str]]], reward: float, mask: list[int]) -> Episode:
    """Turns as (calls, answers)."""
    prompt = [{"role": "user", "content": "?"}]
    messages: list[dict[str, Any]] = list(prompt)
    for calls, answers in turns:
        tool_calls = {"tool_calls": [{"type": "function", "function": one} for one in calls]} if calls else {}
        messages.append({"role": "assistant", "content": "", **tool_calls})
        messages += [{"role": "tool", "content": answer} for answer in answers]
    size = len(mask)
    return Episode(
        EpisodeRequest(prompt, {}, 0, 0, 0), [1], None, [2] * size, mask, [0.0] * size, reward=reward, messages=messages
    )


ADD = {"name": "calculate", "arguments": {"expression": "1 + 1"}}
OTHER = {"name": "calculate", "arguments": {"expression": "2 + 1"}}


def test_labels_come_from_what_the_verifier_saw() -> None:
    assert labels_of(episode([([ADD], ["2"]), ([OTHER], ["3"])], 0.0, [1])) == [True, True]
    assert labels_of(episode([([ADD], ["2"]), ([ADD], ["2"])], 1.0, [1])) == [True, False]  # again
    assert labels_of(episode([([ADD], ["Error: no"]), ([OTHER], ["3"])], 1.0, [1])) == [False, True]
    assert labels_of(episode([([], ["Error: unreadable"])], 1.0, [1])) == [False]
    assert labels_of(episode([([], [])], 0.0, [1])) == [False]  # ended without doing anything
    assert labels_of(episode([([], [])], 1.0, [1])) == [True]


def test_turns_get_their_tokens_and_what_does_not_match_keeps_its_advantage() -> None:
    assert turns_of([1, 1, 0, 0, 1, 0]) == [(0, 2), (4, 5)]
    good = episode([([ADD], ["2"]), ([ADD], ["2"])], 1.0, [1, 1, 0, 1])
    bad = episode([([ADD], ["Error: x"])], 0.0, [1, 1])
    odd = episode([([ADD], ["2"])], 0.0, [1, 0, 1])  # two turns of tokens, one message
    broken = episode([], 0.0, [0])
    broken.stop_reason = StopReason.ENVIRONMENT_ERROR
    credit = StepCredit("decouple", 0.1, 4)
    found = credit([good, bad, odd, broken], torch.tensor([1.0, -0.5, -0.5, 0.0]))
    (first, second), (only,) = step_advantages([[0.2, -0.2], [-0.2]], [1.0, -0.5], 0.1)
    assert found.shape == (4, 4)
    assert found[0].tolist() == pytest.approx([first, first, 1.0, second])
    assert found[1, :2].tolist() == pytest.approx([only, only])
    assert found[2, :3].tolist() == [-0.5] * 3
    assert credit.metrics() == {"bad_turn_rate": 2 / 3, "credit_fallbacks": 1.0}


def test_a_step_with_credit_trains(tmp_path: Path) -> None:
    trainer, record = make(tmp_path, max_steps=1)
    trainer.credit = StepCredit("allocation", 0.1, 4)
    trainer.train()
    (line,) = record.lines
    assert line["credit_fallbacks"] == 0
    assert 0 <= line["bad_turn_rate"] <= 1
    assert line["grad_norm"] > 0
