"""What the tests of faults share: bystanders, waiting, and what must hold of every run directory after any fault."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

from trainer.runs import supervise
from trainer.runs.detectors.feed import alerts_of
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import find_run, list_runs
from trainer.runs.report import build_report, report_lines, run_json
from trainer.runs.resume import resume_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace

SCRIPTED_WORKER = (sys.executable, "-P", str(Path(__file__).with_name("scripted_worker.py")))

MakeScripted = Callable[..., RunDirectory]

_SLEEP = "import time; time.sleep(600)"
_SLEEP_DETACHED = (
    "import subprocess, sys; print(subprocess.Popen([sys.executable, '-P', '-c', 'import time; time.sleep(600)'], "
    "stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True).pid)"
)


class Bystanders:
    """Two processes that nobody may touch."""

    def __enter__(self) -> Self:
        self.child = subprocess.Popen([sys.executable, "-P", "-c", _SLEEP])
        made = subprocess.run([sys.executable, "-P", "-c", _SLEEP_DETACHED], capture_output=True, text=True, check=True)
        self.stranger = psutil.Process(int(made.stdout))
        return self

    def check(self) -> None:
        assert self.child.poll() is None
        assert self.stranger.is_running()
        assert self.stranger.status() != psutil.STATUS_ZOMBIE

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        if self.stranger.is_running():
            self.stranger.kill()


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Waits until a condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def settled(
    workspace: Workspace, launcher: LocalLauncher, directory: RunDirectory, timeout_s: float = 60
) -> RunDocument:
    """The run's document once it has its final state."""
    deadline = time.monotonic() + timeout_s
    while True:
        launcher.tick(workspace)
        document = supervise.reconcile(directory)
        if document.state.is_final:
            return document
        assert time.monotonic() < deadline, (document.state, document.step, directory.log_tail())
        time.sleep(0.05)


def kill_now(directory: RunDirectory) -> bool:
    """SIGKILL to the worker of a run; False where it has none any more."""
    identity = supervise.identity_of(directory.read_document())
    if identity is None:
        return False
    try:
        os.kill(identity.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def check_readable(directory: RunDirectory) -> None:
    """Everything that anybody reads of a run can be read."""
    document = directory.read_document()
    config = directory.read_config()
    assert config.planned_steps == document.planned_steps
    steps = [row["step"] for row in directory.metrics()]
    assert steps == sorted(set(steps))
    for event in directory.events():
        assert isinstance(event, dict)
    for step in directory.episode_steps():
        assert isinstance(directory.episodes(step), list)
    directory.read_failure()
    assert isinstance(directory.log_tail(), list)
    alerts_of(directory)
    assert report_lines(build_report(directory))
    json.dumps(run_json(directory), allow_nan=False)


def check_workspace(workspace: Workspace) -> None:
    """No run of the workspace is unreadable, and none is without its state."""
    for run in list_runs(workspace):
        assert run.document.failure is None or run.document.failure.kind != "unreadable"
        assert find_run(workspace, run.directory.run_id).document.run_id == run.document.run_id
        check_readable(run.directory)


def go_on(workspace: Workspace, launcher: LocalLauncher, directory: RunDirectory, **script: Any) -> RunDirectory:
    """Resumes a run to its end, with the script of the old one (and what is changed in it)."""
    resumed = resume_run(workspace, find_run(workspace, directory.run_id)).directory
    old = json.loads((directory.path / "script.json").read_text())
    (resumed.path / "script.json").write_text(json.dumps({**old, **script}))
    assert settled(workspace, launcher, resumed).state is RunState.FINISHED, resumed.log_tail()
    check_readable(resumed)
    return resumed


def outcome(directory: RunDirectory) -> tuple[bytes, list[Any], dict[str, bytes]]:
    """What a run has learnt and written, without clocks."""
    weights = (directory.model_folder / "weights").read_bytes()
    numbers = [(row["step"], row["reward_mean"]) for row in directory.metrics()]
    episodes = {path.name: path.read_bytes() for path in sorted(directory.episodes_folder.iterdir())}
    return weights, numbers, episodes
