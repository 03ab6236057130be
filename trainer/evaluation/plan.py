"""From what a person names to an `EvaluationPlan`: a run (its trained model and its base) or a model."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skill_bank.policy import CompiledPolicy
from trainer.config import ConfigError, TrainingConfig
from trainer.config_errors import explain_validation_error, unknown_field
from trainer.evaluation.types import EvaluationError, EvaluationPlan, SplitName, Subject
from trainer.models.catalog import ModelKind, resolve_model
from trainer.runs.errors import RunError, WorkspaceError
from trainer.runs.registry import LATEST, Run, find_run
from trainer.runs.types import RunState
from trainer.runs.workspace import ID_PATTERN, Workspace
from trainer.settings import parse_override, resolve

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")

MAX_EPISODES = 1_000_000
"""A plan with more is a slip of the keyboard."""

OF_THE_ENVIRONMENT = (
    "env_args", "data", "columns", "generated_tasks", "generated_ratio", "reward", "folder", "system_prompt",
)  # fmt: skip
"""Fields that mean nothing to another environment than the one they were written for."""


@dataclass(frozen=True)
class Wishes:
    """What a person asks for beside the target; None: by default."""

    env: str | None = None
    difficulty: str | None = None
    n: int = 128
    samples: int = 1
    splits: Sequence[SplitName] = ("test",)
    seeds: Sequence[int] | None = None
    """By default the seed of the run, so that its own test is repeated problem by problem."""
    ks: Sequence[int] | None = None
    """By default 1 and the powers of two up to `samples`, and `samples` itself."""
    temperature: float = 1.0
    overrides: Mapping[str, Any] | Iterable[str] = ()
    against: Sequence[str] = ()
    """More runs or models for the same problems."""


def new_evaluation_id(now: float | None = None) -> str:
    """`eval-20260131-154500-k3f9a0c2`."""
    return f"eval-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(4)}"


def plan_evaluation(
    workspace: Workspace | None,
    target: str,
    wishes: Wishes,
    *,
    policy: CompiledPolicy | None = None,
    folder: Path | None = None,
) -> EvaluationPlan:
    """The plan for a run or a model. `folder` is what relative paths are relative to.

    Raises EvaluationError, ConfigError, RunError.
    """
    ks = tuple(wishes.ks) if wishes.ks is not None else default_ks(wishes.samples)
    _check(wishes, ks)
    run = find_target(workspace, target, folder)
    overrides = _overrides(wishes)
    learned: list[TrainingConfig] = []
    if run is not None:
        learned.append(run.directory.read_config())
        config = _changed(learned[0], overrides)
        subjects = list(_of_run(run, config))
    else:
        config = resolve(overrides={**overrides, "model": target}, policy=policy, folder=folder).config
        subjects = [Subject(name=_short(target), model=config.model)]
    for name in wishes.against:
        other = find_target(workspace, name, folder)
        subjects.append(_other(other, name, {one.name for one in subjects}, folder))
        if other is not None:
            learned.append(other.directory.read_config())
    seeds = tuple(dict.fromkeys(wishes.seeds)) if wishes.seeds else (config.seed,)
    return EvaluationPlan(
        evaluation_id=new_evaluation_id(),
        created_at=time.time(),
        target=target,
        run_id=None if run is None else run.document.run_id,
        config=config,
        learned=tuple(learned),
        subjects=tuple(subjects),
        splits=tuple(split for split in SPLITS if split in wishes.splits),
        n=wishes.n,
        samples=wishes.samples,
        seeds=seeds,
        ks=ks,
        temperature=wishes.temperature,
    )


def default_ks(samples: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `samples`, and `samples` itself."""
    powers = [1 << i for i in range(samples.bit_length()) if 1 << i <= samples]
    return tuple(sorted({*powers, samples}))


def _check(wishes: Wishes, ks: Sequence[int]) -> None:
    if not 1 <= wishes.n <= 100_000:
        raise EvaluationError(f"{wishes.n} problems cannot be evaluated; allowed: 1 to 100,000.")
    if not 1 <= wishes.samples <= 1024:
        raise EvaluationError(f"{wishes.samples} attempts at a problem are not allowed; allowed: 1 to 1,024.")
    if not 0 < wishes.temperature <= 10:
        raise EvaluationError(f"temperature {wishes.temperature:g} is not allowed; allowed: above 0, at most 10.")
    for seed in wishes.seeds or ():
        if not 0 <= seed < 2**31:
            raise EvaluationError(f"seed {seed} is not allowed; allowed: 0 to {2**31 - 1:,}.")
    wrong = [k for k in ks if not 1 <= k <= wishes.samples]
    if wrong:
        raise EvaluationError(
            f"pass@{wrong[0]} needs at least {wrong[0]} attempts at each problem, there are {wishes.samples}: raise "
            "the number of samples."
        )
    unknown = [split for split in wishes.splits if split not in SPLITS]
    if unknown or not wishes.splits:
        raise EvaluationError(f"unknown split {', '.join(unknown) or '(none)'}. Allowed: {', '.join(SPLITS)}.")
    seeds = len(set(wishes.seeds)) if wishes.seeds else 1
    episodes = wishes.n * wishes.samples * seeds * len(wishes.splits) * (2 + len(wishes.against))
    if episodes > MAX_EPISODES:
        raise EvaluationError(f"that is up to {episodes:,} episodes; allowed: {MAX_EPISODES:,}. Lower n or samples.")


def find_target(workspace: Workspace | None, target: str, folder: Path | None = None) -> Run | None:
    """The run of that id (or `latest`); None: it names a model. Raises RunError, ConfigError where it names neither."""
    could_be_run = workspace is not None and ID_PATTERN.match(target) is not None
    if workspace is not None and could_be_run:
        exact = target == LATEST or (workspace.runs / target / "run.json").exists()
        if exact:
            return find_run(workspace, target)
    try:
        resolve_model(target, folder)
    except ConfigError as error:
        beginning = None if workspace is None or not could_be_run else _by_beginning(workspace, target)
        if beginning is not None:
            return beginning
        if ID_PATTERN.match(target):
            raise EvaluationError(
                f"{target!r} is neither a run nor a model. {error} Runs: mcp-evo runs list"
            ) from error
        raise
    return None


def _by_beginning(workspace: Workspace, target: str) -> Run | None:
    try:
        return find_run(workspace, target)
    except (RunError, WorkspaceError):
        return None


def _of_run(run: Run, config: TrainingConfig) -> tuple[Subject, Subject]:
    document = run.document
    if not (run.directory.model_folder / "config.json").is_file():
        after = "Go on with it (mcp-evo runs resume)" if document.state.is_final else "Wait for its end"
        if document.state is RunState.FINISHED:
            after = "Its weights were deleted: train it again"
        raise RunError(
            f"run {document.run_id} is {document.state} and has no trained model. {after}, or evaluate its "
            f"base: {config.model}"
        )
    trained = Subject(name="trained", model=str(run.directory.model_folder.resolve()), run_id=document.run_id)
    return Subject(name="base", model=run.directory.read_config().model), trained


def _other(run: Run | None, target: str, taken: set[str], folder: Path | None) -> Subject:
    if run is not None:
        trained = _of_run(run, run.directory.read_config())[1]
        return trained.model_copy(update={"name": _free(run.document.run_id, taken)})
    info = resolve_model(target, folder)
    model = info.location if info.kind in (ModelKind.FOLDER, ModelKind.GGUF) else (info.alias or info.location)
    return Subject(name=_free(_short(target), taken), model=model)


def _short(target: str) -> str:
    return target.rstrip("/").rsplit("/", 1)[-1][:64] or target[:64]


def _free(name: str, taken: set[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def _overrides(wishes: Wishes) -> dict[str, Any]:
    given = wishes.overrides
    pairs = dict(given) if isinstance(given, Mapping) else dict(parse_override(text) for text in given)
    for name in pairs:
        if name.partition(".")[0] not in TrainingConfig.model_fields:
            raise ConfigError(unknown_field(name, "--set"))
    for name, value in (("env", wishes.env), ("difficulty", wishes.difficulty)):
        if value is not None:
            pairs[name] = value
    return pairs


def _changed(config: TrainingConfig, overrides: dict[str, Any]) -> TrainingConfig:
    """A run's configuration for another environment or with other limits. Raises ConfigError."""
    values = config.model_dump(mode="json")
    if overrides.get("env", config.env) != config.env:
        defaults = TrainingConfig.model_validate({}).model_dump(mode="json")
        values |= {name: defaults[name] for name in OF_THE_ENVIRONMENT}
    for name, value in overrides.items():
        outer, _, inner = name.partition(".")
        values[outer] = {**(values[outer] or {}), inner: value} if inner else value
    try:
        return TrainingConfig.model_validate(values)
    except ValidationError as error:
        origin = {name: {"source": "set", "detail": f"{name}={value}"} for name, value in overrides.items()}
        raise ConfigError(explain_validation_error(error, origin)) from error
