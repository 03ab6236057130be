"""Two runs compared that differ in more than their result.

Rule: a call names two runs, by id or by a label that the session ties to one (`R9`, `round 9` for `…_r9`), with a word
of comparison; the settings that the session shows of both differ, one has more steps than the other, or both were
evaluated on a split with different numbers of problems, and never with the same.
Needs: settings or evaluations of both runs in the session.
Does not claim: which of the differences made the results differ, or whether any did.
"""

import re
from itertools import pairwise

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.evaluations import evaluations_in, sizes_that_differ
from optimizer.analyze.runs_named import named_runs
from optimizer.analyze.settings import settings_text
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

_COMPARES = re.compile(
    r"\b(?:vs\.?|versus|than|baseline|compar\w*|better|worse|improv\w*|align\w*|same|differ\w*|delta|changes?)\b|[Δ→]|->"
    r"|对比|相比|基线|对齐|一致|提升|优于|变化",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\bR(\d{1,3})\b|\bround[ _]?(\d{1,3})\b", re.IGNORECASE)
_SUFFIX = re.compile(r"_r(?:ound)?_?(\d{1,3})\Z", re.IGNORECASE)
_TIED = re.compile(r"\bR(\d{1,3})\b\W{1,8}(?:id\W{1,5})?([A-Za-z0-9][A-Za-z0-9._-]{2,79})")


def detect(view: View) -> list[Finding]:
    """One finding for each pair of runs that is compared and differs."""
    labels = _labels(view)
    compared: dict[tuple[str, str], list[int]] = {}
    for event in view.calls:
        text = view.inputs[event.line]
        if not _COMPARES.search(text):
            continue
        named = named_runs(text, view.book.runs)
        wanted = [labels[number] for number in _numbers(text) if number in labels]
        runs = list(dict.fromkeys([*named, *wanted]))
        for first, second in pairwise(runs):
            low, high = sorted((first, second), key=lambda run: (_first_seen(view, run), run))
            compared.setdefault((low, high), []).append(event.line)
    found = []
    evaluations = evaluations_in(view.calls) if compared else []
    for (first, second), lines in compared.items():
        differing = view.book.settings.between(first, second)
        counts = _steps(view, first), _steps(view, second)
        steps = None not in counts and counts[0] != counts[1]
        sizes = sizes_that_differ(evaluations, first, second)
        if not differing and not steps and not sizes:
            continue
        told = [settings_text(differing)] if differing else []
        if steps:
            told.append(f"steps {counts[0]} → {counts[1]}")
        told += [f"problems evaluated on split {one.split} {one.n} → {other.n}" for one, other in sizes]
        cited = [line for _, one, other in differing for line in (one.line, other.line)]
        cited += [one.line for pair in sizes for one in pair]
        what = f"{first} and {second} are compared and are not alike: {', '.join(told)}"
        metric = Metric(name="settings_that_differ", value=len(differing), n=len(lines))
        key = (first, second)
        found.append(
            finding(view, "not_like_for_like", key, what, [*lines[:10], *cited], confidence=0.8, metrics=[metric])
        )
    return found


def _labels(view: View) -> dict[int, str]:
    """Number of a round → the run that the session ties to it; a number tied to two runs is left out."""
    found: dict[int, set[str]] = {}
    for run in view.book.settings.runs:
        suffix = _SUFFIX.search(run)
        if suffix is not None:
            found.setdefault(int(suffix[1]), set()).add(run)
    for event in view.calls:
        for text in (view.inputs[event.line], view.outputs[event.line]):
            for match in _TIED.finditer(text):
                if match[2] in view.book.runs:
                    found.setdefault(int(match[1]), set()).add(match[2])
    return {number: next(iter(runs)) for number, runs in found.items() if len(runs) == 1}


def _numbers(text: str) -> list[int]:
    return [int(one or other) for one, other in _LABEL.findall(text)]


def _first_seen(view: View, run: str) -> int:
    one = view.book.settings.runs.get(run)
    values = [] if one is None else [*one.written.values(), *one.launched.values()]
    return min((value.line for value in values), default=1 << 30)


def _steps(view: View, run: str) -> int | None:
    known = [steps for (name, _), steps in view.book.planned_steps.items() if name == run]
    return max(known) if known else None
