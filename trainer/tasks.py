"""Problems of a run: rows from the environment's own generator or from the user's file, per split, in a fixed order.

The training order is one shuffled pass over the problems after another, decided by the run's seed alone: runs with
other batch shapes meet the same problems in the same order.
"""

import csv
import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentSpec, Row, Split
from trainer.rollout.types import EpisodeRequest, Message

TEST_SEED = 1_000_003
"""Evaluation problems come from the run's seed plus this, so that no stream is shared with training."""


class DataFault(ValueError):
    """Tasks that cannot be used: names the file, the line, what is allowed."""


@dataclass(frozen=True)
class Tasks:
    """The problems of a run."""

    train: list[Row]
    validation: list[Row]
    test: list[Row]

    def of(self, split: Split) -> list[Row]:
        return {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.TEST: self.test}[split]

    @property
    def fingerprint(self) -> str:
        """Hash of all rows."""
        text = json.dumps([self.train, self.validation, self.test], sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def build_tasks(config: TrainingConfig, spec: EnvironmentSpec, folder: Path) -> Tasks:
    """The problems that a configuration asks for. `folder`: what a relative `data` path is relative to."""
    if config.data is not None:
        return _from_file(config, folder)
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


def _from_file(config: TrainingConfig, folder: Path) -> Tasks:
    """Splits a file 60/20/20 by a hash of each row's prompt, so that the same problem never stands on two sides."""
    path = Path(str(config.data)).expanduser()
    path = path if path.is_absolute() else folder / path
    rows = read_rows(path, config.columns)
    order = sorted(rows, key=lambda row: hashlib.sha256(f"{config.seed}|{_identity(row)}".encode()).digest())
    unique = list({_identity(row): row for row in order}.values())
    if len(unique) < 5:
        raise DataFault(f"{path} holds {len(unique)} different problems; at least 5 are needed for three splits.")
    test = max(1, len(unique) // 5)
    parts = {"test": unique[:test], "validation": unique[test : 2 * test], "train": unique[2 * test :]}
    return Tasks(  # small files are evaluated on what they have
        parts["train"][: config.problems],
        parts["validation"][: config.validation_problems],
        parts["test"][: config.test_problems],
    )


def _identity(row: Row) -> str:
    return json.dumps(row["prompt"], sort_keys=True, ensure_ascii=False)


def read_rows(path: Path, columns: dict[str, str]) -> list[Row]:
    """Rows of a .jsonl, .csv or .parquet file with `columns` (our name → the file's) applied. Raises DataFault."""
    if not path.is_file():
        raise DataFault(f"data: there is no file {path}. Give a .jsonl, .csv or .parquet file.")
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataFault(f"data: {path.name} ends in {path.suffix!r}; allowed: {', '.join(readers)}.")
    rows = [_mapped(row, columns, f"{path}:{line}") for line, row in readers[path.suffix.lower()](path)]
    if not rows:
        raise DataFault(f"data: {path} holds no rows.")
    return rows


def _mapped(row: Any, columns: dict[str, str], where: str) -> Row:
    if not isinstance(row, dict):
        raise DataFault(f"{where}: a row is a JSON object, this is {type(row).__name__}.")
    mapped = dict(row)
    for ours, theirs in columns.items():
        if theirs not in mapped:
            raise DataFault(
                f"{where}: no column {theirs!r} (columns says {ours}={theirs}); it has {', '.join(map(str, row))}."
            )
        mapped[ours] = mapped.pop(theirs)
    if "prompt" not in mapped:
        raise DataFault(
            f"{where}: no `prompt`. Name the column that holds it: columns={{prompt: NAME}}; "
            f"it has {', '.join(map(str, row))}."
        )
    prompt = mapped["prompt"]
    if not (isinstance(prompt, str) and prompt.strip()) and not (isinstance(prompt, list) and prompt):
        raise DataFault(f"{where}: `prompt` must be text or a list of chat messages.")
    return mapped


def _read_jsonl(path: Path) -> list[tuple[int, Any]]:
    rows = []
    data = path.read_bytes()
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line)))
        except ValueError as error:
            raise DataFault(f"{path}:{number}: not JSON: {error}") from error
    return rows


def _read_csv(path: Path) -> list[tuple[int, Any]]:
    with open(path, encoding="utf-8-sig", newline="") as stream:
        return list(enumerate(csv.DictReader(stream), start=2))


def _read_parquet(path: Path) -> list[tuple[int, Any]]:
    import pyarrow.parquet  # type: ignore[import-untyped]

    return list(enumerate(pyarrow.parquet.read_table(path).to_pylist(), start=1))


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
