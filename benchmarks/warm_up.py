"""A policy for the benchmarks: the model after a short supervised warm-up on transcripts of the benchmark's own task.

SmolLM2-135M does not call tools by itself and `tiny` has never seen a conversation go on behind `finish`; a step on
episodes that never call a tool, or that are all right or all wrong, would measure something else than agent training.
Part of the transcripts use a wrong operator, so that the rewards of the warmed model are mixed. The result is kept in
the work folder; both sides load it from there.
"""

import hashlib
import json
import random
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.chat_template_utils import qwen2_5_chat_template

from benchmarks.common import BenchmarkError
from benchmarks.tool_task import SYSTEM_PROMPT, Arithmetic
from trainer.envs.base import EnvironmentSpec
from trainer.models.catalog import resolve_model
from trainer.models.demonstrations import Faults, answered, calculator
from trainer.models.load import load
from trainer.models.shared_prefix import NO_MASK, pack_tree
from trainer.rollout.rendering import tool_schemas

ASSISTANT, END = "<|im_start|>assistant\n", "<|im_end|>"


@dataclass(frozen=True)
class WarmUp:
    """How the policy is made. AdamW, cosine to zero."""

    steps: int
    batch: int
    """Transcripts a step."""
    learning_rate: float
    wrong_operator: float = 0.45
    """Share of the transcripts that calculate something else than was asked for."""
    seed: int = 7


def warm_up_for(parameters: int) -> WarmUp:
    """Tried by hand: nearly every call can be read (so that the length of an episode varies little) and the rewards are
    mixed, after about a minute on two cores (`tiny`) or six (135 M parameters)."""
    return WarmUp(60, 32, 5e-4) if parameters < 10_000_000 else WarmUp(36, 8, 3e-4, wrong_operator=0.3)


def transcript(rng: random.Random, plan: WarmUp) -> list[dict[str, Any]]:
    """Question, calculate, finish, a closing sentence."""
    prompt, turns = calculator(rng, Faults(wrong_operator=plan.wrong_operator))
    answer = turns[-1]["tool_calls"][0]["function"]["arguments"]["answer"]
    closing = {"role": "assistant", "content": f"The answer is {answer}."}
    return [{"role": "system", "content": SYSTEM_PROMPT}, *prompt, *turns, answered("finish", "done"), closing]


def encode(
    tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]], messages: list[dict[str, Any]]
) -> tuple[list[int], list[int], list[bool]]:
    """(prompt ids, completion ids, which of them the model says). Cut at turns, as sampling will meet them."""
    text: str = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    first, *turns = text.split(ASSISTANT)
    ids = lambda part: list(tokenizer(part, add_special_tokens=False)["input_ids"])  # noqa: E731
    completion: list[int] = []
    spoken: list[bool] = []
    for number, turn in enumerate(turns):
        said, rest = turn.split(END, 1)
        model, environment = ids(said + END), ids(rest + ASSISTANT) if number + 1 < len(turns) else []
        completion += [*model, *environment]
        spoken += [*([True] * len(model)), *([False] * len(environment))]
    return ids(first + ASSISTANT), completion, spoken


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, plan: WarmUp) -> float:
    """Runs the warm-up in place and returns the last loss."""
    tools = tool_schemas(EnvironmentSpec.of("arithmetic", Arithmetic))
    rng = random.Random(plan.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, plan.steps)
    last = 0.0
    for step in range(plan.steps):
        began = time.perf_counter()
        groups: list[tuple[list[int], list[list[int]]]] = []
        spoken: list[bool] = []
        for _ in range(plan.batch):
            prompt, completion, said = encode(tokenizer, tools, transcript(rng, plan))
            groups.append((prompt, [completion]))
            spoken += said
        packed = pack_tree(groups)
        wanted = torch.tensor(spoken)
        hidden = model.base_model(
            input_ids=packed.input_ids,
            attention_mask=NO_MASK,
            position_ids=packed.position_ids,
            use_cache=False,
            layout=packed.tree,
        ).last_hidden_state[0]
        logits = model.get_output_embeddings()(hidden[packed.source[wanted]])
        loss = torch.nn.functional.cross_entropy(logits, packed.target[wanted])
        last = loss.item()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 4 == 0:
            print(
                f"warm-up step {step} loss {last:.3f} {time.perf_counter() - began:.2f} s",
                file=sys.stderr,
                flush=True,
            )
    return last


def policy_folder(model: str, work: Path, plan: WarmUp | None = None) -> Path:
    """Folder of the warmed model, made where it is not there yet. `model`: as for `mcp-evo train`."""
    info = resolve_model(model)
    chosen = plan or warm_up_for(info.params or 0)
    source = Path(info.location)
    stamp = source.stat().st_mtime_ns if source.exists() else 0
    key = hashlib.sha256(json.dumps([info.location, stamp, asdict(chosen)]).encode()).hexdigest()[:12]
    folder = work / f"policy-{Path(info.name).stem}-{key}" / "model"
    if (folder / "config.json").is_file():
        return folder
    began = time.perf_counter()
    loaded = load(info, "cpu", "float32")
    if not loaded.shared_prefix:
        raise BenchmarkError(f"{info.name} cannot be warmed up: its attention is not supported (see shared_prefix.py).")
    loaded.tokenizer.chat_template = qwen2_5_chat_template
    torch.manual_seed(chosen.seed)
    loss = train(loaded.model, loaded.tokenizer, chosen)
    temporary = folder.parent / "model.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    loaded.model.config.use_cache = True
    loaded.model.save_pretrained(temporary)
    loaded.tokenizer.save_pretrained(temporary)
    temporary.rename(folder)
    seconds = time.perf_counter() - began
    print(f"warmed up {info.name}: {chosen.steps} steps, loss {loss:.3f}, {seconds:.0f} s, {folder}", file=sys.stderr)
    return folder
