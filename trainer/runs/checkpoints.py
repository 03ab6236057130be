"""What makes a checkpoint of a run complete, and where the newest one lies. Free of torch.

`checkpoints/checkpoint-<step>/` holds what transformers writes (weights, optimiser, schedule, random states) and,
written last, `mcp_evo_state.json`: a folder without it was cut short by a crash and does not count. Checkpoints lie
between optimiser steps, so a resumed run repeats the steps behind it bit for bit on the CPU: episodes draw from streams
keyed by (seed, problem, occurrence, generation, turn, token), the order of problems is decided by the seed alone.
"""

import os
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from skill_bank.files import read_json, write_json_atomic
from trainer.runs.types import Eval

STATE_FILE = "mcp_evo_state.json"
BEST_FILE = "best.pt"
"""Trainable weights at the best validation, where there was one."""
KEPT = 2
"""Checkpoints kept of a run: the newest, and one in case the newest is cut short."""


class Validation(BaseModel):
    """The validation split at one step."""

    step: int
    result: Eval


class CheckpointState(BaseModel):
    """The part of a run's state that transformers does not save."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = 1
    step: int
    config_hash: str | None = None
    data_fingerprint: str | None = None
    validations: list[Validation] = Field(default_factory=list)


def best_of(validations: list[Validation]) -> Validation | None:
    """The validation with the highest mean, of equals the last; None where there is none."""
    return max(reversed(validations), key=lambda one: one.result.mean, default=None)


def checkpoint_step(folder: Path) -> int | None:
    """The step in a folder's name, or None."""
    number = folder.name.removeprefix("checkpoint-")
    return int(number) if folder.name.startswith("checkpoint-") and number.isdecimal() else None


def read_state(folder: Path) -> CheckpointState | None:
    """The state of a complete checkpoint; None for one that is not."""
    try:
        state = CheckpointState.model_validate(read_json(folder / STATE_FILE))
    except (OSError, ValueError):
        return None
    return state if state.step == checkpoint_step(folder) else None


def complete_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints in a `checkpoints/` folder, the newest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if checkpoint_step(path) is not None and read_state(path) is not None]
    return sorted(found, key=lambda path: checkpoint_step(path) or 0, reverse=True)


def drop_incomplete(folder: Path) -> None:
    """Removes checkpoints of a `checkpoints/` folder that were cut short: they count for nothing and take space."""
    whole = set(complete_checkpoints(folder))
    for path in folder.iterdir() if folder.is_dir() else ():
        if checkpoint_step(path) is not None and path not in whole:
            shutil.rmtree(path, ignore_errors=True)


def complete(folder: Path, state: CheckpointState) -> None:
    """Makes a written checkpoint count: its files reach the disk before its state does. Older ones go."""
    for file in folder.iterdir():
        if file.is_file():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
    write_json_atomic(folder / STATE_FILE, state.model_dump(mode="json"))
    for old in complete_checkpoints(folder.parent)[KEPT:]:
        (old / STATE_FILE).unlink(missing_ok=True)  # first, so that half a checkpoint never counts
        shutil.rmtree(old, ignore_errors=True)
