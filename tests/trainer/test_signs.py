"""Text checks and the agreement of sampling and training, by hand."""

import math

import pytest
import torch

from trainer.algorithms.agreement import agreement
from trainer.algorithms.text_checks import new_script_rate, repeats_itself, repetition_rate, scripts


def test_repetition_by_hand() -> None:
    assert not repeats_itself([7] * 31)  # too short to say
    assert repeats_itself([7] * 17 + list(range(100, 115)))  # 17 of 32
    assert not repeats_itself([7] * 16 + list(range(100, 116)))  # 16 of 32 is not more than half
    assert repeats_itself([1, 2, 3, 4] * 10)  # 4 different 4-grams of 37
    assert not repeats_itself(list(range(40)))
    assert repetition_rate([[7] * 40, list(range(40)), [1], [2]]) == 0.25
    assert repetition_rate([]) is None


def test_scripts_by_hand() -> None:
    assert scripts("abc 123 +-*") == {"LATIN"}
    assert scripts("算 b Ж") == {"CJK", "LATIN", "CYRILLIC"}
    assert (
        new_script_rate([("What is 2?", "The answer 是 4"), ("什么", "答案 four"), ("What", "four"), ("x", "12")])
        == 0.5
    )
    assert new_script_rate([]) is None


def test_agreement_by_hand() -> None:
    """Two tokens of probability 0.5 and 0.25 while training; 0.25 and 0.25 while sampling: weights 2 and 1."""
    trained, sampled = torch.tensor([0.5, 0.25]).log(), torch.tensor([0.25, 0.25]).log()
    values = agreement([(trained[:1], sampled[:1]), (trained[1:], sampled[1:])])
    assert values == {"logp_gap": pytest.approx(math.log(2) / 2), "ess": pytest.approx(9 / (2 * 5))}
    same = torch.tensor([0.9, 0.2, 0.4]).log()
    assert agreement([(same, same)]) == {
        "logp_gap": 0.0,
        "ess": pytest.approx(1.0),
        "logp_correlation": pytest.approx(1.0),
    }
    assert agreement([]) == {}
    assert agreement([(torch.zeros(0), torch.zeros(0))]) == {}
