"""The real worker, killed and resumed: bit for bit the run that nobody disturbed. Minutes of training, so slow."""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_helpers import check_readable, kill_now, settled, until

from trainer.config import TrainingConfig
from trainer.runs import supervise
from trainer.runs.checkpoints import complete_checkpoints
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import create_run, find_run
from trainer.runs.resume import resume_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace, create_workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS: dict[str, Any] = {
    "problems": 16,
    "batch_size": 2,
    "num_generations": 4,
    "max_steps": 6,
    "test_problems": 8,
    "validation_problems": 8,
    "validate_every": 2,
    "save_every": 1,
    "threads": 1,
}

RUN_S = 300.0


def new(workspace: Workspace, run_id: str, **more: Any) -> RunDirectory:
    return create_run(workspace, TrainingConfig.model_validate(SETTINGS | more), run_id=run_id)


def learnt(directory: RunDirectory) -> tuple[bytes, list[dict[str, Any]], dict[str, bytes]]:
    numbers = [{k: v for k, v in row.items() if k not in ("time_s", "seconds")} for row in directory.metrics()]
    episodes = {file.name: file.read_bytes() for file in sorted(directory.episodes_folder.iterdir())}
    return (directory.model_folder / "model.safetensors").read_bytes(), numbers, episodes


def came_to(directory: RunDirectory, point: Callable[[RunDirectory], bool]) -> None:
    """Waits until the run has come to a point, or to its end."""
    until(lambda: point(directory) or directory.read_document().state.is_final, RUN_S)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    workspace = create_workspace(tmp_path_factory.mktemp("whole") / "ws")
    directory = new(workspace, "whole")
    assert settled(workspace, LocalLauncher(), directory, RUN_S).state is RunState.FINISHED, directory.log_tail()
    return learnt(directory)


@pytest.mark.parametrize("number", range(3))
def test_killed_at_a_random_moment_again_and_again(workspace: Workspace, whole: Any, number: int) -> None:
    launcher = LocalLauncher()
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    directory = new(workspace, f"k{number}")
    for life in range(3):
        launcher.tick(workspace)
        came_to(directory, lambda one: bool(complete_checkpoints(one.path / "checkpoints")))
        goal = directory.read_document().step + moments.randrange(3)
        came_to(directory, lambda one, goal=goal: one.read_document().step >= goal)
        kill_now(directory)
        document = settled(workspace, launcher, directory, RUN_S)
        check_readable(directory)
        if document.state is RunState.FINISHED:
            break
        assert document.failure is not None
        assert document.failure.kind == "killed", seed
        assert document.failure.log_tail
        directory = resume_run(workspace, find_run(workspace, directory.run_id), run_id=f"k{number}-{life}").directory
    assert settled(workspace, launcher, directory, RUN_S).state is RunState.FINISHED, seed
    assert learnt(directory) == whole, seed


def test_disk_full_with_real_checkpoints(workspace: Workspace, whole: Any, tmp_path: Path) -> None:
    """A limit on file sizes below that of the weights: torch and safetensors say it without an errno."""
    limited = tmp_path / "limited.py"
    limited.write_text(
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))\n"
        "from trainer.worker import main\nsys.exit(main())\n"
    )
    directory = new(workspace, "limited")
    document = settled(workspace, LocalLauncher((sys.executable, "-P", str(limited))), directory, RUN_S)
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "disk_full", json.dumps(document.failure.model_dump(), indent=1)
    check_readable(directory)
    resumed = resume_run(workspace, find_run(workspace, "limited")).directory
    assert settled(workspace, LocalLauncher(), resumed, RUN_S).state is RunState.FINISHED
    assert learnt(resumed) == whole


def test_stopped_by_a_signal_and_low_on_disk(workspace: Workspace, whole: Any) -> None:
    launcher = LocalLauncher()
    workspace.config_path.write_text("keep_free_mb: 1\n")
    directory = new(workspace, "low")
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1, RUN_S)
    identity = supervise.identity_of(directory.read_document())
    assert identity is not None
    signalled = new(workspace, "signalled")
    workspace.config_path.write_text("keep_free_mb: 1000000000\n")
    os.kill(identity.pid, signal.SIGTERM)
    assert settled(workspace, launcher, directory, RUN_S).state is RunState.STOPPED
    document = settled(workspace, launcher, signalled, RUN_S)
    assert document.failure is not None
    assert document.failure.kind == "disk_full"
    workspace.config_path.write_text("keep_free_mb: 1\n")
    resumed = resume_run(workspace, find_run(workspace, "low")).directory
    assert settled(workspace, launcher, resumed, RUN_S).state is RunState.FINISHED
    assert learnt(resumed) == whole
