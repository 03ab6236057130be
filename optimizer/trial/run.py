"""Runs a paired trial: both arms of each pair side by side, one decision at each look, everything on disk.

1. Both arms of a pair share start weights, task order, evaluation tasks and keyed random streams (all follow from the
   pair's seed) and train the same number of episodes. They differ in the policy alone.
2. A pair is written when both its arms are done. A trial that was killed goes on behind the last written pair.
3. A budget ends a trial only at a look of its plan, so that it never peeks at pairs in between.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from optimizer.trial.arms import ArmJob, ArmRunner, TrialCancelled, TrialError
from optimizer.trial.folder import TrialFolder, TrialSpec
from optimizer.trial.scenarios import Scenario
from optimizer.trial.statistics import decide, no_effect, summarise
from optimizer.trial.types import ArmResult, Decision, Pair, Summary
from skill_bank.policy import CompiledPolicy
from trainer.config import TrainingConfig

Resolve = Callable[[Scenario, int, CompiledPolicy], TrainingConfig]
"""The configuration of an arm: what the scenario and seed fix, the rest by the policy."""


@dataclass(frozen=True)
class Budget:
    """How far a trial may go now. None: to its plan's end."""

    pairs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class TrialProgress:
    """What a watcher of a trial is told."""

    kind: str
    """start | pair | decided | cancelled."""
    spec: TrialSpec
    pairs: tuple[Pair, ...]
    summary: Summary | None = None
    decision: Decision | None = None
    next_look: int | None = None
    seconds_left: float | None = None
    """To the plan's end at the speed so far."""


def never() -> bool:
    """No one asks to stop."""
    return False


def differing(scenarios: list[Scenario], base: CompiledPolicy, patched: CompiledPolicy, resolve: Resolve) -> list[str]:
    """Names of the scenarios in which the two policies lead to different configurations."""
    return [one.name for one in scenarios if resolve(one, 0, base) != resolve(one, 0, patched)]


def run_trial(
    folder: TrialFolder,
    resolve: Resolve,
    runner: ArmRunner,
    *,
    budget: Budget | None = None,
    cancelled: Callable[[], bool] = never,
    keep_runs: bool = False,
) -> Iterator[TrialProgress]:
    """Takes the trial in `folder` on to its decision, telling after each pair how it stands.

    Raises TrialError when an arm cannot be measured (twice), or when another process runs this trial.
    """
    lock = FileLock(str(folder.path / "running.lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise TrialError(f"trial {folder.path.name} is being run by another process: wait for it") from error
    try:
        yield from _run(folder, resolve, runner, budget or Budget(), cancelled, keep_runs)
    finally:
        lock.release()


def finish_trial(steps: Iterator[TrialProgress], watch: Callable[[TrialProgress], None] | None = None) -> Decision:
    """Runs a trial to its end, showing each step to `watch`. Raises TrialCancelled when it was stopped."""
    with closing(steps):  # type: ignore[type-var]  # run_trial is a generator: leaving early must release its lock
        for step in steps:
            if watch is not None:
                watch(step)
            if step.kind == "cancelled":
                raise TrialCancelled(f"trial {step.spec.trial_id} was stopped after {len(step.pairs)} pairs")
            if step.decision is not None:
                return step.decision
    raise TrialError("the trial ended without a decision")


def _run(
    folder: TrialFolder,
    resolve: Resolve,
    runner: ArmRunner,
    budget: Budget,
    cancelled: Callable[[], bool],
    keep_runs: bool,
) -> Iterator[TrialProgress]:
    spec = folder.spec()
    plan = spec.plan
    base, patched = folder.policies()
    limit = _limit(budget, spec)
    pairs = folder.pairs(spec)
    done = folder.decision()
    if done is not None and (done.final or len(pairs) >= limit):
        yield TrialProgress("decided", spec, tuple(pairs), done.summary, done)
        return
    if not differing(list(spec.scenarios), base, patched, resolve):
        same = no_effect(None, "the configurations of both arms are equal in every scenario")
        folder.write_decision(same)
        yield TrialProgress("decided", spec, tuple(pairs), None, same)
        return
    yield TrialProgress("start", spec, tuple(pairs), next_look=plan.next_look(len(pairs)))
    started = time.monotonic()
    while True:
        decision = _decision_now(pairs, spec, limit, budget, time.monotonic() - started)
        if decision is not None:
            folder.write_decision(decision)
            yield TrialProgress("decided", spec, tuple(pairs), decision.summary, decision)
            return
        if cancelled():
            yield TrialProgress("cancelled", spec, tuple(pairs))
            return
        try:
            pair = _one_pair(len(pairs), spec, folder.path, (base, patched), resolve, runner, cancelled, keep_runs)
        except TrialCancelled:
            yield TrialProgress("cancelled", spec, tuple(pairs))
            return
        folder.add_pair(pair)
        pairs.append(pair)
        yield TrialProgress(
            "pair",
            spec,
            tuple(pairs),
            summarise(pairs, plan),
            next_look=plan.next_look(len(pairs) - 1),
            seconds_left=_pair_seconds(pairs) * (min(limit, plan.max_pairs) - len(pairs)),
        )


def _limit(budget: Budget, spec: TrialSpec) -> int:
    """The last look the budget allows."""
    if budget.pairs is None:
        return spec.plan.max_pairs
    looks = [look for look in spec.plan.looks if look <= budget.pairs]
    if not looks:
        raise TrialError(
            f"a budget of {budget.pairs} pairs ends before the first look of plan {spec.plan.name!r} "
            f"({spec.plan.looks[0]} pairs): allow at least that many"
        )
    return looks[-1]


def _pair_seconds(pairs: list[Pair]) -> float:
    timed = [pair.seconds for pair in pairs if pair.seconds is not None]
    return sum(timed) / len(timed) if timed else 0.0


def _decision_now(pairs: list[Pair], spec: TrialSpec, limit: int, budget: Budget, spent: float) -> Decision | None:
    decision = decide(pairs, spec.plan)
    if decision is not None or spec.plan.level_at(len(pairs)) is None:
        return decision
    next_look = spec.plan.next_look(len(pairs))
    late = (
        budget.seconds is not None
        and next_look is not None
        and spent + (next_look - len(pairs)) * _pair_seconds(pairs) > budget.seconds
    )
    if len(pairs) >= limit or late:
        return decide(pairs, spec.plan, out_of_budget=True)
    return None


def _one_pair(
    index: int,
    spec: TrialSpec,
    path: Path,
    policies: tuple[CompiledPolicy, CompiledPolicy],
    resolve: Resolve,
    runner: ArmRunner,
    cancelled: Callable[[], bool],
    keep_runs: bool,
) -> Pair:
    scenario, seed = spec.pair_at(index)
    started = time.monotonic()
    results: list[ArmResult] = []
    for attempt in (1, 2):
        jobs = [
            ArmJob(name, resolve(scenario, seed, policy), path / "runs" / f"pair-{index:03d}-{name}")
            for name, policy in zip(("base", "patched"), policies, strict=True)
        ]
        for job in jobs:  # left over from an attempt that was killed
            shutil.rmtree(job.folder, ignore_errors=True)
        try:
            results = runner.run(jobs, cancelled)
            break
        except TrialError:
            if attempt == 2:
                raise
    if not keep_runs:  # models of 24 pairs would fill the disk; the result and its numbers are in pairs.jsonl
        for job in jobs:
            shutil.rmtree(job.folder, ignore_errors=True)
    base, patched = results
    return Pair(
        index=index,
        scenario=scenario.name,
        seed=seed,
        base=base,
        patched=patched,
        seconds=time.monotonic() - started,
    )
