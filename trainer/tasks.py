"""Problems of a run: rows from the environment's own generator or from the user's file, per split, in a fixed order.

The training order is one shuffled pass over the problems after another, decided by the run's seed alone: runs with
other batch shapes meet the same problems in the same order.
"""

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.datafiles import DataFault, read_rows, split_rows
from trainer.envs.base import EnvironmentSpec, Row, Split
from trainer.examples import worked_examples
from trainer.generation.mixing import Mixture, mixed
from trainer.rollout.types import EpisodeRequest, Message

TEST_SEED = 1_000_003
"""Evaluation problems come from the run's seed plus this, so that no stream is shared with training."""


@dataclass(frozen=True)
class Tasks:
    """The problems of a run."""

    train: list[Row]
    validation: list[Row]
    test: list[Row]
    mixture: Mixture | None = None
    """What `train` is mixed of, where generated tasks join it."""

    def of(self, split: Split) -> list[Row]:
        return {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.TEST: self.test}[split]

    @property
    def fingerprint(self) -> str:
        """Hash of all rows."""
        text = json.dumps([self.train, self.validation, self.test], sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def build_tasks(config: TrainingConfig, spec: EnvironmentSpec, folder: Path) -> Tasks:
    """The problems that a configuration asks for, worked examples before each. `folder`: what a relative `data` path is
    relative to."""
    tasks = _with_generated(config, _problems(config, spec, folder), folder)
    shown = worked_examples(config, spec)
    if not shown:
        return tasks
    train, validation, test = (
        [_behind(shown, row) for row in rows] for rows in (tasks.train, tasks.validation, tasks.test)
    )
    return Tasks(train, validation, test, tasks.mixture)


def _with_generated(config: TrainingConfig, tasks: Tasks, folder: Path) -> Tasks:
    """The same validation and test; generated tasks among the training problems, where the configuration names some."""
    if config.generated_tasks is None:
        return tasks
    train, mixture = mixed(
        tasks.train,
        {"validation": tasks.validation, "test": tasks.test},
        folder / Path(config.generated_tasks).expanduser(),
        ratio=config.generated_share,
        problems=config.problems,
        seed=config.seed,
    )
    return Tasks(train, tasks.validation, tasks.test, mixture)


def _behind(shown: list[Message], row: Row) -> Row:
    """The row with examples before its question."""
    messages = conversation(row, None)
    opening = [m for m in messages[:1] if m["role"] == "system"]
    return {**row, "prompt": [*opening, *shown, *messages[len(opening) :]]}


def _problems(config: TrainingConfig, spec: EnvironmentSpec, folder: Path) -> Tasks:
    path = data_path(config, folder)
    if path is not None:
        return _from_file(config, path)
    if spec.tasks is None:
        raise DataFault(
            f"environment {config.env} makes no problems of its own; give it a file: data=tasks.jsonl (one JSON object "
            "a line with `prompt` and the arguments of reset)."
        )
    make = spec.tasks
    try:
        return Tasks(
            _checked(make(Split.TRAIN, config.problems, config.seed, config.difficulty, **config.env_args), config.env),
            _checked(
                make(Split.VALIDATION, config.validation_problems, config.seed, config.difficulty, **config.env_args),
                config.env,
            ),
            _checked(
                make(Split.TEST, config.test_problems, config.seed + TEST_SEED, config.difficulty, **config.env_args),
                config.env,
            ),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, DataFault):
            raise
        raise DataFault(f"environment {config.env} could not make its problems: {error}") from error


def _checked(rows: list[Row], name: str) -> list[Row]:
    for number, row in enumerate(rows):
        if "prompt" not in row:
            raise DataFault(f"{name}: problem {number} has no `prompt`; it has {', '.join(sorted(row))}.")
    return rows


def data_path(config: TrainingConfig, folder: Path) -> Path | None:
    """Where the task file of a configuration is; None where it has none."""
    if config.data is None:
        return None
    path = Path(config.data).expanduser()
    return path if path.is_absolute() else folder / path


def _from_file(config: TrainingConfig, path: Path) -> Tasks:
    """Splits a file so that the same problem never stands on two sides."""
    parts = split_rows(read_rows(path, config.columns), config.seed, path)
    return Tasks(  # small files are evaluated on what they have
        parts.train[: config.problems],
        parts.validation[: config.validation_problems],
        parts.test[: config.test_problems],
    )


def conversation(row: Row, system_prompt: str | None) -> list[Message]:
    """The chat before the model speaks."""
    prompt = row["prompt"]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    if system_prompt and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system_prompt})
    return messages


def training_order(problems: int, length: int, seed: int) -> list[tuple[int, int]]:
    """(problem, occurrence) of the first `length` draws: shuffled passes, each its own permutation."""
    order: list[tuple[int, int]] = []
    occurrence = 0
    while len(order) < length:
        one = list(range(problems))
        random.Random(f"order|{seed}|{occurrence}").shuffle(one)
        order += [(problem, occurrence) for problem in one]
        occurrence += 1
    return order[:length]


def requests(rows: list[Row], system_prompt: str | None) -> list[EpisodeRequest]:
    """One attempt at each row, for an evaluation."""
    return [
        EpisodeRequest(conversation(row, system_prompt), _reset_arguments(row), task, 0, 0)
        for task, row in enumerate(rows)
    ]


def group_requests(row: Row, system_prompt: str | None, task: int, occurrence: int, size: int) -> list[EpisodeRequest]:
    """The G attempts of one group."""
    messages, arguments = conversation(row, system_prompt), _reset_arguments(row)
    return [EpisodeRequest(messages, arguments, task, occurrence, generation) for generation in range(size)]


def _reset_arguments(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "prompt"}
