"""What ends a turn: every end token and stop text; and that padding is neither."""

from pathlib import Path
from typing import Any

import pytest
import test_grpo
import torch
from template_zoo import SMOLLM2

from trainer.models.load import LoadedModel
from trainer.rollout.engine import end_ids
from trainer.rollout.types import StopReason


@pytest.fixture
def toolless(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """The model with a template that knows no tools, so that ReAct is read, too."""
    monkeypatch.setattr(tiny.tokenizer, "chat_template", SMOLLM2)
    return tiny


def test_an_observation_that_the_model_makes_up_ends_its_turn(toolless: LoadedModel, scripted: Any) -> None:
    (episode,), _ = scripted([["Thought: easy\nAction: calculate(2 + 3)\nObservation: 99"]])
    text = toolless.tokenizer.decode(episode.completion_ids)
    turn, answer = "Thought: easy\nAction: calculate(2 + 3)\nObservation:", "<tool_response>\n5\n</tool_response>"
    assert text.startswith(f"{turn}<|im_end|>\n<|im_start|>user\n{answer}<|im_end|>\n<|im_start|>assistant\n")
    said = [t for t, m in zip(episode.completion_ids, episode.mask, strict=True) if m]
    assert toolless.tokenizer.decode(said).startswith(turn)  # the end token behind it is not the model's: mask 0
    assert toolless.tokenizer.decode(said)[len(turn) :].count("<|im_end|>") == 1  # only the second turn's own
    assert (episode.tool_calls, episode.parse_errors) == (1, 0)
    assert episode.messages[1]["tool_calls"][0]["function"] == {
        "name": "calculate",
        "arguments": {"expression": "2 + 3"},
    }


def test_the_same_words_are_nothing_special_to_a_model_that_knows_tools(tiny: LoadedModel, scripted: Any) -> None:
    said = "Action: calculate(2 + 3)\nObservation: 99"
    (episode,), _ = scripted([[said]])
    assert tiny.tokenizer.decode(episode.completion_ids) == f"{said}<|im_end|>"
    assert episode.stop_reason is StopReason.COMPLETED


def test_a_padding_token_that_the_model_says_ends_nothing(tiny: LoadedModel, scripted: Any) -> None:
    assert tiny.tokenizer.pad_token == "<|endoftext|>"
    (episode,), _ = scripted([["a<|endoftext|>b"]])
    assert tiny.tokenizer.decode(episode.completion_ids) == "a<|endoftext|>b<|im_end|>"
    assert sum(episode.mask) == len(episode.mask)


def test_end_tokens_of_the_generation_config_count(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    eos = tiny.tokenizer.eos_token_id
    monkeypatch.setattr(tiny.model.generation_config, "eos_token_id", [eos, 7])
    assert end_ids(tiny.model, tiny.tokenizer) == {eos, 7}
    monkeypatch.setattr(tiny.model.generation_config, "eos_token_id", None)
    assert end_ids(tiny.model, tiny.tokenizer) == {eos}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")
def test_an_update_does_not_see_which_token_pads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pad = eos (SmolLM2) and a pad token of its own give the same episodes and the same weights."""
    original = test_grpo.load

    def run(folder: Path, pad: str) -> tuple[list[list[int]], torch.Tensor]:
        def load(*arguments: Any) -> LoadedModel:
            loaded = original(*arguments)
            loaded.tokenizer.pad_token = pad
            return loaded

        monkeypatch.setattr(test_grpo, "load", load)
        trainer, record = test_grpo.make(folder, max_steps=1, difficulty="simple", learning_rate=1e-3)
        before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
        trainer.train()
        after = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        assert float((after - before).abs().max()) > 0  # otherwise the test says nothing
        return [e.completion_ids for e in record.episodes[0]], after

    own_ids, own = run(tmp_path / "own", "<|endoftext|>")
    eos_ids, eos = run(tmp_path / "eos", "<|im_end|>")
    assert own_ids == eos_ids
    assert torch.equal(own, eos)
