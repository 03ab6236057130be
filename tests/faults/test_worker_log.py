"""`worker.log`: never empty, never too large, one for each run of a warm worker."""

import os
import re
import subprocess
import sys
from pathlib import Path

from fault_helpers import MakeScripted, settled, until

from trainer import worker_log
from trainer.runs.launch import LocalLauncher
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace


def test_a_line_for_each_phase(workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted) -> None:
    directory = make_run(steps=2)
    assert settled(workspace, launcher, directory).state is RunState.FINISHED
    until(lambda: "is over" in directory.log_path.read_text())
    for line in directory.log_path.read_text().splitlines():
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line), line


def test_cut(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(handle, b"a" * 1000 + b"\n")
        assert not worker_log.cut(path, handle, limit_bytes=2000, kept_bytes=100)
        os.write(handle, b"b" * 1000 + b"\n")
        assert worker_log.cut(path, handle, limit_bytes=2000, kept_bytes=100)
        os.write(handle, b"later\n")
    finally:
        os.close(handle)
    assert (tmp_path / "worker.log.1").read_bytes() == b"b" * 99 + b"\n"
    text = path.read_text()
    assert text.startswith("[2002 bytes of log were cut off here; the last 100 are in worker.log.1]\n")
    assert text.endswith("\nlater\n")


NOISY = """
import os, sys, subprocess, time
from pathlib import Path
from trainer import worker_log
path = Path(sys.argv[1])
worker_log.LOOK_S = 0.02
with worker_log.bounded(path, limit_bytes=300_000):
    prints = "import time\\nfor _ in range(200): print('c' * 5000); time.sleep(0.005)"
    child = subprocess.Popen([sys.executable, "-c", prints])
    for number in range(200):
        print("p" * 5000, flush=True)
        time.sleep(0.005)
    child.wait()
    time.sleep(0.1)
print("the end", flush=True)
"""


def test_what_process_and_children_print_is_bounded(tmp_path: Path) -> None:
    """2 MB from two processes into a log of 300 kB; nothing is reopened and the last line arrives."""
    path = tmp_path / "worker.log"
    with open(path, "ab") as log:
        done = subprocess.run([sys.executable, "-P", "-c", NOISY, str(path)], stdout=log, stderr=log)
    assert done.returncode == 0, path.read_text()[-2000:]
    assert path.read_text().endswith("the end\n")
    assert path.stat().st_size < 600_000
    assert (tmp_path / "worker.log.1").stat().st_size <= worker_log.KEPT_BYTES
    assert "cut off here" in path.read_text()


def test_output_that_goes_elsewhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("x" * 100)
    with worker_log.bounded(tmp_path / "worker.log", limit_bytes=1):
        pass
    assert (tmp_path / "worker.log").read_text() == "x" * 100


def test_a_run_that_prints_a_lot_ends_well(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run(steps=12, pause_s=0.2, print_bytes=3_000_000)
    assert settled(workspace, launcher, directory).state is RunState.FINISHED
    until(lambda: "is over" in directory.log_path.read_text())
    size = directory.log_path.stat().st_size
    assert size < worker_log.LIMIT_BYTES + 6 * 3_000_000
    assert (directory.path / "worker.log.1").stat().st_size == worker_log.KEPT_BYTES
    assert len(directory.log_tail()) <= 20
