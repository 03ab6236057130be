"""The review of a run directory: reads what `trainer.runs.review` looks at."""

import math

from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.review import MAX_EPOCHS, Attempts, Review, review
from trainer.runs.rundir import RunDirectory
from trainer.runs.statistics import mean

MAX_EPISODE_BYTES = 64 * 2**20
"""Episode files larger than this together are not read for a review: it must answer while a person waits."""


def review_of(directory: RunDirectory) -> Review:
    """The review of a run in whatever state it is. Raises RunError."""
    config = directory.read_config()
    rows = directory.metrics()
    return review(rows, validations_of(directory), steps_of_epoch(config), attempts_of(directory, config))


def validations_of(directory: RunDirectory) -> list[tuple[int, float]]:
    """(step, success on the validation split), in order."""
    points = []
    for event in directory.events():
        result = event.get("eval")
        if event.get("kind") != "validation" or not isinstance(result, dict):
            continue
        step, value = event.get("step"), result.get("mean")
        if isinstance(step, int) and isinstance(value, (int, float)):
            points.append((step, float(value)))
    return points


def steps_of_epoch(config: TrainingConfig) -> int:
    """Steps of one pass over the problems (a file may hold fewer than `problems`: then an epoch is shorter)."""
    return max(1, math.ceil(config.problems / config.batch_size))


def attempts_of(directory: RunDirectory, config: TrainingConfig) -> list[Attempts]:
    """What each problem earned in each of the newest epochs; empty where episodes are not kept, too large, or where no
    problem was met twice."""
    steps = directory.episode_steps()
    if not steps or steps[-1] <= steps_of_epoch(config) // 2:
        return []
    newest = steps[-(MAX_EPOCHS * steps_of_epoch(config)) :]
    try:
        size = sum(directory.episode_path(step).stat().st_size for step in newest)
        if size > MAX_EPISODE_BYTES:
            return []
        rewards: dict[tuple[int, int], list[float]] = {}
        prompts: dict[int, str] = {}
        for step in newest:
            for one in directory.episodes(step):
                problem, epoch, reward = one.get("task"), one.get("occurrence"), one.get("reward")
                if one.get("valid") is False or not isinstance(reward, (int, float)):
                    continue
                if not isinstance(problem, int) or not isinstance(epoch, int):
                    continue
                rewards.setdefault((problem, epoch), []).append(float(reward))
                prompts.setdefault(problem, " ".join(str(one.get("prompt")).split())[:120])
    except FileNotFoundError:  # pruned while it was read
        return []
    except OSError as error:
        raise RunError(f"{directory.episodes_folder} cannot be read: {error.strerror or error}") from error
    if all(epoch == 0 for _, epoch in rewards):
        return []
    return [Attempts(problem, epoch, prompts[problem], mean(values)) for (problem, epoch), values in rewards.items()]
