"""`worker.log` from the worker's side: a line for each phase, and a bound on its size.

The launcher points the worker's standard output and error at the file, in append mode, so everything that any library
or child process prints lands there, also what is printed on the way down. A thread looks at its size: a file that grows
beyond `LIMIT_BYTES` is cut to nothing, and its end goes to `worker.log.1`. Writers in append mode go on at the new end,
so nobody has to reopen anything. A run's log thus takes at most `LIMIT_BYTES` + `KEPT_BYTES` and what is printed in one
look's time.
"""

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skill_bank.files import write_bytes_atomic
from trainer import parallel

LIMIT_BYTES = 16 << 20
"""Some hundred thousand lines: more than a person reads, less than a disk notices."""

KEPT_BYTES = 1 << 20
"""End of what was cut off, kept in `worker.log.1`."""

LOOK_S = 0.5
"""How often the size is looked at."""

STDOUT, STDERR = 1, 2


def say(text: str) -> None:
    """A line in the log: time of day and what the worker is at. Of several processes the first one speaks."""
    if not parallel.is_main():
        return
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


def cut(path: Path, handle: int, limit_bytes: int = LIMIT_BYTES, kept_bytes: int = KEPT_BYTES) -> bool:
    """Cuts a log that is too long; whether it was. `handle` is the open file that `path` names. Raises OSError."""
    size = os.fstat(handle).st_size
    if size <= limit_bytes:
        return False
    with open(path, "rb") as stream:  # the handle itself may be open for writing only
        stream.seek(max(0, size - kept_bytes))
        end = stream.read()
    os.ftruncate(handle, 0)  # first, so that a full disk has room for the rest
    write_bytes_atomic(path.with_name(f"{path.name}.1"), end, mode=0o600)
    os.write(handle, f"[{size} bytes of log were cut off here; the last {len(end)} are in {path.name}.1]\n".encode())
    return True


@contextmanager
def bounded(path: Path, limit_bytes: int = LIMIT_BYTES) -> Iterator[None]:
    """Keeps the log within its bound while the block runs; does nothing where output goes elsewhere (a terminal)."""
    if not _is_output(path):
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            try:
                cut(path, STDOUT, limit_bytes)
            except OSError:  # a full disk is told by the run's own writes
                continue

    thread = threading.Thread(target=watch, name="worker-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def redirected(path: Path) -> Iterator[None]:
    """Points standard output and error at a run's own log: what a warm worker does for each of its runs."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(STDOUT), os.dup(STDERR)]
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(handle, STDOUT)
        os.dup2(handle, STDERR)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], STDOUT)
        os.dup2(saved[1], STDERR)
        for one in (handle, *saved):
            os.close(one)


def _is_output(path: Path) -> bool:
    try:
        here, there = os.fstat(STDOUT), os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(here.st_mode) and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
