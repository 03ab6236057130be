"""A folder that one process works on: its plan, its last word where it failed, how far it is, its note and its log."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from skill_bank.files import read_json
from trainer.runs import processes
from trainer.runs.processes import ProcessIdentity

START_GRACE_S = 10.0
"""What lies between a plan and the note of the process that works on it: much less, where nobody died in between."""

LOG_TAIL_BYTES = 64 * 1024
"""At most this much of the end of a log is read for its tail."""


@dataclass(frozen=True)
class ProcessFolder:
    """What such folders share; what the finished work is, each kind says itself."""

    path: Path

    @property
    def plan_path(self) -> Path:
        """Written before the process starts."""
        return self.path / "plan.json"

    @property
    def failure_path(self) -> Path:
        return self.path / "failure.json"

    @property
    def progress_path(self) -> Path:
        return self.path / "progress.json"

    @property
    def process_path(self) -> Path:
        return self.path / "process.json"

    @property
    def log_path(self) -> Path:
        return self.path / "worker.log"

    def identity(self) -> ProcessIdentity | None:
        """The process that works on it, or did."""
        try:
            return ProcessIdentity.from_note(read_json(self.process_path))
        except FileNotFoundError:
            return None

    @property
    def is_young(self) -> bool:
        """Whether its plan is so young that its process may not have been noted yet."""
        try:
            return abs(time.time() - self.plan_path.stat().st_mtime) < START_GRACE_S
        except FileNotFoundError:
            return False

    def log_tail(self, lines: int = 10) -> list[str]:
        """The last lines that the process printed."""
        return tail_of(self.log_path, lines)

    def stop(self) -> bool:
        """Ends its process. Returns whether it is gone."""
        identity = self.identity()
        return identity is None or processes.terminate(identity)


def tail_of(log: Path, lines: int) -> list[str]:
    """The last lines of a log that say something; none where there is no log."""
    try:
        with open(log, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LOG_TAIL_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
