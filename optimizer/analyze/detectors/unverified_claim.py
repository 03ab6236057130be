"""A number in a report, prompt or file of the agent that no event before it shows.

Rule: in what the agent writes, a line that names a metric holds a number of three or more significant digits; no output
before it, and no prompt, shows a number that rounds to it (or, with a percent sign, to a hundredth of it).
Needs: outputs. What was clipped or never captured cannot be found, so the finding says `not shown`, never `false`.
Does not claim: that the number is wrong, nor that a shown number was measured well.
"""

import bisect
import re

from optimizer.analyze.detectors.common import finding, shortened
from optimizer.analyze.readings import NUMBER, decimals, significant
from optimizer.analyze.view import View
from optimizer.events import Event
from optimizer.types import Finding, Metric

METRIC_WORD = re.compile(
    r"reward|score|\bacc(?:uracy)?\b|success|\bloss\b|entropy|\bkl\b|grad.?norm|\bval(?:idation)?\b|pass@|回报|奖励|准确率|正确率|熵",
    re.IGNORECASE,
)
MIN_DIGITS = 3
_NUMBERS = re.compile(rf"(?<![\w./:-])({NUMBER})(\s?%)?(?![\w./:])")
_LITERAL_LIST = re.compile(rf"\[\s*(?:{NUMBER}\s*,\s*)+{NUMBER}?")
"""Numbers of a program, not of a statement."""
_SHOWN = re.compile(rf"(?<![\w.]){NUMBER}")
_READERS = frozenset({"Read", "Grep", "Glob", "Skill", "load_skill", "ToolSearch"})
"""Calls whose input states nothing."""


def detect(view: View) -> list[Finding]:
    """One finding for each call with numbers that were not shown before it."""
    shown: list[float] = []
    found = []
    for event in view.events:
        if event.text:
            _note(shown, event.text)
        if not event.is_call:
            continue
        if (event.tool or "").rsplit("__", 1)[-1] not in _READERS:
            found += _unshown(view, event, shown)
        _note(shown, _without_own(view, event))
    return found


def _unshown(view: View, event: Event, shown: list[float]) -> list[Finding]:
    missing: dict[str, str] = {}
    checked = 0
    for line in view.inputs[event.line].split("\n"):
        if not METRIC_WORD.search(line):
            continue
        for printed, percent in _NUMBERS.findall(_LITERAL_LIST.sub(" ", line)):
            if significant(printed) < MIN_DIGITS or decimals(printed) < 1:
                continue
            checked += 1
            value = float(printed)
            unit = 0.5 * 10.0 ** -decimals(printed)
            scales = (1.0, 0.01) if percent else (1.0,)
            if not any(_near(shown, value * scale, unit * scale) for scale in scales):
                missing.setdefault(printed, line)
    if not missing:
        return []
    first = next(iter(missing))
    what = (
        f"{len(missing)} number(s) written here are not shown by any event before it "
        f"({', '.join(list(missing)[:6])}): {shortened(missing[first])}"
    )
    metric = Metric(name="numbers_not_shown", value=len(missing), n=checked)
    return [finding(view, "unverified_claim", event.line, what, [event.line], confidence=0.8, metrics=[metric])]


def _note(shown: list[float], text: str) -> None:
    for printed in _SHOWN.findall(text):
        if "." in printed or "e" in printed.lower():
            value = float(printed)
            at = bisect.bisect_left(shown, value)
            if at == len(shown) or shown[at] != value:
                shown.insert(at, value)


def _without_own(view: View, event: Event) -> str:
    """The output without lines that stand in the call's own input: an echo shows nothing."""
    own = {" ".join(line.split()) for line in view.inputs[event.line].split("\n")}
    return "\n".join(line for line in view.outputs[event.line].split("\n") if " ".join(line.split()) not in own)


def _near(shown: list[float], value: float, tolerance: float) -> bool:
    margin = tolerance * (1 + 1e-9) + 1e-12
    at = bisect.bisect_left(shown, value - margin)
    return at < len(shown) and shown[at] <= value + margin
