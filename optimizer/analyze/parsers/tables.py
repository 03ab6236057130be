"""Tables: a header of names and rows of cells, set with spaces, `|` or `│`.

The first column is the step (`3`, `3/16`) or a label. A row without its header in the same text (`grep` cuts it off) is
read by the last header of the session with as many columns, but only where its first cell is `k/N`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.analyze.readings import Axis, Reading, number_in

_BARS = re.compile(r"[|│┃]")
_RULE = re.compile(r"\A[\s|│┃+\-=─━┼┬┴├┤┌┐└┘:╭╮╰╯]+\Z")
_FRACTION = re.compile(r"\A(\d+)/(\d+|\?)\Z")
_NAME = re.compile(r"\A[^\W\d_][\w /%().@-]{0,39}\Z")
_AXES = {"step": Axis.STEP, "steps": Axis.STEP, "global_step": Axis.STEP, "iter": Axis.STEP, "iteration": Axis.STEP,
         "epoch": Axis.EPOCH, "round": Axis.ROUND}  # fmt: skip
MIN_COLUMNS = 3
"""Fewer columns set with spaces are prose."""


@dataclass
class TableMemory:
    """Headers of step tables that a session showed, by their number of columns."""

    headers: dict[int, list[str]] = field(default_factory=dict)


def read_tables(lines: Sequence[str], taken: set[int], memory: TableMemory) -> tuple[list[Reading], set[int]]:
    """(readings, rows that were understood)."""
    found: list[Reading] = []
    rows: set[int] = set()
    header: list[str] | None = None
    barred = False
    for row, line in enumerate(lines):
        if row in taken or not line.strip():
            continue
        if _RULE.match(line):
            rows.add(row)
            continue
        cells = _cells(line)
        if _is_header(cells, bool(_BARS.search(line))):
            header, barred = cells, bool(_BARS.search(line))
            rows.add(row)
            if cells[0].lower() in _AXES and not barred:
                memory.headers[len(cells)] = cells
            continue
        names = header if header is not None and barred == bool(_BARS.search(line)) else None
        readings = _row(cells, row, names, memory)
        if readings is None:
            if barred:
                header = None if not _BARS.search(line) else header
            continue
        found += readings
        rows.add(row)
    return found, rows


def _cells(line: str) -> list[str]:
    if _BARS.search(line):
        parts = [cell.strip() for cell in _BARS.split(line)]
        return parts[1:-1] if len(parts) > 2 and not parts[0] and not parts[-1] else parts
    return line.split()


def _is_header(cells: list[str], barred: bool) -> bool:
    """All cells are names; set with spaces, the first one also has to be an axis, or any sentence would be a header."""
    if len(cells) < (2 if barred else MIN_COLUMNS) or not all(_NAME.match(cell) or cell == "#" for cell in cells):
        return False
    return barred or cells[0].lower() in _AXES


def _row(cells: list[str], row: int, header: list[str] | None, memory: TableMemory) -> list[Reading] | None:
    if len(cells) < 2:
        return None
    fraction = _FRACTION.match(cells[0])
    names = header if header is not None and len(header) == len(cells) else None
    if names is None and fraction is not None:
        names = memory.headers.get(len(cells))
    if names is None:
        return None
    axis = _AXES.get(names[0].lower(), Axis.NONE)
    step: float | None = None
    if axis is not Axis.NONE:
        plain = fraction[1] if fraction is not None else cells[0]
        if not plain.isdecimal() or len(plain) > 12:
            return None
        step = float(plain)
    total = int(fraction[2]) if fraction is not None and fraction[2].isdecimal() else None
    label = cells[0] if axis is Axis.NONE and number_in(cells[0]) is None else None
    return [
        Reading(name if label is None else f"{label} {name}", value, row, step, axis, total=total)
        for name, cell in zip(names[1:], cells[1:], strict=True)
        if (value := number_in(cell)) is not None
    ]
