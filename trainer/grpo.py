"""Agent GRPO: the one subclass of TRL's GRPOTrainer, readable top to bottom.

One optimiser step:

1. `rollout` plays batch_size groups of G episodes with our engine and hands TRL ids, masks and rewards.
2. TRL turns rewards into advantages; `_without_dead_rows` takes out groups whose rewards do not differ and episodes
   that are no evidence, and counts the loss normaliser anew, so that no forward pass is spent on them.
3. `_get_per_token_logps_and_entropies` computes log-probabilities with each prefix once (models/shared_prefix.py).
4. TRL's loss, then the guard: an update that is not finite is skipped, a second one in a row ends the run.

TRL facts this rests on (1.16): rollout_func gets prompts already repeated G times in a row and must return as many rows
in the same order; `env_mask` becomes the tool mask only without tools; the loss mask is completion_mask * tool_mask.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from trainer.algorithms.advantages import group_advantages, kept_rows
from trainer.config import TrainingConfig
from trainer.models.load import LoadedModel
from trainer.models.shared_prefix import NO_MASK, pack_tree
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.summary import step_metrics
from trainer.rollout.types import Episode
from trainer.tasks import Tasks, conversation, group_requests, training_order

LOGIT_ELEMENTS = 2**26
"""Logits computed at once (256 MB in float32); more are recomputed in the backward pass, piece by piece."""


class NonFinite(RuntimeError):
    """Two updates in a row were not finite."""


def episode_reward(episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """The reward was decided in the episode; None marks an episode that is no evidence."""
    return episode_reward


def grpo_config(config: TrainingConfig, loaded: LoadedModel, folder: Path) -> GRPOConfig:
    """Our configuration in TRL's terms; everything that TRL would decide by itself is stated."""
    return GRPOConfig(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=config.episodes_per_step,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_iterations=1,
        num_generations=config.num_generations,
        max_completion_length=config.max_completion_tokens,
        max_steps=config.planned_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup" if config.lr_schedule == "constant" else config.lr_schedule,
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        temperature=config.temperature,
        beta=config.beta,
        epsilon=config.epsilon_low,
        epsilon_high=config.epsilon_high,
        loss_type=config.loss_type,
        scale_rewards=config.scale_rewards,
        seed=config.seed,
        shuffle_dataset=False,  # the order is ours: the same problems for every batch shape
        logging_steps=1,
        logging_nan_inf_filter=False,  # it would hide a NaN loss
        save_strategy="steps" if config.save_every else "no",
        save_steps=config.save_every or 500,
        report_to=[],
        disable_tqdm=True,
        log_level="error",
        gradient_checkpointing=loaded.parameters > 50_000_000,
        bf16=loaded.device.type == "cuda" and loaded.dtype is torch.bfloat16,
        fp16=False,
        use_cpu=loaded.device.type == "cpu",
        dataloader_num_workers=0,
        dataloader_pin_memory=loaded.device.type == "cuda",
    )


class AgentGRPO(GRPOTrainer):
    """GRPO on multi-turn tool episodes."""

    def __init__(
        self,
        config: TrainingConfig,
        loaded: LoadedModel,
        tasks: Tasks,
        engine: RolloutEngine,
        folder: Path,
        *,
        on_episodes: Callable[[int, list[Episode]], None],
        on_step: Callable[[dict[str, Any]], None],
        on_event: Callable[..., None],
        after_step: Callable[[int], str | None],
    ) -> None:
        """`on_episodes(step, episodes)`, `on_step(metrics line)` and `on_event(kind, **fields)` record;
        `after_step(step)` returns a reason to stop, or None."""
        self.settings, self.engine, self.tasks = config, engine, tasks
        self.on_episodes, self.on_step, self.on_event, self.after_step = on_episodes, on_step, on_event, after_step
        self._shared_prefix = loaded.shared_prefix
        self._order = training_order(len(tasks.train), config.planned_steps * config.batch_size, config.seed)
        self._entries: list[int] = []
        self._episodes: list[Episode] = []
        self._loss_mask: Tensor | None = None
        self._seconds: dict[str, float] = {}
        self._line: dict[str, Any] = {}
        self.skip_update = False
        system = config.system_prompt or engine.spec.system_prompt
        self._system_prompt = system
        rows = [{"prompt": conversation(tasks.train[p], system), "entry": i} for i, (p, _) in enumerate(self._order)]
        super().__init__(
            model=loaded.model,
            processing_class=loaded.tokenizer,
            reward_funcs=[episode_reward],
            train_dataset=Dataset.from_list(rows),
            args=grpo_config(config, loaded, folder),
            rollout_func=self.rollout,
            callbacks=[_StepRecorder(self)],
        )
        self.remove_callback(PrinterCallback)  # metrics.jsonl says it better

    # ---- 1. episodes

    def rollout(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's rollout_func: one row for each requested episode, in order."""
        size = self.settings.num_generations
        requests = []
        for entry in self._entries[::size]:
            problem, occurrence = self._order[entry]
            requests += group_requests(self.tasks.train[problem], self._system_prompt, problem, occurrence, size)
        if len(requests) != len(prompts):
            raise RuntimeError(f"TRL asked for {len(prompts)} rows, {len(requests)} were planned")
        self._episodes = self.engine.run(requests, self.settings.temperature)
        self.on_episodes(self.state.global_step + 1, self._episodes)
        return {
            "prompt_ids": [e.prompt_ids for e in self._episodes],
            "completion_ids": [e.completion_ids for e in self._episodes],
            "logprobs": [e.logprobs for e in self._episodes],
            "env_mask": [e.mask for e in self._episodes],
            "episode_reward": [e.reward if e.valid else None for e in self._episodes],
        }

    # ---- 2. advantages, and rows without signal leave

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = time.perf_counter()
        clock = self.engine.clock
        generate, environment = clock.generate, clock.environment
        self._entries = [int(row["entry"]) for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output = self._without_dead_rows(output)
        self._seconds = {
            "generate": clock.generate - generate,
            "environment": clock.environment - environment,
            "logprob": 0.0,
        }
        self._seconds["prepare"] = time.perf_counter() - began - sum(self._seconds.values())
        self._line = step_metrics(self._episodes, self.settings.num_generations)
        self._line["trained_tokens"] = int(output["num_items_in_batch"])
        return output

    def _without_dead_rows(self, output: dict[str, Any]) -> dict[str, Any]:
        """Keeps rows with signal; if there are none, one row with an empty mask stays and the update is skipped."""
        size = self.settings.num_generations
        rewards = torch.tensor([e.reward for e in self._episodes])
        valid = torch.tensor([e.valid for e in self._episodes])
        advantages = group_advantages(rewards, valid, size, self.settings.scale_rewards)
        output["advantages"] = advantages.to(output["advantages"].device)
        live = kept_rows(rewards, valid, size)
        self.skip_update = not bool(live.any()) and self.settings.beta == 0.0
        if self.settings.beta > 0.0:  # the KL term pulls on every episode, also where rewards do not differ
            live = valid.clone()
        if not bool(live.any()):
            live[0] = True
            output["tool_mask"] = torch.zeros_like(output["tool_mask"])
        index = live.nonzero()[:, 0].to(output["completion_ids"].device)
        longest = int(output["completion_mask"][index].sum(1).max())
        columns = {"completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps", "ref_per_token_logps"}
        for key, value in output.items():
            if isinstance(value, Tensor) and value.ndim:
                rows = value[index]
                output[key] = rows[:, :longest] if key in columns else rows
        output["num_items_in_batch"] = (output["completion_mask"] * output["tool_mask"]).sum()
        return output

    # ---- 3. log-probabilities

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._loss_mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._loss_mask = None
        return loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **modalities: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """(B, T) log-probabilities and entropies of the completions; zeros where the loss mask is 0."""
        if not self._shared_prefix or compute_aux_loss:
            result: tuple[Tensor, Tensor | None, Tensor | None] = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size=batch_size,
                compute_entropy=compute_entropy,
                compute_aux_loss=compute_aux_loss,
                **modalities,
            )
            return result
        began = time.perf_counter()
        width = input_ids.shape[1] - logits_to_keep
        order, groups = _groups(input_ids, attention_mask, width)
        packed = pack_tree(groups)
        inner = self.accelerator.unwrap_model(model)
        with self.accelerator.autocast():
            hidden = inner.base_model(
                input_ids=packed.input_ids,
                position_ids=packed.position_ids,
                attention_mask=NO_MASK,
                use_cache=False,
                layout=packed.tree,
            ).last_hidden_state[0]
        row = torch.tensor(order)[packed.row]
        wanted = (
            torch.ones(len(row), dtype=torch.bool) if self._loss_mask is None else self._loss_mask[row, packed.column]
        )
        logps, entropies = _score(
            hidden[packed.source[wanted]], packed.target[wanted], inner.get_output_embeddings(), self.temperature
        )
        flat = row[wanted] * logits_to_keep + packed.column[wanted]
        size = (input_ids.shape[0], logits_to_keep)
        if self._loss_mask is None:
            self._seconds["logprob"] = self._seconds.get("logprob", 0.0) + time.perf_counter() - began
        scattered = logps.new_zeros(size[0] * size[1]).index_copy(0, flat, logps).view(size)
        if not compute_entropy:
            return scattered, None, None
        return scattered, entropies.new_zeros(size[0] * size[1]).index_copy(0, flat, entropies).view(size), None


def _groups(
    input_ids: Tensor, attention_mask: Tensor, width: int
) -> tuple[list[int], list[tuple[list[int], list[list[int]]]]]:
    """Rows by prompt: (row numbers in packed order, [(prompt, completions)])."""
    ids, prompt_length = input_ids.tolist(), attention_mask[:, :width].sum(1).tolist()
    length = attention_mask[:, width:].sum(1).tolist()
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for row, sequence in enumerate(ids):
        by_prompt.setdefault(tuple(sequence[width - prompt_length[row] : width]), []).append(row)
    order = [row for rows in by_prompt.values() for row in rows]
    groups = [(list(p), [ids[row][width : width + length[row]] for row in rows]) for p, rows in by_prompt.items()]
    return order, groups


def _score(hidden: Tensor, target: Tensor, head: torch.nn.Module, temperature: float) -> tuple[Tensor, Tensor]:
    """(S,) float32 log-probabilities of the targets and entropies in nats under softmax(logits / temperature)."""

    def part(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        logp = (head(states).float() / temperature).log_softmax(-1)
        return logp.gather(-1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(-1).detach()

    rows = max(1, LOGIT_ELEMENTS // int(head.weight.shape[0]))
    if len(hidden) <= rows:
        return part(hidden, target)
    parts = [
        checkpoint(part, hidden[at : at + rows], target[at : at + rows], use_reentrant=False)
        for at in range(0, len(hidden), rows)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


class _StepRecorder(TrainerCallback):
    """4. The guard, the clock, the metrics line and the question whether to go on."""

    def __init__(self, trainer: AgentGRPO) -> None:
        self.trainer = trainer
        self._began = 0.0
        self._pending: dict[str, Any] | None = None
        self._bad_updates = 0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._began = time.perf_counter()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Without gradients the optimiser does nothing: no step on momentum alone, none on NaN."""
        parameters = [p for p in self.trainer.model.parameters() if p.grad is not None]
        finite = all(bool(torch.isfinite(p.grad).all()) for p in parameters)
        if not finite:
            self._bad_updates += 1
            self.trainer.on_event("nonfinite", step=state.global_step + 1, in_a_row=self._bad_updates)
        else:
            self._bad_updates = 0
        if not finite or self.trainer.skip_update:
            for parameter in parameters:
                parameter.grad = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        total = time.perf_counter() - self._began
        seconds = dict(self.trainer._seconds)
        prepare = seconds.pop("prepare", 0.0)
        seconds["update"] = max(0.0, total - prepare - sum(seconds.values()))
        seconds["other"] = prepare
        self._pending = {
            "step": state.global_step,
            "time_s": round(total, 4),
            **self.trainer._line,
            "seconds": {k: round(v, 4) for k, v in seconds.items()},
        }

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if self._pending is None or logs is None:
            return
        line, self._pending = self._pending, None
        names = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate", "kl": "kl"}
        names |= {"clip_ratio/low_mean": "clip_low", "clip_ratio/high_mean": "clip_high"}
        for theirs, ours in names.items():
            value = logs.get(theirs)
            if isinstance(value, int | float) and math.isfinite(value):
                line[ours] = float(value)
        if self.trainer.skip_update:
            line["grad_norm"] = 0.0
            line["update_skipped"] = True
        self.trainer.on_step(line)
        if self._bad_updates >= 2:
            raise NonFinite(
                f"the gradient was not finite in two updates in a row, last at step {state.global_step}. The learning "
                f"rate {self.trainer.settings.learning_rate:g} is probably too high; try half of it."
            )
        reason = self.trainer.after_step(state.global_step)
        if reason is not None:
            control.should_training_stop = True
