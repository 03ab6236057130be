"""A finished (or running) run looked back at by parts: quarters, epochs, what drifted, what was forgotten. Pure.

1. Quarters are parts of equal length of the steps that were measured; below `MIN_STEPS` there are none. An epoch is one
   pass over the problems.
2. A level is the mean over the steps of a part. Its standard error comes from the scatter of its steps, not from the
   number of episodes: episodes of one group, and groups of one step, share their policy. A trend inside a part makes
   the error larger, so what is called a change is one.
3. A shift is told where it is beyond chance *and* large enough to matter. With `SHIFT_Z` of 2.7 one of seven measures
   shifts by luck in 5 % of runs (Bonferroni: two-sided 5 % / 7).
4. Forgetting by problem needs the episodes: the same problem in one epoch and in the next, paired. A single problem
   with few attempts says nothing (the best of one epoch fall back in the next by luck alone); the mean over problems
   and its standard error do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainer.runs.series import RunSeries
from trainer.runs.statistics import mean, standard_error

MIN_STEPS = 8
"""Steps below which a run has no quarters: a part of one step has no error."""

SHIFT_Z = 2.7
"""Standard errors of a difference that count as a shift (rule 3)."""

FORGOTTEN_Z = 2.4
"""The same for the fall from the best of three quarters (two-sided 5 % / 3)."""

RATE_CHANGE = 0.05
"""Change of a rate that matters."""

LENGTH_RATIO = 1.25
"""Growth of a length that matters."""

SOLVED, UNSOLVED = 0.75, 0.25
"""Mean reward of a problem's attempts from which it counts as known, up to which as not known."""

MAX_EPOCHS = 8
"""Epochs told apart: the newest."""

MEASURES = (
    "reward_mean",
    "entropy",
    "frac_zero_variance",
    "parse_ok_rate",
    "tool_call_rate",
    "finish_rate",
    "truncated_rate",
    "repetition_rate",
    "completion_mean",
    "turns_mean",
)
"""What is told of a part, by its name in metrics.jsonl."""

_FORMAT = {
    "parse_ok_rate": (-1, "calls that can be read"),
    "tool_call_rate": (-1, "episodes with a tool call"),
    "finish_rate": (-1, "episodes that submit an answer"),
    "truncated_rate": (+1, "episodes cut by the cap"),
    "repetition_rate": (+1, "completions that repeat themselves"),
}
"""Measure of form → (the direction that is bad, its words)."""

_LENGTHS = {"completion_mean": "tokens of an episode", "turns_mean": "turns of an episode"}


class ShiftKind(StrEnum):
    """What kind of change a shift is."""

    FORGETTING = "forgetting"
    """Reward lies below what it was in an earlier part."""
    FORMAT_DRIFT = "format_drift"
    """The form of the answers got worse."""
    FORMAT_LEARNED = "format_learned"
    """The form of the answers got better."""
    LENGTH_DRIFT = "length_drift"
    """Answers got much longer or shorter."""


@dataclass(frozen=True)
class Level:
    """A measure over the steps of a part."""

    mean: float
    error: float
    """Standard error; NaN for one step."""
    steps: int


@dataclass(frozen=True)
class Stretch:
    """A part of a run."""

    name: str
    first_step: int
    last_step: int
    levels: Mapping[str, Level]
    """Measure → level, of what was measured."""
    validation: float | None = None
    """Success of the last validation in it."""


@dataclass(frozen=True)
class Shift:
    """A change between two parts."""

    kind: ShiftKind
    metric: str
    before: float
    after: float
    error: float
    """Standard error of the difference."""
    sentence: str


@dataclass(frozen=True)
class Attempts:
    """A problem in one epoch."""

    problem: int
    epoch: int
    prompt: str
    reward: float
    """Mean over its episodes."""


@dataclass(frozen=True)
class Revisit:
    """The problems that two epochs share, paired."""

    first: int
    second: int
    """Numbers of the epochs, from 1."""
    problems: int
    difference: float
    """Mean change of a problem's reward."""
    error: float
    learned: int
    """Problems from not known to known."""
    forgotten: tuple[str, ...]
    """Prompts of problems from known to not known."""

    @property
    def sentence(self) -> str:
        """In words."""
        lost = f"{len(self.forgotten)} known problem(s) lost" if self.forgotten else "no known problem lost"
        return (
            f"Epoch {self.first} to {self.second}, {self.problems} problems met in both: reward {self.difference:+.2f} "
            f"± {self.error:.2f} (standard error), {self.learned} learned, {lost}."
        )


@dataclass(frozen=True)
class Review:
    """A run by its parts."""

    quarters: tuple[Stretch, ...] = ()
    epochs: tuple[Stretch, ...] = ()
    """Empty where the problems were not met twice."""
    shifts: tuple[Shift, ...] = ()
    revisits: tuple[Revisit, ...] = ()


def review(
    rows: Sequence[Mapping[str, Any]],
    validations: Sequence[tuple[int, float]] = (),
    steps_per_epoch: int | None = None,
    attempts: Sequence[Attempts] = (),
) -> Review:
    """The review of a run: metrics lines in order of their step, (step, success) of its validations, the steps of one
    pass over the problems, and what single problems earned epoch by epoch, where that is known."""
    quarters = _quarters(rows, validations)
    return Review(
        quarters=quarters,
        epochs=_epochs(rows, validations, steps_per_epoch),
        shifts=tuple(_shifts(quarters)),
        revisits=tuple(_revisits(attempts)),
    )


def _quarters(rows: Sequence[Mapping[str, Any]], validations: Sequence[tuple[int, float]]) -> tuple[Stretch, ...]:
    if len(rows) < MIN_STEPS:
        return ()
    edges = [round(part * len(rows) / 4) for part in range(5)]
    return tuple(_stretch(f"quarter {n + 1}", rows[edges[n] : edges[n + 1]], validations) for n in range(4))


def _epochs(
    rows: Sequence[Mapping[str, Any]], validations: Sequence[tuple[int, float]], steps_per_epoch: int | None
) -> tuple[Stretch, ...]:
    if not steps_per_epoch or not rows or rows[-1]["step"] <= steps_per_epoch:
        return ()
    parts: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault((row["step"] - 1) // steps_per_epoch, []).append(row)
    newest = sorted(parts)[-MAX_EPOCHS:]
    return tuple(_stretch(f"epoch {number + 1}", parts[number], validations) for number in newest)


def _stretch(name: str, rows: Sequence[Mapping[str, Any]], validations: Sequence[tuple[int, float]]) -> Stretch:
    series = RunSeries(rows)
    first, last = int(rows[0]["step"]), int(rows[-1]["step"])
    levels = {}
    for measure in MEASURES:
        values = series.values(measure)
        if values:
            levels[measure] = Level(mean(values), standard_error(values), len(values))
    inside = [value for step, value in validations if first <= step <= last]
    return Stretch(name, first, last, levels, inside[-1] if inside else None)


def _shifts(quarters: Sequence[Stretch]) -> list[Shift]:
    if not quarters:
        return []
    first, last = quarters[0], quarters[-1]
    found = [_forgetting(quarters)]
    for metric, (bad, words) in _FORMAT.items():
        found.append(_rate_shift(metric, bad, words, first, last))
    for metric, words in _LENGTHS.items():
        found.append(_length_shift(metric, words, first, last))
    return [one for one in found if one is not None]


def _difference(metric: str, before: Stretch, after: Stretch) -> tuple[Level, Level, float] | None:
    """(level before, level after, standard error of the difference), where both parts have at least two steps."""
    one, other = before.levels.get(metric), after.levels.get(metric)
    if one is None or other is None or one.steps < 2 or other.steps < 2:
        return None
    return one, other, math.hypot(one.error, other.error)


def _forgetting(quarters: Sequence[Stretch]) -> Shift | None:
    last = quarters[-1]
    earlier = [one for one in quarters[:-1] if "reward_mean" in one.levels]
    if not earlier:
        return None
    best = max(earlier, key=lambda one: one.levels["reward_mean"].mean)
    found = _difference("reward_mean", best, last)
    if found is None:
        return None
    before, after, error = found
    fall = before.mean - after.mean
    if fall < RATE_CHANGE or fall <= FORGOTTEN_Z * error:
        return None
    sentence = (
        f"Forgetting: reward fell from {before.mean:.2f} in {best.name} to {after.mean:.2f} in the last one "
        f"(by {fall:.2f} ± {error:.2f})."
    )
    return Shift(ShiftKind.FORGETTING, "reward_mean", before.mean, after.mean, error, sentence)


def _rate_shift(metric: str, bad: int, words: str, first: Stretch, last: Stretch) -> Shift | None:
    found = _difference(metric, first, last)
    if found is None:
        return None
    before, after, error = found
    change = after.mean - before.mean
    if abs(change) < RATE_CHANGE or abs(change) <= SHIFT_Z * error:
        return None
    worse = change * bad > 0
    kind = ShiftKind.FORMAT_DRIFT if worse else ShiftKind.FORMAT_LEARNED
    head = "Format drift" if worse else "Form learned"
    sentence = (
        f"{head}: {words} went {before.mean:.2f} → {after.mean:.2f} from the first to the last quarter "
        f"({change:+.2f} ± {error:.2f})."
    )
    return Shift(kind, metric, before.mean, after.mean, error, sentence)


def _length_shift(metric: str, words: str, first: Stretch, last: Stretch) -> Shift | None:
    found = _difference(metric, first, last)
    if found is None:
        return None
    before, after, error = found
    small, large = sorted((before.mean, after.mean))
    if small <= 0 or large / small < LENGTH_RATIO or abs(after.mean - before.mean) <= SHIFT_Z * error:
        return None
    sentence = (
        f"Length drift: {words} went {before.mean:.3g} → {after.mean:.3g} from the first to the last quarter "
        f"(× {after.mean / before.mean:.2f})."
    )
    return Shift(ShiftKind.LENGTH_DRIFT, metric, before.mean, after.mean, error, sentence)


def _revisits(attempts: Sequence[Attempts]) -> list[Revisit]:
    epochs: dict[int, dict[int, Attempts]] = {}
    for one in attempts:
        epochs.setdefault(one.epoch, {})[one.problem] = one
    found = []
    for first, second in zip(sorted(epochs)[:-1], sorted(epochs)[1:], strict=True):
        pairs = [(epochs[first][one], epochs[second][one]) for one in epochs[first] if one in epochs[second]]
        if len(pairs) < 2:
            continue
        changes = [after.reward - before.reward for before, after in pairs]
        found.append(
            Revisit(
                first=first + 1,
                second=second + 1,
                problems=len(pairs),
                difference=mean(changes),
                error=standard_error(changes),
                learned=sum(1 for a, b in pairs if a.reward <= UNSOLVED and b.reward >= SOLVED),
                forgotten=tuple(a.prompt for a, b in pairs if a.reward >= SOLVED and b.reward <= UNSOLVED),
            )
        )
    return found[-MAX_EPOCHS:]
