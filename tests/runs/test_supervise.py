"""Every end of a run: what the operating system says becomes the right state, once, whoever looks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_helpers import FAKE_WORKER, MakeRun, until

from trainer.runs import processes, supervise
from trainer.runs.launch import LocalLauncher, follow, wait
from trainer.runs.processes import ProcessIdentity
from trainer.runs.registry import find_run, list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunDocument, RunState, Verdict
from trainer.runs.workspace import Workspace


def finish(workspace: Workspace, launcher: LocalLauncher, directory: RunDirectory) -> RunDocument:
    launcher.tick(workspace)
    document = wait(workspace, directory, launcher=launcher, timeout_s=30)
    assert document.state.is_final
    return document


def test_a_run_that_ends_by_itself(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    document = finish(workspace, launcher, make_run(steps=4))
    assert (document.state, document.verdict, document.step) == (RunState.FINISHED, Verdict.GOAL_REACHED, 4)
    assert document.failure is None
    assert document.eval["after"].mean > document.eval["before"].mean
    assert document.seconds is not None


@pytest.mark.parametrize(
    ("script", "kind", "exit_code"),
    [
        ({"fault": "raise"}, "ValueError", 1),
        ({"fault": "kill"}, "killed", -signal.SIGKILL),
        ({"fault": "segv"}, "crashed", -signal.SIGSEGV),
        ({"fault": "exit", "status": 7}, "exit", 7),
        ({"fault": "leave"}, "incomplete", 0),
    ],
)
def test_a_worker_that_dies_becomes_failed_with_class_and_log(
    workspace: Workspace,
    launcher: LocalLauncher,
    make_run: MakeRun,
    script: dict[str, object],
    kind: str,
    exit_code: int,
) -> None:
    document = finish(workspace, launcher, make_run(**script))
    assert document.state is RunState.FAILED
    assert document.verdict is None
    assert document.failure is not None
    assert (document.failure.kind, document.failure.exit_code) == (kind, exit_code)
    assert any("fake worker" in line for line in document.failure.log_tail)


def test_kill_9_from_outside(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    directory = make_run(steps=1000, pause_s=0.05)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    pid = directory.read_document().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    document = wait(workspace, directory, launcher=launcher, timeout_s=20)
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "killed"
    assert document.failure.log_tail


def test_a_kill_by_the_kernel_for_memory_is_told_by_its_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "oom_kills", lambda: 5)
    assert supervise.classify_exit(-9, oom_before=5).kind == "killed"
    assert supervise.classify_exit(-9, oom_before=4).kind == "oom"
    assert supervise.classify_exit(-9, oom_before=None).kind == "killed"
    assert supervise.classify_exit(None).kind == "killed"
    assert supervise.classify_exit(-signal.SIGABRT).kind == "crashed"


def test_the_workers_own_word_wins_over_its_exit_status(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    directory = make_run(fault="kill")
    directory.write_failure(Failure(kind="nonfinite", message="two updates in a row"))
    document = finish(workspace, launcher, directory)
    assert document.failure is not None
    assert document.failure.kind == "nonfinite"


def test_slots_and_queue_keep_their_order(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    workspace.config_path.write_text("max_concurrent_runs: 2\n")
    directories = [make_run(f"r{i}", steps=3, pause_s=0.05) for i in range(5)]
    report = launcher.tick(workspace)
    assert report.started == ["r0", "r1"]
    assert report.queued == ["r2", "r3", "r4"]
    most = 0
    deadline = time.monotonic() + 60
    while any(not directory.read_document().state.is_final for directory in directories):
        launcher.tick(workspace)
        states = [run.document.state for run in list_runs(workspace)]
        most = max(most, sum(state in (RunState.STARTING, RunState.RUNNING) for state in states))
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert most == 2
    started = [directory.read_document().started_at for directory in directories]
    assert started == sorted(started, key=lambda value: value or 0)


def test_many_supervisors_at_once_start_a_run_once(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    workspace.config_path.write_text("max_concurrent_runs: 3\n")
    directories = [make_run(f"r{i}", steps=2) for i in range(6)]
    reports: list[str] = []
    lock = threading.Lock()

    def supervisor() -> None:
        deadline = time.monotonic() + 40
        while any(not d.read_document().state.is_final for d in directories) and time.monotonic() < deadline:
            report = launcher.tick(workspace, lock_timeout_s=1.0)
            with lock:
                reports.extend(report.started)

    threads = [threading.Thread(target=supervisor) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reports) == [f"r{i}" for i in range(6)]
    for directory in directories:
        assert directory.read_document().state is RunState.FINISHED
        assert directory.log_path.read_text().count("fake worker") == 1


def test_a_queued_run_can_be_stopped(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    first, second = make_run("first", steps=200, pause_s=0.05), make_run("second")
    launcher.tick(workspace)
    document = supervise.stop_run(second)
    assert (document.state, document.stop_reason) == (RunState.STOPPED, "user")
    supervise.stop_run(first)
    assert first.read_document().state is RunState.STOPPED


def test_stopping_goes_by_file_then_by_force(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    workspace.config_path.write_text("max_concurrent_runs: 2\n")
    polite, deaf = (
        make_run("polite", steps=1000, pause_s=0.05),
        make_run("deaf", steps=1000, pause_s=0.05, fault="ignore_stop"),
    )
    launcher.tick(workspace)
    until(lambda: polite.read_document().step > 0 and deaf.read_document().step > 0)
    document = supervise.stop_run(polite, reason="anomaly")
    assert (document.state, document.stop_reason, document.failure) == (RunState.STOPPED, "anomaly", None)
    document = supervise.stop_run(deaf, stop_grace_s=0.3, term_grace_s=2.0)
    assert (document.state, document.stop_reason) == (RunState.STOPPED, "user")
    assert supervise.stop_run(deaf) == document


def test_a_pid_that_was_recycled_is_not_taken_for_the_run(workspace: Workspace, make_run: MakeRun) -> None:
    directory = make_run()
    other = subprocess.Popen([sys.executable, "-P", "-c", "import time; time.sleep(60)"])
    try:
        identity = processes.identify(other.pid)
        assert identity is not None
        directory.set_fields(state=RunState.RUNNING, pid=other.pid, process_started_at=identity.started_at - 100)
        document = supervise.stop_run(directory, stop_grace_s=0, term_grace_s=0)
        assert document.state.is_final
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_run_from_before_a_restart_of_the_machine_is_lost(monkeypatch: pytest.MonkeyPatch, make_run: MakeRun) -> None:
    directory = make_run()
    directory.set_fields(state=RunState.RUNNING, pid=2**22 - 7, process_started_at=1_000_000.0)
    document = supervise.reconcile(directory)
    assert document.state is RunState.LOST
    assert document.failure is not None
    assert document.failure.kind == "restart"


def test_a_run_whose_starter_vanished_is_lost_after_a_while(make_run: MakeRun) -> None:
    directory = make_run()
    directory.set_fields(state=RunState.STARTING, started_at=time.time())
    assert supervise.reconcile(directory).state is RunState.STARTING
    directory.set_fields(started_at=time.time() - supervise.STARTING_GRACE_S - 1)
    assert supervise.reconcile(directory).state is RunState.LOST


def dead_process() -> ProcessIdentity:
    child = subprocess.Popen([sys.executable, "-P", "-c", ""])
    identity = processes.identify(child.pid)
    child.wait()
    assert identity is not None
    return identity


def test_a_worker_that_vanished_without_a_word_is_left_to_its_living_parent_first(make_run: MakeRun) -> None:
    directory = make_run()
    gone = dead_process()
    parent = processes.identify(os.getppid())
    assert parent is not None
    directory.set_fields(
        state=RunState.RUNNING,
        pid=gone.pid,
        process_started_at=gone.started_at,
        launcher_pid=parent.pid,
        launcher_started_at=parent.started_at,
    )
    directory.beat()
    assert supervise.reconcile(directory).state is RunState.RUNNING
    directory.set_fields(launcher_started_at=parent.started_at - 50)  # that parent is gone, its pid is someone else's
    document = supervise.reconcile(directory)
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "killed"


def test_a_run_held_by_a_pool_is_not_started_twice(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    held = make_run("held", supervise.held_by_this_process())
    assert launcher.tick(workspace).started == []
    assert held.read_document().state is RunState.QUEUED
    held.set_fields(launcher_started_at=1.0, launcher_mark=None)  # the pool's process is gone
    assert launcher.tick(workspace).settled == ["held"]
    assert held.read_document().state is RunState.LOST


def test_a_run_that_cannot_be_started_does_not_block_the_queue(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    broken = make_run("a-broken")
    broken.config_path.write_text("{")
    whole = make_run("b-whole")
    LocalLauncher(("/no/such/worker",)).tick(workspace)
    first = broken.read_document()
    assert first.state is RunState.FAILED
    assert first.failure is not None
    assert first.failure.kind == "launch"
    assert whole.read_document().state is RunState.FAILED
    third = make_run("c-third")
    assert finish(workspace, launcher, third).state is RunState.FINISHED


def test_no_room_on_the_disk(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    workspace.config_path.write_text("keep_free_mb: 1000000000\n")
    directory = make_run()
    launcher.tick(workspace)
    document = directory.read_document()
    assert document.failure is not None
    assert document.failure.kind == "disk_full"
    assert "1000000000 MB" in document.failure.message


LAUNCH_AND_DIE = """
import os, sys
from pathlib import Path
from trainer.runs.launch import LocalLauncher
from trainer.runs.workspace import Workspace
report = LocalLauncher(tuple(sys.argv[2:])).tick(Workspace(Path(sys.argv[1])))
print(report.started, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_run_survives_its_launcher_and_is_adopted(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    directory = make_run("orphan", steps=40, pause_s=0.05)
    done = subprocess.run(
        [sys.executable, "-P", "-c", LAUNCH_AND_DIE, str(workspace.root), *FAKE_WORKER], capture_output=True, text=True
    )
    assert done.returncode == -9
    assert "orphan" in done.stdout
    assert supervise.reconcile(directory).state in (RunState.STARTING, RunState.RUNNING)
    assert launcher.tick(workspace).started == []
    assert wait(workspace, directory, launcher=launcher, timeout_s=30).state is RunState.FINISHED


def test_an_orphan_that_is_killed_ends_as_failed(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    directory = make_run("orphan", steps=1000, pause_s=0.05)
    subprocess.run([sys.executable, "-P", "-c", LAUNCH_AND_DIE, str(workspace.root), *FAKE_WORKER], capture_output=True)
    until(lambda: directory.read_document().step > 0)
    pid = find_run(workspace).document.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    document = wait(workspace, directory, launcher=launcher, timeout_s=20)
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "killed"
    assert document.failure.log_tail


def test_following_shows_every_step_and_event_once(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun
) -> None:
    directory = make_run(steps=6)
    steps: list[int] = []
    kinds: list[str] = []
    for update in follow(workspace, directory, launcher=launcher, poll_s=0.02):
        steps += [row["step"] for row in update.metrics]
        kinds += [event["kind"] for event in update.events]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert kinds == ["started", "eval", "eval", "finished"]


def test_a_worker_runs_in_its_run_directory_with_p_and_without_our_secrets(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    directory = make_run()
    (directory.path / "trainer.py").write_text("raise SystemExit('the wrong trainer')")
    document = finish(workspace, launcher, directory)
    assert document.state is RunState.FINISHED
    seen = json.loads((directory.path / "seen.json").read_text())
    assert seen["cwd"] == str(directory.path)
    assert not {"MY_PASSWORD", "HF_TOKEN", "PYTHONPATH"} & set(seen["environment"])
    assert "" not in seen["path"]
    assert str(directory.path) not in seen["path"]
