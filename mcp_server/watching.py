"""What the server sees of a run at one moment, and its analysis."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.analyze.report import Report
    from trainer.runs.findings import Finding
    from trainer.runs.types import RunDocument

QUIET = frozenset({"healthy", "inconclusive", "budget_too_small", "failed"})
"""Findings that are no alert: they praise, they say nothing yet, or the run's state says it already."""

LATE = frozenset({"learning_rate_too_low"})
"""Findings about slowness: an alert only in the second half of the planned steps; before, a run may just be slow."""


@dataclass(frozen=True)
class Look:
    """One look at a run."""

    document: "RunDocument"
    rows: "list[dict[str, Any]]"
    """Its metrics so far."""
    alerts: "tuple[Finding, ...]"
    waiting_for: tuple[str, ...]
    folder: Path
    offset: int = 0
    """Bytes of its metrics read so far."""

    @property
    def last_step(self) -> int:
        """The last step with metrics."""
        return int(self.rows[-1]["step"]) if self.rows else 0


def look(state: ServerState, run_id: str | None, before: Look | None = None) -> Look:
    """Looks at a run, supervising on the way. Raises RunError, WorkspaceError.

    `before` is an earlier look at the same run: only what is new is read and judged.
    """
    from trainer.runs import supervise
    from trainer.runs.diagnose import diagnose_run
    from trainer.runs.registry import find_run, list_runs
    from trainer.runs.types import RunState
    from trainer.runs.workspace import Workspace

    workspace = Workspace(state.root)
    directory = find_run(workspace, run_id).directory
    document = supervise.reconcile(directory)
    if not document.state.is_final:
        state.launcher().tick(workspace)
        document = directory.read_document()
    new, offset = directory.metrics_from(before.offset if before is not None else 0)
    rows = _by_step([*(before.rows if before is not None else []), *new])
    alerts = before.alerts if before is not None else ()
    if document.state.is_final:
        alerts = ()
    elif new:
        late = 2 * len(rows) >= (document.planned_steps or 0)
        found = diagnose_run(directory, state.thresholds())
        alerts = tuple(one for one in found if one.kind not in QUIET and (late or one.kind not in LATE))
    waiting: tuple[str, ...] = ()
    if document.state is RunState.QUEUED:
        active = (RunState.STARTING, RunState.RUNNING)
        waiting = tuple(run.document.run_id for run in list_runs(workspace) if run.document.state in active)
    return Look(document, rows, alerts, waiting, directory.path, offset)


def _by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in order of their step; of a step written twice (after a resume) the later one."""
    known = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [known[step] for step in sorted(known)]


def analyse(state: ServerState, run_id: str | None) -> "tuple[RunDocument, Report, Path]":
    """Analyses a run and writes the report of it; analysing again replaces that. Raises RunError, BankError."""
    from optimizer.analyze.report import Report
    from optimizer.analyze.runs import analyse_run
    from trainer.runs import supervise
    from trainer.runs.registry import find_run

    home = state.home()
    directory = find_run(home.workspace, run_id).directory
    document = supervise.reconcile(directory)
    report = Report(
        report_id=f"run-{document.run_id}"[:64],
        layer="rllm",
        sessions=[document.session] if document.session else [],
        runs=[document.run_id],
        findings=analyse_run(directory, home.lever_table(), home.thresholds()),
    )
    return document, report, home.reports.write(report)
