"""Documents inside of output: JSON, JSON lines and the Python literals that `print(dict)` leaves.

A mapping with a `step` (or `global_step`, `epoch`) gives readings at that step, nested mappings with their path. A
mapping that holds several names of settings is a configuration. A list of numbers is a series without steps.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from optimizer.analyze.readings import MAX_MAGNITUDE, Axis, Reading

MAX_DOCUMENTS = 400
"""Documents of one text; a longer one is a data set, not a log."""

MAX_TRIES = 1_000
"""Lines that look like the beginning of a document and are none."""

MAX_READINGS = 50_000
MAX_DEPTH = 6
MAX_LITERAL = 20_000
"""Characters of a Python literal."""

SETTING_NAMES = frozenset(
    {"learning_rate", "lr", "num_epochs", "epochs", "batch_size", "train_batch_size", "num_generations", "temperature",
     "model_name", "model", "seed", "num_problems", "max_completion_length", "max_response_length", "max_steps",
     "top_p", "entropy_coeff", "gradient_accumulation_steps", "kl_loss_coef", "beta", "difficulty"}
)  # fmt: skip
MIN_SETTINGS = 3
"""Names of settings that make a mapping a configuration."""

_AXES = {"step": Axis.STEP, "global_step": Axis.STEP, "training/global_step": Axis.STEP, "epoch": Axis.EPOCH}
_DECODER = json.JSONDecoder()
_OPENS = re.compile(r"(?:^|[\s:(=])(?P<open>[{\[])\s*$|^\s*(?P<begin>[{\[])")
_LITERAL = re.compile(r"\{'[^{}]*\}")


def read_documents(lines: Sequence[str], taken: set[int]) -> tuple[list[Reading], set[int]]:
    """(readings, rows that were understood)."""
    text = "\n".join(lines)
    starts = _row_starts(lines)
    found: list[Reading] = []
    rows: set[int] = set()
    row, count, tries = 0, 0, 0
    while row < len(lines) and count < MAX_DOCUMENTS and tries < MAX_TRIES and len(found) < MAX_READINGS:
        if row in taken:
            row += 1
            continue
        parsed = _at(lines[row], text, starts[row])
        if parsed is None:
            tries += 1 if "{" in lines[row] or "[" in lines[row] else 0
            row += 1
            continue
        document, length = parsed
        last = row + text.count("\n", starts[row], starts[row] + length)
        count += 1
        found += _readings(document, row)
        rows |= set(range(row, last + 1))
        row = last + 1
    return found[:MAX_READINGS], rows


def _row_starts(lines: Sequence[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


def _at(line: str, text: str, start: int) -> tuple[Any, int] | None:
    """The document that begins in this line and its length from the line's start."""
    opens = _OPENS.search(line)
    if opens is not None:
        offset = opens.start("open") if opens["open"] else opens.start("begin")
        try:
            document, end = _DECODER.raw_decode(text, start + offset)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict | list) and document:
            return document, end - start
    literal = _LITERAL.search(line)
    if literal is not None and literal.end() - literal.start() <= MAX_LITERAL:
        try:
            document = ast.literal_eval(literal[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        if isinstance(document, dict):
            return document, len(line)
    return None


def _readings(document: Any, row: int) -> list[Reading]:
    found: list[Reading] = []
    for reading in _walk(document, (), row, None, Axis.NONE, None, False, 0):
        found.append(reading)
        if len(found) >= MAX_READINGS:
            break
    return found


def _walk(
    value: Any,
    path: tuple[str, ...],
    row: int,
    step: float | None,
    axis: Axis,
    run: str | None,
    setting: bool,
    depth: int,
) -> Iterator[Reading]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        named = value.get("run_id")
        run = named if isinstance(named, str) and named else run
        setting = setting or sum(1 for name in SETTING_NAMES if name in value) >= MIN_SETTINGS
        found = _axis_of(value)
        inner = path
        if found is not None and not setting:
            axis, step = found
            inner = ()
        for key, one in value.items():
            if not isinstance(key, str) or (key in _AXES and not setting):
                continue
            below = inner if key == "data" and step is not None else (*inner, key)
            yield from _walk(one, below, row, step, axis, run, setting, depth + 1)
    elif isinstance(value, list):
        if path and len(value) > 1 and all(_is_number(one) for one in value) and step is None and not setting:
            for index, one in enumerate(value):
                yield Reading("/".join(path), repr(one), row, float(index), Axis.INDEX, run=run)
        else:
            for one in value:
                if isinstance(one, dict):
                    yield from _walk(one, path, row, step, axis, run, setting, depth + 1)
    elif _is_number(value) and path:
        yield Reading("/".join(path), repr(value), row, step, axis, setting=setting, run=run)


def _axis_of(value: dict[Any, Any]) -> tuple[Axis, float] | None:
    for key, axis in _AXES.items():
        at = value.get(key)
        if isinstance(at, int | float) and _is_number(at) and at >= 0:
            return axis, float(at)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_MAGNITUDE
