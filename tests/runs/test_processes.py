"""Processes: who is who, what a worker sees, and that nobody else is ever signalled."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from run_helpers import until

from trainer.runs import processes
from trainer.runs.errors import RunError
from trainer.runs.processes import ProcessIdentity, child_environment

SLEEP = (sys.executable, "-P", "-c", "import time; time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-P",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)


def start(command: tuple[str, ...], folder: Path) -> ProcessIdentity:
    identity, _ = processes.spawn(
        command, directory=folder, log_path=folder / "log", environment=child_environment({"PATH": os.environ["PATH"]})
    )
    return identity


def test_a_worker_has_its_own_session_and_no_handles_of_ours(tmp_path: Path) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    probe = (
        "import os, sys; numbers = sorted(int(n) for n in os.listdir('/dev/fd'));"
        "print(numbers, os.getsid(0) == os.getpid(), sys.stdin.read())"
    )
    try:
        identity = start((sys.executable, "-P", "-c", probe), tmp_path)
        until(lambda: not processes.is_alive(identity))
    finally:
        os.close(secret)
    text = (tmp_path / "log").read_text()
    assert "True" in text
    numbers = json.loads(text[: text.index("]") + 1])
    assert secret not in numbers
    assert [number for number in numbers if number <= 2] == [0, 1, 2]
    assert len(numbers) <= 4  # the three and the one that lists the folder
    assert processes.exit_status(identity) == 0


def test_a_program_that_does_not_exist_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be started"):
        start(("/no/such/program",), tmp_path)


def test_a_child_that_nobody_waits_for_is_no_zombie_once_another_one_starts(tmp_path: Path) -> None:
    first = start((sys.executable, "-P", "-c", "pass"), tmp_path)
    until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)
    second = start((sys.executable, "-P", "-c", "pass"), tmp_path)
    assert not psutil.pid_exists(first.pid)
    assert processes.exit_status(first) == 0  # and it is still known
    until(lambda: not processes.is_alive(second))


def test_a_pid_alone_is_not_an_identity(tmp_path: Path) -> None:
    identity = start(SLEEP, tmp_path)
    try:
        assert processes.is_alive(identity)
        recycled = ProcessIdentity(identity.pid, identity.started_at - 10)
        assert not processes.is_alive(recycled)
        assert not processes.send(recycled, signal.SIGKILL)
        assert processes.terminate(recycled)
        time.sleep(0.1)
        assert processes.is_alive(identity)
    finally:
        assert processes.terminate(identity)
    assert not processes.is_alive(identity)
    assert processes.exit_status(identity) == -signal.SIGTERM


def test_we_never_signal_ourselves_or_init() -> None:
    me = processes.identify(os.getpid())
    init = processes.identify(1)
    assert me is not None
    assert not processes.send(me, signal.SIGTERM)
    assert init is None or not processes.send(init, signal.SIGTERM)


def test_a_zombie_has_ended(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-P", "-c", ""])  # not known to the module, so nobody reaps it
    identity = processes.identify(child.pid)
    assert identity is not None
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert not processes.is_alive(identity)
    child.wait()


def test_what_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(c.pid, flush=True); time.sleep(60)"
    )
    identity = start((sys.executable, "-P", "-c", script), tmp_path)
    until(lambda: (tmp_path / "log").read_text().strip().isdigit())
    child = processes.identify(int((tmp_path / "log").read_text()))
    assert child is not None
    assert processes.terminate(identity, term_grace_s=0.2)
    until(lambda: not processes.is_alive(child))


def test_the_environment_of_a_worker_is_an_allow_list() -> None:
    parent = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HF_HOME": "/cache",
        "HF_TOKEN": "secret",
        "https_proxy": "http://proxy",
        "CUDA_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "8",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "ANTHROPIC_API_KEY": "secret",
        "PYTHONPATH": "/somewhere",
        "PYTHONSTARTUP": "/somewhere.py",
        "MY_THING": "1",
        "MY_OTHER": "2",
    }
    seen = child_environment(parent)
    assert set(seen) == {
        "PATH",
        "LC_ALL",
        "HF_HOME",
        "https_proxy",
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
    }
    assert child_environment(parent, tokens=True)["HF_TOKEN"] == "secret"
    assert child_environment(parent, threads=1)["OMP_NUM_THREADS"] == "1"
    assert {"MY_THING", "MY_OTHER"} <= set(child_environment(parent, more=["MY_*"]))
    assert "MY_OTHER" not in child_environment(parent, more=["MY_THING"])
