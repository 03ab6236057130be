"""A workspace, and runs whose worker is the real process with a scripted session: no torch, so dozens fit in a test."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_helpers import SCRIPTED_WORKER, Bystanders, MakeScripted

from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import Workspace, create_workspace
from trainer.settings import resolve


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    found = create_workspace(tmp_path / "workspace")
    found.config_path.write_text("keep_free_mb: 1\n")
    return found


@pytest.fixture
def launcher() -> LocalLauncher:
    return LocalLauncher(SCRIPTED_WORKER)


@pytest.fixture
def make_run(workspace: Workspace) -> MakeScripted:
    """make_run(run_id, steps=…, …): a queued run with a script for the worker (see scripted_worker.py)."""

    def make(run_id: str | None = None, root: Workspace | None = None, **script: Any) -> RunDirectory:
        config = resolve(overrides={"max_steps": script.get("steps", 6), "validate_every": 0}).config
        directory = create_run(root or workspace, config, run_id=run_id)
        (directory.path / "script.json").write_text(json.dumps(script))
        return directory

    return make


@pytest.fixture(autouse=True)
def bystanders() -> Iterator[Bystanders]:
    """Processes of others, one a child of ours and one not: whatever a test does, they live on."""
    with Bystanders() as found:
        yield found
        found.check()
