"""`experience:` of a training run: who sees lessons, what is trained on, where lessons come from. Free of torch.

AgentEvolver's `exp_manager:` block loads unchanged, its nested `reme:` included; its names become ours (`ALIASES`). A
key that has no effect beside the others, or contradicts one of them, is an error that names it.

Presets: `off`; `mixed` and `all` (lessons of the run's own training problems, then in a share or in nearly all of each
group); the six life cycles; `ec`, `ei`, `het` (what is trained on: the prompt with lessons, without, or by task).
"""

import difflib
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.experience.block import TEMPLATE


class RolloutMode(StrEnum):
    """Which attempts of a group see lessons."""

    WOEXP = "woexp"
    MIXED = "mixed"
    """`rollout_ratio` of them."""
    ALL = "all"
    """All but one, the control share."""


class SampleMode(StrEnum):
    """What an attempt that saw lessons is trained on."""

    ALLDISCARD = "alldiscard"
    """The prompt without them."""
    ALLKEEP = "allkeep"
    """The prompt that was sampled."""
    HYBRID = "hybrid"
    """The prompt that was sampled for `train_sample_keepratio` of the tasks of a step, else the one without."""


ALIASES = {
    "base_url": "reme_url",
    "workspace_id": "pool",
    "rollout_expratio": "rollout_ratio",
    "off_cliprange_high": "off_clip_high",
    "off_cliprange_low": "off_clip_low",
}
"""Published name → ours."""

_INIT = {"init_exp_before_training": True, "init_exp_only": False, "enable_context_generator": True}
_POOL_OF_OLD = {"init_exp_before_training": False, "init_exp_only": False, "enable_context_generator": True}
_MIXED = {"train_rollout_mode": "mixed"}

PRESETS: dict[str, dict[str, Any]] = {
    "mixed": _INIT | _MIXED,
    "all": _INIT | {"train_rollout_mode": "all"},
    "no_pool": {
        "init_exp_before_training": False,
        "init_exp_only": False,
        "enable_context_generator": False,
        "enable_summarizer": False,
        "train_rollout_mode": "woexp",
        "updated_freq": 0,
    },
    "init_only": {
        "init_exp_before_training": True,
        "init_exp_only": True,
        "enable_summarizer": True,
        "enable_context_generator": False,
        "train_rollout_mode": "woexp",
        "updated_freq": 0,
    },
    "init_train": _INIT | _MIXED | {"updated_freq": 0},
    "init_train_update": _INIT | _MIXED | {"enable_summarizer": True},
    "existing_train": _POOL_OF_OLD | _MIXED | {"enable_summarizer": False, "updated_freq": 0},
    "existing_train_update": _POOL_OF_OLD | _MIXED | {"enable_summarizer": True},
    "ec": _INIT | _MIXED | {"train_sample_mode": "allkeep"},
    "ei": _INIT | _MIXED | {"train_sample_mode": "alldiscard"},
    "het": _INIT | _MIXED | {"train_sample_mode": "hybrid"},
}
"""Preset → the values that make it what it is; another value beside it is a contradiction."""

FEW, PUBLISHED = {"rollout_ratio": 0.125}, {"rollout_ratio": 0.5}
"""One of eight was measured to disturb learning less than the published half (docs/experience.md)."""

SUGGESTED: dict[str, dict[str, Any]] = {
    "mixed": FEW,
    "init_train": FEW,
    "init_train_update": FEW | {"updated_freq": 4},
    "existing_train": FEW,
    "existing_train_update": FEW | {"updated_freq": 4},
    "ec": PUBLISHED,
    "ei": PUBLISHED,
    "het": PUBLISHED | {"train_sample_keepratio": 0.5},
}
"""Preset → values that stand in for defaults and may be changed."""

PresetName = Literal[
    "mixed", "all", "no_pool", "init_only", "init_train", "init_train_update", "existing_train",
    "existing_train_update", "ec", "ei", "het",
]  # fmt: skip


class ExperienceConfig(BaseModel):
    """Everything about experience in a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    preset: PresetName | None = Field(None, description="Named values; null: only what is written here.")

    train_rollout_mode: RolloutMode = Field(RolloutMode.WOEXP, description="Which attempts of a group see lessons.")
    rollout_ratio: float = Field(
        0.0, ge=0, le=1, description="mixed: share of each group; at least one, and at least one stays without."
    )
    val_rollout_mode: RolloutMode = Field(
        RolloutMode.WOEXP, description="Validation is without lessons; mixed, all: a second time with, reported apart."
    )
    train_sample_mode: SampleMode = Field(SampleMode.ALLDISCARD, description="What is trained on.")
    train_sample_keepratio: float = Field(1.0, ge=0, le=1, description="hybrid: share of a step's tasks.")

    init_exp_before_training: bool = Field(False, description="Fill the pool from training problems before step 1.")
    init_exp_only: bool = Field(False, description="End the run when the pool is filled.")
    enable_summarizer: bool = Field(False, description="Make lessons while training (every `updated_freq` steps).")
    enable_context_generator: bool = Field(False, description="Look lessons up and put them into prompts.")
    updated_freq: int = Field(0, ge=0, le=100_000, description="Steps between making lessons; 0: never.")
    summary_batch_size: int = Field(8, ge=1, le=10_000, description="Attempts that lessons are made from, at least.")
    retrieve_top_k: int = Field(3, ge=1, le=16, description="Lessons in a prompt at most.")

    pool: str = Field("default", min_length=1, max_length=64, description="Name of the pool (ReMe: workspace_id).")
    reme_url: str | None = Field(None, description="A ReMe 0.2 service; null: the workspace's own pool.")

    off_clip_low: float = Field(0.2, gt=0, lt=1, description="Lower clip range of rows trained without their lessons.")
    off_clip_high: float = Field(0.6, gt=0, le=10, description="Upper one: wider than the usual 0.2, not stricter.")
    off_dual_clip: float | None = Field(
        3.0, gt=1, le=100, description="Largest ratio of those rows where the advantage is negative; null: no bound."
    )
    off_positive_only: bool = Field(False, description="Train those rows only where their advantage is positive.")
    experience_old_logps: Literal["recompute", "behaviour"] = Field(
        "recompute", description="What those rows' ratio is to: this policy without lessons, or as it sampled."
    )
    distil_deadline_s: float = Field(120.0, gt=0, le=86_400, description="Attempts that wait longer are dropped.")
    init_deadline_s: float = Field(600.0, gt=0, le=86_400, description="Seconds that filling the pool may take.")

    @property
    def active(self) -> bool:
        """Whether the run has anything to do with lessons."""
        return self.guides or self.init_exp_before_training or self.updates

    @property
    def guides(self) -> bool:
        """Whether lessons may get into prompts."""
        return self.enable_context_generator and (self.train_rollout_mode is not RolloutMode.WOEXP or self.validates)

    @property
    def validates(self) -> bool:
        """Whether the validation is played a second time, with lessons."""
        return self.val_rollout_mode is not RolloutMode.WOEXP

    @property
    def updates(self) -> bool:
        """Whether lessons are made while training."""
        return self.enable_summarizer and self.updated_freq > 0

    @property
    def strips(self) -> bool:
        """Whether rows may be trained on another prompt than they were sampled with."""
        return self.train_rollout_mode is not RolloutMode.WOEXP and self.train_sample_mode is not SampleMode.ALLKEEP

    @model_validator(mode="before")
    @classmethod
    def _published(cls, value: Any) -> Any:
        """Names and nesting of the published block, and presets, to plain fields."""
        if isinstance(value, str):
            value = {"preset": value}
        if value is True:
            value = {"preset": "mixed"}
        if not isinstance(value, dict):
            return value
        flat = _with_preset(_flattened(value))
        template = flat.pop("experience_template", TEMPLATE)
        if not isinstance(template, str) or _plain(template) != _plain(TEMPLATE):
            raise ValueError(
                f"experience_template {template!r} is no setting: models are trained with the published one. "
                "Leave the key out."
            )
        return flat

    @model_validator(mode="after")
    def _together(self) -> Self:
        problem = next(iter(_contradictions(self)), None) or next(iter(_unused(self)), None)
        if problem is not None:
            raise ValueError(problem)
        return self


def _plain(template: str) -> str:
    return template.replace("\\n", "\n").replace("\\", "").strip()


def joined(stronger: dict[str, Any], weaker: dict[str, Any]) -> dict[str, Any]:
    """Two sections of which one beats the other, key by key. Sections that say nothing sensible go on as they are."""
    try:
        return _flattened(weaker) | _flattened(stronger)
    except ValueError:
        return stronger


def _flattened(block: dict[str, Any]) -> dict[str, Any]:
    """`reme:` beside the rest, our names; the same key twice with two values is an error."""
    rest = {str(key): value for key, value in block.items() if key != "reme"}
    inner = block.get("reme") or {}
    if not isinstance(inner, dict):
        raise ValueError(f"reme must hold keys such as enable_context_generator, not {inner!r}.")
    flat: dict[str, Any] = {}
    for source in (rest, inner):
        for key, value in source.items():
            name = ALIASES.get(str(key), str(key))
            if name in flat and flat[name] != value:
                raise ValueError(f"{key} is given twice: {flat[name]!r} and {value!r}. Keep one of them.")
            flat[name] = value
    return flat


def _with_preset(flat: dict[str, Any]) -> dict[str, Any]:
    preset = flat.get("preset")
    if preset is None:
        return flat
    if preset not in PRESETS:
        near = difflib.get_close_matches(str(preset), PRESETS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"preset {preset!r} is unknown.{hint} Allowed: off, {', '.join(PRESETS)}.")
    fixed = PRESETS[preset]
    for name, value in fixed.items():
        if name in flat and flat[name] != value:
            raise ValueError(
                f"{name} {flat[name]!r} contradicts the preset {preset}, which is {name} {value!r}. Keep one of them."
            )
    return SUGGESTED.get(preset, {}) | fixed | flat


def _contradictions(c: ExperienceConfig) -> list[str]:
    found = []
    if c.train_rollout_mode is not RolloutMode.WOEXP and not c.enable_context_generator:
        found.append(
            f"train_rollout_mode {c.train_rollout_mode} puts lessons into prompts, enable_context_generator false "
            "looks none up. Set enable_context_generator: true, or train_rollout_mode: woexp."
        )
    if c.validates and not c.enable_context_generator:
        found.append(
            f"val_rollout_mode {c.val_rollout_mode} puts lessons into prompts, enable_context_generator false looks "
            "none up. Set enable_context_generator: true, or val_rollout_mode: woexp."
        )
    if c.updated_freq and not c.enable_summarizer:
        found.append(
            f"updated_freq {c.updated_freq} makes lessons while training, enable_summarizer false makes none. "
            "Set enable_summarizer: true, or updated_freq: 0."
        )
    if c.init_exp_only and not c.init_exp_before_training:
        found.append("init_exp_only ends the run when the pool is filled; init_exp_before_training: true fills it.")
    if c.init_exp_only and (c.enable_context_generator or c.updated_freq):
        found.append(
            "init_exp_only ends the run before step 1: enable_context_generator and updated_freq have no effect. "
            "Leave them out."
        )
    if c.off_dual_clip is not None and c.off_dual_clip <= 1 + c.off_clip_high:
        found.append(
            f"off_dual_clip {c.off_dual_clip:g} must lie above 1 + off_clip_high = {1 + c.off_clip_high:g}, or be null."
        )
    return found


def _unused(c: ExperienceConfig) -> list[str]:
    """Values that have no effect. Values that say what is so anyway (all with ratio 1) are allowed."""
    mode, sample = c.train_rollout_mode, c.train_sample_mode
    found = []
    mixes = RolloutMode.MIXED in (mode, c.val_rollout_mode)
    if not mixes and c.rollout_ratio != (neutral := 1.0 if mode is RolloutMode.ALL else 0.0) and c.rollout_ratio:
        found.append(
            f"rollout_ratio {c.rollout_ratio:g} has no effect with train_rollout_mode {mode} (which is {neutral:g}). "
            "Set train_rollout_mode: mixed, or leave rollout_ratio out."
        )
    kept = {SampleMode.ALLDISCARD: (0.0, 1.0), SampleMode.ALLKEEP: (1.0,)}.get(sample)
    if kept is not None and c.train_sample_keepratio not in kept:
        found.append(
            f"train_sample_keepratio {c.train_sample_keepratio:g} has no effect with train_sample_mode {sample}. "
            "Set train_sample_mode: hybrid, or leave it out."
        )
    if c.enable_summarizer and not (c.updated_freq or c.init_exp_before_training):
        found.append("enable_summarizer has no effect with updated_freq 0. Say every how many steps, or leave it out.")
    if c.enable_context_generator and not c.guides:
        found.append(
            "enable_context_generator has no effect with train_rollout_mode woexp and val_rollout_mode woexp. "
            "Set train_rollout_mode: mixed, or leave it out."
        )
    needs = {
        **dict.fromkeys(
            ("off_clip_low", "off_clip_high", "off_dual_clip", "off_positive_only", "experience_old_logps"),
            (c.strips, "rows that are trained without their lessons"),
        ),
        "train_sample_mode": (mode is not RolloutMode.WOEXP, "attempts that see lessons (train_rollout_mode)"),
        "retrieve_top_k": (c.guides, "prompts with lessons (enable_context_generator)"),
        "summary_batch_size": (c.updates or c.init_exp_before_training, "lessons being made"),
        "distil_deadline_s": (c.updates, "lessons being made while training (updated_freq)"),
        "init_deadline_s": (c.init_exp_before_training, "init_exp_before_training"),
    }
    for name, (used, what) in needs.items():
        value, default = getattr(c, name), ExperienceConfig.model_fields[name].default
        if not used and value != default:
            found.append(f"{name} {value!s} has no effect: there are no {what}. Leave it out.")
    return found
