"""A run directory under watch: reads what its files say since the last look and feeds the monitor in story order.

The worker polls after each step (`record`), the server and the command line whenever they look; all judge by the same
policy (`monitor.json` of the run), so they tell the same alerts.
"""

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from skill_bank.policy import PolicyError
from trainer.config import TrainingConfig
from trainer.models.catalog import resolve_model
from trainer.runs.detectors.monitor import Monitor, merged
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import Alert, Plan, ProcessFacts, Severity, Standing
from trainer.runs.errors import RunError
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

ALERT_EVENT = "alert"
"""Kind of the event that the worker writes for an alert."""


def policy_context(config: TrainingConfig, document: RunDocument) -> dict[str, Any]:
    """The policy context of a run, without what is not known."""
    known: dict[str, Any] = {
        "params": document.parameters,
        "model": config.model,
        "env": config.env,
        "difficulty": config.difficulty,
        "lora": config.lora,
        "device": document.device or (None if config.device == "auto" else config.device),
    }
    if known["params"] is None:
        known["params"] = resolve_model(config.model).params
    return {key: value for key, value in known.items() if value is not None}


def process_facts(document: RunDocument, heartbeat_age_s: float | None) -> ProcessFacts:
    """What run document and heartbeat say now. Loading a model beats no heart: only a running run can stall."""
    return ProcessFacts(
        active=document.state is RunState.RUNNING, heartbeat_age_s=heartbeat_age_s, failure=document.failure
    )


class HeartbeatClock:
    """The age of a heartbeat that a correction of the clock does not change.

    The time of day says how old a heartbeat is when it is first seen. From then on a clock that nobody sets counts, so
    that an hour forward is no stall and an hour back hides none.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._beat: float | None = None
        self._age_then = self._seen = 0.0
        self._looked = -math.inf

    def age_s(self) -> float | None:
        """Seconds since the last heartbeat, None before the first one."""
        beat = self.directory.heartbeat_at()
        if beat is None:
            return None
        now = time.monotonic()
        if beat != self._beat:
            # one that came between two looks is no older than the time between them
            self._age_then = min(now - self._looked, max(0.0, time.time() - beat))
            self._beat, self._seen = beat, now
        self._looked = now
        return self._age_then + now - self._seen


class RunWatch:
    """The monitor of one run directory."""

    def __init__(self, directory: RunDirectory, policy: MonitorPolicy | None = None) -> None:
        """Raises RunError where the directory is none or the policy that it carries cannot be read."""
        self.directory = directory
        config, document = directory.read_config(), directory.read_document()
        try:
            chosen = policy or MonitorPolicy.load(directory.path)
        except PolicyError as error:
            raise RunError(str(error)) from error
        self.monitor = Monitor(chosen or MonitorPolicy.shipped(policy_context(config, document)), Plan.of(config))
        self.seconds = 0.0
        """Spent on reading and judging so far."""
        self._metrics_at = self._events_at = 0
        self._early: list[Mapping[str, Any]] = []
        self._recorded: set[tuple[object, object]] | None = None
        self._turn = threading.Lock()
        self._heartbeat = HeartbeatClock(directory)

    @property
    def alerts(self) -> list[Alert]:
        """All alerts so far."""
        return self.monitor.alerts

    def poll(self, *, process: bool = True) -> list[Alert]:
        """Reads what is new and returns the alerts that it gives rise to. Several threads may look."""
        with self._turn:
            began = time.perf_counter()
            told = len(self.monitor.alerts)
            self._read()
            if process:
                self.monitor.look_at_process(process_facts(self.directory.read_document(), self._heartbeat.age_s()))
            self.seconds += time.perf_counter() - began
            return self.monitor.alerts[told:]

    def _read(self) -> None:
        # metrics first: whatever belongs to a line that is read now is in the events by then
        rows, self._metrics_at = self.directory.metrics_from(self._metrics_at)
        events, self._events_at = self.directory.events_from(self._events_at)
        last = max([self.monitor.history.last_step, *(row["step"] for row in rows if isinstance(row.get("step"), int))])
        waiting = [*self._early, *events]
        self._early = [one for one in waiting if isinstance(one.get("step"), int) and one["step"] > last]
        for line in merged(rows, [one for one in waiting if one not in self._early]):
            if "kind" in line:
                self.monitor.add_event(line)
            else:
                self.monitor.add_row(line)

    @property
    def standing(self) -> list[Alert]:
        """All alerts so far, without a stall that is over."""
        stalled = self._is_stalled
        return [one for one in self.monitor.alerts if stalled or one.detector != "stall"]

    @property
    def skipped(self) -> dict[str, str]:
        """Detectors that could judge no step, with what they miss."""
        return self.monitor.never_judged()

    @property
    def silent_s(self) -> float | None:
        """Seconds since the last heartbeat of a run that counts as stalled; None: it does not."""
        return self._heartbeat.age_s() if self._is_stalled else None

    @property
    def _is_stalled(self) -> bool:
        return self.monitor.statuses()["stall"].standing is Standing.ALERT

    def record(self) -> Alert | None:
        """The worker's look after a step: writes an event for each new alert and returns the first critical one.

        What the directory tells already (of a run that is resumed) is not told again and stops nothing.
        """
        if self._recorded is None:
            events = self.directory.events()
            self._recorded = {(one.get("alert"), one.get("step")) for one in events if one.get("kind") == ALERT_EVENT}
        alerts = [one for one in self.poll(process=False) if (one.name, one.step) not in self._recorded]
        for alert in alerts:
            self.directory.append_event(ALERT_EVENT, **alert.as_dict())
        return next((alert for alert in alerts if alert.severity is Severity.CRITICAL), None)


def alerts_of(directory: RunDirectory, policy: MonitorPolicy | None = None) -> list[Alert]:
    """All alerts of a run as its files stand now. Raises RunError."""
    watch = RunWatch(directory, policy)
    watch.poll()
    return watch.alerts


def strongest(alerts: list[Alert]) -> list[tuple[Alert, int]]:
    """(the last alert of the highest severity, how often it was told) by name, the most severe first."""
    by_name: dict[str, list[Alert]] = {}
    for alert in alerts:
        by_name.setdefault(alert.name, []).append(alert)
    chosen = [
        (max(several, key=lambda one: (one.severity.rank, one.step)), len(several)) for several in by_name.values()
    ]
    return sorted(chosen, key=lambda pair: (-pair[0].severity.rank, pair[0].step))
