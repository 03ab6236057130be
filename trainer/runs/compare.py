"""Several runs side by side: where their configurations differ, what they measured, and which model is better.

1. Only like is compared with like: a `Measure` carries metric, split and how it came about, and a mean over training
   episodes, the best of several validations and a held-out test never meet in one test (`difference` refuses).
2. Success on a test split is compared by a test of two proportions: paired where both runs kept the episodes of the
   same test problems (exact McNemar), else independent (N-1 chi-squared or Fisher). With several runs, p is adjusted
   for asking several times (Holm).
3. A verdict is about the trained models. One run each does not say which configuration is better: seeds alone move a
   run by more than a test's interval.
"""

import json
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from skill_bank.files import read_json_lines
from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.proportions import holm, independent_test, paired_interval, paired_test
from trainer.runs.registry import Run
from trainer.runs.rundir import RunDirectory
from trainer.runs.series import RunSeries
from trainer.runs.statistics import Z95, difference_interval, mean, standard_error
from trainer.runs.types import Eval, RunState

MAX_RUNS = 12
"""More do not fit beside each other."""

LEVEL = 0.05
"""A difference is called one below this two-sided, adjusted p value."""

SUCCESS_ABOVE = 0.5
"""Reward above which an episode counts as solved, as in `trainer.rollout.summary`."""

TASK_FIELDS = ("env", "env_args", "difficulty", "data", "columns", "reward")
"""What makes a task the task it is: success on another one is another metric."""

NOT_COMPARED = frozenset({"schema_version", "folder", "threads", "keep_episodes", "report_to"})
"""Fields that do not change what a run computes."""


class Origin(StrEnum):
    """How a measure came about. Only measures of one origin may be compared."""

    HELD_OUT = "held-out, evaluated once"
    BEST_OF_SEVERAL = "the best of several validations"
    """Too high by construction, the more so the more validations there were."""
    TRAINING = "mean over training episodes of the last third of the steps"
    """At the training temperature, on problems that are learned from."""


class Measure(BaseModel):
    """A number with its meaning."""

    run_id: str
    name: str
    """before, after, best validation, training reward."""
    metric: str
    split: str
    origin: Origin
    n: int
    """Problems, validations' problems, or training episodes."""
    mean: float
    ci95: tuple[float, float] | None
    """None: cannot be given from what was measured."""


class Difference(BaseModel):
    """Second minus first, with its test."""

    first: str
    second: str
    metric: str
    split: str
    means: tuple[float, float]
    difference: float
    ci95: tuple[float, float]
    test: str
    p: float
    p_adjusted: float
    """Adjusted for the number of runs compared with the first (Holm)."""
    verdict: str
    """better, worse, no difference shown: the second against the first."""
    sentence: str


class FieldDifference(BaseModel):
    """A field of the configuration that is not the same in all runs."""

    field: str
    values: dict[str, Any]
    """Run → value."""


class RunComparison(BaseModel):
    """What `runs compare` finds."""

    runs: list[str]
    states: dict[str, str]
    config: list[FieldDifference]
    measures: list[Measure]
    differences: list[Difference]
    notes: list[str]
    """What was not compared, and why."""
    verdict: str


def compare_runs(runs: Sequence[Run]) -> RunComparison:
    """Compares the runs with the first one. Raises RunError for fewer than two, too many, or one twice."""
    ids = [run.document.run_id for run in runs]
    if len(ids) < 2 or len(set(ids)) != len(ids) or len(ids) > MAX_RUNS:
        raise RunError(f"name 2 to {MAX_RUNS} different runs to compare; these are: {', '.join(ids) or 'none'}.")
    configs = {run.document.run_id: run.directory.read_config() for run in runs}
    notes = [
        f"{run.document.run_id} is {run.document.state}: its numbers may change"
        for run in runs
        if not run.document.state.is_final
    ]
    found, more = _differences(runs, configs)
    return RunComparison(
        runs=ids,
        states={run.document.run_id: str(run.document.state) for run in runs},
        config=config_differences(configs),
        measures=[measure for run in runs for measure in measures_of(run)],
        differences=found,
        notes=[*notes, *more],
        verdict=_verdict(ids, found, more),
    )


def config_differences(configs: dict[str, TrainingConfig]) -> list[FieldDifference]:
    """The fields whose values are not the same everywhere, in the order of the configuration."""
    values = {run_id: config.model_dump(mode="json") for run_id, config in configs.items()}
    return [
        FieldDifference(field=name, values={run_id: one[name] for run_id, one in values.items()})
        for name in TrainingConfig.model_fields
        if name not in NOT_COMPARED and len({json.dumps(one[name], sort_keys=True) for one in values.values()}) > 1
    ]


def measures_of(run: Run) -> list[Measure]:
    """Everything that a run measured of itself."""
    document = run.document
    found = []
    for name, origin in (("before", Origin.HELD_OUT), ("after", Origin.HELD_OUT), ("validation", None)):
        result = document.eval.get(name)
        if result is not None:
            shown = "best validation" if origin is None else name
            found.append(_of_eval(document.run_id, shown, result, origin or Origin.BEST_OF_SEVERAL))
    training = _training(run)
    return [*found, *([training] if training is not None else [])]


def _of_eval(run_id: str, name: str, result: Eval, origin: Origin) -> Measure:
    return Measure(
        run_id=run_id,
        name=name,
        metric=result.metric,
        split=result.split,
        origin=origin,
        n=result.n,
        mean=result.mean,
        ci95=None if origin is Origin.BEST_OF_SEVERAL else result.ci95,
    )


def _training(run: Run) -> Measure | None:
    rows = run.directory.metrics()
    series = RunSeries(rows)
    rewards = series.values("reward_mean")
    last = rewards[-max(1, len(rewards) // 3) :] if rewards else []
    if not last:
        return None
    episodes = sum(int(row.get("episodes", 0)) for row in rows[-len(last) :])
    error = standard_error(last)
    # steps that are all alike have no spread to judge by; an interval without width would claim certainty
    interval = None if math.isnan(error) or error == 0 else (mean(last) - Z95 * error, mean(last) + Z95 * error)
    return Measure(
        run_id=run.document.run_id,
        name="training reward",
        metric="reward",
        split="train",
        origin=Origin.TRAINING,
        n=episodes,
        mean=mean(last),
        ci95=interval,
    )


def difference(first: Measure, second: Measure, pairs: tuple[int, int, int] | None = None) -> Difference:
    """Second minus first. `pairs`: (solved by the first only, by the second only, problems) where both met the same.

    Raises RunError where the two are not the same metric on the same split of the same origin, or no test fits them.
    """
    if (first.metric, first.split, first.origin) != (second.metric, second.split, second.origin):
        raise RunError(
            f"{first.metric} on {first.split} ({first.origin}) and {second.metric} on {second.split} "
            f"({second.origin}) are not the same thing and are not compared."
        )
    if first.origin is not Origin.HELD_OUT or first.metric != "success":
        raise RunError(f"{first.metric} on {first.split} ({first.origin}) has no test; compare held-out success.")
    change = second.mean - first.mean
    if pairs is not None:
        test = paired_test(pairs[0], pairs[1])
        interval = paired_interval(*pairs)
    else:
        a, b = round(first.mean * first.n), round(second.mean * second.n)
        test = independent_test(a, first.n, b, second.n)
        interval = difference_interval(a, first.n, b, second.n)
    return _judged(first, second, change, interval, test.name, test.p, test.p)


def _judged(
    first: Measure,
    second: Measure,
    change: float,
    interval: tuple[float, float],
    test: str,
    p: float,
    adjusted: float,
) -> Difference:
    verdict = "no difference shown" if adjusted >= LEVEL else ("better" if change > 0 else "worse")
    numbers = (
        f"{first.split} success {first.mean:.3f} and {second.mean:.3f}, difference {change:+.3f} "
        f"[{interval[0]:+.3f}, {interval[1]:+.3f}], n={first.n}{'' if first.n == second.n else f' and {second.n}'}, "
        f"{test}, p = {p:.2g}" + ("" if adjusted == p else f", adjusted {adjusted:.2g}")
    )
    if verdict == "no difference shown":
        sentence = f"Between the models of {first.run_id} and {second.run_id} no difference is shown: {numbers}."
    else:
        sentence = f"The model of {second.run_id} is {verdict} than that of {first.run_id}: {numbers}."
    return Difference(
        first=first.run_id,
        second=second.run_id,
        metric=first.metric,
        split=first.split,
        means=(first.mean, second.mean),
        difference=change,
        ci95=interval,
        test=test,
        p=p,
        p_adjusted=adjusted,
        verdict=verdict,
        sentence=sentence,
    )


def _differences(runs: Sequence[Run], configs: dict[str, TrainingConfig]) -> tuple[list[Difference], list[str]]:
    """Every run against the first one, by test success after training."""
    base = runs[0]
    notes = []
    raw: list[tuple[Measure, Measure, tuple[int, int, int] | None]] = []
    for other in runs[1:]:
        reason = _not_comparable(base, other, configs)
        first, second = _after(base), _after(other)
        if reason is not None or first is None or second is None:
            missing = [run.document.run_id for run in (base, other) if _after(run) is None]
            notes.append(reason or f"{' and '.join(missing)} has no test after training: not compared")
            continue
        raw.append((first, second, pairs_of(base.directory, other.directory)))
    plain = [difference(*one) for one in raw]
    adjusted = holm([one.p for one in plain])
    judged = [
        _judged(first, second, one.difference, one.ci95, one.test, one.p, p)
        for (first, second, _), one, p in zip(raw, plain, adjusted, strict=True)
    ]
    return judged, notes


def _not_comparable(base: Run, other: Run, configs: dict[str, TrainingConfig]) -> str | None:
    a, b = configs[base.document.run_id].model_dump(), configs[other.document.run_id].model_dump()
    differing = [name for name in TASK_FIELDS if a[name] != b[name]]
    if not differing:
        return None
    shown = ", ".join(f"{name} {a[name]!r} and {b[name]!r}" for name in differing)
    return (
        f"{base.document.run_id} and {other.document.run_id} were tested on different tasks ({shown}): their success "
        f"is not the same metric. Test both on one: mcp-evo evaluate {base.document.run_id} --against "
        f"{other.document.run_id}"
    )


def _after(run: Run) -> Measure | None:
    result = run.document.eval.get("after")
    if result is None or run.document.state is RunState.LOST:
        return None
    return _of_eval(run.document.run_id, "after", result, Origin.HELD_OUT)


def pairs_of(first: RunDirectory, second: RunDirectory) -> tuple[int, int, int] | None:
    """(solved by the first only, by the second only, problems) of the tests after training; None: other problems."""
    a, b = _solved(first), _solved(second)
    if not a or a.keys() != b.keys():
        return None
    return (
        sum(a[one] and not b[one] for one in a),
        sum(b[one] and not a[one] for one in a),
        len(a),
    )


def _solved(directory: RunDirectory) -> dict[str, bool]:
    """Problem of the test after training → solved; empty where its episodes were not kept or a problem came twice."""
    rows = [row for _, row in read_json_lines(directory.path / "eval-after.jsonl").rows if isinstance(row, dict)]
    found = {
        json.dumps([row.get("prompt"), row.get("row")], sort_keys=True, ensure_ascii=False): bool(
            row.get("valid", True)
        )
        and isinstance(row.get("reward"), int | float)
        and float(row["reward"]) > SUCCESS_ABOVE
        for row in rows
    }
    return found if len(found) == len(rows) else {}


def _verdict(ids: Sequence[str], found: Sequence[Difference], notes: Sequence[str]) -> str:
    if not found:
        return f"Nothing can be said: {notes[0] if notes else 'no run has a test after training'}."
    caution = " This is about these models; one run each does not tell which configuration is better."
    if len(found) == 1 and len(ids) == 2:
        return found[0].sentence + caution
    better = sorted((one for one in found if one.verdict == "better"), key=lambda one: -one.difference)
    worse = [one.second for one in found if one.verdict == "worse"]
    unclear = [one.second for one in found if one.verdict == "no difference shown"]
    parts = []
    if better:
        shown = ", ".join(f"{one.second} ({one.difference:+.3f}, adjusted p = {one.p_adjusted:.2g})" for one in better)
        parts.append(f"better than {ids[0]}: {shown}")
    if worse:
        parts.append(f"worse: {', '.join(worse)}")
    if unclear:
        parts.append(f"no difference shown: {', '.join(unclear)}")
    return f"Test success against {ids[0]}: {'; '.join(parts)}.{caution}"
