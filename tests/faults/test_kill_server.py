"""kill -9 of the server at any moment: every run that it had answered for is there, and comes to its end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fault_helpers import SCRIPTED_WORKER, MakeScripted, check_workspace, settled, until

from trainer.runs import supervise
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

SERVE = (sys.executable, "-P", "-m", "mcp_server.cli.main", "serve", "--workspace")
REQUEST = "train the tiny calculator agent on 8 problems, 6 steps, 4 problems per step"


class Server:
    """A stdio server, spoken to by hand."""

    def __init__(self, root: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            [*SERVE, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "MCP_EVO_WORKER": json.dumps(SCRIPTED_WORKER)},
        )
        self.sent = 0
        client = {"name": "raw", "version": "1"}
        self.send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.answers(1)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any]) -> None:
        self.sent += 1
        self._write({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params})

    def start(self, **arguments: Any) -> None:
        self.send("tools/call", {"name": "start_training", "arguments": {"request": REQUEST, **arguments}})

    def answers(self, count: int | None = None) -> list[dict[str, Any]]:
        """So many answers; None: all that came before the server was gone."""
        assert self.process.stdout is not None
        found: list[dict[str, Any]] = []
        while count is None or len(found) < count:
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                break
            message = json.loads(line)
            if "id" in message and "result" in message:
                found.append(message["result"])
        return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=20)


def test_killed_at_random_moments(workspace: Workspace) -> None:
    workspace.config_path.write_text("max_concurrent_runs: 6\nkeep_free_mb: 1\n")
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    promised: set[str] = set()
    for number in range(4):
        server = Server(workspace.root)
        for index in range(3):
            server.start(key=f"{number}-{index}")
        time.sleep(moments.uniform(0.0, 2.5))
        server.kill()
        for result in server.answers():
            assert not result.get("isError"), (seed, result)
            promised.add(result["structuredContent"]["run_id"])
        check_workspace(workspace)
    last = Server(workspace.root)
    try:
        for number in range(4):  # a client repeats what it got no answer to: no run is started twice
            for index in range(3):
                last.start(key=f"{number}-{index}")
        for result in last.answers(12):
            promised.add(result["structuredContent"]["run_id"])
        assert len(promised) == 12, seed
        until(lambda: all(run.document.state.is_final for run in list_runs(workspace)), timeout_s=120)
    finally:
        last.close()
    runs = list_runs(workspace)
    assert {run.directory.run_id for run in runs} == promised, seed
    ends = {run.directory.run_id: (str(run.document.state), run.document.failure) for run in runs}
    assert {state for state, _ in ends.values()} == {RunState.FINISHED}, (seed, ends)
    check_workspace(workspace)


def left_by_a_dead_starter(directory: RunDirectory) -> None:
    """As a server leaves a run that is killed between `starting` and knowing the process."""
    supervise.mark_starting(directory)
    since = (directory.read_document().model_extra or {})["starting_since"] - supervise.ORPHAN_GRACE_S
    directory.set_fields(starting_since=since, launcher_started_at=1.0, launcher_mark=None)


def test_a_run_whose_starter_died_before_its_worker_was_up_is_started_again(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run("again", steps=2)
    left_by_a_dead_starter(directory)
    report = launcher.tick(workspace)
    assert report.started == ["again"]
    assert settled(workspace, launcher, directory).state is RunState.FINISHED


def test_one_whose_worker_is_up_is_found_and_not_started_twice(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run("up", steps=100, pause_s=0.02)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    identity = supervise.identity_of(directory.read_document())
    left_by_a_dead_starter(directory)
    directory.set_fields(pid=None, process_started_at=None, process_mark=None)
    assert launcher.tick(workspace).started == []
    found = supervise.identity_of(directory.read_document())
    assert found is not None
    assert identity is not None
    assert found.is_same(identity)
    assert settled(workspace, launcher, directory).state is RunState.FINISHED


def test_a_run_that_takes_its_starters_with_it_is_given_up(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run("deadly")
    for _ in range(supervise.MAX_STARTS):
        left_by_a_dead_starter(directory)
    document = settled(workspace, launcher, directory)
    assert document.failure is not None
    assert (document.state, document.failure.kind) == (RunState.FAILED, "launch")
    assert directory.log_tail() == []


def test_a_starter_that_lives_and_gave_up_without_a_word_does_not_block_the_queue(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    """A defect in starting, which is raised, leaves the run `starting`; this process is its starter and lives on."""
    directory = make_run("defect", steps=2)

    def defective(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        supervise.tick(workspace, defective)  # type: ignore[arg-type]
    assert directory.read_document().state is RunState.STARTING
    assert launcher.tick(workspace).started == []
    since = (directory.read_document().model_extra or {})["starting_since"] - supervise.STARTING_GRACE_S
    directory.set_fields(starting_since=since)
    assert supervise.reconcile(directory).state is RunState.STARTING
    assert launcher.tick(workspace).started == ["defect"]
    assert settled(workspace, launcher, directory).state is RunState.FINISHED
