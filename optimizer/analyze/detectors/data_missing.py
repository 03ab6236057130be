"""Numbers that an analysis asked for and did not get: what the skill that trained should have surfaced.

Rule 1: an output shows a metric's name with an empty value (`reward_trend: None`, `"val": null`, `N/A`).
Rule 2: a run was launched in the session and no event shows a single held-out number of it.
Needs: outputs.
Does not claim: that it was not measured. It says `not found in the events`, which is all that events can tell.
"""

import re

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.splits import HELD_OUT
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

_EMPTY = re.compile(r"(?<![\w/@.-])(?P<name>[\w/@.-]{1,80})['\"]?\s*[:=]\s*(?:None|null|N/A|nan|NaN)\b")
_METRIC_NAME = re.compile(
    r"reward|score|entropy|loss|metric|perf_stats|grad|accuracy|\bval|\Aconfig\Z|\bkl", re.IGNORECASE
)
_ONLY_DATA = frozenset({"Bash", "BashOutput", "TaskOutput"})


def detect(view: View) -> list[Finding]:
    """Empty values, one finding for the session; runs without held-out numbers, one finding a run."""
    return [*_empty_values(view), *_no_held_out(view)]


def _empty_values(view: View) -> list[Finding]:
    names: dict[str, int] = {}
    lines: list[int] = []
    for event in view.calls:
        if (event.tool or "").rsplit("__", 1)[-1] not in _ONLY_DATA:
            continue
        empty = [match["name"] for match in _EMPTY.finditer(view.outputs[event.line])]
        found = [name for name in empty if _METRIC_NAME.search(name)]
        for name in found:
            names[name] = names.get(name, 0) + 1
        if found:
            lines.append(event.line)
    if not names:
        return []
    # the calls just before it that asked for the same and broke on it belong to the story
    others = [event.line for event in view.calls if event.line not in lines]
    broke = [line for line in others if "'NoneType'" in view.outputs[line] and "TypeError" in view.outputs[line]]
    most = sorted(names, key=lambda name: (-names[name], name))[:6]
    what = f"empty where numbers were asked for: {', '.join(f'{name} ({names[name]}×)' for name in most)}"
    metric = Metric(name="empty_values", value=sum(names.values()), n=len(lines))
    return [finding(view, "data_missing", "empty", what, [*lines, *broke], confidence=0.9, metrics=[metric])]


def _no_held_out(view: View) -> list[Finding]:
    found = []
    for run in sorted({launch.run for launch in view.book.launches if launch.run is not None}):
        mine = [one for one in view.book.series.values() if one.key.run == run and not one.key.setting]
        measured = [one for one in mine if any(not point.own for point in one.points)]
        held_out = [one for one in measured if one.key.split in HELD_OUT]
        if not measured or held_out:
            continue
        launched = [launch.line for launch in view.book.launches if launch.run == run]
        shown = [line for one in measured for line in one.lines]
        what = (
            f"no held-out number of {run} was found in the events ({len(measured)} other series were): "
            "it may have been logged where nobody looked"
        )
        found.append(finding(view, "data_missing", run, what, [*launched, max(shown)], confidence=0.6))
    return found
