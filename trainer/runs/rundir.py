"""A run directory on disk: the one module that knows its file names and reads and writes them.

Writing is strict and atomic; reading is tolerant: unknown fields are kept, bad lines are counted and skipped, a missing
file is an empty one. `run.json` changes only through `update`, under its lock, so that worker and supervisor can both
touch it without losing each other's fields.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skill_bank.files import JsonLines, append_json, lock_of, read_json, read_json_lines, write_json_atomic
from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.process_folder import tail_of
from trainer.runs.types import Failure, RunDocument, RunState

LOG_TAIL_LINES = 20
"""Lines of worker.log kept in a failure."""


@dataclass(frozen=True)
class RunDirectory:
    """One run's folder."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def document_path(self) -> Path:
        return self.path / "run.json"

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def episodes_folder(self) -> Path:
        return self.path / "episodes"

    @property
    def heartbeat_path(self) -> Path:
        return self.path / "heartbeat"

    @property
    def stop_path(self) -> Path:
        return self.path / "STOP"

    @property
    def failure_path(self) -> Path:
        return self.path / "failure.json"

    @property
    def log_path(self) -> Path:
        return self.path / "worker.log"

    @property
    def model_folder(self) -> Path:
        return self.path / "model"

    def create(self, document: RunDocument, config: TrainingConfig, fill: Callable[[Path], None] | None = None) -> None:
        """Writes a new run directory, complete or not at all. Raises RunError where it exists, OSError.

        `fill(folder)` writes what else it shall hold from the start."""
        staging = self.path.parent / f".{self.run_id}.{os.getpid()}.new"
        staging.mkdir(mode=0o700)
        try:
            write_json_atomic(staging / self.config_path.name, config.model_dump(mode="json"))
            write_json_atomic(staging / self.document_path.name, document.model_dump(mode="json"))
            if fill is not None:
                fill(staging)
            if self.path.exists():
                raise RunError(f"run {self.run_id} exists already. Choose another id, or leave it out.")
            os.rename(staging, self.path)
        except BaseException as error:
            shutil.rmtree(staging, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                message = f"run {self.run_id} exists already. Choose another id, or leave it out."
                raise RunError(message) from error
            raise

    def read_document(self) -> RunDocument:
        """The run document. Raises RunError that says which file is wrong."""
        try:
            return RunDocument.model_validate(read_json(self.document_path))
        except FileNotFoundError:
            raise RunError(f"{self.path} holds no run.json: it is not a run directory.") from None
        except (ValueError, ValidationError, OSError) as error:
            raise RunError(f"{self.document_path} cannot be read: {' '.join(str(error).split())}") from error

    def update(self, change: Callable[[RunDocument], RunDocument | None]) -> RunDocument:
        """Reads, changes and writes the document under its lock; `change` may return None to leave it as it is."""
        with lock_of(self.document_path):
            before = self.read_document()
            after = change(before)
            if after is None or after == before:
                return before
            write_json_atomic(self.document_path, after.model_dump(mode="json"))
            return after

    def set_fields(self, **fields: Any) -> RunDocument:
        """Sets fields of a run that has not ended; a final state is never changed again."""

        def change(document: RunDocument) -> RunDocument | None:
            if document.state.is_final:
                return None
            return RunDocument.model_validate({**document.model_dump(), **fields})

        return self.update(change)

    def finish(self, state: RunState, **fields: Any) -> RunDocument:
        """Gives the run its final state, once: a second call changes nothing."""
        if not state.is_final:
            raise ValueError(f"{state} is not a final state")
        return self.update(lambda document: ended(document, state, **fields))

    def write_failure(self, failure: Failure) -> None:
        """`failure.json`: the worker's own word about why it is going down, written before it exits."""
        write_json_atomic(self.failure_path, failure.model_dump(mode="json"))

    def read_failure(self) -> Failure | None:
        """The worker's last word, where it left one that can be read."""
        try:
            return Failure.model_validate(read_json(self.failure_path))
        except (FileNotFoundError, ValueError, OSError):
            return None

    def read_config(self) -> TrainingConfig:
        """The configuration of the run. Raises RunError."""
        try:
            return TrainingConfig.model_validate(read_json(self.config_path))
        except FileNotFoundError:
            raise RunError(f"{self.path} holds no config.json.") from None
        except (ValueError, OSError) as error:
            raise RunError(f"{self.config_path} cannot be read: {' '.join(str(error).split())}") from error

    def metrics(self) -> list[dict[str, Any]]:
        """Lines of metrics.jsonl, sorted by step; of a step written twice (after a resume) the later one."""
        rows = _objects(read_json_lines(self.metrics_path))
        by_step = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
        return [by_step[step] for step in sorted(by_step)]

    def metrics_from(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """(new lines behind byte `offset`, offset to go on from)."""
        lines = read_json_lines(self.metrics_path, offset)
        return _objects(lines), lines.end

    def events(self) -> list[dict[str, Any]]:
        """Lines of events.jsonl in file order."""
        return _objects(read_json_lines(self.events_path))

    def events_from(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """(new lines behind byte `offset`, offset to go on from)."""
        lines = read_json_lines(self.events_path, offset)
        return _objects(lines), lines.end

    def append_event(self, kind: str, **fields: Any) -> None:
        """Adds a line to events.jsonl."""
        append_json(self.events_path, {"time": round(time.time(), 3), "kind": kind, **fields})

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Adds a line to metrics.jsonl. NaN and infinity are refused (write null and an event instead)."""
        append_json(self.metrics_path, row)

    def episode_path(self, step: int) -> Path:
        """File of the episodes of one step."""
        return self.episodes_folder / f"step-{step:06d}.jsonl"

    def episode_steps(self) -> list[int]:
        """Steps whose episodes were kept, ascending."""
        if not self.episodes_folder.is_dir():
            return []
        names = (file.stem.removeprefix("step-") for file in self.episodes_folder.glob("step-*.jsonl"))
        return sorted(int(name) for name in names if name.isdigit())

    def episodes(self, step: int) -> list[dict[str, Any]]:
        """Episodes of one step."""
        return _objects(read_json_lines(self.episode_path(step)))

    def beat(self) -> None:
        """Touches the heartbeat: the worker is alive and gets on."""
        with open(self.heartbeat_path, "a"):
            os.utime(self.heartbeat_path)

    def heartbeat_age_s(self) -> float | None:
        """Seconds since the last heartbeat, None before the first one."""
        beat = self.heartbeat_at()
        return None if beat is None else max(0.0, time.time() - beat)

    def heartbeat_at(self) -> float | None:
        """When the last heartbeat was, Unix seconds, None before the first one."""
        try:
            return self.heartbeat_path.stat().st_mtime
        except FileNotFoundError:
            return None

    def request_stop(self, reason: str = "user") -> None:
        """Asks the worker to end after the step it is in; the first reason stays."""
        try:
            with open(self.stop_path, "x", encoding="utf-8") as stream:
                stream.write(reason)
        except FileExistsError:
            return

    def stop_reason(self) -> str | None:
        """Why it was asked to stop, None if nobody asked."""
        try:
            return self.stop_path.read_text(encoding="utf-8", errors="replace").strip()[:200] or "user"
        except FileNotFoundError:
            return None

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> list[str]:
        """Last lines of worker.log."""
        return tail_of(self.log_path, lines)


def ended(document: RunDocument, state: RunState, **fields: Any) -> RunDocument:
    """The document with its final state; one that has its final state is returned as it is."""
    if document.state.is_final:
        return document
    now = time.time()
    began = document.started_at or document.created_at
    # a clock that was set back in between would give a negative duration
    values = {"ended_at": now, "seconds": round(max(0.0, now - began), 3), **fields, "state": state}
    return RunDocument.model_validate({**document.model_dump(), **values})


def _objects(lines: JsonLines) -> list[dict[str, Any]]:
    return [row for _, row in lines.rows if isinstance(row, dict)]
