"""Keyed streams, exact sampling probabilities, parsers that never raise."""

import json
import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.models.parsing import parse_hermes
from trainer.rollout.sampler import max_entropy, sample, stream


def test_streams_are_keyed_not_consumed() -> None:
    assert np.array_equal(stream(1, 2, 3, 4, 5, 50)[:10], stream(1, 2, 3, 4, 5, 10))
    keys = [(1, 2, 3, 4, 5), (2, 2, 3, 4, 5), (1, 3, 3, 4, 5), (1, 2, 4, 4, 5), (1, 2, 3, 5, 5), (1, 2, 3, 4, 6)]
    assert len({float(stream(*key, 1)[0]) for key in keys}) == len(keys)
    draws = stream(7, 0, 0, 0, 0, 20_000)
    assert abs(draws.mean() - 0.5) < 0.01
    assert draws.min() > 0.0
    assert draws.max() <= 1.0


def test_sampling_by_hand() -> None:
    # probabilities .1 .2 .7: u ≤ .1 → 0, .1 < u ≤ .3 → 1, else 2
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).repeat(4, 1)
    token, logp, entropy = sample(logits, torch.tensor([0.05, 0.15, 0.31, 0.999999]).double(), 1.0)
    assert token.tolist() == [0, 1, 2, 2]
    assert torch.allclose(logp.exp(), torch.tensor([0.1, 0.2, 0.7, 0.7]), atol=1e-6)
    expected = -(0.1 * math.log(0.1) + 0.2 * math.log(0.2) + 0.7 * math.log(0.7))
    assert torch.allclose(entropy, torch.tensor(expected).float(), atol=1e-5)


def test_temperature_divides_logits() -> None:
    logits = torch.tensor([[0.0, 1.0]])
    _, logp, _ = sample(logits, torch.tensor([0.999]).double(), 0.5)
    assert float(logp) == torch.log_softmax(torch.tensor([0.0, 2.0]), -1)[1].item()


@given(st.lists(st.floats(-60, 60), min_size=2, max_size=30), st.floats(2**-53, 1))
def test_a_token_without_probability_is_never_drawn(logits: list[float], uniform: float) -> None:
    token, logp, entropy = sample(torch.tensor([logits]), torch.tensor([uniform]).double(), 1.0)
    assert 0 <= int(token) < len(logits)
    assert float(logp) > -50
    assert -1e-4 <= float(entropy) <= max_entropy(len(logits)) + 1e-4


def test_frequencies_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.125])
    draws = torch.from_numpy(stream(3, 0, 0, 0, 0, 40_000))
    tokens, _, _ = sample(probabilities.log().expand(40_000, 4), draws, 1.0)
    shares = torch.bincount(tokens, minlength=4) / 40_000
    assert (shares - probabilities).abs().max() < 0.01


@given(st.text(alphabet=st.sampled_from(list('<>/tool_call{}":,\\ \nname[]1é')), max_size=80))
def test_the_parser_never_raises(text: str) -> None:
    parse_hermes(text)


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=8),
            st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9)), max_size=3),
        ),
        max_size=3,
    )
)
def test_what_was_written_is_read(calls: list[tuple[str, dict[str, object]]]) -> None:
    text = "think " + "\n".join(
        f"<tool_call>\n{json.dumps({'name': n, 'arguments': a}, ensure_ascii=False)}\n</tool_call>" for n, a in calls
    )
    if any("tool_call>" in json.dumps(c, ensure_ascii=False) for c in calls):
        return
    turn = parse_hermes(text)
    assert [(c.name, c.arguments) for c in turn.calls] == calls
    assert turn.errors == []
    assert turn.content == "think"


def test_errors_say_what_is_wrong() -> None:
    assert parse_hermes("<tool_call>{}</tool_call>").errors == ["the call has no name"]
    assert parse_hermes("<tool_call>[1]</tool_call>").errors == ["a call is an object with name and arguments"]
    assert parse_hermes('<tool_call>{"name": "a"').errors == ["<tool_call> was not closed with </tool_call>"]
    assert parse_hermes("hello").attempted is False
    assert parse_hermes("oops</tool_call>").attempted is True
    assert parse_hermes('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>').calls[0].arguments == {
        "a": 1
    }
