"""Distilling beside training: a step hands over its attempts and goes on; what comes too late is dropped and counted.

One daemon thread takes batches from a short queue, makes lessons by the given function and adds them to the pool. A
full queue drops the newest batch, an overdue one is dropped unread, a failure drops its batch: `report` says how often
and why. Nothing here raises into a step, and a pool that fails keeps the lessons until it can be written (`source`).
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from trainer.experience.pool import Added, Outcome
from trainer.experience.problems import ExperienceError, PoolError, PoolProblem
from trainer.experience.records import ExperienceRecord
from trainer.experience.trajectories import Trajectory


class LessonSink(Protocol):
    """Where lessons go."""

    @property
    def waiting(self) -> int: ...

    def add(self, records: Sequence[ExperienceRecord]) -> tuple[list[Added], PoolProblem | None]: ...


Distiller = Callable[[Sequence[Trajectory]], Sequence[ExperienceRecord]]


class BatchDropped(StrEnum):
    """Why a batch gave no lessons."""

    QUEUE_FULL = "queue_full"
    """Distilling is slower than training."""
    OVERDUE = "overdue"
    """It waited for longer than the deadline."""
    FAILED = "failed"
    """The distiller refused or could not be reached."""
    CLOSED = "closed"
    """It still waited when the run ended."""


@dataclass
class DistilReport:
    """What a run's distiller did."""

    batches: int = 0
    attempts: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    dropped: Counter[BatchDropped] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Messages of failures and refusals, the first 300 characters."""
    unsaved: int = 0
    """Lessons and counters that the pool has not taken yet."""


class BackgroundDistiller:
    """The thread."""

    def __init__(
        self, source: LessonSink, distiller: Distiller, *, waiting: int = 4, deadline_s: float = 120.0
    ) -> None:
        """`source`: one of its own, else questions wait for its transactions.

        `waiting`: batches in the queue at most; `deadline_s`: from handing over to the start of the work.
        """
        self._source, self._distiller, self._deadline_s = source, distiller, deadline_s
        self._queue: queue.Queue[tuple[float, Sequence[Trajectory]] | None] = queue.Queue(maxsize=waiting)
        self._report, self._lock = DistilReport(), threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="experience-distiller", daemon=True)
        self._thread.start()

    def submit(self, attempts: Sequence[Trajectory]) -> bool:
        """Hands attempts over and returns at once; False: dropped."""
        try:
            if self._closing.is_set():
                raise queue.Full
            self._queue.put_nowait((time.monotonic(), attempts))
            return True
        except queue.Full:
            with self._lock:
                self._report.dropped[BatchDropped.CLOSED if self._closing.is_set() else BatchDropped.QUEUE_FULL] += 1
            return False

    def report(self) -> DistilReport:
        """The counts so far."""
        with self._lock:
            one = self._report
            return DistilReport(
                one.batches, one.attempts, Counter(one.outcomes), Counter(one.dropped), Counter(one.reasons),
                self._source.waiting,
            )  # fmt: skip

    def close(self, timeout_s: float = 10.0) -> DistilReport:
        """Lets what waits be worked on for `timeout_s`, then drops it; never takes longer."""
        end = time.monotonic() + timeout_s
        while not self._queue.empty() and time.monotonic() < end:
            time.sleep(0.01)
        self._closing.set()
        left = 0
        while True:
            try:
                left += self._queue.get_nowait() is not None
            except queue.Empty:
                break
        if left:
            with self._lock:
                self._report.dropped[BatchDropped.CLOSED] += left
        self._queue.put(None)
        self._thread.join(max(0.0, end - time.monotonic()))
        return self.report()

    def _serve(self) -> None:
        while (batch := self._queue.get()) is not None:
            since, attempts = batch
            if time.monotonic() - since > self._deadline_s:
                self._drop(BatchDropped.OVERDUE)
                continue
            try:
                records = self._distiller(attempts)
            except (ExperienceError, PoolError, ValueError, OSError) as error:
                self._drop(BatchDropped.FAILED, str(error))
                continue
            results, problem = self._source.add(list(records))
            with self._lock:
                self._report.batches += 1
                self._report.attempts += len(attempts)
                self._report.outcomes.update(one.outcome for one in results)
                self._report.reasons.update(one.reason[:300] for one in results if one.outcome is Outcome.REFUSED)
                if problem is not None:
                    self._report.reasons[problem.say[:300]] += 1

    def _drop(self, why: BatchDropped, reason: str = "") -> None:
        with self._lock:
            self._report.dropped[why] += 1
            if reason:
                self._report.reasons[reason[:300]] += 1
