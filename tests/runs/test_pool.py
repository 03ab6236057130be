"""Warm workers: order, reuse, death of a worker, cancelling, closing."""

import os
import signal
import sys
import time

import pytest
from run_helpers import FAKE_WORKER, MakeRun, until

from trainer.runs import processes, supervise
from trainer.runs.errors import RunError
from trainer.runs.pool import WorkerPool
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace


def held(make_run: MakeRun, **script: object):  # type: ignore[no-untyped-def]
    return make_run(fields=supervise.held_by_this_process(), **script)


def test_workers_are_reused_and_every_run_ends(workspace: Workspace, make_run: MakeRun) -> None:
    with WorkerPool(2, 1, folder=workspace.root, command=FAKE_WORKER) as pool:
        handles = [pool.submit(held(make_run, steps=2).path) for _ in range(6)]
        documents = [handle.wait(30) for handle in handles]
    assert [document.state for document in documents if document] == [RunState.FINISHED] * 6
    pids = {document.pid for document in documents if document}
    assert len(pids) <= 2
    assert pool.start_failures == []
    for handle in handles:
        assert handle.directory.log_path.read_text().count("fake worker") == 1
    assert not list(workspace.root.glob("pool-*"))


def test_ready_means_that_every_worker_is_up(workspace: Workspace) -> None:
    with WorkerPool(2, folder=workspace.root, command=FAKE_WORKER) as pool:
        assert pool.wait_until_ready(30)
    broken = (sys.executable, "-P", "-c", "import sys; sys.exit(1)")
    with WorkerPool(2, folder=workspace.root, command=broken) as pool:
        assert not pool.wait_until_ready(30)
    slow = (sys.executable, "-P", "-c", "import time; time.sleep(2)")
    with WorkerPool(1, folder=workspace.root, command=slow) as pool:
        assert not pool.wait_until_ready(0.05)


def test_a_warm_run_begins_in_under_a_second(workspace: Workspace, make_run: MakeRun) -> None:
    with WorkerPool(1, folder=workspace.root, command=FAKE_WORKER) as pool:
        pool.submit(held(make_run, steps=1).path).wait(30)
        directory = held(make_run, steps=1)
        began = time.time()
        document = pool.submit(directory.path).wait(30)
    assert document is not None
    assert document.started_at is not None
    assert document.started_at - began < 1.0


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ({"fault": "raise"}, "ValueError"),
        ({"fault": "kill"}, "killed"),
        ({"fault": "exit", "status": 3}, "exit"),
        ({"fault": "leave"}, "incomplete"),
    ],
)
def test_a_fault_takes_only_its_own_run_with_it(
    workspace: Workspace, make_run: MakeRun, script: dict[str, object], kind: str
) -> None:
    with WorkerPool(1, folder=workspace.root, command=FAKE_WORKER) as pool:
        bad, good = pool.submit(held(make_run, **script).path), pool.submit(held(make_run).path)
        failed, finished = bad.wait(30), good.wait(30)
    assert failed is not None
    assert failed.state is RunState.FAILED
    assert failed.failure is not None
    assert failed.failure.kind == kind
    assert any("fake worker" in line for line in failed.failure.log_tail)
    assert finished is not None
    assert finished.state is RunState.FINISHED


def test_an_idle_worker_that_died_is_replaced(workspace: Workspace, make_run: MakeRun) -> None:
    with WorkerPool(1, folder=workspace.root, command=FAKE_WORKER) as pool:
        first = pool.submit(held(make_run).path).wait(30)
        assert first is not None
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        second = pool.submit(held(make_run).path).wait(30)
    assert second is not None
    assert second.state is RunState.FINISHED
    assert second.pid != first.pid


def test_waiting_and_running_runs_can_be_cancelled(workspace: Workspace, make_run: MakeRun) -> None:
    with WorkerPool(1, folder=workspace.root, command=FAKE_WORKER) as pool:
        running = pool.submit(held(make_run, steps=1000, pause_s=0.05).path)
        waiting = pool.submit(held(make_run).path)
        until(lambda: running.directory.read_document().step > 0)
        assert running.wait(0.01) is None
        waiting.cancel()
        running.cancel("anomaly")
        documents = [running.wait(30), waiting.wait(30)]
    assert [(document.state, document.stop_reason) for document in documents if document] == [
        (RunState.STOPPED, "anomaly"),
        (RunState.STOPPED, "user"),
    ]


def test_closing_in_a_hurry_leaves_no_process_behind(workspace: Workspace, make_run: MakeRun) -> None:
    pool = WorkerPool(2, folder=workspace.root, command=FAKE_WORKER)
    deaf = pool.submit(held(make_run, steps=1000, pause_s=0.05, fault="ignore_stop").path)
    polite = pool.submit(held(make_run, steps=1000, pause_s=0.05).path)
    until(lambda: deaf.directory.read_document().step > 0 and polite.directory.read_document().step > 0)
    identities = [supervise.identity_of(handle.directory.read_document()) for handle in (deaf, polite)]
    pool.close(cancel=True, grace_s=1.0)
    for handle, identity in zip((deaf, polite), identities, strict=True):
        assert handle.done
        assert identity is not None
        assert not processes.is_alive(identity)
        assert handle.directory.read_document().state is RunState.STOPPED
    with pytest.raises(RunError, match="closed"):
        pool.submit(deaf.directory.path)
    pool.close()


def test_a_worker_that_does_not_come_up_fails_its_runs_with_the_reason(workspace: Workspace, make_run: MakeRun) -> None:
    broken = (sys.executable, "-P", "-c", "import sys; sys.exit('no such module: torch')")
    with WorkerPool(1, folder=workspace.root, command=broken) as pool:
        document = pool.submit(held(make_run).path).wait(30)
    assert document is not None
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "launch"
    assert "no such module: torch" in document.failure.message
    assert pool.start_failures
