"""Lessons from the training episodes of a run, with its evaluation problems guarded.

Only episodes of optimiser steps are read (`episodes/step-….jsonl`): they are of the training split. The run's
validation and test problems become guards of the pool first, so that no lesson that holds one is ever stored; a run
whose splits share a problem is refused.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.config import TrainingConfig
from trainer.datafiles import DataFault, read_rows, split_rows
from trainer.envs import registry
from trainer.envs.base import EnvironmentFault
from trainer.experience.distil import DEFAULT_OPTIONS, Distilled, DistilOptions, distil
from trainer.experience.leaks import Guarded, check_disjoint, guarded_rows
from trainer.experience.pool import Added, ExperiencePool, Outcome
from trainer.experience.problems import ExperienceError
from trainer.experience.records import SourcePolicy
from trainer.experience.trajectories import Trajectory, trajectory_of
from trainer.runs.rundir import RunDirectory
from trainer.tasks import build_tasks, data_path

MAX_EPISODES = 20_000
"""The newest; more are no new evidence and take minutes."""


@dataclass
class RunAttempts:
    """What a run's episodes hold."""

    trajectories: list[Trajectory]
    steps: int
    family: str
    source: SourcePolicy
    guards: list[Guarded]
    notices: list[str] = field(default_factory=list)


@dataclass
class RunLessons:
    """What became of them."""

    distilled: Distilled
    added: list[Added]
    guarded: int
    notices: list[str]

    @property
    def outcomes(self) -> dict[str, int]:
        """Records by outcome."""
        return dict(Counter(one.outcome.value for one in self.added))


def attempts_of(directory: RunDirectory, steps: Sequence[int] | None = None) -> RunAttempts:
    """The training episodes of a run; `steps`: these only. Raises RunError, ExperienceError, LeakError."""
    document, config = directory.read_document(), directory.read_config()
    chosen = [step for step in directory.episode_steps() if steps is None or step in steps]
    if not chosen:
        raise ExperienceError(
            f"run {directory.run_id} has no episodes yet; wait for its first step, or name another run"
        )
    trajectories: list[Trajectory] = []
    for step in reversed(chosen):
        found = [trajectory_of(line) for line in directory.episodes(step)]
        trajectories = [one for one in found if one is not None] + trajectories
        if len(trajectories) >= MAX_EPISODES:
            break
    guards, notices = evaluation_problems(config, directory)
    versions = ", ".join(f"{skill} {version}" for skill, version in sorted(document.skill_versions.items()))
    return RunAttempts(
        trajectories, len(chosen), config.env, SourcePolicy(config.model, chosen[-1], versions), guards, notices
    )


def evaluation_problems(config: TrainingConfig, directory: RunDirectory) -> tuple[list[Guarded], list[str]]:
    """The validation and test problems of a run as guards. Raises LeakError where the training shares one.

    An environment of the user is not loaded in this process; a notice says that its problems are not known here.
    """
    folder = Path(config.folder) if config.folder else directory.path
    try:
        path = data_path(config, folder)
        if path is not None:
            parts = split_rows(read_rows(path, config.columns), config.seed, path)
            train, held = parts.train, {"validation": parts.validation, "test": parts.test}
        elif registry.is_shipped(config.env):
            tasks = build_tasks(config, registry.load(config.env), folder)
            train, held = tasks.train, {"validation": tasks.validation, "test": tasks.test}
        else:
            return [], [
                f"the evaluation problems of environment {config.env} are not known here: records are not checked"
            ]
    except (DataFault, EnvironmentFault, OSError) as error:
        return [], [f"the evaluation problems could not be made ({error}): records are not checked against them"]
    named = {f"{directory.run_id}:{split}": rows for split, rows in held.items()}
    check_disjoint(train, named)
    return [one for origin, rows in named.items() for one in guarded_rows(rows, origin)], []


def distil_run(
    pool: ExperiencePool, directory: RunDirectory, options: DistilOptions = DEFAULT_OPTIONS, limit: int = 200
) -> RunLessons:
    """Guards, distils by rule and adds the `limit` best. Raises ExperienceError, LeakError, PoolError, RunError."""
    attempts = attempts_of(directory)
    guarded = len(attempts.guards)
    pool.protect(attempts.guards)
    made = distil(
        attempts.trajectories,
        family=attempts.family,
        run_id=directory.run_id,
        source=attempts.source,
        options=options,
    )
    return RunLessons(made, pool.add_all(made.records[:limit]), guarded, attempts.notices)


def refusals(added: Sequence[Added]) -> Iterator[str]:
    """Why records were refused."""
    return (one.reason for one in added if one.outcome is Outcome.REFUSED)
