"""Agent GRPO: the one subclass of TRL's GRPOTrainer, readable top to bottom.

One optimiser step:

1. `rollout` plays batch_size groups of G episodes with our engine and hands TRL ids, masks and rewards.
2. TRL turns rewards into advantages; `_without_dead_rows` takes out groups whose rewards do not differ and episodes
   that are no evidence, and counts the loss normaliser anew, so that no forward pass is spent on them.
3. `_compute_loss` is TRL's, over parts of the rows that fit into memory (algorithms/microbatch.py), and
   `_get_per_token_logps_and_entropies` computes log-probabilities with each prefix once (models/packed_logps.py).
4. The guard (step_recorder.py): an update that is not finite is skipped, a second one in a row ends the run.

TRL facts this rests on (1.16): rollout_func gets prompts already repeated G times in a row and must return as many rows
in the same order; `env_mask` becomes the tool mask only without tools; the loss mask is completion_mask * tool_mask.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import pad
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from trainer import parallel
from trainer.algorithms.advantages import cohort_advantages
from trainer.algorithms.microbatch import merge_metrics, part_weight, split_rows
from trainer.config import TrainingConfig
from trainer.credit import StepCredit
from trainer.experience.training import ExperienceRun
from trainer.models.load import LoadedModel
from trainer.models.memory import plan_pass
from trainer.models.packed_logps import packed_logps, packed_shape
from trainer.reporting import PROJECT
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.summary import step_metrics
from trainer.rollout.types import Episode
from trainer.step_recorder import StepRecorder
from trainer.stripped_rows import StrippedRows
from trainer.tasks import Tasks, conversation, group_requests, training_order

PER_TOKEN = {"completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps", "ref_per_token_logps"}
"""TRL's tensors of shape (B, T); advantages may be one of them."""

Credit = Callable[[list[Episode], Tensor], Tensor]
"""credit(episodes, (B,) advantages) -> (B, T) advantages of single tokens; T: the longest completion. `StepCredit`
also tells numbers of the step."""


def episode_reward(episode_reward: list[float | None], **_: Any) -> list[float | None]:
    """The reward was decided in the episode; None marks an episode that is no evidence."""
    return episode_reward


def grpo_config(config: TrainingConfig, loaded: LoadedModel, folder: Path, *, recompute: bool = False) -> GRPOConfig:
    """Our configuration in TRL's terms; everything that TRL would decide by itself is stated.

    GSPO (arXiv 2507.18071) is TRL's loss `grpo` with the ratio of whole sequences. `recompute`: gradient checkpointing.
    """
    low, high = config.clip_range
    return GRPOConfig(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=config.episodes_per_step // parallel.world_size(),
        ddp_backend="gloo" if parallel.world_size() > 1 and loaded.device.type == "cpu" else None,
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
        epsilon=low,
        epsilon_high=high,
        loss_type="grpo" if config.loss_type == "gspo" else config.loss_type,
        importance_sampling_level="sequence" if config.loss_type == "gspo" else "token",
        entropy_coef=config.entropy_coef,
        scale_rewards=config.scale_rewards,
        seed=config.seed,
        shuffle_dataset=False,  # the order is ours: the same problems for every batch shape
        logging_steps=1,
        logging_nan_inf_filter=False,  # it would hide a NaN loss
        save_strategy="no",  # StepRecorder asks for checkpoints
        report_to=[],  # trackers come as callbacks of ours (trackers.py)
        run_name=folder.name,
        project=PROJECT,
        disable_tqdm=True,
        log_level="error",
        gradient_checkpointing=recompute,
        bf16=loaded.device.type == "cuda" and loaded.dtype is torch.bfloat16,
        fp16=False,
        use_cpu=loaded.device.type == "cpu",
        dataloader_num_workers=0,
        dataloader_pin_memory=loaded.device.type == "cuda",
    )


class AgentGRPO(GRPOTrainer):
    """GRPO on multi-turn tool episodes."""

    entropy_coef: float  # TRL's, from the configuration

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
        on_checkpoint: Callable[[int, Path], None] | None = None,
        credit: Credit | None = None,
        experience: ExperienceRun | None = None,
        trackers: Sequence[TrainerCallback] = (),
    ) -> None:
        """`on_episodes(step, episodes)`, `on_step(metrics line)` and `on_event(kind, **fields)` record;
        `after_step(step)` returns a reason to stop, or None; `on_checkpoint(step, folder)` completes a checkpoint
        (without it none is written); `experience` puts lessons into prompts; `trackers` see every line of logs behind
        `on_step` and `after_step`."""
        self.settings, self.engine, self.tasks = config, engine, tasks
        self.on_episodes, self.on_step, self.on_event, self.after_step = on_episodes, on_step, on_event, after_step
        self.on_checkpoint, self.credit, self.experience = on_checkpoint, credit, experience
        self.stripped = StrippedRows(config)
        self._shared_prefix = loaded.shared_prefix
        self.pass_tokens, recompute = plan_pass(loaded, config.micro_batch_tokens)
        self._order = training_order(len(tasks.train), config.planned_steps * config.batch_size, config.seed)
        self._entries: list[int] = []
        self._episodes: list[Episode] = []
        """This rank's; `_everybody` holds those of all ranks, in the order of the problems."""
        self._everybody: list[Episode] = []
        self._rows_of_update = 0.0
        """Rows that are learned from, of all ranks, divided by the number of ranks."""
        self._loss_mask: Tensor | None = None
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """Log-probabilities of training and of sampling, for each part of the update."""
        self._logps: Tensor | None = None
        self._seconds: dict[str, float] = {}
        self._line: dict[str, Any] = {}
        self.skip_update = False
        self.own_tokens = 0
        """Tokens of the update that this process trains."""
        system = config.system_prompt or engine.spec.system_prompt
        self._system_prompt = system
        rows = [{"prompt": conversation(tasks.train[p], system), "entry": i} for i, (p, _) in enumerate(self._order)]
        super().__init__(
            model=loaded.model,
            processing_class=loaded.tokenizer,
            reward_funcs=[episode_reward],
            train_dataset=Dataset.from_list(rows),
            args=grpo_config(config, loaded, folder, recompute=recompute),
            rollout_func=self.rollout,
            callbacks=[StepRecorder(self), *trackers],
        )
        self.remove_callback(PrinterCallback)  # metrics.jsonl says it better

    # ---- 1. episodes

    def rollout(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's rollout_func: one row for each requested episode, in order."""
        size = self.settings.num_generations
        step = self.state.global_step + 1
        groups = []
        for entry in self._entries[::size]:
            problem, occurrence = self._order[entry]
            groups.append(group_requests(self.tasks.train[problem], self._system_prompt, problem, occurrence, size))
        if self.experience is not None:
            groups = self.experience.guided(groups, step)
        requests = [request for group in groups for request in group]
        if len(requests) != len(prompts):
            raise RuntimeError(f"TRL asked for {len(prompts)} rows, {len(requests)} were planned")
        self._episodes = self.engine.run(requests, self.settings.temperature)
        self._everybody = parallel.gather(self._episodes)
        self.on_episodes(step, self._everybody)
        return {
            "prompt_ids": [e.training_prompt_ids for e in self._episodes],
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
        self._pairs = []
        self.stripped.parts = []
        self._line = step_metrics(self._everybody, self.settings.num_generations)
        if self.experience is not None:
            self._line |= self.experience.settle(self.state.global_step + 1, self._everybody)
        if isinstance(self.credit, StepCredit):
            self._line |= self.credit.metrics()
        self._line["trained_tokens"] = int(output["num_items_in_batch"])
        return output

    def _without_dead_rows(self, output: dict[str, Any]) -> dict[str, Any]:
        """Keeps rows with signal; if there are none, one row with an empty mask stays and the update is skipped."""
        size = self.settings.num_generations
        rewards = torch.tensor([e.reward for e in self._everybody])
        valid = torch.tensor([e.valid for e in self._everybody])
        guided = torch.tensor([e.injected for e in self._everybody])
        stripped = torch.tensor([e.stripped for e in self._everybody])
        advantages, live = cohort_advantages(rewards, valid, guided, size, self.settings.scale_rewards)
        if self.settings.beta > 0.0:  # the KL term pulls on every episode, also where rewards do not differ
            live = valid.clone()
        if self.settings.mask_truncated:
            live &= torch.tensor([not e.stop_reason.is_truncation for e in self._everybody])
        if self.stripped.positive_only:
            live &= ~stripped | (advantages > 0)
        self.skip_update = not bool(live.any())
        self._rows_of_update = int(live.sum()) / parallel.world_size()
        own = slice(parallel.rank() * len(self._episodes), (parallel.rank() + 1) * len(self._episodes))
        advantages, live, stripped = advantages[own], live[own].clone(), stripped[own]
        if self.credit is not None:
            width = output["completion_ids"].shape[1]
            by_token = self.credit(self._episodes, advantages)[:, :width]
            advantages = pad(by_token, (0, width - by_token.shape[1]))
        output["advantages"] = advantages.to(output["advantages"].device)
        if bool(stripped.any()):  # else the batch is what it is without experience
            output["stripped"] = stripped.to(output["advantages"].device)
        if not bool(live.any()):
            live[0] = True
            output["tool_mask"] = torch.zeros_like(output["tool_mask"])
        output = _rows(output, live.nonzero()[:, 0])
        own_tokens = (output["completion_mask"] * output["tool_mask"]).sum()
        self.own_tokens = int(own_tokens)
        output["num_items_in_batch"] = parallel.total(own_tokens)
        return output

    # ---- 3. the loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Gradients of the ranks are averaged here, once; the packed pass goes around DDP's own hooks."""
        with self.accelerator.no_sync(model):
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        parallel.average_gradients([p for p in self.model.parameters() if p.requires_grad])
        return loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss over parts that fit into `pass_tokens`; all but the last part are backpropagated here."""
        parts = self._parts(inputs)
        if len(parts) == 1 and parallel.world_size() == 1:
            return self._loss_of(model, inputs)
        mode = "train" if self.model.training else "eval"
        tokens = [int((part["completion_mask"] * part["tool_mask"]).sum()) for part in parts]
        all_tokens = float(inputs["num_items_in_batch"]) / parallel.world_size()
        before = {name: len(values) for name, values in self._metrics[mode].items()}
        bonus: float = self.entropy_coef
        sum_of_losses = torch.zeros(())
        try:
            for part, count in zip(parts, tokens, strict=True):
                rows = len(part["completion_ids"]) if count else 0
                weight = part_weight(self.settings.loss_type, rows, self._rows_of_update, count, all_tokens)
                # TRL's entropy bonus is a mean over tokens whatever the loss type
                self.entropy_coef = bonus * count / max(all_tokens, 1.0) / weight if weight else 0.0
                loss = self._loss_of(model, part) * weight
                if part is parts[-1]:
                    return loss + sum_of_losses.to(loss.device)
                self.accelerator.backward(loss)
                sum_of_losses = sum_of_losses + loss.detach()
        finally:
            self.entropy_coef = bonus
            merge_metrics(before, self._metrics[mode], tokens)
        raise AssertionError("there is always a last part")

    def _parts(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows of an update in parts of at most `pass_tokens` tokens (at least one row each)."""
        if not torch.is_grad_enabled():
            return [inputs]
        width = inputs["prompt_ids"].shape[1]
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        if self._shared_prefix:
            order, groups, prompts, lengths, header = packed_shape(ids, seen, width)
            numbers = torch.tensor(split_rows(groups, prompts, lengths, header, self.pass_tokens))
        else:  # every row is padded to the longest
            order = list(range(len(ids)))
            numbers = torch.tensor(order) // max(1, self.pass_tokens // ids.shape[1])
        if not bool(numbers.any()):
            return [inputs]
        at = torch.tensor(order)
        return [_rows(dict(inputs), at[numbers == part]) for part in range(int(numbers.max()) + 1)]

    def _loss_of(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        self._loss_mask = mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        try:
            with parallel.alone(self.accelerator), self.stripped.bounds(self, inputs):
                loss: Tensor = super()._compute_loss(model, inputs)
            sampled = inputs.get("sampling_per_token_logps")
            if self._logps is not None and sampled is not None:
                same = self.stripped.sampled_as_trained(inputs, mask)
                self._pairs.append((self._logps[same], sampled[same]))
        finally:
            self._loss_mask = self._logps = None
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
            self.stripped.scored(result[0], self._loss_mask)
            return result
        began = time.perf_counter()
        scored = self._loss_mask is not None
        with self.accelerator.autocast():
            logps, entropies = packed_logps(
                self.accelerator.unwrap_model(model),
                input_ids,
                attention_mask,
                logits_to_keep,
                self.temperature,
                self._loss_mask,
                entropy_gradient=self.settings.entropy_coef > 0,
            )
        self._logps = logps.detach() if scored else None
        self.stripped.scored(logps, self._loss_mask)
        if not scored:
            self._seconds["logprob"] = self._seconds.get("logprob", 0.0) + time.perf_counter() - began
        return logps, entropies if compute_entropy else None, None

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None with every checkpoint: the run directory says more."""


def _rows(tensors: dict[str, Any], index: Tensor) -> dict[str, Any]:
    """The given rows of TRL's batch, without columns that none of them uses."""
    at = index.to(tensors["completion_ids"].device)
    longest = max(1, int(tensors["completion_mask"][at].sum(1).max()))
    width = tensors["completion_ids"].shape[1]
    for key, value in tensors.items():
        if isinstance(value, Tensor) and value.ndim:
            rows = value[at]
            by_token = key in PER_TOKEN or (key == "advantages" and rows.ndim == 2 and rows.shape[1] == width)
            tensors[key] = rows[:, :longest] if by_token else rows
    return tensors
