"""Evaluations that a session shows: of which run, on which split, and on how many problems.

An evaluation is an object with `split`, `n` and a mean, as our tools answer and files of runs hold them; its run is the
`run_id` of the nearest object around it. One without a run is nobody's.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optimizer.analyze.texts import MAX_TEXT
from optimizer.events import Event

MAX_DEPTH = 12
"""Levels of an answer that are looked at."""

_MEANS = ("mean", "value", "accuracy", "success_rate")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, with the line that shows it."""

    run: str
    split: str
    n: int
    line: int


def evaluations_in(events: Iterable[Event]) -> list[Evaluation]:
    """The evaluations that answers of calls show, in file order, each once."""
    found: dict[tuple[str, str, int], Evaluation] = {}
    for event in events:
        if event.is_call and not event.failed:
            for run, split, n in _walk(event.response, None, 0):
                found.setdefault((run, split, n), Evaluation(run, split, n, event.line))
    return list(found.values())


def sizes_that_differ(found: Iterable[Evaluation], first: str, second: str) -> list[tuple[Evaluation, Evaluation]]:
    """For each split on which both runs were evaluated and never on as many problems: an evaluation of each."""
    of_first: dict[str, dict[int, Evaluation]] = {}
    of_second: dict[str, dict[int, Evaluation]] = {}
    for one in found:
        for run, sizes in ((first, of_first), (second, of_second)):
            if one.run == run:
                sizes.setdefault(one.split, {})[one.n] = one
    return [
        (next(iter(of_first[split].values())), next(iter(of_second[split].values())))
        for split in of_first
        if split in of_second and of_first[split].keys().isdisjoint(of_second[split])
    ]


def _walk(value: Any, run: str | None, depth: int) -> Iterable[tuple[str, str, int]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        document = _document(value)
        if document is not None:
            yield from _walk(document, run, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _walk(one, run, depth + 1)
    elif isinstance(value, dict):
        named = value.get("run_id")
        run = named if isinstance(named, str) else run
        split, n = value.get("split"), value.get("n")
        if run is not None and isinstance(split, str) and type(n) is int and n > 0 and _has_mean(value):
            yield run, split, n
        for one in value.values():
            if isinstance(one, str | list | dict):
                yield from _walk(one, run, depth + 1)


def _has_mean(value: dict[str, Any]) -> bool:
    return any(isinstance(value.get(name), int | float) for name in _MEANS)


def _document(text: str) -> Any:
    """What a text holds that is JSON as a whole; None for any other."""
    text = text[:MAX_TEXT].strip()
    if text[:1] not in ("{", "[") or '"split"' not in text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
