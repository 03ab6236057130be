"""TrainingConfig: the one model behind command line, tool schema, documentation, request parser and run directory.

Amounts. A *problem* is one task of the training set; an *episode* is one attempt at a problem; a *group* is the
`num_generations` episodes of one problem; an optimiser *step* learns from `batch_size` groups, so from
`batch_size * num_generations` episodes. `epochs` or `max_steps` or `max_episodes` bound the run; without any of them
the problems are cycled until `target_reward` is met on the validation split or `DEFAULT_MAX_STEPS` is spent.
"""

import math
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainer.experience.manager import ExperienceConfig

SCHEMA_VERSION = 1

DEFAULT_MAX_STEPS = 150
"""Budget of a run that states a target but no amount: at most a minute and a half for `tiny` on two cores."""

DEFAULT_STEPS_WITHOUT_TARGET = 32
"""Budget of a run that states neither a target nor an amount: 512 episodes with the defaults."""


class ConfigError(ValueError):
    """A configuration that cannot be run: says what was wrong, what is allowed and what to do next."""


class TrainingConfig(BaseModel):
    """Everything that decides a training run. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    schema_version: Literal[1] = Field(1, description="Version of this format.")

    env: str = Field(
        "calculator",
        description="Environment: calculator, house_rules, lookup, gsm8k, any registered name, python:module:Class.",
    )
    env_args: dict[str, Any] = Field(default_factory=dict, description="Keyword arguments of the environment's tasks.")
    difficulty: Literal["simple", "mixed", "hard"] = Field("mixed", description="Difficulty of generated problems.")
    data: str | None = Field(
        None, description="Own tasks: a .jsonl or .csv or .parquet file instead of generated ones."
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="Column map of `data`: our name (prompt, answer, …) to the file's column."
    )
    generated_tasks: str | None = Field(
        None, description="Generated tasks (tasks.jsonl of `mcp-evo tasks generate`) that join the training problems."
    )
    generated_ratio: float | None = Field(
        None, gt=0, le=1, description="Share of generated tasks among the training problems; null: 0.5."
    )
    reward: str | None = Field(
        None, description="Own reward python:module:function (ours or TRL's signature), instead of the environment's."
    )

    folder: str | None = Field(
        None, description="Folder of your own Python files (python:module:Name); null: the working directory."
    )

    model: str = Field("tiny", description="Alias (tiny, smollm2-135m, qwen-0.5b, …), hub id, folder or .gguf file.")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="Where to train; auto: cuda, mps, cpu.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: float32 on CPU and MPS."
    )
    lora: bool | None = Field(None, description="Train LoRA adapters; null: only where the full model does not fit.")
    lora_rank: int = Field(16, ge=1, le=512, description="Rank of the adapters.")
    threads: int | None = Field(None, ge=1, le=1024, description="CPU threads of the worker; null: all cores.")

    processes: int = Field(
        1, ge=1, le=64, description="Processes that train one run together; each plays whole groups of its own."
    )

    problems: int = Field(64, ge=1, le=1_000_000, description="Problems (题) in the training set.")
    epochs: float | None = Field(None, gt=0, le=10_000, description="Passes over the training set.")
    max_steps: int | None = Field(None, ge=1, le=1_000_000, description="Optimiser steps at most.")
    max_episodes: int | None = Field(None, ge=1, le=100_000_000, description="Training episodes at most.")
    target_reward: float | None = Field(
        None, ge=0, le=1, description="Goal: success on the validation split; the run stops when it is met."
    )

    learning_rate: float = Field(2e-4, gt=0, le=1, description="Peak learning rate of AdamW.")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="Shape after the warm-up.")
    warmup_steps: int = Field(0, ge=0, le=100_000, description="Steps of linear warm-up.")
    batch_size: int = Field(4, ge=1, le=4096, description="Problems (groups) in one optimiser step.")
    num_generations: int = Field(4, ge=2, le=256, description="Episodes of one problem (group size G).")
    loss_type: Literal["grpo", "dapo", "dr_grpo", "bnpo", "gspo", "cispo"] = Field(
        "dapo", description="Loss of the GRPO family; gspo: the ratio of whole episodes."
    )
    scale_rewards: Literal["group", "batch", "none"] = Field("group", description="What the advantage is divided by.")
    beta: float = Field(0.0, ge=0, le=10, description="Weight of the KL term to the start model; 0: none.")
    epsilon_low: float | None = Field(
        None, gt=0, lt=1, description="Lower clip range of the probability ratio; null: 0.2 (gspo: 0.0003)."
    )
    epsilon_high: float | None = Field(
        None, gt=0, le=10, description="Upper clip range; null: 0.2 (gspo: 0.0004); cispo: the largest ratio, null: 5."
    )
    entropy_coef: float = Field(0.0, ge=0, le=10, description="Weight of an entropy bonus; 0: none.")
    mask_truncated: bool = Field(
        False, description="Leave episodes that hit a cap out of the loss; their reward still counts in the group."
    )
    micro_batch_tokens: int | None = Field(
        None, ge=64, le=10_000_000, description="Tokens of one forward and backward pass; null: what fits into memory."
    )
    max_grad_norm: float = Field(1.0, gt=0, le=1e6, description="Gradient norm is clipped to this.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="AdamW weight decay.")

    temperature: float = Field(1.0, gt=0, le=10, description="Sampling temperature of training episodes.")
    top_p: float = Field(1.0, gt=0, le=1, description="Sample from the likeliest tokens of this probability; 1: all.")
    top_k: int = Field(0, ge=0, le=1_000_000, description="Sample from that many likeliest tokens; 0: all.")
    max_completion_tokens: int = Field(
        256, ge=4, le=131_072, description="Tokens of one episode after its prompt, the environment's included."
    )
    max_turns: int = Field(4, ge=1, le=256, description="Model turns in one episode.")
    tool_timeout_s: float = Field(10.0, gt=0, le=3600, description="Seconds one tool call may take.")
    max_episode_s: float | None = Field(
        None, gt=0, le=86_400, description="Seconds after which an episode gets no further turn; null: no limit."
    )
    examples: int = Field(
        0, ge=0, le=16, description="Worked examples shown before each problem, where the environment has solutions."
    )
    system_prompt: str | None = Field(None, max_length=20_000, description="Replaces the environment's system prompt.")

    test_problems: int = Field(128, ge=8, le=100_000, description="Held-out problems of eval.before and eval.after.")
    validation_problems: int = Field(128, ge=8, le=100_000, description="Problems of the validation split.")
    validate_every: int = Field(5, ge=0, le=100_000, description="Steps between validations; 0: never.")
    skip_eval_before: bool = Field(False, description="Leave out the test before training (trials know it already).")

    seed: int = Field(1, ge=0, le=2**31 - 1, description="Seed of tasks, sampling and training.")
    mode: Literal["auto", "approve"] = Field("auto", description="auto: just run; approve: ask before it starts.")
    auto_stop: bool = Field(False, description="Let a critical anomaly end the run.")
    save_every: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="Steps between checkpoints; null: about once a minute, and when stopped; 0: only the final model.",
    )
    keep_episodes: bool = Field(True, description="Write every training episode to episodes/.")
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), description="Also report to wandb or trackio, where installed; TensorBoard files are always written."
    )

    step_credit: Literal["off", "decouple", "allocation"] = Field(
        "off", description="Advantages of single turns from errors, repeated calls and outcome (ADCA-GRPO)."
    )
    step_credit_alpha: float = Field(0.1, ge=0, le=10, description="Weight of the turns beside the outcome.")
    experience: ExperienceConfig | None = Field(
        None, description="Lessons from a pool: off, mixed, all, another preset, or a mapping (docs/experience.md)."
    )

    @property
    def learns_from_experience(self) -> bool:
        """Whether the run has anything to do with lessons."""
        return self.experience is not None and self.experience.active

    @property
    def clip_range(self) -> tuple[float, float]:
        """(lower, upper) clip range, with the defaults of the loss type.

        gspo: as in its paper (arXiv 2507.18071), the ratio is a geometric mean over an episode and stays near 1.
        cispo: the upper value is not a distance from 1 but the largest ratio itself (arXiv 2506.13585).
        """
        low, high = {"gspo": (3e-4, 4e-4), "cispo": (0.2, 5.0)}.get(self.loss_type, (0.2, 0.2))
        return (
            low if self.epsilon_low is None else self.epsilon_low,
            high if self.epsilon_high is None else self.epsilon_high,
        )

    @property
    def generated_share(self) -> float:
        """Share of generated tasks among the training problems; 0 where none are used."""
        if self.generated_tasks is None:
            return 0.0
        return 0.5 if self.generated_ratio is None else self.generated_ratio

    def on_originals(self) -> Self:
        """The same without generated tasks: its validation and test are the same, whatever their size is made."""
        return self.model_copy(update={"generated_tasks": None, "generated_ratio": None})

    @property
    def episodes_per_step(self) -> int:
        """Episodes of one optimiser step."""
        return self.batch_size * self.num_generations

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the problems; the last, incomplete batch of an epoch is filled from the next one."""
        return math.ceil(self.problems / self.batch_size)

    @property
    def planned_steps(self) -> int:
        """Optimiser steps at most, the smallest of the stated bounds."""
        bounds = []
        if self.epochs is not None:
            bounds.append(math.ceil(self.epochs * self.problems / self.batch_size))
        if self.max_steps is not None:
            bounds.append(self.max_steps)
        if self.max_episodes is not None:
            bounds.append(self.max_episodes // self.episodes_per_step)
        if not bounds:
            bounds.append(DEFAULT_STEPS_WITHOUT_TARGET if self.target_reward is None else DEFAULT_MAX_STEPS)
        return min(bounds)

    @field_validator("experience", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """`off`, which YAML reads as false."""
        return None if value is False or value == "off" or value == {"preset": "off"} else value

    @field_validator("report_to", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        """`wandb` and `wandb, trackio` as lists of names."""
        return [one for one in value.replace(",", " ").split() if one != "none"] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.max_episodes is not None and self.max_episodes < self.episodes_per_step:
            raise ValueError(
                f"max_episodes {self.max_episodes} is less than one step: batch_size {self.batch_size} problems x "
                f"num_generations {self.num_generations} = {self.episodes_per_step} episodes. "
                f"Raise max_episodes to at least {self.episodes_per_step}, or lower batch_size or num_generations."
            )
        if self.generated_ratio is not None and self.generated_tasks is None:
            raise ValueError(
                f"generated_ratio {self.generated_ratio:g} has no tasks to mix. Name them: generated_tasks=FILE "
                "(mcp-evo tasks generate makes one), or leave generated_ratio out."
            )
        if self.loss_type == "cispo" and self.clip_range[1] < 1:
            raise ValueError(
                f"epsilon_high {self.epsilon_high:g} would scale every token down: with loss_type cispo it is the "
                "largest probability ratio, not a distance from 1. Use at least 1 (5 is usual), or leave it out."
            )
        if self.experience is not None and self.experience.active and self.processes > 1:
            raise ValueError(
                f"experience is used by runs of one process; this one has {self.processes}. Use processes 1, or "
                "experience off."
            )
        if self.experience is not None and self.experience.strips and self.loss_type in ("gspo", "cispo"):
            raise ValueError(
                f"loss_type {self.loss_type} has no clip range of single tokens for rows that are trained without "
                "their lessons. Use loss_type dapo, grpo, dr_grpo or bnpo, or experience.train_sample_mode allkeep."
            )
        if self.batch_size % self.processes:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be shared by {self.processes} processes: each plays whole "
                f"groups. Use a batch_size that is a multiple of {self.processes}, or other processes."
            )
        if self.batch_size > self.problems:
            raise ValueError(
                f"batch_size {self.batch_size} asks for more problems in one step than the training set has "
                f"({self.problems}). Use batch_size <= {self.problems}, or problems >= {self.batch_size}."
            )
        return self
