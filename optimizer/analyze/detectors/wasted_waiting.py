"""Polling without change: the same look again and again, with the same answer.

Rule: the same agent makes the same call (waiting times and comments aside) at least three times, each time with the
same output, and nothing that it did in between is anything but such a look.
Needs: outputs. Times, where the source has them, give how long it went on.
Does not claim: that waiting was avoidable; a run may need its time. It says that these looks told nothing new.
"""

import re
from collections.abc import Sequence

from optimizer.analyze.detectors.common import finding, shortened
from optimizer.analyze.texts import command_of
from optimizer.analyze.view import View
from optimizer.events import Event
from optimizer.types import Finding, Metric

MIN_LOOKS = 3
"""Two equal answers are a look and a check."""

_SLEEP = re.compile(r"\bsleep\s+[\d.]+\w?\s*(?:&&|;)?")
_COMMENT = re.compile(r"(?m)^\s*#.*$")
_WATCHING = frozenset({"ScheduleWakeup", "Monitor", "TaskUpdate", "TaskList", "TodoWrite"})
_READS = frozenset({"Bash", "BashOutput", "TaskOutput", "Read", "monitor_run", "list_runs", "round_status"})
_NOTHING_NEW = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?|\b\d{4}-\d{2}-\d{2}\b")


def detect(view: View) -> list[Finding]:
    """One finding for each series of equal looks."""
    found = []
    agents = {event.agent for event in view.calls}
    for agent in sorted(agents):
        calls = [event for event in view.calls if event.agent == agent and event.tool not in _WATCHING]
        for looks in _series(view, calls):
            found.append(_told(view, looks))
    return found


def _series(view: View, calls: Sequence[Event]) -> list[list[Event]]:
    series: list[list[Event]] = []
    current: list[Event] = []
    for call in calls:
        same = current and _key(call) == _key(current[-1]) and _answer(view, call) == _answer(view, current[-1])
        if same and _reads(call):
            current.append(call)
            continue
        if len(current) >= MIN_LOOKS:
            series.append(current)
        current = [call] if _reads(call) else []
    if len(current) >= MIN_LOOKS:
        series.append(current)
    return series


def _reads(call: Event) -> bool:
    return (call.tool or "").rsplit("__", 1)[-1] in _READS and not call.failed


def _key(call: Event) -> tuple[str | None, str]:
    command = command_of(call)
    if command:
        return call.tool, " ".join(_COMMENT.sub("", _SLEEP.sub("", command)).split())
    return call.tool, repr(call.input)


def _answer(view: View, call: Event) -> str:
    return _NOTHING_NEW.sub("", view.outputs[call.line]).strip()


def _told(view: View, looks: list[Event]) -> Finding:
    first, last = looks[0], looks[-1]
    metrics = [Metric(name="equal_looks", value=len(looks), n=len(looks))]
    spent = ""
    if first.time is not None and last.time is not None and last.time > first.time:
        seconds = last.time - first.time
        metrics.append(Metric(name="seconds_between_first_and_last", value=round(seconds, 1), n=1))
        spent = f" over {seconds:.0f} s"
    what = f"{first.tool} looked {len(looks)} times{spent} and saw the same each time: {shortened(_key(first)[1])}"
    lines = [look.line for look in looks]
    return finding(view, "wasted_waiting", first.line, what, lines, confidence=0.9, metrics=metrics)
