"""Fixtures of the run layer: a workspace, and a launcher whose worker learns nothing but speaks the protocol."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_helpers import FAKE_WORKER, MakeRun

from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import Workspace, create_workspace
from trainer.settings import resolve


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "workspace")


@pytest.fixture
def launcher() -> LocalLauncher:
    return LocalLauncher(FAKE_WORKER)


@pytest.fixture
def make_run(workspace: Workspace) -> MakeRun:
    """make_run(fault=…, steps=…, run_id=…, fields={…}): a queued run with a script for the fake worker."""

    def make(run_id: str | None = None, fields: dict[str, Any] | None = None, **script: Any) -> RunDirectory:
        config = resolve(overrides={"max_steps": script.get("steps", 3)}).config
        directory = create_run(workspace, config, run_id=run_id, **(fields or {}))
        (directory.path / "fake.json").write_text(json.dumps(script))
        return directory

    return make
