"""The pool of a run: the workspace's file of that name, or a ReMe service. Opened with settings; fails as values."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainer.experience.config import MIN_SIMILARITY, RemeSettings, open_pool
from trainer.experience.leaks import Guarded
from trainer.experience.manager import ExperienceConfig
from trainer.experience.pool import Added, ExperiencePool, pool_path
from trainer.experience.problems import ExperienceError, PoolError, PoolProblem
from trainer.experience.records import ExperienceRecord, ExperienceSource, Retrieval, Status, Use
from trainer.experience.reme_client import RemeSource
from trainer.experience.source import STEP_WAIT_S, PoolSource
from trainer.experience.trajectories import Trajectory
from trainer.runs.workspace import Workspace


def workspace_of(run: Path) -> Workspace:
    """The workspace whose run it is; a run that stands alone has its pools in its own folder."""
    return Workspace(run.parent.parent if run.parent.name == "runs" else run)


class ReMeLessons:
    """A ReMe service that makes lessons itself."""

    waiting = 0
    """The service keeps them."""

    def __init__(self, source: RemeSource) -> None:
        self.source = source

    def make(self, attempts: Sequence[Trajectory], success: float, batch: int) -> tuple[ExperienceRecord, ...]:
        """The service's lessons of attempts, stored there. Raises PoolError."""
        return self.source.summarise([(_messages(one), one.won(success)) for one in attempts], batch).records

    def add(self, records: Sequence[ExperienceRecord]) -> tuple[list[Added], PoolProblem | None]:
        """They are there already."""
        return [], None


class RunPool:
    """One pool as a run uses it."""

    def __init__(self, settings: ExperienceConfig, run: Path, family: str) -> None:
        """Raises ExperienceError where a pool that must exist does not, or the workspace's settings are wrong."""
        self.name = settings.pool
        self._family, self._workspace = family, workspace_of(run)
        self._creates = settings.init_exp_before_training or settings.updates
        self.service: ReMeLessons | None = None
        self._trials: PoolSource | None = None
        self._source: ExperienceSource
        self._sinks: list[PoolSource] = []
        if settings.reme_url is not None:
            reme = RemeSettings(base_url=settings.reme_url, workspace_id=settings.pool).source()
            self._source, self.service = reme, ReMeLessons(reme)
            return
        path = pool_path(self._workspace.root, settings.pool)
        if not self._creates and not path.exists():
            raise ExperienceError(
                f"there is no pool {settings.pool!r} at {path}, and this run makes none. Fill one first (experience "
                "preset init_train or init_only, `mcp-evo experience distill`), or name one that exists."
            )
        self._source = PoolSource(self._opened_soon, self.name, {"min_similarity": MIN_SIMILARITY, "family": family})
        self._trials = PoolSource(
            self._opened_soon,
            self.name,
            {"min_similarity": MIN_SIMILARITY, "family": family, "statuses": (Status.QUARANTINED,)},
        )

    def opened(self) -> ExperiencePool:
        """The pool's file. Raises PoolError, ExperienceError."""
        return open_pool(self._workspace, self.name, create=self._creates)

    def _opened_soon(self) -> ExperiencePool:
        """As `opened`, for a question: a locked file is said to be locked before a step has waited for long."""
        return open_pool(self._workspace, self.name, create=self._creates, wait_s=STEP_WAIT_S)

    def protect(self, guards: Iterable[Guarded]) -> PoolProblem | None:
        """Registers evaluation problems; a service keeps none."""
        if self.service is not None:
            return None
        try:
            with self.opened() as pool:
                pool.protect(guards)
        except PoolError as error:
            return error.problem
        return None

    def lessons(self, question: str, k: int, *, trials: bool) -> Retrieval:
        """The best active lessons; with `trials`, where there are none, one of those that wait to be tried.

        Alone, so that the outcome is its own.
        """
        found = self._source.retrieve(question, k)
        if found.hits or found.problem is not None or not trials or self._trials is None:
            return found
        return self._trials.retrieve(question, 1)

    def record_uses(self, uses: Sequence[Use]) -> None:
        """Outcomes of attempts; kept where they cannot be written yet."""
        self._source.record_uses(uses)

    def sink(self) -> PoolSource | ReMeLessons:
        """Where lessons go: a connection of its own, so that questions never wait for its transactions."""
        if self.service is not None:
            return self.service
        self._sinks.append(PoolSource(self.opened, self.name))
        return self._sinks[-1]

    def problems(self) -> dict[str, int]:
        """How often what went wrong."""
        found: Counter[str] = Counter()
        for one in self._connections():
            found.update({str(kind): number for kind, number in one.problems.items()})
        return dict(found)

    def records(self) -> dict[str, int] | None:
        """Records by status; None where they cannot be counted."""
        if self.service is not None:
            return None
        try:
            with self.opened() as pool:
                return dict(Counter(str(record.status) for record in pool.store.iterate()))
        except PoolError:
            return None

    def close(self) -> None:
        """Writes what waits and closes the files."""
        for one in self._connections():
            one.close()

    def _connections(self) -> list[Any]:
        return [one for one in (self._source, self._trials, *self._sinks) if one is not None]


def _messages(attempt: Trajectory) -> list[dict[str, Any]]:
    """An attempt as a conversation in words, which a service can read."""
    found: list[dict[str, Any]] = [{"role": "user", "content": attempt.question}]
    for call in attempt.calls:
        written = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        found.append({"role": "assistant", "content": f"{call.tool}({written})"})
        found.append({"role": "user", "content": f"{call.tool}: {call.result}"})
    return found
