"""The trial of a monitor patch: runs with known outcomes, judged under the thresholds without and with the patch.

No training: scripted failures at drawn magnitudes and onsets, healthy scripted runs, and the workspace's own finished
runs whose outcome is beyond doubt. A failing run counts as found when its detector (for a run of the workspace: any)
raises an alarm, a healthy one as a false alarm when a detector does that the patch concerns. The seeds follow from the
trial's and are none on which a threshold was chosen.

Better: significantly more failures are found and false alarms do not become more, or significantly fewer false alarms
and no failure less is found (exact one-sided sign test on the runs that are judged differently, level .025). Worse: the
mirror image. The effect is the difference in recall.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from scipy.special import bdtr

from optimizer.trial.arms import collapse_of
from optimizer.trial.statistics import rate
from optimizer.trial.types import Decision, Reason, ScenarioEffect, Summary, TrialVerdict
from skill_bank.policy import CompiledPolicy, parse_params
from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.detectors.feed import alerts_of, policy_context
from trainer.runs.detectors.monitor import Monitor, merged
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import Alert, Detector
from trainer.runs.errors import RunError
from trainer.runs.registry import list_runs
from trainer.runs.simulate import Scripted, healthy
from trainer.runs.simulate_faults import FAULTS, Fault
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace

LEVEL = 0.025

MAGNITUDES = (0.5, 1.0)
"""Half of a fault and all of it: smaller ones are luck for any threshold."""

SCRIPTS = 12
"""Seeds of each fault and magnitude."""

HEALTHY = 24
"""Healthy runs."""

STEPS = 200
FIRST_SEED = 4_000_000
"""Thresholds were chosen on seeds below 600,000; the tables of the docs use those from 2,000,000 on."""

CONTEXT: dict[str, Any] = {"params": 1_000_000, "model": "tiny", "env": "calculator", "difficulty": "mixed"}
"""Situation whose thresholds the scripts are judged by, where the patch's scope says nothing else."""


def context_inside(scope: Mapping[str, Any] | None) -> dict[str, Any]:
    """A situation inside the scope of a patch: its own values, and a size within its range."""
    found = {**CONTEXT, **(scope or {})}
    size = found["params"]
    if isinstance(size, str):
        bounds = parse_params(size)
        found["params"] = CONTEXT["params"] if CONTEXT["params"] in bounds else int(bounds.low)
    return found


class Replayed(BaseModel):
    """One run, judged twice: a line of `replayed.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    """Fault, `healthy`, or the id of a run of the workspace."""
    seed: int | None = None
    magnitude: float | None = None
    bad: bool
    """It failed: an alarm is wanted."""
    base: bool
    patched: bool
    """Alarm without and with the patch."""


@dataclass(frozen=True)
class Counts:
    """Runs that the two policies judge differently."""

    gained: int
    lost: int
    """Failing runs found only with the patch, only without it."""
    more_false: int
    fewer_false: int
    """Healthy runs with an alarm only with the patch, only without it."""


def changed_sections(base: CompiledPolicy, patched: CompiledPolicy) -> set[str]:
    """First parts of the keys that the patch changes."""
    old = {(one.key, repr(one.when), repr(one.value)) for one in base.assignments}
    new = {(one.key, repr(one.when), repr(one.value)) for one in patched.assignments}
    return {key.split(".")[0] for key, _, _ in old ^ new}


def faults_for(sections: set[str]) -> list[Fault]:
    """The scripts of the detectors that the patch concerns; all where it changes what several of them use."""
    known = {fault.detector for fault in FAULTS}
    if sections and sections <= known:
        return [fault for fault in FAULTS if fault.detector in sections]
    return list(FAULTS)


def replay(
    base: CompiledPolicy,
    patched: CompiledPolicy,
    seed: int,
    workspace: Workspace | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    *,
    scope: Mapping[str, Any] | None = None,
) -> Iterator[Replayed]:
    """Judges every run under both policies, scripts in a situation inside `scope`; ends early when it is cancelled."""
    sections = changed_sections(base, patched)
    context = context_inside(scope)
    pair = (MonitorPolicy.of(base.resolve(context)), MonitorPolicy.of(patched.resolve(context)))
    faults = faults_for(sections)
    names = {fault.detector for fault in faults}
    concerned = [one for one in CATALOGUE if one.id in names] if sections <= names else list(CATALOGUE)
    seeds = _seeds(seed, SCRIPTS)
    for fault in faults:
        for magnitude in MAGNITUDES:
            for one in seeds:
                if cancelled():
                    return
                found = [_finds(fault, one, magnitude, policy) for policy in pair]
                yield Replayed(
                    name=fault.detector, seed=one, magnitude=magnitude, bad=True, base=found[0], patched=found[1]
                )
    for one in _seeds(seed + 1, HEALTHY):
        if cancelled():
            return
        scripted = healthy(one, STEPS)
        alarms = [any(one.severity.is_alarm for one in _alerts(scripted, policy, concerned)) for policy in pair]
        yield Replayed(name="healthy", seed=one, bad=False, base=alarms[0], patched=alarms[1])
    yield from _own_runs(base, patched, workspace, cancelled)


def _seeds(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return [FIRST_SEED + rng.randrange(1_000_000_000) for _ in range(count)]


def _finds(fault: Fault, seed: int, magnitude: float, policy: MonitorPolicy) -> bool:
    scripted = fault.run(seed, magnitude)
    return any(
        alert.detector == fault.detector
        and fault.kind in (None, alert.kind)
        and alert.step >= (scripted.onset or 1)
        and alert.severity.is_alarm
        for alert in _alerts(scripted, policy, [one for one in CATALOGUE if one.id == fault.detector])
    )


def _alerts(scripted: Scripted, policy: MonitorPolicy, detectors: Sequence[Detector]) -> list[Alert]:
    """What these detectors tell of a scripted run."""
    monitor = Monitor(policy, scripted.plan, detectors)
    for line in merged(scripted.rows, scripted.events):
        if "kind" in line:
            monitor.add_event(line)
        else:
            monitor.add_row(line)
    if scripted.process is not None:
        monitor.look_at_process(scripted.process)
    return monitor.alerts


def _own_runs(
    base: CompiledPolicy, patched: CompiledPolicy, workspace: Workspace | None, cancelled: Callable[[], bool]
) -> Iterator[Replayed]:
    if workspace is None:
        return
    for run in list_runs(workspace):
        if cancelled():
            return
        try:
            config = run.directory.read_config()
            bad = known_outcome(run.document, run.directory.metrics(), config.num_generations)
            if bad is None:
                continue
            context = policy_context(config, run.document)
            alarms = [
                any(
                    alert.severity.is_alarm
                    for alert in alerts_of(run.directory, MonitorPolicy.of(one.resolve(dict(context))))
                )
                for one in (base, patched)
            ]
        except RunError:  # a damaged run has no outcome that is known
            continue
        yield Replayed(name=run.document.run_id, bad=bad, base=alarms[0], patched=alarms[1])


def known_outcome(document: RunDocument, metrics: Sequence[Mapping[str, Any]], generations: int = 1) -> bool | None:
    """True: it failed or collapsed. False: it learned, with separate intervals. None: nobody can tell."""
    if document.state is RunState.FAILED:
        return True if document.failure is not None and document.failure.kind in ("nonfinite", "oom") else None
    if document.state is not RunState.FINISHED:
        return None
    before, after = document.eval.get("before"), document.eval.get("after")
    if collapse_of(metrics, None if after is None else after.mean, False, generations) is not None:
        return True
    if before is None or after is None:
        return None
    return False if after.ci95[0] > before.ci95[1] else None


def counted(rows: Sequence[Replayed]) -> Counts:
    """The runs that are judged differently."""
    return Counts(
        gained=sum(one.bad and one.patched and not one.base for one in rows),
        lost=sum(one.bad and one.base and not one.patched for one in rows),
        more_false=sum(not one.bad and one.patched and not one.base for one in rows),
        fewer_false=sum(not one.bad and one.base and not one.patched for one in rows),
    )


def sign_p(ahead: int, behind: int) -> float:
    """One-sided exact p value of `ahead` against `behind` where both are equally likely: P(Bin(n, 1/2) >= ahead)."""
    n = ahead + behind
    return 1.0 if ahead == 0 else float(1.0 - bdtr(ahead - 1, n, 0.5))


def decide_replay(rows: Sequence[Replayed]) -> Decision:
    """The verdict. Raises ValueError without a failing and a healthy run."""
    bad, good = [one for one in rows if one.bad], [one for one in rows if not one.bad]
    if not bad or not good:
        raise ValueError("a replay needs failing and healthy runs")
    counts = counted(rows)
    summary = _summary(bad, good)
    say = (
        f"recall {summary.base_mean:.3f} → {summary.patched_mean:.3f} on {len(bad)} failing runs "
        f"({counts.gained} found only with the patch, {counts.lost} only without), false alarms on "
        f"{summary.collapses_base.count} → {summary.collapses_patched.count} of {len(good)} healthy ones"
    )
    if counts == Counts(0, 0, 0, 0):
        return Decision(
            verdict=TrialVerdict.INCONCLUSIVE,
            reason=Reason.ARMS_IDENTICAL,
            say=f"no effect: {say}",
            next_step="the patch changes no alarm on any run: check its section and the value it sets",
            summary=summary,
        )
    finds_more = sign_p(counts.gained, counts.lost) <= LEVEL and counts.more_false <= counts.fewer_false
    calmer = sign_p(counts.fewer_false, counts.more_false) <= LEVEL and counts.lost <= counts.gained
    if finds_more or calmer:
        return Decision(
            verdict=TrialVerdict.BETTER, say=f"better: {say}", next_step="review the patch and decide", summary=summary
        )
    if min(sign_p(counts.lost, counts.gained), sign_p(counts.more_false, counts.fewer_false)) <= LEVEL:
        return Decision(
            verdict=TrialVerdict.WORSE,
            say=f"worse: {say}",
            next_step="the patch is rejected and remembered; propose another threshold",
            summary=summary,
        )
    return Decision(
        verdict=TrialVerdict.INCONCLUSIVE,
        reason=Reason.NO_WORTHWHILE_GAIN,
        say=f"no worthwhile gain: {say}",
        next_step="the patch is remembered and not proposed again; try another threshold",
        summary=summary,
    )


def _summary(bad: Sequence[Replayed], good: Sequence[Replayed]) -> Summary:
    n = len(bad)
    differences = [one.patched - one.base for one in bad]
    effect = sum(differences) / n
    sd = math.sqrt(sum((one - effect) ** 2 for one in differences) / max(n - 1, 1))
    error = sd / math.sqrt(n)
    names = list(dict.fromkeys(one.name for one in bad))
    return Summary(
        pairs=n,
        effect=effect,
        sd=sd,
        standard_error=error,
        level=LEVEL,
        interval=(effect - 1.96 * error, effect + 1.96 * error),
        base_mean=sum(one.base for one in bad) / n,
        patched_mean=sum(one.patched for one in bad) / n,
        scenarios=[_effect_of(name, [one for one in bad if one.name == name]) for name in names],
        # for a monitor, what may not become more is not collapses but false alarms
        collapses_base=rate(sum(one.base for one in good), len(good)),
        collapses_patched=rate(sum(one.patched for one in good), len(good)),
    )


def _effect_of(name: str, rows: Sequence[Replayed]) -> ScenarioEffect:
    mean = sum(one.patched - one.base for one in rows) / len(rows)
    return ScenarioEffect(scenario=name, pairs=len(rows), mean=mean, harmed=mean < 0)
