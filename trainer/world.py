"""What a configuration plays in: its environment class, its grader and the folder of the user's own code."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import ConfigError, TrainingConfig
from trainer.envs import registry
from trainer.envs.base import EnvironmentSpec
from trainer.rollout.types import Episode
from trainer.tasks import Tasks, build_tasks

Grader = Callable[[Episode, Any], float]
"""grader(episode, environment) instead of the environment's own reward."""


@dataclass(frozen=True)
class World:
    """Environment and grader of a configuration."""

    spec: EnvironmentSpec
    reward: Grader | None
    """The user's own grader; None: the environment's."""
    folder: Path
    """What relative paths of the configuration are relative to."""

    def tasks(self, config: TrainingConfig) -> Tasks:
        """The problems that a configuration asks for. Raises DataFault."""
        return build_tasks(config, self.spec, self.folder)


def open_world(config: TrainingConfig, beside: Path) -> World:
    """Loads environment and grader; `beside`: the folder where the configuration names none.

    Raises EnvironmentFault, ConfigError.
    """
    folder = Path(config.folder) if config.folder else beside
    folders = (folder,) if config.folder else ()
    spec = registry.load(config.env, folders, config.env_args)
    return World(spec, _reward(config, folders), folder)


def _reward(config: TrainingConfig, folders: tuple[Path, ...]) -> Grader | None:
    if config.reward is None:
        return None
    function = registry.load_object(config.reward, folders)
    if not callable(function):
        raise ConfigError(
            f"reward {config.reward} is not a function; it must be function(episode, environment) -> float."
        )
    return function
