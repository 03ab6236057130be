"""Clocks that are set while runs go on, and pids that belong to somebody else by now."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from fault_helpers import Bystanders, MakeScripted, check_readable, settled, until

from trainer.runs import processes, supervise
from trainer.runs.detectors.feed import HeartbeatClock
from trainer.runs.launch import LocalLauncher
from trainer.runs.processes import ProcessIdentity
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

JUMPS = (-10 * 365 * 86400.0, -3600.0, -2.0, 2.0, 3600.0, 10 * 365 * 86400.0)

needs_ticks = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="starts are counted in ticks on Linux")


class Clock:
    """The time of day of this process, which a test sets. As the kernel does it, the start times of processes and of
    the machine, which are times of day as well, move with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = 0.0
        real_time, real_created, real_boot = time.time, psutil.Process.create_time, psutil.boot_time
        monkeypatch.setattr(time, "time", lambda: real_time() + self.offset)
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: real_created(process) + self.offset)
        monkeypatch.setattr(psutil, "boot_time", lambda: real_boot() + self.offset)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@needs_ticks
@pytest.mark.parametrize("jump", JUMPS)
def test_a_running_run_is_still_known_after_the_clock_was_set(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, clock: Clock, jump: float
) -> None:
    directory = make_run(steps=1000, pause_s=0.02)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    clock.offset = jump
    launcher.tick(workspace)
    document = supervise.reconcile(directory)
    assert document.state is RunState.RUNNING
    identity = supervise.identity_of(document)
    assert identity is not None
    assert processes.is_alive(identity)
    document = supervise.stop_run(directory, stop_grace_s=20)
    assert (document.state, document.stop_reason) == (RunState.STOPPED, "user")
    assert document.seconds is not None
    assert document.seconds >= 0
    check_readable(directory)


@needs_ticks
@pytest.mark.parametrize("jump", JUMPS)
def test_a_killed_run_is_not_taken_for_one_from_before_a_restart(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, clock: Clock, jump: float
) -> None:
    directory = make_run(steps=1000, pause_s=0.02)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    clock.offset = jump
    identity = supervise.identity_of(directory.read_document())
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    document = settled(workspace, launcher, directory)
    assert document.failure is not None
    assert (document.failure.kind, document.failure.exit_code) == ("killed", -9)
    check_readable(directory)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_run_that_is_being_started_is_given_its_time(make_run: MakeScripted, clock: Clock, jump: float) -> None:
    directory = make_run()
    supervise.mark_starting(directory)
    clock.offset = jump
    assert supervise.reconcile(directory).state is RunState.STARTING
    since = (directory.read_document().model_extra or {})["starting_since"]
    directory.set_fields(starting_since=since - supervise.STARTING_GRACE_S - 1, launcher_pid=None)
    assert supervise.reconcile(directory).state is RunState.LOST


def test_a_worker_that_comes_up_after_its_run_was_given_up_does_nothing(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run()
    directory.finish(RunState.LOST)
    before = directory.read_document()
    launcher.start(directory, workspace)
    until(lambda: any("lost already" in line for line in directory.log_tail()))
    assert directory.read_document() == before
    assert directory.metrics() == []


@pytest.mark.parametrize("jump", JUMPS)
def test_the_age_of_a_heartbeat_is_not_the_clocks(make_run: MakeScripted, clock: Clock, jump: float) -> None:
    directory = make_run()
    age = HeartbeatClock(directory)
    assert age.age_s() is None
    directory.beat()
    first = age.age_s()
    assert first is not None
    clock.offset = jump
    time.sleep(0.05)
    later = age.age_s()
    assert later is not None
    assert first + 0.05 <= later < first + 5
    directory.beat()  # by the kernel's clock, which has not moved: as if it lay `jump` ago
    new = age.age_s()
    assert new is not None
    assert 0 <= new < 5


def foreign(number: int) -> list[dict[str, Any]]:
    """What a run document may say of a pid that is somebody else's by now."""
    me = processes.identify(number)
    assert me is not None
    return [
        {"pid": number, "process_started_at": me.started_at - 60},
        {"pid": number, "process_started_at": me.started_at - 60, "process_mark": None},
        {"pid": number, "process_started_at": me.started_at, "process_mark": f"{'0' * 13}:1"},
        {"pid": number, "process_started_at": 0.0, "process_mark": "nonsense"},
        {"pid": 1, "process_started_at": 1.0},
        {"pid": os.getpid(), "process_started_at": 1.0},
        {"pid": 2**22 + 5, "process_started_at": me.started_at},
        {"pid": 0, "process_started_at": me.started_at},
        {"pid": -1, "process_started_at": me.started_at},
    ]


@pytest.mark.parametrize("number", range(9))
def test_a_recycled_pid_is_never_signalled(
    workspace: Workspace,
    launcher: LocalLauncher,
    make_run: MakeScripted,
    bystanders: Bystanders,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, what: sent.append((pid, what)))
    monkeypatch.setattr(os, "killpg", lambda pid, what: sent.append((pid, what)))
    by_stop, by_tick = make_run("stop"), make_run("tick")
    for directory in (by_stop, by_tick):
        directory.set_fields(state=RunState.RUNNING, **foreign(bystanders.stranger.pid)[number])
    assert supervise.stop_run(by_stop, stop_grace_s=0, term_grace_s=0).state.is_final
    assert settled(workspace, launcher, by_tick).state.is_final
    monkeypatch.undo()
    assert sent == []
    bystanders.check()
    for directory in (by_stop, by_tick):
        check_readable(directory)


def test_the_pid_of_a_dead_child_of_ours_can_be_a_living_process(tmp_path: Path) -> None:
    """Its exit status is not the other's, and the other is not dead for it."""
    environment = processes.child_environment()
    command = [sys.executable, "-P", "-c", "raise SystemExit(3)"]
    dead, _ = processes.spawn(command, directory=tmp_path, log_path=tmp_path / "log", environment=environment)
    until(lambda: processes.exit_status(dead) == 3)
    other = subprocess.Popen([sys.executable, "-P", "-c", "import time; time.sleep(60)"])
    try:
        alive = processes.identify(other.pid)
        assert alive is not None
        processes._children[other.pid] = (ProcessIdentity(other.pid, 1.0, None), processes._children[dead.pid][1])
        assert processes.is_alive(alive)
        assert processes.exit_status(alive) is None
    finally:
        processes._children.pop(other.pid, None)
        other.kill()
        other.wait()


@needs_ticks
def test_a_mark_is_the_kernels_own_count() -> None:
    me, init = processes.identify(os.getpid()), processes.identify(1)
    assert me is not None
    assert me.mark is not None
    boot, _, ticks = me.mark.partition(":")
    assert Path("/proc/sys/kernel/random/boot_id").read_text().startswith(boot)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert ticks == fields[19]  # field 22 of the file; the first two are in front of the bracket
    assert not me.is_from_before_restart
    assert ProcessIdentity(me.pid, me.started_at, f"{'0' * 13}:{ticks}").is_from_before_restart
    assert init is None or not init.is_same(me)
    assert ProcessIdentity.from_note(me.note()) == me
    assert ProcessIdentity.from_note({"pid": me.pid, "started_at": me.started_at}).is_same(me)


def test_a_name_with_brackets_and_spaces_does_not_hide_the_start(tmp_path: Path) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc")
    odd = tmp_path / "a) 1 (b"
    odd.symlink_to(sys.executable)
    process = subprocess.Popen([str(odd), "-P", "-c", "import time; time.sleep(60)"], executable=str(odd))
    try:
        identity = processes.identify(process.pid)
        assert identity is not None
        assert identity.mark is not None
        assert processes.is_alive(identity)
        assert identity.mark == processes._mark(process.pid)
    finally:
        process.kill()
        process.wait()


def test_run_directories_of_two_machines_starts(make_run: MakeScripted) -> None:
    """A run from before a restart of the machine is lost, whoever has its pid now."""
    directory: RunDirectory = make_run()
    me = processes.identify(os.getpid())
    assert me is not None
    old = ProcessIdentity(me.pid, me.started_at, f"{'0' * 13}:{(me.mark or ':1').partition(':')[2]}")
    directory.set_fields(state=RunState.RUNNING, **supervise.process_fields(old))
    document = supervise.reconcile(directory)
    if me.mark is not None:
        assert document.state is RunState.LOST
        assert document.failure is not None
        assert document.failure.kind == "restart"
