"""What the tests of the run layer share."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainer.runs.rundir import RunDirectory

FAKE_WORKER = (sys.executable, "-P", str(Path(__file__).with_name("fake_worker.py")))
"""Command of a worker that learns nothing but speaks the protocol."""

MakeRun = Callable[..., RunDirectory]


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Waits until a condition holds; fails the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
