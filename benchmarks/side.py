"""One side of a comparison: builds a trainer, then one optimiser step for each line `step` on standard input.

    python benchmarks/side.py ours|ours_keep_flat|trl WORKLOAD_JSON

Answers are one JSON object a line on standard output. A step's time runs from the start of the training loop's turn to
the start of the next one: episodes, log-probabilities, loss, backward pass, optimiser, logging. `generate` is TRL's
method `_generate`, which holds the episodes, tool calls and their bookkeeping on every side; `update` is the rest.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from benchmarks.common import KEEP_FLAT, OURS, TRL, Workload
from benchmarks.tool_task import SYSTEM_PROMPT, Arithmetic, FinishingArithmetic
from trainer.algorithms.advantages import group_advantages
from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentSpec, Row, Split
from trainer.envs.calculator import Calculator
from trainer.grpo import AgentGRPO
from trainer.models.catalog import resolve_model
from trainer.models.load import load
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Limits
from trainer.tasks import Tasks, conversation, requests, training_order

_answers = sys.stdout
"""Where answers go; libraries that print go to standard error."""


def say(**answer: Any) -> None:
    """One answer."""
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


class Timed:
    """Mixed into either trainer: times `_generate` and keeps what the episodes were."""

    generate_seconds = 0.0
    played: dict[str, float]

    def _generate(self, prompts: list[Any]) -> Any:
        began = time.perf_counter()
        result = super()._generate(prompts)  # type: ignore[misc]
        self.generate_seconds += time.perf_counter() - began
        prompt_ids, completion_ids, mask = result[:3]
        size = len(completion_ids)
        self.played = {
            "prompt_tokens": sum(map(len, prompt_ids)) / size,
            "tokens_per_episode": sum(map(len, completion_ids)) / size,
            "model_tokens_per_episode": sum(map(sum, mask)) / size,
            # a turn of the model is a run of ones in the mask
            "turns_per_episode": sum(
                sum(m == 1 and (i == 0 or row[i - 1] == 0) for i, m in enumerate(row)) for row in mask
            )
            / size,
        }
        return result

    def _calculate_rewards(self, *arguments: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(*arguments)  # type: ignore[misc]
        values = rewards.nansum(1)
        groups = values.view(-1, self.num_generations)  # type: ignore[attr-defined]
        self.played["reward_mean"] = float(values.mean())
        self.played["flat_groups"] = float((groups.std(1) < 1e-6).float().mean())
        return rewards


class PlainTRL(Timed, GRPOTrainer):
    """TRL's trainer, timed."""


class Ours(Timed, AgentGRPO):
    """Our trainer, timed."""


class OursKeepFlat(Ours):
    """Without the flat-group skip: every row goes through the model."""

    def _without_dead_rows(self, output: dict[str, Any]) -> dict[str, Any]:
        rewards = torch.tensor([e.reward for e in self._episodes])
        valid = torch.tensor([e.valid for e in self._episodes])
        size = self.settings.num_generations
        advantages = group_advantages(rewards, valid, size, self.settings.scale_rewards)
        output["advantages"] = advantages.to(output["advantages"].device)
        self.skip_update = False
        return output


class Baton(TrainerCallback):
    """Waits for a command before each step and answers with the step's numbers behind it."""

    def __init__(self, trainer: Any, evaluate: Any) -> None:
        self.trainer, self.evaluate, self.began = trainer, evaluate, 0.0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._answer()
        for line in sys.stdin:
            if line.strip() == "step":
                self.trainer.generate_seconds = 0.0
                self.began = time.perf_counter()
                return
            say(**self.evaluate())
        raise SystemExit

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._answer()

    def _answer(self) -> None:
        if not self.began:
            return
        step = time.perf_counter() - self.began
        generate = self.trainer.generate_seconds
        self.began = 0.0
        seconds = {"step": step, "generate": generate, "update": step - generate}
        say(seconds={k: round(v, 5) for k, v in seconds.items()}, **self.trainer.played)


def tasks_of(workload: Workload) -> Tasks:
    """The problems, the same for every side."""
    make = lambda split, n: Calculator.tasks(split, n, workload.seed, workload.difficulty)  # noqa: E731
    return Tasks(make(Split.TRAIN, workload.problems), [], make(Split.VALIDATION, 128))


def tokenizer_of(workload: Workload) -> Any:
    """The model's tokenizer with the Qwen 2.5 template, the one ChatML template whose tool calls TRL can read."""
    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    tokenizer.chat_template = qwen2_5_chat_template
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token_id = tokenizer.eos_token_id
    return tokenizer


def trl_config(workload: Workload) -> GRPOConfig:
    """The workload in TRL's terms: all episodes generated in one batch, updated in as few parts as memory allows."""
    rows = workload.micro_batch or workload.episodes
    parts = workload.episodes // rows
    return GRPOConfig(
        output_dir=str(Path(workload.model).parent / "trl"),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=parts,
        steps_per_generation=parts,
        num_generations=workload.generations,
        max_completion_length=workload.max_completion_tokens,
        max_tool_calling_iterations=workload.max_turns - 1,
        max_steps=workload.steps,
        learning_rate=workload.learning_rate,
        lr_scheduler_type="constant",
        temperature=workload.temperature,
        beta=0.0,
        loss_type=workload.loss_type,
        shuffle_dataset=False,
        seed=workload.seed,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=workload.device == "cpu",
        bf16=workload.dtype == "bfloat16",
        gradient_checkpointing=False,
        disable_tqdm=True,
        log_level="error",
    )


def trl_trainer(workload: Workload, tasks: Tasks, rows: list[Row]) -> tuple[Any, dict[str, Any]]:
    """GRPOTrainer(environment_factory=…) and what it runs with."""
    model = AutoModelForCausalLM.from_pretrained(workload.model, dtype=getattr(torch, workload.dtype))
    trainer = PlainTRL(
        model=model,
        processing_class=tokenizer_of(workload),
        train_dataset=Dataset.from_list(rows),
        environment_factory=Arithmetic,
        args=trl_config(workload),
    )
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "optim")
    return trainer, {name: str(vars(trainer.args)[name]) for name in names}


def our_trainer(workload: Workload, tasks: Tasks, keep_flat: bool) -> tuple[Any, dict[str, Any]]:
    """AgentGRPO as the worker builds it, with nothing written to disk."""
    config = TrainingConfig(
        problems=workload.problems,
        batch_size=workload.groups,
        num_generations=workload.generations,
        max_steps=workload.steps,
        learning_rate=workload.learning_rate,
        max_completion_tokens=workload.max_completion_tokens,
        max_turns=workload.max_turns,
        temperature=workload.temperature,
        loss_type=workload.loss_type,
        seed=workload.seed,
        system_prompt=SYSTEM_PROMPT,
    )
    loaded = load(resolve_model(workload.model), workload.device, workload.dtype)
    loaded.tokenizer.chat_template = qwen2_5_chat_template
    engine = RolloutEngine(
        loaded.model,
        loaded.tokenizer,
        EnvironmentSpec.of("arithmetic", FinishingArithmetic if workload.stop_at_finish else Arithmetic),
        Limits(workload.max_completion_tokens, workload.max_turns, max_parse_errors=1),
        seed=workload.seed,
    )
    trainer = (OursKeepFlat if keep_flat else Ours)(
        config,
        loaded,
        tasks,
        engine,
        Path(workload.model).parent / "ours",
        on_episodes=lambda step, episodes: None,
        on_step=lambda line: None,
        on_event=lambda kind, **fields: None,
        after_step=lambda step: None,
    )
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "optim")
    return trainer, {
        **{name: str(vars(trainer.args)[name]) for name in names},
        "shared_prefix": loaded.shared_prefix,
        "flat_group_skip": not keep_flat,
    }


def evaluator(workload: Workload, trainer: Any, tasks: Tasks) -> Any:
    """Held-out success of the present weights, the same for every side: n, mean, seconds."""

    def evaluate() -> dict[str, Any]:
        began = time.perf_counter()
        engine = RolloutEngine(
            trainer.accelerator.unwrap_model(trainer.model),
            trainer.processing_class,
            EnvironmentSpec.of("arithmetic", Arithmetic),
            Limits(workload.max_completion_tokens, workload.max_turns, max_parse_errors=1),
            seed=workload.seed + 1_000_003,
            max_rows=128,
        )
        episodes = engine.run(requests(tasks.test, SYSTEM_PROMPT), 1.0)
        return {
            "n": len(episodes),
            "mean": sum(e.reward > 0.5 for e in episodes) / len(episodes),
            "seconds": round(time.perf_counter() - began, 3),
        }

    return evaluate


def main() -> None:
    name, workload = sys.argv[1], Workload(**json.loads(sys.argv[2]))
    torch.set_num_threads(workload.threads)
    torch.manual_seed(workload.seed)
    tasks = tasks_of(workload)
    if name == TRL:
        order = training_order(len(tasks.train), workload.steps * workload.groups, workload.seed)
        rows = [dict(tasks.train[p], prompt=conversation(tasks.train[p], SYSTEM_PROMPT)) for p, _ in order]
        trainer, more = trl_trainer(workload, tasks, rows)
    elif name in (OURS, KEEP_FLAT):
        trainer, more = our_trainer(workload, tasks, name == KEEP_FLAT)
    else:
        raise SystemExit(f"unknown side {name!r}; allowed: {TRL}, {OURS}, {KEEP_FLAT}")
    model = trainer.model
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Baton(trainer, evaluator(workload, trainer, tasks)))
    say(
        side=name,
        threads=torch.get_num_threads(),
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY", "default"),
        parameters=model.num_parameters(),
        dtype=str(model.dtype),
        device=str(model.device),
        attention=model.config._attn_implementation,
        torch=torch.__version__,
        **more,
        workload=json.loads(sys.argv[2]),
    )
    trainer.train()


if __name__ == "__main__":
    _answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
