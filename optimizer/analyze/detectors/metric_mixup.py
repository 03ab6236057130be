"""A training number told as a held-out one, or the other way round; one field for both.

Rule 1: the agent writes a number beside `val`, `validation`, `held-out` or `test` that rounds to a number of a training
series of the session and to none of any held-out series (or beside `train` with the two exchanged).
Rule 2: it records a bare `reward` (`score`, `success`) twice, once with a value that only training series have, once
with one that only held-out series have: whoever compares the two compares two different metrics.
Needs: both series in the events; numbers of three or more significant digits.
Does not claim: anything about numbers that no series shows (see `unverified_claim`).
"""

import bisect
import re
from collections.abc import Iterable

from optimizer.analyze.detectors.common import finding, shortened
from optimizer.analyze.readings import NUMBER, decimals, rounds_to, significant
from optimizer.analyze.series import Point
from optimizer.analyze.splits import HELD_OUT, TRAIN
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

MIN_DIGITS = 3
_SAID = re.compile(
    rf"(?P<label>\b(?:val(?:idation)?|held[ -]?out|test|train(?:ing)?)\b|验证|测试|训练)[^\n\d]{{0,24}}?"
    rf"(?<![\w.])(?P<value>{NUMBER})(?![\w.])",
    re.IGNORECASE,
)
_BARE = re.compile(rf"(?<![\w/])(?P<name>reward|score|success)['\"]?\s*[:=]\s*(?P<value>{NUMBER})(?![\w.])")
_TRAIN_WORDS = ("train", "训练")


class _Numbers:
    """Numbers of one kind of series, in order, so that those that round to a printed one are found at once."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._points = sorted((point.value, point.line, point.reading.printed) for point in points)
        self._values = [value for value, _, _ in self._points]

    def __bool__(self) -> bool:
        return bool(self._points)

    def lines(self, printed: str, before: int | None = None) -> list[int]:
        """Lines that show a number which rounds to the printed one, with enough digits to say so."""
        value, reach = float(printed), 10.0 ** -decimals(printed)
        low = bisect.bisect_left(self._values, value - reach)
        high = bisect.bisect_right(self._values, value + reach)
        digits = min(MIN_DIGITS, significant(printed))
        return sorted(
            {
                line
                for number, line, shown in self._points[low:high]
                if (before is None or line < before) and significant(shown) >= digits and rounds_to(number, printed)
            }
        )


def detect(view: View) -> list[Finding]:
    """Findings by call (rule 1) and by field (rule 2)."""
    series = list(view.book.series.values())
    train = _Numbers(p for one in series if one.key.split == TRAIN for p in one.points if not p.own)
    held = _Numbers(p for one in series if one.key.split in HELD_OUT for p in one.points if not p.own)
    if not train or not held:
        return []
    return [*_mislabelled(view, train, held), *_one_field(view, train, held)]


def _mislabelled(view: View, train: _Numbers, held: _Numbers) -> list[Finding]:
    found = []
    for event in view.calls:
        for match in _SAID.finditer(view.inputs[event.line]):
            printed = match["value"]
            if significant(printed) < MIN_DIGITS:
                continue
            said_train = match["label"].lower().startswith(_TRAIN_WORDS)
            wanted, other = (train, held) if said_train else (held, train)
            elsewhere = other.lines(printed, event.line)
            if elsewhere and not wanted.lines(printed):
                kind = "held-out" if said_train else "training"
                what = f"{shortened(match[0], 80)!r}: {printed} is a {kind} number in the events, and nothing else"
                metric = Metric(name=match["label"], split="train" if not said_train else None, value=float(printed))
                lines = [event.line, *elsewhere[:5]]
                key = (event.line, printed)
                found.append(finding(view, "metric_mixup", key, what, lines, confidence=0.7, metrics=[metric]))
    return found


def _one_field(view: View, train: _Numbers, held: _Numbers) -> list[Finding]:
    kinds: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for event in view.calls:
        for match in _BARE.finditer(view.inputs[event.line]):
            printed = match["value"]
            if significant(printed) < MIN_DIGITS:
                continue
            in_train, in_held = train.lines(printed), held.lines(printed)
            if bool(in_train) != bool(in_held):
                kind = "training" if in_train else "held-out"
                kinds.setdefault(match["name"].lower(), {}).setdefault(kind, []).append((event.line, printed))
    found = []
    for name, by_kind in kinds.items():
        if len(by_kind) < 2:
            continue
        told = "; ".join(f"{kind}: {', '.join(value for _, value in said[:3])}" for kind, said in by_kind.items())
        lines = [line for said in by_kind.values() for line, _ in said]
        found.append(
            finding(view, "metric_mixup", name, f"the field {name} holds two metrics ({told})", lines, confidence=0.8)
        )
    return found
