"""Judging detectors: what a policy's alerts say about runs with known faults, and about healthy ones.

Used by the tests, by `benchmarks/monitoring.py`, and wherever a change of thresholds has to be tried: recall, false
alarms and delay are measured, not argued.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.runs.detectors.monitor import Monitor, watch
from trainer.runs.detectors.policy import MonitorPolicy
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
