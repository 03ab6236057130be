"""Judging detectors: what a policy's alerts say about runs with known faults, and about healthy ones.

Used by the tests, by `benchmarks/monitoring.py`, and wherever a change of thresholds has to be tried: recall, false
alarms and delay are measured, not argued.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.runs.detectors.monitor import Monitor, watch
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import Alert, Plan
from trainer.runs.simulate import Scripted, healthy
from trainer.runs.simulate_faults import Fault

MAGNITUDES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Recall:
    """How a detector did on one script at one magnitude."""

    fault: Fault
    magnitude: float
    runs: int
    found: int
    delays: tuple[int, ...]
    """Steps from the onset to the first alert, of the runs in which it was found."""

    @property
    def rate(self) -> float:
        return self.found / self.runs

    @property
    def median_delay(self) -> int | None:
        ordered = sorted(self.delays)
        return ordered[len(ordered) // 2] if ordered else None


def judged(scripted: Scripted, policy: MonitorPolicy | None = None) -> Monitor:
    """A monitor that has seen the whole run."""
    return watch(scripted.rows, scripted.events, policy=policy, plan=scripted.plan, process=scripted.process)


def recall(fault: Fault, magnitude: float, seeds: Sequence[int], policy: MonitorPolicy | None = None) -> Recall:
    """Runs the script for each seed and looks for its detector's alert from the onset on."""
    delays = []
    for seed in seeds:
        scripted = fault.run(seed, magnitude)
        onset = scripted.onset or 1
        steps = [
            alert.step
            for alert in judged(scripted, policy).alerts
            if alert.detector == fault.detector and fault.kind in (None, alert.kind) and alert.step >= onset
        ]
        if steps:
            delays.append(steps[0] - onset)
    return Recall(fault, magnitude, len(seeds), len(delays), tuple(delays))


def false_alarms(seeds: Sequence[int], steps: int = 200, policy: MonitorPolicy | None = None) -> dict[str, int]:
    """Alarms (warn or critical) on healthy runs, by name; empty is what is wanted."""
    counts: dict[str, int] = {}
    for seed in seeds:
        for alert in judged(healthy(seed, steps), policy).alerts:
            if alert.severity.is_alarm:
                counts[alert.name] = counts.get(alert.name, 0) + 1
    return counts


VERL_NAMES = {
    "score": "reward_mean",
    "entropy": "entropy",
    "ppo_kl": "approx_kl",
    "grad_norm": "grad_norm",
    "lr": "learning_rate",
    "response_clip_ratio": "truncated_rate",
}
"""Series of runs that verl trained → our metric."""


def from_recording(document: Mapping[str, Any]) -> Scripted:
    """A run kept as columns: `metrics` and `seconds` (name → values, null: not measured), `validations`, `config`."""
    columns = document["metrics"]
    rows: list[dict[str, Any]] = []
    for place in range(len(columns["step"])):
        row = {name: values[place] for name, values in columns.items() if values[place] is not None}
        row["seconds"] = {name: values[place] for name, values in document["seconds"].items()}
        rows.append(row)
    config = document["config"]
    plan = Plan(
        planned_steps=config["max_steps"],
        max_completion_tokens=config["max_completion_tokens"],
        max_turns=config["max_turns"],
        num_generations=config["num_generations"],
        trains_flat_groups=config["beta"] > 0,
    )
    return Scripted(rows, _validations(document["validations"]), plan)


def from_points(series: Mapping[str, Any], validation: str, n: int, names: Mapping[str, str] = VERL_NAMES) -> Scripted:
    """A run kept as [step, value] pairs by name; `validation` names the held-out success of `n` problems."""
    rows: dict[int, dict[str, Any]] = {}
    for theirs, ours in names.items():
        for step, value in series[theirs]:
            rows.setdefault(step, {"step": step})[ours] = value
    ordered = [rows[step] for step in sorted(rows)]
    events = _validations((step, mean, n) for step, mean in series[validation])
    return Scripted(ordered, events, Plan(planned_steps=len(ordered)))


def _validations(points: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [{"kind": "validation", "step": step, "eval": {"mean": mean, "n": n}} for step, mean, n in points]


@dataclass(frozen=True)
class Judgement:
    """Alerts of a run held against its labels."""

    alerts: tuple[Alert, ...]
    missed: tuple[tuple[str, ...], ...]
    """Groups of which no detector spoke."""
    false: tuple[Alert, ...]
    """Alarms that no label allows."""


def against_labels(alerts: Sequence[Alert], must: Sequence[Sequence[str]], may: Sequence[str]) -> Judgement:
    """A label is a detector's id or `id:kind`. Of each group in `must` one has to speak; a note is never false."""
    allowed = {name for group in must for name in group} | set(may)

    def fits(alert: Alert, labels: Iterable[str]) -> bool:
        return bool({alert.detector, alert.name} & set(labels))

    missed = tuple(tuple(group) for group in must if not any(fits(one, group) for one in alerts))
    false = tuple(one for one in alerts if one.severity.is_alarm and not fits(one, allowed))
    return Judgement(tuple(alerts), missed, false)
