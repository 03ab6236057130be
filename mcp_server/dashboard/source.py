"""What documents are read from: the workspace, with what was read of its runs before."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.dashboard.shaping import NotThere
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.home import Home
    from trainer.runs.detectors.types import Alert
    from trainer.runs.registry import Run
    from trainer.runs.rundir import RunDirectory
    from trainer.runs.workspace import Workspace

MAX_FEEDS = 64
"""Runs whose metrics stay in memory between two questions."""


@dataclass
class _Feed:
    """A growing file of a run, as far as it was read."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    offset: int = 0
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    events_offset: int = 0


@dataclass
class Source:
    """The workspace as the dashboard reads it. Several threads may ask."""

    state: ServerState
    _feeds: dict[Path, _Feed] = field(default_factory=dict, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def root(self) -> Path:
        return self.state.root

    def workspace(self) -> "Workspace":
        """The workspace. Raises NotThere where there is none: looking at it makes none."""
        from trainer.runs.workspace import Workspace

        if not self.state.exists:
            raise NotThere("there is no workspace yet; the first training makes one")
        return Workspace(self.root)

    def home(self) -> "Home | None":
        """The optimiser's view; None where the workspace has no skill bank yet."""
        return self.state.home() if (self.root / "skills" / "bank.yaml").exists() else None

    def run(self, run_id: str) -> "Run":
        """A run by its whole id, as it is now. Raises NotThere."""
        from trainer.runs import supervise
        from trainer.runs.errors import RunError
        from trainer.runs.registry import Run
        from trainer.runs.rundir import RunDirectory
        from trainer.runs.workspace import ID_PATTERN

        directory = RunDirectory(self.workspace().runs / run_id)
        if ID_PATTERN.match(run_id) is None or not directory.document_path.exists():
            raise NotThere(f"there is no run {run_id[:64]!r}")
        try:
            return Run(directory, supervise.reconcile(directory))
        except RunError as error:
            raise NotThere(str(error)) from error

    def rows(self, directory: "RunDirectory") -> list[dict[str, Any]]:
        """Its metrics in order of their steps; of a step written twice (after a resume) the later one."""
        with self._turn:
            feed = self._feed(directory)
            new, feed.offset = directory.metrics_from(feed.offset)
            feed.rows.update({row["step"]: row for row in new if isinstance(row.get("step"), int)})
            return [feed.rows[step] for step in sorted(feed.rows)]

    def evaluations(self, directory: "RunDirectory") -> list[dict[str, Any]]:
        """Evaluations as they came: name, step, mean, interval, n."""
        with self._turn:
            feed = self._feed(directory)
            new, feed.events_offset = directory.events_from(feed.events_offset)
            feed.evaluations += [found for event in new if (found := _evaluation(event)) is not None]
            return list(feed.evaluations)

    def alerts(self, directory: "RunDirectory") -> "list[Alert]":
        """Alerts of the run so far; none where its files cannot be judged."""
        from trainer.runs.errors import RunError

        try:
            watch = self.state.watch_of(directory)
            watch.poll()
        except RunError:
            return []
        return watch.standing

    def _feed(self, directory: "RunDirectory") -> _Feed:
        feed = self._feeds.pop(directory.path, None) or _Feed()
        if directory.metrics_path.exists() and directory.metrics_path.stat().st_size < feed.offset:
            feed = _Feed()  # another run under the same name
        self._feeds[directory.path] = feed
        while len(self._feeds) > MAX_FEEDS:
            del self._feeds[next(iter(self._feeds))]
        return feed


def _evaluation(event: dict[str, Any]) -> dict[str, Any] | None:
    found = event.get("eval")
    if event.get("kind") not in ("eval", "validation") or not isinstance(found, dict):
        return None
    name = "validation" if event["kind"] == "validation" else str(event.get("name"))
    return {
        "name": name,
        "step": event.get("step"),
        "mean": found.get("mean"),
        "ci95": found.get("ci95"),
        "n": found.get("n"),
        "split": found.get("split"),
    }
