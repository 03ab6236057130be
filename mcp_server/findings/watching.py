"""What the server sees of a run at one moment, and its analysis."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.analyze.run_analysis import RunAnalysis
    from trainer.runs.detectors.types import Alert
    from trainer.runs.types import RunDocument


@dataclass(frozen=True)
class Look:
    """One look at a run."""

    document: "RunDocument"
    rows: "list[dict[str, Any]]"
    """Its metrics so far."""
    alerts: "tuple[Alert, ...]"
    """All so far, in the order in which they came."""
    waiting_for: tuple[str, ...]
    folder: Path
    offset: int = 0
    """Bytes of its metrics read so far."""
    silent_s: float | None = None
    """Seconds without a sign of life, of a run that counts as stalled."""

    @property
    def last_step(self) -> int:
        """The last step with metrics."""
        return int(self.rows[-1]["step"]) if self.rows else 0


def look(state: ServerState, run_id: str | None, before: Look | None = None) -> Look:
    """Looks at a run, supervising on the way. Raises RunError, WorkspaceError.

    `before` is an earlier look at the same run: only what is new is read and judged.
    """
    from trainer.runs import supervise
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
    watch = state.watch_of(directory)
    watch.poll()
    waiting: tuple[str, ...] = ()
    if document.state is RunState.QUEUED:
        active = (RunState.STARTING, RunState.RUNNING)
        waiting = tuple(run.document.run_id for run in list_runs(workspace) if run.document.state in active)
    silent = None if document.state.is_final else watch.silent_s
    return Look(document, rows, tuple(watch.standing), waiting, directory.path, offset, silent)


def _by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in order of their step; of a step written twice (after a resume) the later one."""
    known = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [known[step] for step in sorted(known)]


@dataclass(frozen=True)
class Analysed:
    """A run, analysed."""

    document: "RunDocument"
    analysis: "RunAnalysis"
    report: Path
    """The report's JSON; its text lies beside it."""
    alerts: "list[Alert]"
    """What was told while it ran."""
    skipped: dict[str, str]
    """Detectors that could not judge, with the metric they miss."""


def analyse(state: ServerState, run_id: str | None) -> Analysed:
    """Analyses a run and writes what it found; analysing again replaces that. Raises RunError, BankError, OSError."""
    from mcp_server.findings.advising import findings_and_advice
    from optimizer.analyze.report import Report
    from optimizer.analyze.run_analysis import RunAnalysis
    from trainer.runs import supervise
    from trainer.runs.detectors.feed import RunWatch
    from trainer.runs.registry import find_run
    from trainer.runs.review_files import review_of
    from trainer.runs.samples import sample_episodes

    home = state.home()
    directory = find_run(home.workspace, run_id).directory
    document = supervise.reconcile(directory)
    findings, advice = findings_and_advice(home, directory)
    report = Report(
        report_id=f"run-{document.run_id}"[:64],
        layer="rllm",
        sessions=[document.session] if document.session else [],
        runs=[document.run_id],
        findings=findings,
    )
    analysis = RunAnalysis(
        report=report,
        advice=tuple(advice),
        review=review_of(directory),
        samples=tuple(sample_episodes(directory)),
    )
    watch = RunWatch(directory)
    watch.poll()
    return Analysed(document, analysis, analysis.write(home.reports, directory), watch.alerts, watch.skipped)
