"""The life cycles of a pool through the real worker, each by what it leaves behind."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainingConfig
from trainer.experience.pool import ExperiencePool, pool_path
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import create_workspace

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "env": "house_rules",
    "env_args": {"houses": "fixed", "count": 2},
    "problems": 6,
    "batch_size": 3,
    "num_generations": 4,
    "max_steps": 2,
    "test_problems": 8,
    "validation_problems": 8,
    "validate_every": 1,
    "skip_eval_before": True,
    "threads": 1,
    "device": "cpu",
}


def trained(workspace: Path, name: str, experience: dict[str, Any]) -> RunDirectory:
    directory = RunDirectory(create_workspace(workspace).runs / name)
    config = TrainingConfig.model_validate(SMALL | {"experience": experience})
    directory.create(RunDocument(run_id=name, created_at=time.time()), config)
    command = [sys.executable, "-P", "-m", "trainer.worker", str(directory.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=directory.path, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def records(workspace: Path) -> int:
    with ExperiencePool(pool_path(workspace, "default")) as pool:
        return sum(1 for _ in pool.store.iterate())


def test_a_pool_is_filled_used_and_grows(tmp_path: Path) -> None:
    filled = trained(tmp_path, "fill", {"preset": "init_only"})
    document = filled.read_document()
    assert (document.state, document.stop_reason) == (RunState.FINISHED, "init_exp_only")
    assert list(filled.metrics()) == []
    assert not filled.model_folder.exists()
    first = records(tmp_path)
    assert first > 0

    used = trained(tmp_path, "use", {"preset": "existing_train", "val_rollout_mode": "all"})
    lines = list(used.metrics())
    assert [line["step"] for line in lines] == [1, 2]
    assert records(tmp_path) == first
    experience = (used.read_document().model_extra or {})["experience"]
    assert experience["told"]["planned"] == 2 * 3 * 1
    assert experience["told"]["injected"] == sum(line["guided"] for line in lines)
    assert used.model_folder.exists()
    kinds = [json.loads(line)["kind"] for line in (used.path / "events.jsonl").read_text().splitlines()]
    assert kinds.count("validation_with_experience") == kinds.count("validation") == 2

    grown = trained(tmp_path, "grow", {"preset": "existing_train_update", "updated_freq": 1})
    distilled = (grown.read_document().model_extra or {})["experience"]["distilled"]
    assert distilled["batches"] + sum(distilled["dropped"].values()) == 2
    assert records(tmp_path) == first + distilled["outcomes"].get("added", 0) + distilled["outcomes"].get(
        "contradicts", 0
    )


def test_a_missing_pool_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    directory = RunDirectory(create_workspace(tmp_path).runs / "r")
    config = TrainingConfig.model_validate(SMALL | {"experience": "existing_train"})
    directory.create(RunDocument(run_id="r", created_at=time.time()), config)
    command = [sys.executable, "-P", "-m", "trainer.worker", str(directory.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=directory.path, check=False)
    assert done.returncode == 1
    failure = directory.read_document().failure
    assert failure is not None
    assert "init_train" in failure.message
