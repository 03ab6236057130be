"""The live state of the watch over one run: fed with lines, events and looks at the process, it tells alerts.

The same anomaly (detector and kind) is told again after its cooldown at the earliest, or at once when it got worse.
What a monitor tells depends on what it was fed and in which order, not on how many lines came at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.detectors.history import BadUpdate, History, Validation
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import (
    Alert,
    Detector,
    Occasion,
    Plan,
    ProcessFacts,
    Severity,
    Sighting,
    Skipped,
    Standing,
    Status,
    View,
)

NOTES_APART = 5
"""Cooldowns between two notes (severity info) of the same: a solved task stays solved."""


class Monitor:
    """Watches one run."""

    def __init__(
        self,
        policy: MonitorPolicy | None = None,
        plan: Plan | None = None,
        detectors: Sequence[Detector] = CATALOGUE,
    ) -> None:
        self.policy = policy or MonitorPolicy.shipped()
        self.plan = plan or Plan()
        self.history = History()
        self.alerts: list[Alert] = []
        """All that were told, in order."""
        self._detectors = detectors
        self._process = ProcessFacts(active=False)
        self._told: dict[str, tuple[int, Severity]] = {}
        self._status: dict[str, Status] = {one.id: Status(Standing.SKIPPED, "nothing seen yet") for one in detectors}
        self._judged: set[str] = set()
        """Detectors that could look at least once."""
        self._warmup = self.policy.warmup_steps(self.plan.planned_steps)

    # ---- feeding

    def add_row(self, row: Mapping[str, Any]) -> list[Alert]:
        """A line of metrics.jsonl. Returns the alerts that it gives rise to."""
        before = self.history.last_step
        self.history.append(row)
        if self.history.last_step <= before:  # a resume took steps back: what was told of them may be told again
            step = self.history.last_step
            self._told = {name: told for name, told in self._told.items() if told[0] < step}
        return self._look(Occasion.STEP)

    def add_event(self, event: Mapping[str, Any]) -> list[Alert]:
        """A line of events.jsonl; kinds that no detector knows are left alone."""
        kind, step = event.get("kind"), event.get("step")
        if not isinstance(step, int):
            return []
        if kind == "nonfinite":
            in_a_row = event.get("in_a_row")
            self.history.bad_updates.append(BadUpdate(step, in_a_row if isinstance(in_a_row, int) else 1))
            return self._look(Occasion.UPDATE)
        result = event.get("eval")
        if kind == "validation" and isinstance(result, Mapping) and isinstance(result.get("mean"), (int, float)):
            n = result.get("n")
            self.history.validations.append(
                Validation(step, float(result["mean"]), n if isinstance(n, int) and n > 0 else None)
            )
            return self._look(Occasion.VALIDATION)
        return []

    def look_at_process(self, facts: ProcessFacts) -> list[Alert]:
        """What the operating system and the run document say now."""
        self._process = facts
        return self._look(Occasion.PROCESS)

    # ---- judging

    def statuses(self) -> dict[str, Status]:
        """What each detector made of its last look."""
        return dict(self._status)

    def never_judged(self) -> dict[str, str]:
        """Detectors that were skipped at every look, with what they missed at the last one."""
        skipped = {name: one for name, one in self._status.items() if one.standing is Standing.SKIPPED}
        return {name: one.reason or "" for name, one in skipped.items() if name not in self._judged}

    def _look(self, occasion: Occasion) -> list[Alert]:
        view = View(self.history, self.policy, self.plan, self._process)
        found = []
        for detector in self._detectors:
            if occasion not in detector.occasions:
                continue
            answer = self._ask(detector, view, occasion)
            if isinstance(answer, Sighting):
                self._status[detector.id] = Status(Standing.ALERT)
                alert = self._tell(detector, answer)
                if alert is not None:
                    found.append(alert)
            elif isinstance(answer, Status):
                self._status[detector.id] = answer
            else:
                self._status[detector.id] = Status(Standing.QUIET)
            if self._status[detector.id].standing in (Standing.QUIET, Standing.ALERT):
                self._judged.add(detector.id)
        self.alerts += found
        return found

    def _ask(self, detector: Detector, view: View, occasion: Occasion) -> Sighting | Status | None:
        warmup = self._warmup if detector.warmup_steps is None else detector.warmup_steps
        if occasion is not Occasion.PROCESS and len(self.history.steps) <= warmup and warmup:
            return Status(Standing.WARMING_UP)
        missing = [name for name in detector.needs if self.history.now(name) is None]
        if missing:
            return Status(Standing.SKIPPED, f"not measured at step {self.history.last_step}: {', '.join(missing)}")
        answer = detector.judge(view)
        return Status(Standing.SKIPPED, answer.reason) if isinstance(answer, Skipped) else answer

    def _tell(self, detector: Detector, sighting: Sighting) -> Alert | None:
        step = max(self.history.last_step, *(one.step for one in sighting.evidence), 0)
        name = detector.id if sighting.kind is None else f"{detector.id}:{sighting.kind}"
        cooldown = self.policy.cooldown_steps if detector.cooldown_steps is None else detector.cooldown_steps
        if sighting.severity is Severity.INFO:
            cooldown *= NOTES_APART
        told = self._told.get(name)
        if told is not None and step < told[0] + max(1, cooldown) and sighting.severity.rank <= told[1].rank:
            return None
        self._told[name] = (step, sighting.severity)
        return Alert(
            detector.id,
            step,
            sighting.severity,
            sighting.say,
            sighting.evidence,
            detector.cause,
            detector.advice,
            sighting.kind,
        )


def merged(rows: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of both files in the order in which they tell their story: a bad update, the step's line, its validation.

    Rows have no `kind`. Events without a step are left out: no detector needs them.
    """
    order = {"nonfinite": 0, "validation": 2}
    lines = [((row["step"], 1), row) for row in rows if isinstance(row.get("step"), int)]
    lines += [
        ((event["step"], order[event["kind"]]), event)
        for event in events
        if isinstance(event.get("step"), int) and event.get("kind") in order
    ]
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def watch(
    rows: Iterable[Mapping[str, Any]],
    events: Iterable[Mapping[str, Any]] = (),
    *,
    policy: MonitorPolicy | None = None,
    plan: Plan | None = None,
    process: ProcessFacts | None = None,
) -> Monitor:
    """A monitor that has seen a whole run."""
    monitor = Monitor(policy, plan)
    for line in merged(rows, events):
        if "kind" in line:
            monitor.add_event(line)
        else:
            monitor.add_row(line)
    if process is not None:
        monitor.look_at_process(process)
    return monitor
