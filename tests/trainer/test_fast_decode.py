"""Our own decoder layers against transformers', and guesses that may change the speed but never an episode."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from trainer.envs import registry
from trainer.envs.base import EnvironmentSpec
from trainer.models import fast_decode, shared_prefix
from trainer.models.fast_decode import Decoder
from trainer.models.load import LoadedModel
from trainer.models.threads import Threads
from trainer.rollout.backends import FastPrefix, OneToken, PlainCache, SharedPrefix, backend_for, chunked
from trainer.rollout.drafts import Drafts, best_width, example_calls
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Limits
from trainer.tasks import group_requests

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def model_of(kind: str) -> PreTrainedModel:
    torch.manual_seed(3)
    made: PreTrainedModel
    if kind == "llama":
        made = LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True))
    elif kind == "llama3 rope":
        rope = {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
        made = LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rope, mlp_bias=True))
    elif kind == "qwen2":
        made = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True))
    else:
        made = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16))
    for name, parameter in made.named_parameters():  # norms and biases that are not 1 and 0
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.3)
    made.eval()
    shared_prefix.install(made)
    return made


PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 20, 21, 22, 23], [5, 6, 7, 9]]
GROUP = [0, 0, 1, 2]


def decoder_of(model: PreTrainedModel, prompts: list[list[int]] = PROMPTS) -> Decoder:
    backend = FastPrefix(model)
    backend.begin(prompts, GROUP, 40)
    assert backend._decoder is not None
    return backend._decoder


@pytest.mark.parametrize("kind", ["llama", "llama3 rope", "qwen2", "qwen3"])
@pytest.mark.parametrize("prompts", [PROMPTS, [[11, 12], [31, 32, 33], [41, 7]]], ids=["header", "no header"])
def test_logits_are_those_of_a_plain_forward_pass(kind: str, prompts: list[list[int]]) -> None:
    """Ragged rows, tokens that were not accepted, rows that left."""
    model = model_of(kind)
    assert fast_decode.supported(model)
    rows = list(range(len(GROUP)))
    with torch.inference_mode():
        decoder = decoder_of(model, prompts)
        said = {row: list(prompts[GROUP[row]][:-1]) for row in rows}
        for step, width in enumerate((1, 3, 4, 1, 2)):
            tokens = torch.randint(0, 97, (len(rows), width))
            logits = decoder.logits(decoder.feed(tokens)).view(len(rows), width, -1)
            for slot, row in enumerate(rows):
                plain = model(input_ids=torch.tensor([said[row] + tokens[slot].tolist()])).logits[0, -width:]
                assert (plain - logits[slot]).abs().max() < 2e-5
            source = [3, 0, 3] if step == 2 else list(range(len(rows)))  # rows leave, change places, part
            counts = torch.tensor([1 + (slot + step) % width for slot in range(len(source))])
            if step == 2:
                decoder.keep(torch.tensor(source))
            decoder.accept(counts)
            spoken = [said[rows[old]] + tokens[old, : int(counts[new])].tolist() for new, old in enumerate(source)]
            rows = list(range(len(source)))
            said = dict(enumerate(spoken))


def test_models_that_are_not_computed_are_not_taken(tiny: LoadedModel) -> None:
    assert isinstance(backend_for(tiny.model), FastPrefix)
    model = model_of("qwen2")
    model.model.layers[0].self_attn.q_proj = torch.nn.Sequential(model.model.layers[0].self_attn.q_proj)
    assert not fast_decode.supported(model)
    assert isinstance(backend_for(model), SharedPrefix)
    half = model_of("qwen2").to(torch.bfloat16)
    assert not fast_decode.supported(half)
    model.set_attn_implementation("sdpa")
    assert isinstance(backend_for(model), PlainCache)
    assert isinstance(chunked(backend_for(model)), OneToken)


@pytest.mark.parametrize("name", ["calculator", "lookup"])
def test_guesses_never_change_an_episode(tiny: LoadedModel, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No guesses, good ones, and nonsense in every place: the same tokens, log-probabilities and rewards."""
    spec = registry.load(name)
    assert spec.tasks is not None
    tasks = spec.tasks("test", 3, 1, "mixed")
    asked = [r for i, row in enumerate(tasks) for r in group_requests(row, spec.system_prompt, i, 0, 4)]
    engine = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(), seed=1)
    fed: list[int] = []
    original = FastPrefix.feed
    monkeypatch.setattr(FastPrefix, "feed", lambda self, t, w: (fed.append(len(w)), original(self, t, w))[1])
    played = {}
    for kind in ("good", "none", "nonsense"):
        fed.clear()
        if kind == "none":
            monkeypatch.setattr(FastPrefix, "width", 1)
        elif kind == "nonsense":
            monkeypatch.setattr(FastPrefix, "width", 8)
            monkeypatch.setattr(Drafts, "guess", lambda self, context, group, count: [17] * count)
        played[kind] = (engine.run(asked, 1.0), len(fed))
    for kind in ("none", "nonsense"):
        for a, b in zip(played["good"][0], played[kind][0], strict=True):
            assert a.completion_ids == b.completion_ids
            assert a.mask == b.mask
            assert (a.reward, a.stop_reason, a.turns) == (b.reward, b.stop_reason, b.turns)
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
            assert a.entropy_sum == pytest.approx(b.entropy_sum, abs=1e-3)
    assert played["good"][1] < 0.8 * played["none"][1]  # and they do save passes


class Odd:
    """Answers every instance differently."""

    made = 0

    def reset(self, **_: object) -> None:
        Odd.made += 1
        self.number = Odd.made

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression.
        """
        return str(self.number)

    def get_reward(self) -> float:
        return 0.0


def test_rows_part_where_the_world_answers_differently(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly greedy rows say the same until they hear different things; each hears its own, as if played alone."""
    row = {"prompt": "What is 3 + 4?"}
    engine = RolloutEngine(tiny.model, tiny.tokenizer, EnvironmentSpec.of("odd", Odd), Limits(max_turns=2), seed=1)
    fed: list[int] = []
    original = FastPrefix.feed
    monkeypatch.setattr(FastPrefix, "feed", lambda self, t, w: (fed.append(len(t)), original(self, t, w))[1])
    Odd.made = 0
    together = engine.run(group_requests(row, "Solve the task with the tools.", 0, 0, 6), 0.01)
    assert fed[0] == 1  # six rows in one
    assert max(fed) == 6
    answers = [next(m["content"] for m in e.messages if m["role"] == "tool") for e in together]
    assert answers == ["1", "2", "3", "4", "5", "6"]
    monkeypatch.setattr(FastPrefix, "copies", False)
    monkeypatch.setattr(FastPrefix, "width", 1)
    Odd.made = 0
    alone = engine.run(group_requests(row, "Solve the task with the tools.", 0, 0, 6), 0.01)
    assert [e.completion_ids for e in together] == [e.completion_ids for e in alone]
    assert [e.mask for e in together] == [e.mask for e in alone]


def test_a_cap_holds_when_several_tokens_are_confirmed_at_once(tiny: LoadedModel) -> None:
    spec = registry.load("calculator")
    assert spec.tasks is not None
    row = spec.tasks("test", 1, 1, "mixed")[0]
    for cap in (5, 18, 41):
        engine = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(max_completion_tokens=cap), seed=1)
        for episode in engine.run(group_requests(row, spec.system_prompt, 0, 0, 8), 1.0):
            assert len(episode.completion_ids) <= cap
            assert len(episode.completion_ids) == len(episode.mask) == len(episode.logprobs)


def test_what_was_said_is_guessed_until_it_is_wrong_often_enough() -> None:
    drafts = Drafts([[1, 2, 3, 4, 5]])
    drafts.read_prompts([[9, 9]], 0)
    assert drafts.guess((1, 2, 3), 0, 5) == [4, 5]
    assert drafts.guess((1, 2, 3), 0, 1) == [4]
    assert drafts.guess((7, 7, 7), 0, 5) == []
    drafts.learn((1, 2, 3), 8)  # score 1 -> 0: not sure enough to guess
    assert drafts.guess((1, 2, 3), 0, 5) == []
    drafts.learn((1, 2, 3), 8)  # replaced
    assert drafts.guess((1, 2, 3), 0, 5) == [8]
    for _ in range(9):
        drafts.learn((1, 2, 3), 8)
    for _ in range(2):
        drafts.learn((1, 2, 3), 4)
    assert drafts.guess((1, 2, 3), 0, 1) == [8]  # ceiling 3, twice wrong: 1 left


def test_a_number_is_copied_from_the_rows_own_question() -> None:
    drafts = Drafts()
    header = [1, 2, 3]
    drafts.read_prompts([[*header, 40, 41, 42, 43], [*header, 40, 41, 50, 51]], 3)
    assert drafts.guess((0, 40, 41), 0, 9) == [42, 43]
    assert drafts.guess((0, 40, 41), 1, 9) == [50, 51]
    assert drafts.guess((0, 1, 2), 0, 9) == []  # the header is everybody's


def test_example_calls_begin_where_the_model_speaks(tiny: LoadedModel) -> None:
    engine = RolloutEngine(tiny.model, tiny.tokenizer, registry.load("calculator"), Limits(), seed=1)
    texts = [tiny.tokenizer.decode(ids) for ids in example_calls(engine.renderer)]
    assert len(texts) == 2
    assert all("<tool_call>" in text and "<|im_end|>" in text for text in texts)
    assert {'"name": "calculate"' in text for text in texts} == {True, False}


def test_width_by_hand() -> None:
    # 2 rows, overhead 10. width 1: 2 / 12; width 2: (2 + 1) / 14; width 3: (3 + 1) / 16 = 0.25; nothing beyond 3
    assert best_width([3, 1], [0, 0], 8, 10.0) == 3
    # without overhead a pass of one token wastes least
    assert best_width([3, 1], [0, 0], 8, 0.0) == 1
    # guesses count 0.8, 0.64, …: 1 row, overhead 2: 1/3; 1.8/4 = 0.45; 2.44/5 = 0.488; 2.952/6 = 0.492; 3.36/7 = 0.480
    assert best_width([1], [7], 8, 2.0) == 4
    assert best_width([1], [7], 3, 2.0) == 3


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8)), min_size=1, max_size=12),
    st.integers(1, 8),
    st.floats(0, 100),
)
@settings(deadline=None)
def test_a_width_is_never_wider_than_what_there_is(rows: list[tuple[int, int]], widest: int, overhead: float) -> None:
    certain, guessed = [c for c, _ in rows], [g for _, g in rows]
    width = best_width(certain, guessed, widest, overhead)
    assert 1 <= width <= min(widest, max(c + g for c, g in rows))


def test_rollouts_do_not_depend_on_those_before(tiny: LoadedModel) -> None:
    """What is guessed is learned within a rollout: a resumed run computes bit for bit what it would have computed."""
    spec = registry.load("calculator")
    assert spec.tasks is not None
    rows = spec.tasks("test", 2, 1, "mixed")
    engine = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(), seed=1)
    first = engine.run(group_requests(rows[0], spec.system_prompt, 0, 0, 4), 1.0)
    engine.run(group_requests(rows[1], spec.system_prompt, 1, 0, 4), 1.0)
    again = engine.run(group_requests(rows[0], spec.system_prompt, 0, 0, 4), 1.0)
    assert [e.logprobs for e in first] == [e.logprobs for e in again]  # every bit


def test_small_work_runs_on_one_thread_and_the_rest_as_before() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with Threads() as threads:
            threads.for_work(1e3)
            assert torch.get_num_threads() == 1
            threads.for_work(1e9)
            assert torch.get_num_threads() == 2
            threads.for_work(1e3)
        assert torch.get_num_threads() == 2
        with contextlib.suppress(RuntimeError), Threads() as threads:
            threads.for_work(1e3)
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
