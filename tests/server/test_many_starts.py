"""Fifty starts at once: one accepted for each slot, the others queued in order, all listed, none lost."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from http_helpers import over_http, serving
from server_helpers import FAKE_WORKER, REQUEST, Caller, over_stdio

from trainer.runs import supervise
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import Run, list_runs
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

pytestmark = pytest.mark.anyio

WANTED = REQUEST.removesuffix(", seed 1")

STARTS = 50
SLOTS = 3


@asynccontextmanager
async def connected(transport: str, root: Path, era: str, log: Path) -> AsyncIterator[Caller]:
    if transport == "stdio":
        async with over_stdio(root, era, errlog=log) as caller:
            yield caller
    else:
        with serving(root, log) as server:
            async with over_http(server, era) as caller:
                yield caller


async def start_all(caller: Caller, count: int, *, keys: bool = False) -> list[dict[str, Any]]:
    """So many calls on their way at the same time; their answers by number."""
    answers: dict[int, dict[str, Any]] = {}

    async def one(number: int) -> None:
        more = {"key": f"key-{number}"} if keys else {}
        answers[number] = await caller.ok("start_training", request=f"{WANTED}, 2 steps, seed {number}", **more)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(one, number)
    return [answers[number] for number in range(count)]


def hold(root: Path) -> None:
    """Slots that stay taken: workers that take a minute for each step."""
    root.mkdir(parents=True)
    text = f"max_concurrent_runs: {SLOTS}\nchild_environment: [FAKE_STEP_S]\nkeep_free_mb: 1\n"
    (root / "config.yaml").write_text(text, encoding="utf-8")


def in_line(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.document.created_at, run.document.run_id))


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_fifty_at_once(
    root: Path, tmp_path: Path, era: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(root)
    slow = tmp_path / "slow.py"  # the worker's environment is the server's; a file reaches both transports alike
    slow.write_text("import os, runpy, sys\nos.environ['FAKE_STEP_S'] = '60'\nsys.argv = sys.argv[1:]\n"
                    "runpy.run_path(sys.argv[0], run_name='__main__')\n")  # fmt: skip
    monkeypatch.setattr("server_helpers.FAKE_WORKER", [FAKE_WORKER[0], "-P", str(slow), FAKE_WORKER[-1]])
    workspace = Workspace(root)
    async with connected(transport, root, era, tmp_path / "log") as caller:
        answers = await start_all(caller, STARTS)
        ids = [one["run_id"] for one in answers]
        assert len(set(ids)) == STARTS
        listed = (await caller.ok("list_runs", limit=100))["runs"]
        assert {one["run_id"] for one in listed} == set(ids)
        runs = in_line(list_runs(workspace))
        assert {run.directory.run_id for run in runs} == set(ids)
        active = [run.document.state in (RunState.STARTING, RunState.RUNNING) for run in runs]
        assert active == [True] * SLOTS + [False] * (STARTS - SLOTS), "the first of the line have the slots"
        assert {run.document.state for run in runs[SLOTS:]} == {RunState.QUEUED}
        said = [one["state"] for one in answers]
        assert said.count("queued") == STARTS - SLOTS
        by_id = {run.directory.run_id: run.document for run in runs}
        for number, one in enumerate(answers):  # each answer is of the run that was asked for
            assert by_id[one["run_id"]].request == f"{WANTED}, 2 steps, seed {number}"
        waiting = await caller.ok("monitor_run", run_id=runs[-1].directory.run_id, wait_s=0)
        assert waiting["state"] == "queued"
        assert set(waiting["waiting_for"]) == {run.directory.run_id for run in runs[:SLOTS]}
    for run in runs[SLOTS:]:
        assert supervise.stop_run(run.directory).state is RunState.STOPPED
    for run in runs[:SLOTS]:
        assert supervise.stop_run(run.directory, stop_grace_s=0, term_grace_s=5).state is RunState.STOPPED
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_the_line_is_worked_off_in_order(root: Path, tmp_path: Path) -> None:
    hold(root)
    workspace = Workspace(root)
    async with connected("http", root, "auto", tmp_path / "log") as caller:
        ids = [one["run_id"] for one in await start_all(caller, 20)]
        launcher = LocalLauncher(tuple(FAKE_WORKER))
        most = 0
        with anyio.fail_after(120):
            while not all(run.document.state.is_final for run in list_runs(workspace)):
                await anyio.to_thread.run_sync(launcher.tick, workspace)  # beside the server's own supervision
                states = [run.document.state for run in list_runs(workspace)]
                most = max(most, sum(one in (RunState.STARTING, RunState.RUNNING) for one in states))
                await anyio.sleep(0.05)
    runs = in_line(list_runs(workspace))
    assert {run.directory.run_id for run in runs} == set(ids)
    assert {run.document.state for run in runs} == {RunState.FINISHED}
    assert most <= SLOTS
    for run in runs:
        assert (run.document.model_extra or {})["starts"] == 1


async def test_keys_hold_also_when_all_come_at_once(root: Path, tmp_path: Path) -> None:
    hold(root)
    async with connected("http", root, "auto", tmp_path / "log") as caller:
        twice: list[list[dict[str, Any]]] = []

        async def one() -> None:
            twice.append(await start_all(caller, 10, keys=True))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
        ids = [{answer["run_id"] for answer in answers} for answers in twice]
        assert ids[0] == ids[1] == ids[2]
        assert len(ids[0]) == 10
        assert sum(answer.get("existing", False) for answers in twice for answer in answers) == 20
        assert (await caller.ok("list_runs", limit=100))["total"] == 10
    for run in list_runs(Workspace(root)):
        supervise.stop_run(run.directory, stop_grace_s=5)


async def test_the_bank_is_seeded_once_by_fifty_first_calls(root: Path, tmp_path: Path) -> None:
    """The first calls of a new workspace create it, all at once."""
    async with connected("stdio", root, "auto", tmp_path / "log") as caller:
        answers = await start_all(caller, 12)
        assert len({json.dumps(one["skill_versions"], sort_keys=True) for one in answers}) == 1
    for run in list_runs(Workspace(root)):
        supervise.stop_run(run.directory, stop_grace_s=5)
