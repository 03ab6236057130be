"""A training that was launched and whose end nobody looked at.

Rule: the call that launched it came back before the training ended, and afterwards no output of the session shows its
end: its last step (`k/N` with k = N, or the report behind it), its crash, that its process is gone, or that it was
stopped. A run that was launched again counts by its last launch.
Needs: the launch. A session that goes on elsewhere (another session watches) cannot be told from one that was given up.
Does not claim: that the run failed.
"""

import re

from optimizer.analyze.detectors import launch_crash
from optimizer.analyze.detectors.common import finding, shortened
from optimizer.analyze.launches import Launch
from optimizer.analyze.readings import Axis
from optimizer.analyze.view import View
from optimizer.types import EventEvidence, Finding, Metric

_ENDED = re.compile(
    r"training (?:report|complete|completed|finished|done)"
    r"|process[ _:](?:gone|exited|not running|stopped)|\bSTOPPED\b|\bDONE\b|final validation"
    r"|run (?:finished|failed|stopped)|process killed|no such process"
    r"|\"(?:state|status)\": ?\"(?:finished|failed|stopped|completed|killed|lost)\""
    r"|训练完成|训练结束|已完成|已停止",
    re.IGNORECASE,
)
_STOPS = re.compile(r"\bkill\b|\bpkill\b|\bray stop\b")
_STOP_TOOLS = frozenset({"TaskStop", "KillShell", "KillBash", "stop_run"})


def detect(view: View) -> list[Finding]:
    """One finding for each launch whose end was not seen."""
    crashed = {
        one.line for found in launch_crash.detect(view) for one in found.evidence if isinstance(one, EventEvidence)
    }
    found = []
    launches = view.book.launches
    for at, launch in enumerate(launches):
        again = next((other.line for other in launches[at + 1 :] if _replaces(other, launch)), None)
        if not launch.background or _end_seen(view, launch, again, crashed):
            continue
        looks = _looks(view, launch, again)
        if again is not None and not looks:
            continue  # started anew at once: what counts is the later launch
        name = launch.run or "the training"
        if again is not None:
            what = f"{name} was started again in line {again}; no event shows how the launch before it ended"
        elif looks:
            what = f"{name} was launched and looked at {len(looks)} time(s); no event shows its end"
        else:
            what = f"{name} was launched and never looked at again: {shortened(launch.command)}"
        metric = Metric(name="looks", value=len(looks), n=len(looks))
        lines = [launch.line, *looks[-3:]]
        confidence = 0.4 if again is not None else 0.6 if looks else 0.8
        found.append(finding(view, "abandoned_run", launch.line, what, lines, confidence=confidence, metrics=[metric]))
    return found


def _replaces(later: Launch, launch: Launch) -> bool:
    """Whether a later launch is the same training started again; one that names no run is taken to be."""
    return later.run == launch.run or None in (later.run, launch.run)


def _end_seen(view: View, launch: Launch, again: int | None, crashed: set[int]) -> bool:
    for event in view.calls:
        if event.line <= launch.line or (again is not None and event.line > again):
            continue
        tool = (event.tool or "").rsplit("__", 1)[-1]
        if tool in _STOP_TOOLS or _STOPS.search(view.inputs[event.line]) or event.line in crashed:
            return True
        if _ENDED.search(view.outputs[event.line]):
            return True
    return _last_step_seen(view, launch, again)


def _last_step_seen(view: View, launch: Launch, again: int | None) -> bool:
    for series in view.book.training(Axis.STEP):
        if launch.run is not None and series.key.run not in (launch.run, None):
            continue
        for point in series.points:
            inside = point.line > launch.line and (again is None or point.line <= again)
            if inside and point.reading.total is not None and point.step == point.reading.total:
                return True
    return False


def _looks(view: View, launch: Launch, again: int | None) -> list[int]:
    names = [name for name in (launch.run, launch.log) if name]
    return [
        event.line
        for event in view.calls
        if event.line > launch.line
        and (again is None or event.line < again)
        and (event.run_id == launch.run is not None or any(name in view.inputs[event.line] for name in names))
    ]
