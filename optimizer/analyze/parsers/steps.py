"""Lines of one step: `step:24 - a/b:1.0 - …`, `Step 71 | R 0.8125 | Ent 0.06`, `Epoch 7: avgR=0.77 (8 steps)`,
and a heading `=== Step 33 ===` with indented `name = value` lines below it.

A line counts when it names its step or epoch first and then at least one `name value` pair; which step a number
belongs to is never guessed from its place in the text.
"""

import re
from collections.abc import Sequence

from optimizer.analyze.readings import NUMBER, Axis, Reading, number_in

_HEAD = re.compile(
    r"(?:^|[\[\s=(])(?P<word>global[_ ]step|step|iteration|iter|epoch|E|Ep)\s*[:=#]?\s*(?P<at>\d+)"
    r"(?:/(?P<total>\d+|\?))?(?=[\s:|,\-]|$)",
    re.IGNORECASE,
)
_DASHED = re.compile(rf"(?:^| - )(?P<name>[\w@./-]+):(?P<value>{NUMBER})(?= - |\s*$)")
_PAIR = re.compile(rf"(?P<name>[A-Za-zΔ][\w@./+-]*)\s*[=:]\s*(?P<value>{NUMBER})(?P<unit>%|s|ms)?(?=[\s,;|)\]]|$)")
_CELL = re.compile(rf"\A(?P<name>[A-Za-z][\w@./+ -]{{0,39}}?)\s*[ =:]\s*(?P<value>{NUMBER})(?:%|s|ms)?\Z")
_NAMED = re.compile(
    rf"\A\s*(?P<name>[\w@./-]*[A-Za-z][\w@./-]*):\s+step=(?P<at>\d+)\s+val(?:ue)?=(?P<value>{NUMBER})\s*\Z"
)
_HEADING = re.compile(r"\A[\s=#*-]*(?:global[_ ])?step[ :]+(?P<at>\d+)(?:/\d+)?[\s=#*:-]*\Z", re.IGNORECASE)
"""A line that names a step and nothing else: indented `name = value` lines below belong to it."""
_BELOW = re.compile(rf"\A\s+(?P<name>[A-Za-z][\w()@./-]*)\s*[=:]\s*(?P<value>{NUMBER})\s*(?:%|s|ms)?\s*\Z")
_AVERAGED = re.compile(r"\((\d+)\s*(?:steps?|st)\)")
_DECORATION = " =#*-\t"

_STEP_WORDS = frozenset({"step", "global_step", "epoch", "iteration", "iter", "e", "ep"})


def read_steps(lines: Sequence[str], taken: set[int]) -> tuple[list[Reading], set[int]]:
    """(readings, rows that were understood)."""
    found: list[Reading] = []
    rows: set[int] = set()
    heading: re.Match[str] | None = None
    for row, line in enumerate(lines):
        if row in taken or not any(character.isdigit() for character in line):
            heading = None if not line.strip() else heading
            continue
        if _HEADING.match(line):
            heading = _HEADING.match(line)
            rows.add(row)
            continue
        readings = _named(line, row) or _line(line, row)
        below = _BELOW.match(line) if heading is not None and not readings else None
        if below is not None and heading is not None and number_in(below["value"]) is not None:
            if below["name"].lower() not in _STEP_WORDS:
                readings = [Reading(below["name"], below["value"], row, float(heading["at"]), Axis.STEP)]
        elif heading is not None:
            heading = None
        if readings:
            found += readings
            rows.add(row)
    return found, rows


def _named(line: str, row: int) -> list[Reading]:
    match = _NAMED.match(line)
    if match is None or number_in(match["value"]) is None:
        return []
    return [Reading(match["name"], match["value"], row, float(match["at"]), Axis.STEP)]


def _line(line: str, row: int) -> list[Reading]:
    head = _HEAD.search(line)
    if head is None or not _begins(line, head):
        return []
    word = head["word"].lower()
    axis = Axis.EPOCH if word in ("epoch", "e", "ep") else Axis.STEP
    total = int(head["total"]) if head["total"] and head["total"].isdigit() else None
    rest = line[head.end() :]
    averaged = _AVERAGED.search(rest)
    n = int(averaged[1]) if averaged is not None else None
    pairs = _pairs(rest)
    if axis is Axis.EPOCH and len(head["word"]) < 3 and not pairs:
        return []
    return [
        Reading(name, value, row, float(head["at"]), axis, n=n, total=total)
        for name, value in pairs
        if name.lower() not in _STEP_WORDS and number_in(value) is not None
    ]


def _begins(line: str, head: re.Match[str]) -> bool:
    """Only marks and up to two words may stand before the step: prose that mentions one is no line of a log."""
    before = line[: head.start()].strip(_DECORATION + "[]()|·")
    return len(before.split()) <= 2 and not re.search(r"\d", before.replace("_", ""))


def _pairs(rest: str) -> list[tuple[str, str]]:
    if " - " in rest:
        dashed = [(match["name"], match["value"]) for match in _DASHED.finditer(rest)]
        if dashed:
            return dashed
    if "|" in rest:
        cells = [_CELL.match(cell.strip(_DECORATION)) for cell in rest.split("|")]
        return [(match["name"].strip(), match["value"]) for match in cells if match is not None]
    return [(match["name"], match["value"]) for match in _PAIR.finditer(rest)]
