"""A pool as rollouts use it: errors are values, a step never fails for them, nothing that was counted is lost."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.experience.counters import tally
from trainer.experience.pool import Added, ExperiencePool, Moved, Outcome
from trainer.experience.problems import ExperienceError, PoolError, PoolProblem, ProblemKind
from trainer.experience.records import Counters, ExperienceRecord, Retrieval, Use

STEP_WAIT_S = 2.0
"""A step does not wait longer for other users of the file; whoever opens it for one says so (`open_pool`)."""


@dataclass
class PoolSource:
    """A pool as rollouts use it (`ExperienceSource`).

    `retrieve` writes nothing: retrievals are counted in memory and written with the uses. What cannot be written (the
    file locked, the disk full) is kept and written with the next call that succeeds.
    """

    open_pool: Callable[[], ExperiencePool]
    """Opens the pool; called again after a failure, so that a pool that was repaired is used again."""
    name: str
    search_options: Mapping[str, Any] = field(default_factory=dict)
    write_wait_s: float = STEP_WAIT_S
    on_moved: Callable[[list[Moved]], None] | None = None
    problems: dict[ProblemKind, int] = field(default_factory=dict)
    """How often what went wrong."""
    last_problem: PoolProblem | None = None
    _pool: ExperiencePool | None = field(default=None, repr=False)
    _pending: dict[str, Counters] = field(default_factory=dict, repr=False)
    _unsaved: list[ExperienceRecord] = field(default_factory=list, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def open_now(self) -> PoolProblem | None:
        """Opens the file and reads its vectors, which the first question would else wait for."""
        with self._lock:
            try:
                self._opened().search("ready", 1)
            except PoolError as error:
                return self._failed(error)
            return None

    def retrieve(self, query: str, k: int = 3) -> Retrieval:
        """The best records for a question, or the problem."""
        started = time.perf_counter()
        with self._lock:
            try:
                hits = self._opened().search(query, k, **self.search_options)
            except PoolError as error:
                return Retrieval((), self._failed(error), time.perf_counter() - started)
            for hit in hits:
                self._pend(hit.record.id, Counters(retrieved=1))
        return Retrieval(hits, None, time.perf_counter() - started)

    def record_use(self, record_id: str, won: bool | None, control: bool = False) -> PoolProblem | None:
        """One rollout's outcome; many at once: `record_uses`."""
        return self.record_uses([Use(record_id, won, control)])

    def record_uses(self, uses: Sequence[Use]) -> PoolProblem | None:
        """What became of rollouts; written at once if possible."""
        with self._lock:
            for record_id, counters in tally(uses).items():
                self._pend(record_id, counters)
            return self.flush()

    def add(self, records: Sequence[ExperienceRecord]) -> tuple[list[Added], PoolProblem | None]:
        """Adds records; what could not be written is kept for the next `flush`. Questions may come in between."""
        with self._lock:
            self._unsaved += records
        results: list[Added] = []
        while True:
            with self._lock:
                if not self._unsaved:
                    return results, None
                try:
                    results.append(self._opened().add(self._unsaved[0]))
                except ExperienceError as error:
                    results.append(Added(Outcome.REFUSED, self._unsaved[0], str(error)))
                except PoolError as error:
                    return results, self._failed(error)
                del self._unsaved[0]

    @property
    def waiting(self) -> int:
        """Records and counters that are not written yet."""
        return len(self._unsaved) + len(self._pending)

    def flush(self) -> PoolProblem | None:
        """Writes what waits."""
        with self._lock:
            if self._unsaved:
                _, problem = self.add([])
                if problem is not None:
                    return problem
            if not self._pending:
                return None
            try:
                moved = self._opened().count(self._pending)
            except PoolError as error:
                return self._failed(error)
            self._pending = {}
            if moved and self.on_moved is not None:
                self.on_moved(moved)
            return None

    def close(self) -> None:
        """Writes what waits, if it can be written, and closes the file."""
        with self._lock:
            self.flush()
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def _opened(self) -> ExperiencePool:
        if self._pool is None:
            pool = self.open_pool()
            pool.store.wait(self.write_wait_s)
            self._pool = pool
        return self._pool

    def _pend(self, record_id: str, counters: Counters) -> None:
        self._pending[record_id] = self._pending.get(record_id, Counters()) + counters

    def _failed(self, error: PoolError) -> PoolProblem:
        problem = error.problem
        self.problems[problem.kind] = self.problems.get(problem.kind, 0) + 1
        self.last_problem = problem
        if problem.kind not in (ProblemKind.LOCKED, ProblemKind.DISK_FULL) and self._pool is not None:
            self._pool.close()  # look at the file afresh the next time
            self._pool = None
        return problem
