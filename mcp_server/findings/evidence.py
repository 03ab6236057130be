"""Segments and findings of recorded sessions, as the tools ask for them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.state import LAYER_VARIABLE, ServerState

if TYPE_CHECKING:
    from optimizer.analyze.report import Report
    from optimizer.analyze.view import View
    from optimizer.home import Home
    from optimizer.segment.types import Segment
    from optimizer.types import Finding

ALL = "all"
"""Every session that worked in the layer."""

ANY = "any"
"""Whatever skills were in force; optimisers may not read it."""


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
    given: frozenset[str] | set[str] = frozenset()
    """Ids of the claims that came with this call."""


def segment(state: ServerState, session: str | None) -> list[SessionSegments]:
    """Brings the segments of one session, or of all, up to date. Oldest change first. Raises BadId."""
    home = state.home()
    store = home.trajectories
    names = None if session is None else [store.resolve(session)]
    segments = home.segments
    return [
        SessionSegments(one.session, one.events, one.bad_lines, segments.segments(one.session))
        for one in segments.refresh(names)
    ]


def analyse_layer(
    state: ServerState,
    session: str | None,
    layer: str | None = None,
    *,
    round_number: int | None = None,
    claims: "Sequence[Mapping[str, Any]]" = (),
) -> LayerReport:
    """Findings about the work of a layer and the runs it launched, with verdicts on claims, written as a report.

    One session, by default the newest that worked in the layer; `all`: every session that did; or the session of a
    round. Layer `any` looks at a session whatever skills were in force. Without a layer, a session that is named is
    looked at like that, except by a server that is fixed to a layer, and anything else is rllm's. Claims of earlier
    reports with the same id are kept and judged anew. Raises BadId where no session worked in the layer, LayerError for
    a layer that the acting one may not read, RoundError for a round that does not exist, ClaimError for a claim that
    cannot be read.
    """
    from optimizer.analyze.claims import claims_from
    from optimizer.analyze.report import Report
    from optimizer.analyze.sessions import analyse_views, merged, with_levers

    layer = layer if layer is not None else _default_layer(session)
    _check_reader(layer)
    given = claims_from(claims)
    home = state.home()
    scope = _scope(home, session, layer, round_number)
    mine = [one for segments in scope.segments.values() for one in segments]
    runs = list(dict.fromkeys(run for one in mine for run in one.runs if scope.run in (None, run)))
    found_in = "other" if layer == ANY else layer
    earlier = home.reports.claims_of(scope.report_id)
    analysis = analyse_views(_views(home, scope, found_in, layer), merged(earlier, given), found_in)
    findings = analysis.findings
    if layer in ("rllm", ANY):
        findings = [*_run_findings(home, runs), *with_levers(findings, home.lever_table(), _provenance_of(home))]
    report = Report(
        report_id=scope.report_id,
        layer=found_in,
        sessions=list(scope.segments),
        runs=runs,
        segments=len(mine),
        tool_calls=sum(one.tool_calls for one in mine),
        findings=sorted(findings, key=lambda one: (one.lever is None or one.blocked is not None, -one.confidence)),
        claims=analysis.claims,
        series=analysis.series,
        series_total=analysis.series_total,
    )
    return LayerReport(report, home.reports.write(report), {claim.id for claim in given})


@dataclass(frozen=True)
class _Scope:
    """Which sessions an analysis looks at."""

    report_id: str
    segments: "dict[str, list[Segment]]"
    run: str | None = None
    """The round's run: other runs of the session are not its own."""


def _default_layer(session: str | None) -> str:
    from optimizer.layers import BELOW

    below = next((one for acting, one in BELOW.items() if acting == os.environ.get(LAYER_VARIABLE)), None)
    if below is not None:
        return below.value
    return ANY if session not in (None, ALL) else "rllm"


def _check_reader(layer: str) -> None:
    """Raises LayerError where this server's layer is fixed and may not read the one asked for."""
    from optimizer.layers import Layer, check_read

    acting = os.environ.get(LAYER_VARIABLE)
    if acting in (Layer.TRAJ, Layer.META):
        check_read(acting, layer)


def _scope(home: "Home", session: str | None, layer: str, round_number: int | None) -> _Scope:
    from optimizer.ids import content_id
    from optimizer.round_store import RoundStore

    if round_number is not None:
        current = RoundStore(home.root).read(round_number)
        name, mine = _segments_of_layer(home, current.evolution, layer)
        own = [one for one in mine if current.run_id in one.runs]
        return _Scope(f"round-{layer}-{round_number:06d}", {name: own or mine}, current.run_id)
    if session == ALL:
        every = {name: _in_layer(home, name, layer) for name in home.trajectories.sessions()}
        found = {name: segments for name, segments in every.items() if segments}
        if not found:
            _segments_of_layer(home, None, layer)
        return _Scope(f"layer-{layer}", found)
    name, mine = _segments_of_layer(home, session, layer)
    return _Scope(f"session-{layer}-{content_id(name, length=12)}", {name: mine})


def _views(home: "Home", scope: _Scope, found_in: str, layer: str) -> "list[View]":
    from optimizer.analyze.view import View

    leads = {name: home.bank.children(name) for name in home.bank.skills()}
    orchestrators = {name: steps for name, steps in leads.items() if steps}
    steps = {name: home.bank.steps(name) for name in leads}
    views = []
    for name, segments in scope.segments.items():
        events = home.trajectories.read(name).events
        if layer == ANY:
            views.append(View(name, events, segments, found_in, orchestrators, steps))
        else:
            views.append(View.of_layer(name, events, segments, layer, orchestrators, steps))
    return views


def _in_layer(home: "Home", name: str, layer: str) -> "list[Segment]":
    return [one for one in home.segments.update(name) if layer in (ANY, one.layer)]


def _segments_of_layer(home: "Home", session: str | None, layer: str) -> "tuple[str, list[Segment]]":
    """The session asked for, else the newest that worked in the layer, with its segments there. Raises BadId."""
    from optimizer.ids import BadId

    store = home.trajectories
    names = [store.resolve(session)] if session is not None else list(reversed(store.sessions()))
    for name in names:
        mine = _in_layer(home, name, layer)
        if mine:
            return name, mine
    where = f"session {names[0]}" if session is not None else f"none of the {len(names)} recorded sessions"
    raise BadId(
        f"{where} worked by a skill of layer {layer}: layer any looks at a session whatever skills were in force, "
        f"analyze_run at a run without any session; load_skill {'traj-loop' if layer == 'traj' else 'rllm-train'} "
        "opens one for the work to come"
    )


def _provenance_of(home: "Home") -> "Callable[[str], dict[str, dict[str, Any]] | None]":
    """Asks the runs of the workspace where their values came from."""
    from trainer.runs.errors import RunError, WorkspaceError
    from trainer.runs.registry import find_run

    def provenance(run_id: str) -> dict[str, dict[str, Any]] | None:
        try:
            return find_run(home.workspace, run_id).document.provenance
        except (RunError, WorkspaceError):
            return None

    return provenance


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
