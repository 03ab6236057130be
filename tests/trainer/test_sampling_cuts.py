"""top-p, top-k and the time limit of an episode."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.envs import registry
from trainer.models.load import LoadedModel
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.sampler import sample, truncated
from trainer.rollout.types import Limits, StopReason
from trainer.settings import resolve
from trainer.tasks import requests

LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def kept(top_p: float, top_k: int) -> list[bool]:
    return torch.isfinite(truncated(LOGITS, top_p, top_k))[0].tolist()


@pytest.mark.parametrize(
    ("top_p", "top_k", "expected"),
    [
        (1.0, 0, [True, True, True, True]),
        (1.0, 2, [True, True, False, False]),
        (0.5, 0, [True, False, False, False]),  # 0.5 is reached by the first alone
        (0.51, 0, [True, True, False, False]),
        (0.85, 0, [True, True, True, False]),
        (0.6, 2, [True, False, False, False]),  # of the two that are left the first holds 0.625
        (0.7, 2, [True, True, False, False]),
        (1e-9, 0, [True, False, False, False]),
    ],
)
def test_by_hand(top_p: float, top_k: int, expected: list[bool]) -> None:
    assert kept(top_p, top_k) == expected


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30),
    st.floats(0.01, 1.0),
    st.integers(0, 40),
    st.floats(2.0**-53, 1.0),  # what the streams can give
)
def test_only_kept_tokens_are_drawn_with_their_own_probability(
    values: list[float], top_p: float, top_k: int, uniform: float
) -> None:
    logits = torch.tensor([values])
    token, logp, entropy = sample(logits, torch.tensor([uniform], dtype=torch.float64), 1.0, top_p, top_k)
    cut = truncated(logits, top_p, top_k)[0]
    assert torch.isfinite(cut[token[0]])
    probabilities = cut.double().softmax(-1)
    assert logp.item() == pytest.approx(probabilities[token[0]].log().item(), abs=1e-4)
    finite = probabilities[probabilities > 0]
    assert entropy.item() == pytest.approx(-(finite * finite.log()).sum().item(), abs=1e-3)
    if top_k:
        assert int(torch.isfinite(cut).sum()) <= top_k
    rest = logits.double().softmax(-1)[0][torch.isfinite(cut)].sum().item()
    assert top_k > 0 or rest >= top_p - 1e-6


def test_the_config_warns() -> None:
    assert not [w for w in resolve("train tiny").warnings if "distribution" in w]
    (warning,) = [w for w in resolve("train tiny", ["top_p=0.9", "top_k=20"]).warnings if "distribution" in w]
    assert warning.startswith("top_p 0.9 and top_k 20:")


def test_the_engine_samples_from_the_cut_distribution(tiny: LoadedModel) -> None:
    """With top_k 1 every token is the likeliest one: log-probability 0, entropy 0."""
    spec = registry.load("calculator")
    assert spec.tasks is not None
    asked = requests(spec.tasks("test", 4, 1, "simple"), spec.system_prompt)
    player = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(), seed=1, top_k=1)
    for episode in player.run(asked, 1.0):
        assert all(abs(p) < 1e-6 for p in episode.logprobs)
        assert episode.entropy_sum == pytest.approx(0.0, abs=1e-5)


def test_an_episode_over_its_time_gets_no_further_turn(scripted: Any) -> None:
    call = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1 + 1"}}\n</tool_call>'
    (episode,), _ = scripted([[call, call, call]], limits=Limits(max_seconds=0.0))
    assert episode.stop_reason is StopReason.MAX_SECONDS
    assert episode.turns == 1
    assert episode.stop_reason.is_truncation
    assert math.isinf(Limits().max_seconds)
