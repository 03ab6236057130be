"""The arm runner of real trials: each arm on its own single-threaded warm worker, so two arms fill two cores.

One thread an arm makes a run reproducible and keeps one arm from slowing the other.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from optimizer.trial.arms import ArmJob, TrialCancelled, TrialError, result_of
from optimizer.trial.types import ArmResult
from trainer.runs.pool import RunHandle, WorkerPool
from trainer.runs.registry import config_hash, package_versions
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument

_POLL_S = 0.2
"""How often a stop is looked for while arms run."""

_STOP_GRACE_S = 30.0
"""An arm honours a stop at the end of its step; steps of the largest models that fit a trial are shorter than this."""


class PooledArms:
    """Runs arms on a pool of warm workers. Use as a context manager: the pool ends with it."""

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 2,
        command: tuple[str, ...] = (),
        tokens: bool = False,
        keep_free_mb: int | None = None,
    ) -> None:
        """`folder` is where the workers log; `command` replaces the worker's command; `tokens`: hub tokens for them;
        `keep_free_mb`: free space below which an arm ends."""
        folder.mkdir(parents=True, exist_ok=True)
        self.pool = WorkerPool(size, 1, folder=folder, command=command, tokens=tokens, keep_free_mb=keep_free_mb)

    def run(self, jobs: Sequence[ArmJob], cancelled: Callable[[], bool]) -> list[ArmResult]:
        """One result a job. Raises TrialError where an arm gave none, TrialCancelled where someone asked to stop."""
        handles = [self.pool.submit(_create(job).path) for job in jobs]
        for handle in handles:
            while not handle.done:
                if cancelled():
                    self._stop(handles)
                    raise TrialCancelled("the pair in progress was stopped")
                handle.wait(_POLL_S)
        return [
            result_of(one.directory.read_document(), one.directory.metrics(), job.config.num_generations)
            for one, job in zip(handles, jobs, strict=True)
        ]

    def _stop(self, handles: Sequence[RunHandle]) -> None:
        for handle in handles:
            handle.cancel("trial stopped")
        deadline = time.monotonic() + _STOP_GRACE_S
        for handle in handles:
            handle.wait(max(deadline - time.monotonic(), 0))

    def close(self, *, cancel: bool = False) -> None:
        """Ends the workers."""
        self.pool.close(cancel=cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(cancel=kind is not None)


def pooled_arms(folder: Path, tokens: bool) -> PooledArms:
    """Two workers of the real kind."""
    return PooledArms(folder, tokens=tokens)


def _create(job: ArmJob) -> RunDirectory:
    """The run directory of an arm: inside the trial, where no supervisor looks for runs to start."""
    directory = RunDirectory(job.folder)
    try:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        document = RunDocument(
            run_id=job.folder.name,
            created_at=time.time(),
            config_hash=config_hash(job.config),
            packages=package_versions(),
            planned_steps=job.config.planned_steps,
        )
        directory.create(document, job.config)
    except OSError as error:
        raise TrialError(f"the arm {job.name} could not be set up in {job.folder}: {error}") from error
    return directory
