"""The live table of a run: the last steps, what they cost, how far it is. Plain lines where there is no terminal."""

import math
import statistics
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trainer.config import TrainingConfig
from trainer.runs.curves import sparkline
from trainer.runs.launch import RunUpdate
from trainer.runs.types import RunDocument, RunState
from trainer.runs.wording import counted

ROWS = 12
"""Steps shown at once."""

COLUMNS = ("step", "reward", "entropy", "length", "parsed", "flat groups", "generate", "env", "update", "step s")
"""Columns of the table; the last four in seconds."""

PLAIN_EVERY_S = 5.0
"""Without a terminal, at most one line in this many seconds."""


def number(value: Any, digits: int = 3) -> str:
    """A measured number, or a dash: missing is never zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def step_seconds(row: dict[str, Any]) -> float | None:
    """Seconds of one step: the sum of its phases, else its own time."""
    seconds = row.get("seconds")
    if isinstance(seconds, dict):
        values = [value for value in seconds.values() if isinstance(value, (int, float))]
        if values:
            return float(math.fsum(values))
    value = row.get("time_s")
    return float(value) if isinstance(value, (int, float)) else None


class TrainingView:
    """Shows a run while it goes on."""

    def __init__(self, console: Console, config: TrainingConfig) -> None:
        self._console = console
        self._config = config
        self._rows: list[dict[str, Any]] = []
        self._notes: deque[str] = deque(maxlen=3)
        self._began = time.monotonic()
        self._told: tuple[str, float] = ("", 0.0)
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, update: RunUpdate, waits_for: Sequence[str] = ()) -> None:
        """Takes in what is new and draws it."""
        self._rows += update.metrics
        for event in update.events:
            note = event_note(event)
            if note:
                self._notes.append(note)
                if self._live is None:
                    self._console.print(note, markup=False)
        status = self._status(update.document, waits_for)
        if self._live is not None:
            self._live.update(self._table(status), refresh=True)
        else:
            self._plain(update, status)

    def _status(self, document: RunDocument, waits_for: Sequence[str]) -> str:
        if document.state is RunState.QUEUED:
            others = f" behind {', '.join(waits_for)}" if waits_for else ""
            return f"{document.run_id}: waiting for a free slot{others}"
        if document.state is RunState.STARTING:
            return f"{document.run_id}: loading {self._config.model}"
        if document.state.is_final:
            return f"{document.run_id}: {document.state}"
        planned = document.planned_steps or self._config.planned_steps
        done = len(self._rows)
        if done == 0:
            return f"{document.run_id}: test before training"
        eta = self.remaining_s(planned)
        left = "" if eta is None else f", at most {duration(eta)} left"
        if done >= planned:
            return f"{document.run_id}: {counted(done, 'step')} done, test after training"
        return f"{document.run_id}: step {done} of at most {planned}{left}"

    def remaining_s(self, planned: int) -> float | None:
        """Seconds left at the pace of the last steps."""
        recent = [seconds for row in self._rows[-10:] if (seconds := step_seconds(row)) is not None]
        return statistics.median(recent) * max(0, planned - len(self._rows)) if recent else None

    def _table(self, status: str) -> Table:
        rewards = [row["reward_mean"] for row in self._rows if isinstance(row.get("reward_mean"), (int, float))]
        below = [f"reward {sparkline(rewards[-60:], 0.0, 1.0)}"] if len(rewards) > 1 else []
        caption = Text("\n".join([*below, *self._notes]))
        table = Table(title=Text(status), title_justify="left", caption=caption, caption_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for row in self._rows[-ROWS:]:
            table.add_row(*_cells(row))
        return table

    def _plain(self, update: RunUpdate, status: str) -> None:
        """A line when the state changes, and one every few seconds while steps come in."""
        state = f"{update.document.state}{len(self._rows) > 0}"
        now = time.monotonic()
        if state != self._told[0]:
            self._told = (state, now)
            self._console.print(status, markup=False)
        elif update.metrics and now - self._told[1] >= PLAIN_EVERY_S:
            self._told = (state, now)
            row = self._rows[-1]
            self._console.print(
                f"step {row.get('step')}: reward {number(row.get('reward_mean'))}, "
                f"entropy {number(row.get('entropy'))}, "
                f"length {number(row.get('completion_mean'), 0)}, {number(step_seconds(row), 2)} s",
                markup=False,
            )


def _cells(row: dict[str, Any]) -> list[str]:
    seconds = row.get("seconds") if isinstance(row.get("seconds"), dict) else {}
    assert isinstance(seconds, dict)
    update = [seconds[name] for name in ("logprob", "update") if isinstance(seconds.get(name), (int, float))]
    return [
        str(row.get("step", "–")),
        number(row.get("reward_mean")),
        number(row.get("entropy")),
        number(row.get("completion_mean"), 0),
        number(row.get("parse_ok_rate"), 2),
        number(row.get("frac_zero_variance"), 2),
        number(seconds.get("generate"), 2),
        number(seconds.get("environment"), 2),
        number(math.fsum(update) if update else None, 2),
        number(step_seconds(row), 2),
    ]


def event_note(event: dict[str, Any]) -> str:
    """One line for an event worth telling, else an empty text."""
    kind = event.get("kind")
    result = event.get("eval") if isinstance(event.get("eval"), dict) else None
    if kind == "eval" and result is not None:
        return f"test {event.get('name', '')}: {number(result.get('mean'))} (n {result.get('n')})"
    if kind == "validation" and result is not None:
        return f"validation at step {event.get('step')}: {number(result.get('mean'))} (n {result.get('n')})"
    if kind == "preflight":
        return f"before the first step ({event.get('id')}): {event.get('text')} {event.get('advice')}"
    if kind == "checkpoint":
        return f"checkpoint at step {event.get('step')}"
    if kind == "alert" and event.get("severity") != "info":
        return f"{event.get('severity')} at step {event.get('step')} ({event.get('alert')}): {event.get('say')}"
    if kind == "warning":
        return f"warning: {event.get('text', '')}"
    if kind == "stop_requested":
        return f"stop requested ({event.get('reason', '')})"
    return ""
