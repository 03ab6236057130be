"""Analysis of sessions: what detectors find in the part of each that a reader may see, and the verdicts on claims."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.analyze.claims import Checked, Claim, Verified, check_claim, finding_of
from optimizer.analyze.detectors import detect_all
from optimizer.analyze.readings import Axis
from optimizer.analyze.report import SeriesLine
from optimizer.analyze.series import Series
from optimizer.analyze.view import View
from optimizer.types import Finding

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


def merged(old: Iterable[Checked], new: Iterable[Claim]) -> list[Claim]:
    """Claims of an earlier report and new ones, each once, in the order they came."""
    claims: dict[str, Claim] = {one.id: one.claim for one in old}
    for claim in new:
        claims.setdefault(claim.id, claim)
    return list(claims.values())


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
