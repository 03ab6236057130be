"""Segments and findings of recorded sessions, as the tools ask for them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.analyze.report import Report
    from optimizer.home import Home
    from optimizer.segment.types import Segment
    from optimizer.types import Finding


@dataclass(frozen=True)
class SessionSegments:
    """A session with its segments."""

    session: str
    events: int
    bad_lines: int
    segments: "list[Segment]"


@dataclass(frozen=True)
class LayerReport:
    """The findings of a session's layer and where they are written."""

    report: "Report"
    path: Path


def segment(state: ServerState, session: str | None) -> list[SessionSegments]:
    """Brings the segments of one session, or of all, up to date. Oldest change first. Raises BadId."""
    home = state.home()
    store = home.trajectories
    names = store.sessions() if session is None else [store.resolve(session)]
    found = []
    for name in names:
        batch = store.read(name)
        found.append(SessionSegments(name, len(batch.events), len(batch.bad_lines), home.segments.update(name)))
    return found


def analyse_layer(state: ServerState, session: str | None, layer: str) -> LayerReport:
    """Findings about one session's work in a layer, and about the runs it launched, written as a report.

    Raises BadId where no session worked in the layer, LayerError for a layer that nobody optimises.
    """
    from optimizer.analyze.report import Report
    from optimizer.analyze.trajectories import analyse_events
    from optimizer.ids import content_id

    home = state.home()
    name, mine = _segments_of_layer(home, session, layer)
    events = home.trajectories.read(name).events
    runs = list(dict.fromkeys(run for one in mine for run in one.runs))
    findings = (
        [*_run_findings(home, runs), *analyse_events(mine, events)] if layer == "rllm" else analyse_events(mine, events)
    )
    report = Report(
        report_id=f"session-{layer}-{content_id(name, length=12)}",
        layer=layer,
        sessions=[name],
        runs=runs,
        segments=len(mine),
        tool_calls=sum(one.tool_calls for one in mine),
        findings=sorted(findings, key=lambda one: (one.lever is None or one.blocked is not None, -one.confidence)),
    )
    return LayerReport(report, home.reports.write(report))


def _segments_of_layer(home: "Home", session: str | None, layer: str) -> "tuple[str, list[Segment]]":
    """The session asked for, else the newest that worked in the layer, with its segments there. Raises BadId."""
    from optimizer.ids import BadId

    store = home.trajectories
    names = [store.resolve(session)] if session is not None else list(reversed(store.sessions()))
    for name in names:
        mine = [one for one in home.segments.update(name) if one.layer == layer]
        if mine:
            return name, mine
    where = f"session {names[0]}" if session is not None else f"none of the {len(names)} recorded sessions"
    raise BadId(
        f"{where} worked by a skill of layer {layer}: analyze_run looks at a run without any session; "
        f"load_skill {'rllm-train' if layer == 'rllm' else 'traj-loop'} opens one for the work to come"
    )


def _run_findings(home: "Home", runs: list[str]) -> "list[Finding]":
    """What the runs of the session show; a run that is gone is passed over, its calls are still there."""
    from optimizer.analyze.runs import analyse_run
    from trainer.runs.errors import RunError, WorkspaceError
    from trainer.runs.registry import find_run

    table, thresholds = home.lever_table(), home.thresholds()
    found: list[Finding] = []
    for run_id in runs:
        try:
            directory = find_run(home.workspace, run_id).directory
            found += analyse_run(directory, table, thresholds)
        except (RunError, WorkspaceError):  # gone, or never a run: a call may have named anything
            continue
    return found
