"""A worker that stands still is shown as stalled, is not killed for it, and goes on when it may."""

import os
import signal
from pathlib import Path

from fault_helpers import MakeScripted, check_readable, settled, until

from mcp_server.findings.watching import look
from mcp_server.state import ServerState
from trainer.runs import processes, supervise
from trainer.runs.detectors.feed import RunWatch
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.launch import LocalLauncher
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

STALL_S = 1.0
"""Silence that counts as a stall here; two minutes in the shipped policy."""


def test_stopped_for_longer_than_the_heartbeat(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run(steps=30, pause_s=0.05)
    MonitorPolicy.shipped().with_values(stall={"seconds": STALL_S, "factor": 1}).save(directory.path)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    identity = supervise.identity_of(directory.read_document())
    assert identity is not None
    watch = RunWatch(directory)
    os.kill(identity.pid, signal.SIGSTOP)
    try:
        until(lambda: (watch.poll(), any(one.detector == "stall" for one in watch.standing))[1], timeout_s=30)
        for _ in range(5):  # whoever looks leaves it alone
            launcher.tick(workspace)
            assert supervise.reconcile(directory).state is RunState.RUNNING
        assert processes.is_alive(identity)
    finally:
        os.kill(identity.pid, signal.SIGCONT)
    until(lambda: (watch.poll(), not any(one.detector == "stall" for one in watch.standing))[1])
    document = settled(workspace, launcher, directory)
    assert (document.state, document.step) == (RunState.FINISHED, 30)
    check_readable(directory)


def test_what_the_server_says_of_it(workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted) -> None:
    from mcp_server.tools.monitoring import _monitor_answer, _monitor_text

    directory = make_run(steps=1000, pause_s=0.05)
    MonitorPolicy.shipped().with_values(stall={"seconds": STALL_S, "factor": 1}).save(directory.path)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    identity = supervise.identity_of(directory.read_document())
    assert identity is not None
    state = ServerState(Path(workspace.root))
    before = look(state, directory.run_id)
    os.kill(identity.pid, signal.SIGSTOP)
    try:
        until(lambda: look(state, directory.run_id).alerts)
        seen = look(state, directory.run_id)
        # also for a client that has seen every step: the stall comes at no new step
        text, data = _monitor_text(seen, seen.last_step), _monitor_answer(seen, seen.last_step)
        assert "no sign of life for" in text
        assert data.silent_s is not None
        assert data.silent_s >= STALL_S
        assert [one.kind for one in data.alerts] == ["stall"]
        assert data.next.tool in ("monitor_run", "stop_run")
        assert _monitor_answer(before, 0).silent_s is None
        # a stopped process cannot answer SIGTERM: stopping it ends with SIGKILL
        document = supervise.stop_run(directory, stop_grace_s=0.1, term_grace_s=0.5)
        assert (document.state, document.stop_reason) == (RunState.STOPPED, "user")
    finally:
        if processes.is_alive(identity):
            os.kill(identity.pid, signal.SIGKILL)
    check_readable(directory)
