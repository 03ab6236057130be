"""start_training with `resume`: the rules of `mcp-evo runs resume`, asked for by an agent."""

import json
from pathlib import Path
from typing import Any

import pytest
from server_helpers import REQUEST, Caller, in_memory

from trainer.runs import checkpoints
from trainer.runs.checkpoints import CheckpointState
from trainer.runs.registry import find_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import Workspace

pytestmark = pytest.mark.anyio


async def killed_run(caller: Caller, root: Path, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> dict[str, Any]:
    """A run whose worker is killed at its third step; the answer that tells so."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text("child_environment: [FAKE_DIE_AT_STEP, FAKE_STEP_S]\n", encoding="utf-8")
    monkeypatch.setenv("FAKE_DIE_AT_STEP", "3")
    await caller.ok("start_training", request=REQUEST + ", 6 steps", **arguments)
    seen = await caller.until_over()
    monkeypatch.delenv("FAKE_DIE_AT_STEP")
    assert seen["failure"]["kind"] == "killed"
    return seen


def checkpoint(directory: RunDirectory, step: int) -> None:
    folder = directory.path / "checkpoints" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"x")
    checkpoints.complete(folder, CheckpointState(step=step))


async def test_a_killed_run_goes_on_as_its_answer_says(root: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_memory(root, era) as caller:
        seen = await killed_run(caller, root, monkeypatch)
        assert seen["next"]["tool"] == "start_training"
        assert seen["next"]["arguments"] == {"resume": seen["run_id"]}
        old = find_run(Workspace(root), seen["run_id"])
        checkpoint(old.directory, 2)
        resumed = await caller.ok("start_training", **seen["next"]["arguments"])
        assert resumed["run_id"] != seen["run_id"]
        assert "existing" not in resumed
        assert resumed["next"]["tool"] == "monitor_run"
        over = await caller.until_over(resumed["run_id"])
        assert over["state"] == "finished"
    document = find_run(Workspace(root), resumed["run_id"]).document
    assert document.parent_run == seen["run_id"]
    assert document.request == old.document.request
    assert document.session is not None
    events = [
        json.loads(line) for line in (root / "runs" / resumed["run_id"] / "events.jsonl").read_text().splitlines()
    ]
    assert {"parent": seen["run_id"], "step": 2}.items() <= next(e for e in events if e["kind"] == "resumed").items()


async def test_asking_again_starts_no_second_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_memory(root, "auto") as caller:
        seen = await killed_run(caller, root, monkeypatch)
        monkeypatch.setenv("FAKE_STEP_S", "0.5")
        first = await caller.ok("start_training", resume=seen["run_id"])
        again = await caller.ok("start_training", resume=seen["run_id"], key="k")
        assert (again["run_id"], again["existing"]) == (first["run_id"], True)
        await caller.ok("stop_run", run_id=first["run_id"])
        await caller.until_over(first["run_id"])
        monkeypatch.delenv("FAKE_STEP_S")
        keyed = await caller.ok("start_training", resume=seen["run_id"][:18], key="mine")
        assert keyed["run_id"] != first["run_id"]
        await caller.until_over(keyed["run_id"])
        same = await caller.ok("start_training", resume=seen["run_id"], key="mine")
        assert (same["run_id"], same["state"], same["existing"]) == (keyed["run_id"], "finished", True)
        assert "Use another key" in await caller.refused("start_training", resume=first["run_id"], key="mine")
        assert (await caller.ok("list_runs"))["total"] == 3


async def test_what_is_refused(root: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_memory(root, era) as caller:
        assert "there is no run" in await caller.refused("start_training", resume="nothing")
        assert "request is missing" in await caller.refused("start_training")
        assert "request is missing" in await caller.refused("start_training", request="  ", overrides={"seed": 2})
        assert not (root / "runs").exists() or not [p for p in (root / "runs").iterdir() if p.is_dir()]
        await caller.ok("start_training", request=REQUEST + ", 2 steps")
        done = await caller.until_over()
        assert "is finished" in await caller.refused("start_training", resume=done["run_id"])
        assert "is finished" in await caller.refused("start_training", resume="latest")
        seen = await killed_run(caller, root, monkeypatch)
        for more in ({"request": "tiny"}, {"overrides": {"seed": 2}}, {"profile": "original"}, {"confirmed": True}):
            assert "keeps its request" in await caller.refused("start_training", resume=seen["run_id"], **more)
        text = await caller.refused("start_training", resume=seen["run_id"], campaign={"max_runs": 2})
        assert "give one of them" in text
        monkeypatch.setenv("FAKE_STEP_S", "0.5")
        resumed = await caller.ok("start_training", resume=seen["run_id"])
        assert "only a run that has ended" in await caller.refused("start_training", resume=resumed["run_id"])
        for odd in ("../x", "-x", "A", ""):
            assert await caller.refused("start_training", resume=odd)
        await caller.ok("stop_run", run_id=resumed["run_id"])
