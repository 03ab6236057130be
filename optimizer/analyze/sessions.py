"""Analysis of sessions: what detectors find in the part of each that a reader may see, and the verdicts on claims."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.analyze.claims import Checked, Claim, Verified, check_claim, finding_of
from optimizer.analyze.detectors import detect_all
from optimizer.analyze.levers import LeverTable
from optimizer.analyze.readings import Axis
from optimizer.analyze.report import SeriesLine
from optimizer.analyze.runs import blocked_by
from optimizer.analyze.series import Series
from optimizer.analyze.view import View
from optimizer.types import Finding

ProvenanceOf = Callable[[str], dict[str, dict[str, Any]] | None]
"""Run → where each of its values came from; None: not a run of this workspace."""

MAX_KEPT = 200
"""Claims that a report keeps."""

MAX_SERIES = 60
"""Series that a report lists."""


@dataclass(frozen=True)
class Analysis:
    """What was found in sessions."""

    findings: list[Finding]
    claims: list[Checked]
    series: list[SeriesLine]
    series_total: int


def analyse_views(views: Sequence[View], claims: Iterable[Claim], layer: str) -> Analysis:
    """Findings of every detector in every view, claims with verdicts, and the series that were read.

    A claim that holds is a finding, too, by its machine form.
    """
    findings = [one for view in views for one in detect_all(view)]
    books = {view.session: view.book for view in views}
    events = {view.session: view.events for view in views}
    checked = [check_claim(claim, books, events) for claim in claims]
    stated = [one for claim in checked if (one := finding_of(claim, layer)) is not None]
    lines = [_line(one) for view in views for one in view.book.series.values() if not one.key.setting]
    lines.sort(key=lambda one: (-one.points, one.session, one.name, one.run or ""))
    return Analysis([*findings, *stated], checked, lines[:MAX_SERIES], len(lines))


def with_levers(findings: Iterable[Finding], table: LeverTable, provenance_of: ProvenanceOf) -> list[Finding]:
    """The findings, those about a run of the workspace with the lever that the decision table names for their kind.

    Where a request or an override fixed the value, the lever is blocked and says so. Any other run's configuration is
    not known here, so a finding about it names no lever.
    """
    found = []
    for one in findings:
        runs = {metric.run for metric in one.metrics if metric.run is not None}
        lever = table.lever_for(one.kind) if one.lever is None and len(runs) == 1 else None
        run = next(iter(runs), None)
        provenance = provenance_of(run) if lever is not None and run is not None else None
        if lever is None or provenance is None:
            found.append(one)
            continue
        blocked = blocked_by(lever, provenance)
        found.append(one.model_copy(update={"lever": lever, "blocked": blocked, "run_id": run}))
    return found


def merged(old: Iterable[Checked], new: Iterable[Claim]) -> list[Claim]:
    """Claims of an earlier report and new ones, each once, in the order they came; of very many the newest."""
    claims: dict[str, Claim] = {one.id: one.claim for one in old}
    for claim in new:
        claims.setdefault(claim.id, claim)
    return list(claims.values())[-MAX_KEPT:]


def verified(checked: Iterable[Checked]) -> int:
    """How many claims hold, by their machine form at least."""
    return sum(1 for one in checked if one.verified is not Verified.NO)


def _line(series: Series) -> SeriesLine:
    key = series.key
    measured = [point for point in series.points if not point.own]
    steps = [point.step for point in series.points if point.step is not None and key.axis is not Axis.INDEX]
    return SeriesLine(
        session=series.session,
        name=key.name,
        split=key.split,
        run=key.run,
        axis=str(key.axis),
        points=len(series.points),
        own=len(series.points) - len(measured),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        last=series.points[-1].reading.printed,
        lines=series.lines[:8],
    )
