"""Lines of a report: `Label: 0.71`, `Label: 0.89 -> 0.17`, `Label: avg 71.25 (min=0, max=145)`, `Total: avgR=0.69 …`.

The whole line has to be of that form. A sentence that happens to hold a number says nothing that could be checked.
"""

import re
from collections.abc import Sequence

from optimizer.analyze.readings import NUMBER, Reading, Role, number_in

_LABEL = re.compile(r"\A\s*(?:[-*•]\s+)?(?P<label>[A-Za-z][\w /().@%-]{0,47}?)\s*:\s+(?P<rest>\S.*?)\s*\Z")
_ARROW = re.compile(rf"\A(?P<first>{NUMBER})\s*(?:->|→)\s*(?P<last>{NUMBER})(?P<more>\s*\(.*\))?\Z")
_STATS = re.compile(
    rf"\A(?:(?:avg|mean|average)\s*[= ]\s*)?(?P<value>{NUMBER})\s*\(\s*min\s*[=:]\s*(?P<min>{NUMBER})\s*,"
    rf"\s*max\s*[=:]\s*(?P<max>{NUMBER})\s*\)\Z"
)
_MEAN = re.compile(rf"\A(?:avg|mean|average)\s*[= ]\s*(?P<value>{NUMBER})\Z")
_PAIRS = re.compile(rf"\A(?:\d+\s?(?:st|steps?)\s+)?(?:[A-Za-z][\w@./-]*={NUMBER}[\s,;]*)+\Z")
_PAIR = re.compile(rf"([A-Za-z][\w@./-]*)=({NUMBER})")
_STATISTICS = {"avg": Role.MEAN, "mean": Role.MEAN, "average": Role.MEAN, "min": Role.MIN, "max": Role.MAX}
_COUNT = re.compile(r"\A(\d+)\s?(?:st|steps?)\b")
_SEEDED = re.compile(rf"\A(?P<value>{NUMBER})\s*\((?P<name>[A-Za-z_]\w*)=(?P<inner>{NUMBER})\)\Z")

CONFIGURATION = re.compile(r"\A\s*(?:training )?config(?:uration)?\b", re.IGNORECASE)
_BLOCK_END = re.compile(r"\A[\s=─━-]*\Z")


def read_reports(lines: Sequence[str], taken: set[int]) -> tuple[list[Reading], set[int]]:
    """(readings, rows that were understood). Lines of a block headed `Training Configuration` are settings."""
    found: list[Reading] = []
    rows: set[int] = set()
    setting = False
    for row, line in enumerate(lines):
        if CONFIGURATION.match(line) and ":" not in line:
            setting = True
            continue
        if setting and not line.strip():
            setting = False
        match = _LABEL.match(line) if row not in taken else None
        if match is None:
            continue
        readings = _rest(match["label"], match["rest"], row, setting)
        if readings:
            found += readings
            rows.add(row)
    return found, rows


def _rest(label: str, rest: str, row: int, setting: bool) -> list[Reading]:
    if number_in(rest) is not None:
        return [Reading(label, number_in(rest) or "", row, setting=setting)]
    arrow = _ARROW.match(rest)
    if arrow is not None:
        parts = [(Role.FIRST, arrow["first"]), (Role.LAST, arrow["last"])]
        return [Reading(label, printed, row, role=role) for role, printed in parts if number_in(printed) is not None]
    stats = _STATS.match(rest)
    if stats is not None:
        role = Role.MEAN if rest[0].isalpha() else Role.VALUE
        parts = [(role, stats["value"]), (Role.MIN, stats["min"]), (Role.MAX, stats["max"])]
        return [Reading(label, printed, row, role=each) for each, printed in parts if number_in(printed) is not None]
    mean = _MEAN.match(rest)
    if mean is not None and number_in(mean["value"]) is not None:
        return [Reading(label, mean["value"], row, role=Role.MEAN)]
    seeded = _SEEDED.match(rest)
    if seeded is not None and setting:
        pairs = [(label, seeded["value"]), (seeded["name"], seeded["inner"])]
        return [Reading(name, printed, row, setting=True) for name, printed in pairs if number_in(printed) is not None]
    if _PAIRS.match(rest):
        count = _COUNT.match(rest)
        n = int(count[1]) if count is not None else None
        named = [(name, printed) for name, printed in _PAIR.findall(rest) if number_in(printed) is not None]
        return [
            Reading(label, printed, row, role=_STATISTICS[name.lower()], n=n)
            if name.lower() in _STATISTICS
            else Reading(name, printed, row, n=n, setting=setting)
            for name, printed in named
        ]
    return []
