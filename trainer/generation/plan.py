"""From what a person asks for to a `GenerationPlan`: an environment, or a run with its environment and its model."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skill_bank.policy import CompiledPolicy
from trainer.config import TrainingConfig
from trainer.generation.types import Explorer, GenerationError, GenerationPlan
from trainer.models.catalog import ModelKind, resolve_model
from trainer.runs.registry import find_run
from trainer.runs.workspace import Workspace, check_id
from trainer.settings import resolve


@dataclass(frozen=True)
class Wishes:
    """What a person asks for; None: by default."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration, `env` among them."""
    config_file: Path | None = None
    run: str | None = None
    explorer: str = Explorer.SCRIPTED.value
    model: str | None = None
    count: int = 64
    originals: int | None = None
    """By default as many as the configuration trains on."""
    attempts: int = 4
    calls: int = 400
    support: int = 2
    seed: int | None = None
    """By default the seed of the configuration."""
    name: str | None = None


def new_set_id(env: str, now: float | None = None) -> str:
    """`calculator-20260131-154500-k3f9`."""
    short = "".join(c if c.isalnum() else "-" for c in env.rsplit(":", 1)[-1].lower()).strip("-")[:24] or "tasks"
    return f"{short}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(2)}"


def plan_generation(
    workspace: Workspace | None, wishes: Wishes, *, policy: CompiledPolicy | None = None, folder: Path | None = None
) -> GenerationPlan:
    """The plan. `folder` is what relative paths are relative to. Raises GenerationError, ConfigError, RunError."""
    if wishes.explorer not in list(Explorer):
        raise GenerationError(f"unknown explorer {wishes.explorer!r}. Allowed: {', '.join(Explorer)}.")
    explorer = Explorer(wishes.explorer)
    config, run_id, trained = _configuration(workspace, wishes, policy, folder)
    model = _model(wishes.model, trained, folder)
    if explorer is Explorer.POLICY and model is None:
        raise GenerationError("the policy explorer needs a model: name a run (--run ID) or a model (--model NAME).")
    if explorer is Explorer.SCRIPTED and wishes.model is not None:
        raise GenerationError("--model is for the policy explorer. Add --explorer policy, or leave it out.")
    try:
        return GenerationPlan(
            set_id=check_id(wishes.name, "name of a set") if wishes.name else new_set_id(config.env),
            created_at=time.time(),
            config=config,
            explorer=explorer,
            model=model if explorer is Explorer.POLICY else None,
            run_id=run_id,
            count=wishes.count,
            originals=wishes.originals or config.problems,
            attempts=wishes.attempts,
            calls=wishes.calls,
            support=wishes.support,
            seed=config.seed if wishes.seed is None else wishes.seed,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise GenerationError(f"{'.'.join(map(str, first['loc']))} {first['input']!r}: {first['msg']}.") from error


def _configuration(
    workspace: Workspace | None, wishes: Wishes, policy: CompiledPolicy | None, folder: Path | None
) -> tuple[TrainingConfig, str | None, str | None]:
    """(configuration, run, its trained model)."""
    if wishes.run is None:
        resolved = resolve(overrides=wishes.overrides, config_file=wishes.config_file, policy=policy, folder=folder)
        return resolved.config, None, None
    if wishes.overrides or wishes.config_file is not None:
        raise GenerationError("a run has its configuration: give --run, or --env, --set and --config, not both.")
    if workspace is None:
        raise GenerationError("there is no workspace, so there are no runs.")
    run = find_run(workspace, wishes.run)
    trained = run.directory.model_folder
    if wishes.explorer == Explorer.POLICY and wishes.model is None and not (trained / "config.json").is_file():
        raise GenerationError(
            f"run {run.document.run_id} is {run.document.state} and has no trained model. Wait for its end, name a "
            "model (--model), or use --explorer scripted."
        )
    return run.directory.read_config(), run.document.run_id, str(trained.resolve())


def _model(name: str | None, trained: str | None, folder: Path | None) -> str | None:
    if name is None:
        return trained
    info = resolve_model(name, folder)
    return info.location if info.kind in (ModelKind.FOLDER, ModelKind.GGUF) else (info.alias or info.location)
