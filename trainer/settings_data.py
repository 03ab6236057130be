"""What a configuration says about files of tasks, checked where it is resolved: a mistake costs no worker start."""

from pathlib import Path
from typing import Any

from trainer.config import ConfigError, TrainingConfig
from trainer.datafiles import DataFault, check_data, read_rows
from trainer.envs import registry
from trainer.envs.base import EnvironmentFault, Split
from trainer.generation.mixing import shares


def absolute_files(env_args: dict[str, Any], base: Path) -> dict[str, Any]:
    """`env_args` with its files as absolute paths, since the worker runs in another folder.

    A file is a text under the key `file` or a key that ends in `_file`; relative ones are relative to `base`. Raises
    ConfigError for one that does not exist.
    """
    files = {
        key: base / Path(value).expanduser()
        for key, value in env_args.items()
        if (key == "file" or key.endswith("_file")) and isinstance(value, str) and value
    }
    for key, path in files.items():
        if not path.is_file():
            raise ConfigError(f"env_args.{key} {env_args[key]!r}: there is no file {path}.")
    return {**env_args, **{key: str(path.resolve()) for key, path in files.items()}}


def check_env_args(config: TrainingConfig) -> None:
    """Lets a shipped environment make one problem, so that it can refuse its arguments. Raises ConfigError.

    Other packages' environments wait for the worker: importing them here may be slow or need torch. So does a data set
    from the hub, which would be fetched.
    """
    if config.data is not None or config.env_args.get("hub") or not registry.is_shipped(config.env):
        return
    try:
        make = registry.load(config.env).tasks
        if make is not None:
            make(Split.TRAIN, 1, config.seed, config.difficulty, **config.env_args)
    except (EnvironmentFault, ValueError, TypeError) as error:
        raise ConfigError(f"env {config.env}: {error}") from error


def check_task_file(config: TrainingConfig, provenance: dict[str, dict[str, Any]]) -> list[str]:
    """Reads the task file as the worker will; returns warnings. Raises ConfigError for a file that cannot be used."""
    if config.data is None:
        return []
    try:
        held = check_data(Path(config.data), config.columns, config.seed)
    except DataFault as fault:
        raise ConfigError(str(fault)) from fault
    counted = config.epochs is not None or provenance["problems"]["source"] not in ("default", "policy")
    if held.complete and counted and held.train < config.problems:
        return [
            f"{Path(config.data).name} holds {held.problems} different problems, {held.train} of them for training, "
            f"and problems is {config.problems}: all are used, but epochs count {config.problems} problems. "
            f"Set problems={held.train} to count what there is"
        ]
    return []


def check_generated_tasks(config: TrainingConfig) -> None:
    """Reads the generated tasks as the worker will. Raises ConfigError for a file that cannot be used or is too short.

    Which of them are problems of the run's validation or test is known to the worker only, where they are left out.
    """
    if config.generated_tasks is None:
        return
    path = Path(config.generated_tasks)
    try:
        rows = read_rows(path, {})
    except DataFault as fault:
        raise ConfigError(str(fault).replace("data: ", "generated_tasks: ", 1)) from fault
    originals = config.problems
    if config.data is not None:
        originals = min(originals, check_data(Path(config.data), config.columns, config.seed).train)
    wanted, _ = shares(config.problems, originals, config.generated_share)
    if len(rows) < wanted:
        raise ConfigError(
            f"generated_tasks {path} holds {len(rows)} tasks; a share of {config.generated_share:g} of "
            f"{config.problems} problems needs {wanted}. Generate more (mcp-evo tasks generate --count {wanted}), "
            "lower generated_ratio, or lower problems."
        )
