"""Ten real runs of the bundled model with one injected fault each, judged against labels written down beforehand.

Slow: each run takes 15 to 60 s. With `-s` each run says what was told and when.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_helpers import until

from trainer.envs.calculator import Calculator
from trainer.runs import supervise
from trainer.runs.detectors.feed import alerts_of
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.launch import LocalLauncher, start_run, wait
from trainer.runs.replay import Judgement, against_labels
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace
from trainer.settings import resolve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
LABELS: dict[str, Any] = json.loads((HERE / "labels" / "faults.json").read_text())["runs"]

SMALL: dict[str, Any] = {
    "model": "tiny",
    "device": "cpu",
    "threads": 1,
    "problems": 64,
    "batch_size": 4,
    "num_generations": 4,
    "max_steps": 25,
    "validate_every": 0,
    "skip_eval_before": True,
    "test_problems": 8,
    "validation_problems": 8,
    "keep_episodes": False,
    "seed": 1,
}

STALL_S = 15.0
"""Silence that counts as a stall in the test: two minutes, as in the policy, would be a long test."""

RUN_S = 400.0
"""A run that takes longer fails the test; on two free cores none takes a minute."""


def begin(workspace: Workspace, folder: Path, command: tuple[str, ...] = (), **values: Any) -> RunDirectory:
    shutil.copy(HERE / "faulty.py", folder / "faulty.py")
    resolved = resolve(overrides={**SMALL, "folder": str(folder), **values}, folder=folder)
    return start_run(workspace, resolved, launcher=LocalLauncher(command))


def finished(workspace: Workspace, directory: RunDirectory) -> None:
    assert wait(workspace, directory, timeout_s=RUN_S).state.is_final, directory.log_tail()


def judge(name: str, directory: RunDirectory) -> Judgement:
    alerts = alerts_of(directory)
    document = directory.read_document()
    print(f"\n{name}: {document.state} after step {document.step}, {document.seconds or 0:.0f} s")
    for one in alerts:
        print(f"  step {one.step:3} {one.severity:8} {one.name}: {one.say}")
    return against_labels(alerts, LABELS[name]["must"], LABELS[name]["may"])


def check(name: str, directory: RunDirectory) -> None:
    judgement = judge(name, directory)
    assert judgement.missed == ()
    assert [f"{one.name} at {one.step}: {one.say}" for one in judgement.false] == []


def shuffled_tasks(folder: Path) -> str:
    """A file of tasks whose answers belong to other problems."""
    rows = Calculator.tasks("train", 120, seed=1)
    answers = [row["answer"] for row in rows]
    lines = [json.dumps(row | {"answer": answers[(at + 37) % len(rows)]}) for at, row in enumerate(rows)]
    (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder / "tasks.jsonl")


SETTINGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "rate_x30": lambda folder: {"learning_rate": 6e-3, "max_steps": 35},
    "cap_16": lambda folder: {"max_completion_tokens": 16, "max_steps": 12},
    "constant_reward": lambda folder: {"reward": "python:faulty:constant", "max_steps": 15},
    "tools_raise": lambda folder: {"env": "python:faulty:RaisingCalculator", "max_steps": 12},
    "reward_nan": lambda folder: {"reward": "python:faulty:sometimes_nan", "max_steps": 12},
    "temperature_0.1": lambda folder: {"temperature": 0.1},
    "shuffled_answers": lambda folder: {"data": shuffled_tasks(folder)},
}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_fault_of_the_configuration_or_of_own_code(name: str, workspace: Workspace, tmp_path: Path) -> None:
    directory = begin(workspace, tmp_path, **SETTINGS[name](tmp_path))
    finished(workspace, directory)
    check(name, directory)


def test_a_mask_that_is_off(workspace: Workspace, tmp_path: Path) -> None:
    command = (sys.executable, "-P", str(HERE / "unmasked_worker.py"))
    directory = begin(workspace, tmp_path, command)
    finished(workspace, directory)
    check("mask_off", directory)


def test_a_tool_that_does_not_return(workspace: Workspace, tmp_path: Path) -> None:
    directory = begin(workspace, tmp_path, env="python:faulty:StallingCalculator", tool_timeout_s=3600)
    MonitorPolicy.shipped().with_values(stall={"seconds": STALL_S, "factor": 1}).save(directory.path)
    until(lambda: directory.read_document().step >= 1, timeout_s=RUN_S)
    until(lambda: any(one.step >= 1 for one in alerts_of(directory)), timeout_s=RUN_S)
    check("stalled_tool", directory)
    assert supervise.stop_run(directory, stop_grace_s=0.0, term_grace_s=2.0).state is RunState.STOPPED


def test_a_worker_that_is_killed(workspace: Workspace, tmp_path: Path) -> None:
    directory = begin(workspace, tmp_path)
    until(lambda: directory.read_document().step >= 3, timeout_s=RUN_S)
    pid = directory.read_document().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    finished(workspace, directory)
    check("killed_worker", directory)


def test_every_label_has_its_run() -> None:
    assert set(LABELS) == {*SETTINGS, "mask_off", "stalled_tool", "killed_worker"}
