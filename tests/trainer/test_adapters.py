"""LoRA: the shared-prefix pass is exact through adapters, merging is exact, the base model stays as it was."""

import copy
from pathlib import Path
from typing import Any

import pytest
import test_grpo
import torch
from transformers import AutoModelForCausalLM

pytest.importorskip("peft", reason="adapters need the extra `lora`: pip install 'mcp-evo[lora]'")

from trainer.envs import registry
from trainer.models.adapters import merged, unwrapped, with_adapters
from trainer.models.catalog import resolve_model
from trainer.models.load import LoadedModel, load
from trainer.models.packed_logps import packed_logps
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Limits
from trainer.tasks import requests

IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])


@pytest.fixture
def adapted() -> LoadedModel:
    """Adapters that change something: B is zero at first."""
    loaded = with_adapters(load(resolve_model("tiny"), "cpu", "float32"), 4)
    torch.manual_seed(3)
    for name, parameter in loaded.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return loaded


def logits(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits


def test_only_adapters_are_trained_and_prefixes_stay_shared(adapted: LoadedModel) -> None:
    trained = {n for n, p in adapted.model.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    assert adapted.shared_prefix


def test_the_inner_model_computes_what_the_wrapper_computes(adapted: LoadedModel) -> None:
    inner = unwrapped(adapted.model)
    assert torch.equal(logits(inner), logits(adapted.model))
    with adapted.model.disable_adapter():  # the reference model of a KL term
        assert not torch.allclose(logits(inner), logits(merged(adapted.model)), atol=1e-3)
        assert torch.equal(logits(inner), logits(adapted.model))
    plain = load(resolve_model("tiny"), "cpu", "float32").model
    assert unwrapped(plain) is plain
    assert merged(plain) is plain


def test_packed_pass_equals_plain_pass_in_values_and_gradients(adapted: LoadedModel) -> None:
    """Two groups of two rows, prompts padded on the left, completions on the right."""
    pad = 0
    prompts, rows = [[5, 6, 7, 8], [5, 6, 9]], [[[10, 11, 12], [13]], [[14, 15], [16, 17, 18]]]
    ids, mask = [], []
    for prompt, group in zip(prompts, rows, strict=True):
        for row in group:
            ids.append([pad] * (4 - len(prompt)) + prompt + row + [pad] * (3 - len(row)))
            mask.append([0] * (4 - len(prompt)) + [1] * (len(prompt) + len(row)) + [0] * (3 - len(row)))
    input_ids, attention = torch.tensor(ids), torch.tensor(mask)
    parameters = [p for p in adapted.model.parameters() if p.requires_grad]

    def gradients(values: torch.Tensor) -> list[torch.Tensor]:
        weights = torch.arange(1.0, values.numel() + 1).view(values.shape) * attention[:, 4:]
        return list(torch.autograd.grad((values * weights).sum(), parameters))

    packed, _ = packed_logps(adapted.model, input_ids, attention, 3, 1.0)
    output = adapted.model(
        input_ids=input_ids, attention_mask=attention, position_ids=(attention.cumsum(1) - 1).clamp_min(0)
    )
    plain = output.logits[:, 3:-1].log_softmax(-1).gather(-1, input_ids[:, 4:, None])[..., 0]
    assert torch.allclose(packed, plain * attention[:, 4:], atol=1e-5)
    for a, b in zip(gradients(packed), gradients(plain), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_recorded_logprobs_are_the_adapted_models(adapted: LoadedModel) -> None:
    spec = registry.load("calculator")
    assert spec.tasks is not None
    engine = RolloutEngine(adapted.model, adapted.tokenizer, spec, Limits(max_completion_tokens=64), seed=1)
    for episode in engine.run(requests(spec.tasks("test", 3, 1, "simple"), spec.system_prompt), 1.0):
        ids = torch.tensor([episode.prompt_ids + episode.completion_ids])
        logp = logits(adapted.model, ids)[0, len(episode.prompt_ids) - 1 : -1].log_softmax(-1)
        forced = logp.gather(-1, torch.tensor(episode.completion_ids)[:, None])[:, 0]
        assert ((forced - torch.tensor(episode.logprobs)).abs() * torch.tensor(episode.mask)).max() < 1e-4


def test_a_merged_model_loads_without_peft_and_is_the_same(adapted: LoadedModel, tmp_path: Path) -> None:
    wanted = logits(adapted.model)
    before = {name: value.clone() for name, value in adapted.model.state_dict().items()}
    whole = merged(adapted.model)
    whole.save_pretrained(tmp_path)
    adapted.tokenizer.save_pretrained(tmp_path)
    after = adapted.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)  # also the weights below the adapters
    assert not any("lora" in name or "base_layer" in name for name in whole.state_dict())
    assert not list(tmp_path.glob("adapter_*"))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert type(plain).__name__ == "Qwen2ForCausalLM"
    assert (logits(plain) - wanted).abs().max() < 1e-5
    again = load(resolve_model(str(tmp_path)), "cpu", "float32")
    assert again.parameters == load(resolve_model("tiny"), "cpu", "float32").parameters
    assert again.tokenizer.chat_template == adapted.tokenizer.chat_template


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:You are using 'rollout_func'")
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_a_step_moves_the_adapters_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beta: float
) -> None:
    original = test_grpo.load
    monkeypatch.setattr(test_grpo, "load", lambda *arguments: with_adapters(original(*arguments), 4))
    trainer, record = test_grpo.make(tmp_path, max_steps=1, difficulty="simple", learning_rate=1e-2, beta=beta)
    assert trainer._shared_prefix
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert all("lora_" in name for name in moved)
    assert record.lines[0]["grad_norm"] > 0
