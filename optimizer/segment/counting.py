"""What a call adds to its segment: counts, judgements with their lines, files, intents, runs."""

from optimizer.call_fields import CallInput, text
from optimizer.events import Event
from optimizer.intents import LAUNCHES, WRITERS, Shown
from optimizer.outcome import Evidence
from optimizer.segment.types import Intent, IntentKind, LineEvidence, Segment

_BY_OUTPUT = frozenset({Evidence.MASKED, Evidence.REPORTED})
_CHANGES = frozenset({IntentKind.EDIT, IntentKind.CONFIG})


def count(segment: Segment, event: Event, tool: str) -> None:
    """Counts a call of the segment, with its outcome and its run."""
    line = event.line
    segment.last_line = line
    segment.tool_calls += 1
    spans = segment.spans
    span = spans[-1]
    span.last_line = line
    span.tool_calls += 1
    if len(spans) == 1 or segment.kind == "free":
        segment.span_tool_calls += 1
    tools = segment.tools
    tools[tool] = tools.get(tool, 0) + 1
    if event.time is not None:
        segment.ended_at = event.time
    if event.run_id is not None:
        _add_run(segment, event, tool, event.run_id)
    if event.outcome == "failed":
        evidence = LineEvidence(line, event.reason or "failed")
        segment.failed.append(line)
        segment.failures.append(evidence)
        if event.evidence in _BY_OUTPUT:
            segment.masked.append(evidence)
    elif event.outcome == "unknown":
        segment.unknown += 1


def _add_run(segment: Segment, event: Event, tool: str, run: str) -> None:
    if run not in segment.runs:
        segment.runs.append(run)
    if tool.rsplit("__", 1)[-1] in LAUNCHES and not event.failed and run not in segment.launched:
        segment.launched.append(run)


def add_file(segment: Segment, tool: str, call: CallInput) -> None:
    """Adds the file that the call names."""
    path = text(call.notebook_path if tool == "NotebookEdit" else call.file_path)
    if path is None:
        return
    if path not in segment.files:
        segment.files.append(path)
    if tool in WRITERS and path not in segment.written:
        segment.written.append(path)


def add_intents(segment: Segment, event: Event, shown: list[Shown]) -> None:
    """Adds what the call was for; a change that failed was none."""
    for kind, what in shown:
        if event.failed and kind in _CHANGES:
            continue
        for one in segment.intents:
            if one.kind == kind:
                one.calls += 1
                break
        else:
            segment.intents.append(Intent(kind=kind, line=event.line, text=what, calls=1))
