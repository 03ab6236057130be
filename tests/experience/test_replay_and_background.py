"""Trials before a record is offered, and distilling beside training that never holds a step up."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from pool_helpers import lesson

from trainer.experience.background import BackgroundDistiller, BatchDropped
from trainer.experience.pool import ExperiencePool, Outcome
from trainer.experience.problems import PoolError, ProblemKind
from trainer.experience.records import SLOTTED, Counters, ExperienceRecord, Polarity, Status
from trainer.experience.replay import NotTried, ReplayOptions, Trial, replay, waiting_records
from trainer.experience.source import PoolSource
from trainer.experience.trajectories import Trajectory

WAITS = {"status": Status.QUARANTINED, "tags": (SLOTTED,), "family": "house_rules"}
QUESTIONS = ["In house 123, what is 7 @ 5?", "In house 123, what is 4 @ 9?", "In house 321, what is 4 @ 9?"]


def test_what_helps_leaves_quarantine_and_what_harms_leaves_the_pool(pool: ExperiencePool) -> None:
    good = pool.add(lesson("In house 123, what is x @ y?", "use calculate with x * y", **WAITS)).record
    bad = pool.add(lesson("In house 321, what is x @ y?", "use calculate with x + y", **WAITS)).record
    lost = pool.add(lesson("In house 999, what is x @ y?", "use calculate with x + y", **WAITS)).record
    asked: list[Trial] = []

    def play(trials: Sequence[Trial]) -> list[bool | None]:
        asked.extend(trials)
        # the policy guesses half of house 123 and all of house 321; the lessons are right and wrong
        return [
            (trial.lesson is not None or n % 4 == 1) if trial.task < 2 else trial.lesson is None
            for n, trial in enumerate(trials)
        ]

    found = replay(pool, QUESTIONS, play, family="house_rules")
    assert sorted(found.tried) == sorted([good.id, bad.id])
    assert found.not_tried == {NotTried.NO_TASK: 1}
    assert {one.record_id: one.after for one in found.moved} == {good.id: Status.ACTIVE, bad.id: Status.RETIRED}
    assert pool.find(good.id).counters == Counters(used=8, won=8, control_won=4, control_lost=4)
    assert pool.find(lost.id).status is Status.QUARANTINED
    assert found.attempts == 32
    assert {trial.task for trial in asked if trial.lesson and "123" in trial.lesson} == {0, 1}
    assert replay(pool, QUESTIONS, play, family="calculator").tried == []


def test_no_evidence_moves_nothing_and_bounds_hold(pool: ExperiencePool) -> None:
    for number in range(4):
        text = f"use calculate with {'x' * (number + 1)} + y"
        pool.store.insert(lesson("In house 123, what is x @ y?", text, id=f"r{number}", **WAITS), None, "none")
    found = replay(pool, QUESTIONS, lambda t: [None] * len(t), options=ReplayOptions(records=2, pairs=4))
    assert (len(found.tried), found.moved, found.without_evidence) == (2, [], 16)
    assert found.not_tried == {NotTried.ENOUGH: 2}
    late = replay(pool, QUESTIONS, lambda t: [None] * len(t), options=ReplayOptions(deadline_s=-1.0))
    assert late.not_tried == {NotTried.NO_TIME: 4}
    with pytest.raises(ValueError, match="came back"):
        replay(pool, QUESTIONS, lambda t: [True])


def test_what_to_do_is_tried_before_what_to_leave(pool: ExperiencePool) -> None:
    for number, (polarity, quality, won) in enumerate(
        [
            (Polarity.FAILURE, 0.9, 0),
            (Polarity.SUCCESS, 0.5, 0),
            (Polarity.CONTRAST, 0.8, 0),
            (Polarity.SUCCESS, 0.9, 3),
        ]
    ):
        fields = WAITS | {"polarity": polarity, "quality": quality, "counters": Counters(won=won)}
        pool.store.insert(lesson(f"House {number}", "use x", id=f"r{number}", **fields), None, "none")
    assert [one.id for one in waiting_records(pool)] == ["r2", "r1", "r0", "r3"]


BATCH = [Trajectory("What is 3 + 4?", (), 1.0)] * 3


def source_of(path: Path) -> PoolSource:
    ExperiencePool(path, create=True).close()
    return PoolSource(lambda: ExperiencePool(path), path.stem)


def test_lessons_are_made_beside_the_step(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.db")
    worker = BackgroundDistiller(source, lambda batch: [lesson("Sorting names", "compare"), lesson("x", "")])
    assert worker.submit(BATCH)
    report = worker.close()
    assert (report.batches, report.attempts) == (1, 3)
    assert report.outcomes == {Outcome.ADDED: 1, Outcome.REFUSED: 1}
    assert "content is empty" in next(iter(report.reasons))
    assert source.retrieve("Sorting names").hits
    source.close()


def test_a_slow_distiller_holds_nobody_up(tmp_path: Path) -> None:
    source, gate, begun = source_of(tmp_path / "a.db"), threading.Event(), threading.Event()

    def slow(batch: Sequence[Trajectory]) -> list[ExperienceRecord]:
        begun.set()
        gate.wait(30)
        return []

    worker = BackgroundDistiller(source, slow, waiting=2, deadline_s=0.05)
    assert worker.submit(BATCH)
    assert begun.wait(10)
    started = time.monotonic()
    assert [worker.submit(BATCH) for _ in range(4)] == [True, True, False, False]
    assert time.monotonic() - started < 1.0
    time.sleep(0.1)
    gate.set()
    report = worker.close()
    assert report.dropped == {BatchDropped.QUEUE_FULL: 2, BatchDropped.OVERDUE: 2}
    assert worker.submit(BATCH) is False
    assert worker.report().dropped[BatchDropped.CLOSED] == 1
    source.close()


def test_the_end_of_a_run_does_not_wait_for_a_distiller_that_hangs(tmp_path: Path) -> None:
    source, gate = source_of(tmp_path / "a.db"), threading.Event()
    worker = BackgroundDistiller(source, lambda batch: (gate.wait(30), [])[1])  # type: ignore[func-returns-value]
    worker.submit(BATCH)
    time.sleep(0.05)
    worker.submit(BATCH)
    started = time.monotonic()
    report = worker.close(timeout_s=0.2)
    assert time.monotonic() - started < 5.0
    assert report.dropped == {BatchDropped.CLOSED: 1}
    gate.set()


def test_failures_of_distiller_and_pool_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    source = source_of(path)

    def fails(batch: Sequence[Trajectory]) -> list[ExperienceRecord]:
        raise PoolError(ProblemKind.UNREACHABLE, "the service is down")

    worker = BackgroundDistiller(source, fails)
    worker.submit(BATCH)
    report = worker.close()
    assert report.dropped == {BatchDropped.FAILED: 1}
    assert report.reasons == {"the service is down": 1}
    path.write_bytes(b"no database" * 999)
    worker = BackgroundDistiller(source, lambda batch: [lesson("Sorting names", "compare")])
    worker.submit(BATCH)
    report = worker.close()
    assert report.unsaved == 1
    assert any("left as it is" in reason for reason in report.reasons)
