"""Training runs in a folder that is kept: what was finished is not run again, what was killed begins again.

Two single-threaded workers side by side, as in trials. The folder is a workspace, so a run's pool lies in
`experience/`; each run has a pool of its own, named like it. A run is used again where its configuration is the same:
after a change of the program, take another folder.
"""

import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from benchmarks.common import BenchmarkError
from trainer.config import TrainingConfig
from trainer.experience.pool import pool_path
from trainer.runs.pool import WorkerPool
from trainer.runs.registry import config_hash
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

Say = Callable[[str], None]


class KeptRuns:
    """Runs configurations on two warm workers. A context manager: the workers end with it."""

    def __init__(self, work: Path, say: Say) -> None:
        self.work, self.say = work, say
        (work / "runs").mkdir(parents=True, exist_ok=True)
        self._workers: WorkerPool | None = None

    def run(
        self, wanted: Mapping[str, TrainingConfig], pools: Mapping[str, Path] | None = None
    ) -> dict[str, RunDirectory]:
        """Name → finished run. `pools`: the pool that a run begins with, copied.

        Raises BenchmarkError where a run did not finish.
        """
        directories = {name: RunDirectory(self.work / "runs" / name) for name in wanted}
        missing = [name for name, one in directories.items() if not finished(one, wanted[name])]
        for name in missing:
            self._prepare(directories[name], wanted[name], (pools or {}).get(name))
        handles = [(name, self._open().submit(directories[name].path)) for name in missing]
        for number, (name, handle) in enumerate(handles, start=1):
            handle.wait()
            self.say(f"{name}: run {number} of {len(handles)}")
        for name, one in directories.items():
            document = one.read_document()
            if document.state is not RunState.FINISHED:
                why = document.failure.message if document.failure is not None else f"it ended as {document.state}"
                raise BenchmarkError(f"run {name} gave no result: {why}; its log is {one.log_path}")
        return directories

    def _prepare(self, directory: RunDirectory, config: TrainingConfig, pool: Path | None) -> None:
        """An empty run directory, and the pool that the run begins with: none, or a copy."""
        shutil.rmtree(directory.path, ignore_errors=True)
        if config.experience is not None:
            own = pool_path(self.work, config.experience.pool)
            for leftover in (own, own.with_name(f"{own.name}-wal"), own.with_name(f"{own.name}-shm")):
                leftover.unlink(missing_ok=True)
            if pool is not None:
                copy_pool(pool, own)
        document = RunDocument(
            run_id=directory.run_id,
            created_at=time.time(),
            config_hash=config_hash(config),
            planned_steps=config.planned_steps,
        )
        directory.create(document, config)

    def _open(self) -> WorkerPool:
        if self._workers is None:
            self._workers = WorkerPool(2, 1, folder=self.work)
        return self._workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._workers is not None:
            self._workers.close(cancel=problem[0] is not None)


def finished(directory: RunDirectory, config: TrainingConfig) -> bool:
    """Whether this very run is there already."""
    if not directory.document_path.exists():
        return False
    document = directory.read_document()
    return document.state is RunState.FINISHED and document.config_hash == config_hash(config)


def told_of_experience(directory: RunDirectory) -> dict[str, Any]:
    """What the document of a run says of its lessons; nothing where it had none."""
    return (directory.read_document().model_extra or {}).get("experience") or {}


def copy_pool(source: Path, target: Path) -> None:
    """A pool as it is now, whatever of it still lies in its write-ahead log."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
