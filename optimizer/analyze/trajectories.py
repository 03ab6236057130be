"""Findings from trajectories: what the events of a layer's segments show. So far failing calls and repeated ones.

A call counts as failed on structured evidence only (see `optimizer.outcome`). Repeated: the same tool with the same
input failed again without having worked in between, which is where an agent loses time.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from optimizer.events import Event
from optimizer.ids import content_id
from optimizer.segment.types import Segment
from optimizer.types import EventEvidence, Finding, Metric

_SHOWN = 120
"""Characters of a tool's input shown in a finding."""


def analyse_events(segments: Sequence[Segment], events: Iterable[Event]) -> list[Finding]:
    """Findings about the calls of these segments, all of one session. `events` are the session's, in file order."""
    by_line = {event.line: event for event in events if event.is_call}
    found: list[Finding] = []
    for segment in segments:
        calls = [by_line[line] for line in _lines(segment, by_line)]
        repeated, lines_in_series = _repeated(segment, calls)
        found += repeated
        found += _single(segment, calls, lines_in_series)
    return found


def _lines(segment: Segment, by_line: dict[int, Event]) -> list[int]:
    """Lines of the segment's own calls: inside its spans, of its agent."""
    return [
        line
        for line, event in by_line.items()
        if event.agent == segment.agent and any(span.first_line <= line <= span.last_line for span in segment.spans)
    ]


def _key(event: Event) -> str:
    return content_id(event.tool, json.dumps(event.input, sort_keys=True, default=str, ensure_ascii=False))


def _repeated(segment: Segment, calls: list[Event]) -> tuple[list[Finding], set[int]]:
    series: dict[str, list[list[Event]]] = defaultdict(lambda: [[]])
    for call in calls:
        runs = series[_key(call)]
        if call.failed:
            runs[-1].append(call)
        elif runs[-1]:
            runs.append([])
    found: list[Finding] = []
    covered: set[int] = set()
    for runs in series.values():
        for run in runs:
            if len(run) < 2:
                continue
            covered |= {call.line for call in run}
            first = run[0]
            found.append(
                Finding(
                    id=f"finding-{content_id(segment.id, 'repeated', first.line, length=12)}",
                    kind="repeated_failing_call",
                    what=f"{first.tool} failed {len(run)} times in a row with the same input{_where(segment)}: "
                    f"{_shown(first)} ({first.reason or 'failed'})",
                    evidence=[EventEvidence(session=segment.session, line=call.line) for call in run],
                    metrics=[Metric(name="failures", value=len(run), n=len(run))],
                    confidence=1.0,
                    layer=segment.layer,
                )
            )
    return found, covered


def _single(segment: Segment, calls: list[Event], covered: set[int]) -> list[Finding]:
    """Failing calls outside of a series, one finding a tool with its share of failures."""
    by_tool: dict[str, list[Event]] = defaultdict(list)
    totals: dict[str, int] = defaultdict(int)
    for call in calls:
        totals[call.tool or "?"] += 1
        if call.failed and call.line not in covered:
            by_tool[call.tool or "?"].append(call)
    found = []
    for tool, failing in by_tool.items():
        share = len(failing) / totals[tool]
        error = (share * (1 - share) / totals[tool]) ** 0.5
        found.append(
            Finding(
                id=f"finding-{content_id(segment.id, 'failing', tool, length=12)}",
                kind="failing_call",
                what=f"{len(failing)} of {totals[tool]} calls of {tool} failed{_where(segment)}; "
                f"the first: {_shown(failing[0])} ({failing[0].reason or 'failed'})",
                evidence=[EventEvidence(session=segment.session, line=call.line) for call in failing],
                metrics=[Metric(name="failure_rate", value=share, n=totals[tool], standard_error=error)],
                confidence=1.0,
                layer=segment.layer,
            )
        )
    return found


def _where(segment: Segment) -> str:
    return f" under {segment.skill}" if segment.skill is not None else ""


def _shown(event: Event) -> str:
    text = json.dumps(event.input, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
