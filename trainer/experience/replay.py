"""Trying records before they are offered: on training tasks that they apply to, with and without them, side by side.

The caller plays (it has the policy and the environment); here it is decided which records are tried on which tasks, and
what the outcomes mean. Each trial is a pair: one attempt at a task with the record in its prompt, one without. Outcomes
become the record's guided and control counters, and the life cycle's rules move it (`counters.decide`): out of
quarantine when it helped, out of the pool when it harmed. Only training tasks may be given.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trainer.experience.pool import ExperiencePool, Moved
from trainer.experience.records import ExperienceRecord, Polarity, Status, Use


@dataclass(frozen=True)
class Trial:
    """One attempt that shall be made."""

    task: int
    """Index among the questions that were given."""
    lesson: str | None
    """What stands in the prompt; None: the control attempt."""


Play = Callable[[Sequence[Trial]], Sequence[bool | None]]
"""Makes attempts, in order: won, lost, or None where there is no evidence."""


class NotTried(StrEnum):
    """Why a record was not tried."""

    NO_TASK = "no_task"
    """None of the tasks is one that it would be found for."""
    NO_TIME = "no_time"
    ENOUGH = "enough"
    """More records wait than are tried at once."""


@dataclass(frozen=True)
class ReplayOptions:
    """How much is tried."""

    records: int = 16
    """Records at once."""
    pairs: int = 8
    """Pairs of attempts a record; at least `LifecyclePolicy.min_guided`."""
    reach: int = 5
    """A task is one for a record that is among so many hits of its question."""
    deadline_s: float = 600.0


DEFAULT_REPLAY = ReplayOptions()


@dataclass
class Replayed:
    """What was tried and what became of it."""

    tried: list[str] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    not_tried: Counter[NotTried] = field(default_factory=Counter)
    attempts: int = 0
    without_evidence: int = 0


def replay(
    pool: ExperiencePool,
    questions: Sequence[str],
    play: Play,
    *,
    family: str | None = None,
    options: ReplayOptions = DEFAULT_REPLAY,
) -> Replayed:
    """Tries quarantined records on training questions. Raises PoolError; outcomes so far are kept."""
    result, deadline = Replayed(), time.monotonic() + options.deadline_s
    waiting = waiting_records(pool, family)
    tasks_of = _tasks_of(pool, questions, family, options.reach)
    for number, record in enumerate(waiting):
        tasks = tasks_of.get(record.id, [])
        if not tasks:
            result.not_tried[NotTried.NO_TASK] += 1
            continue
        if len(result.tried) >= options.records:
            result.not_tried[NotTried.ENOUGH] += len(waiting) - number
            break
        if time.monotonic() > deadline:
            result.not_tried[NotTried.NO_TIME] += len(waiting) - number
            break
        chosen = [tasks[i % len(tasks)] for i in range(options.pairs)]
        lesson = record.rendered()
        trials = [trial for task in chosen for trial in (Trial(task, lesson), Trial(task, None))]
        outcomes = play(trials)
        if len(outcomes) != len(trials):
            raise ValueError(f"{len(trials)} attempts were asked for, {len(outcomes)} came back")
        known = [(trial, won) for trial, won in zip(trials, outcomes, strict=True) if won is not None]
        uses = [Use(record.id, won, control=trial.lesson is None) for trial, won in known]
        result.moved += pool.record_uses(uses)
        result.tried.append(record.id)
        result.attempts += len(trials)
        result.without_evidence += len(trials) - len(known)
    return result


def waiting_records(pool: ExperiencePool, family: str | None = None) -> list[ExperienceRecord]:
    """Records in quarantine: the least tried first, of those what to do before what to leave (which still leaves every
    other way open), of those the best founded."""
    found = [
        record
        for record in pool.store.iterate((Status.QUARANTINED,))
        if family is None or record.family in ("", family)
    ]

    def order(one: ExperienceRecord) -> tuple[int, bool, float, float, str]:
        tried = one.counters.won + one.counters.lost
        return tried, one.polarity is Polarity.FAILURE, -one.quality, one.created, one.id

    return sorted(found, key=order)


def _tasks_of(pool: ExperiencePool, questions: Sequence[str], family: str | None, reach: int) -> dict[str, list[int]]:
    """Tasks by record: those for whose question it would be found."""
    found: dict[str, list[int]] = {}
    for task, question in enumerate(questions):
        for hit in pool.search(question, reach, statuses=(Status.QUARANTINED,), family=family, distinct=False):
            found.setdefault(hit.record.id, []).append(task)
    return found
