"""Whole runs of the worker with classes that were written for TRL and for OpenEnv, and with gsm8k from a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import create_workspace
from trainer.settings import resolve

FOREIGN = Path(__file__).parent / "foreign"
SMALL = {"max_steps": 1, "batch_size": 2, "num_generations": 2, "validate_every": 0, "test_problems": 8, "problems": 4}
TRL = {
    "env": "python:trl_classes:WordGame",
    "folder": str(FOREIGN),
    "data": "games.jsonl",
    "reward": "python:trl_classes:reward_from_state",
}
OPENENV = {"env": "python:corridor_env:Doors", "folder": str(FOREIGN), "env_args": {"prompt": "Open all doors."}}
GSM8K = {"env": "gsm8k", "env_args": {"file": "g.jsonl"}}
ONE_AFTER_THE_OTHER = (
    "import sys; from pathlib import Path; from trainer.worker import train_directory\n"
    "sys.exit(max(train_directory(Path(path)) for path in sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """Three runs in one process: it imports once."""
    folder = tmp_path_factory.mktemp("project")
    games = [{"prompt": f"Game {i}.", "level": "hard" if i % 2 else "easy"} for i in range(40)]
    sums = [{"question": f"Tom has {i} and {i + 1}. Sum?", "answer": f"Add.\n#### {2 * i + 1}"} for i in range(80)]
    for name, rows in (("games", games), ("g", sums)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = create_workspace(folder / "workspace")
    made: dict[str, RunDirectory] = {}
    for name, own in (("trl", TRL), ("openenv", OPENENV), ("gsm8k", GSM8K)):
        values: dict[str, Any] = {**SMALL, "skip_eval_before": True, **own}
        made[name] = create_run(workspace, resolve(overrides=values, folder=folder).config, run_id=name)
    done = subprocess.run(
        [sys.executable, "-P", "-c", ONE_AFTER_THE_OTHER, *(str(run.path) for run in made.values())],
        env=os.environ | {"PYTHONPATH": str(FOREIGN / "openenv_stub"), "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return made


def test_trls_class_without_get_reward_and_trls_reward_function(runs: dict[str, RunDirectory]) -> None:
    episodes = runs["trl"].episodes(1)
    assert len(episodes) == 4
    assert all(e["valid"] and e["reward"] in (0.0, 0.25, 1.0) for e in episodes)
    assert all("Guess a word of 5 letters." in json.dumps(e["messages"]) for e in episodes)
    assert runs["trl"].read_document().eval["after"].n == 8


def test_openenvs_server_side_class_makes_its_own_problems(runs: dict[str, RunDirectory]) -> None:
    episodes = runs["openenv"].episodes(1)
    assert all(e["valid"] and e["prompt"] == "Open all doors." for e in episodes)
    assert len({e["row"]["seed"] for e in episodes}) == 2


def test_gsm8k_from_a_file_beside_the_project(runs: dict[str, RunDirectory]) -> None:
    episodes = runs["gsm8k"].episodes(1)
    assert all(e["valid"] for e in episodes)
    assert {e["row"]["answer"] for e in episodes} <= {str(2 * i + 1) for i in range(80)}
