"""Campaigns through the tools: start_training with `campaign`, round_status, approval outside of the tools."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from server_helpers import REQUEST, Caller, in_memory
from terminal import command

pytestmark = pytest.mark.anyio

STEPS = f"{REQUEST}, 32 steps"


async def until(caller: Caller, campaign_id: str, *states: str, calls: int = 120) -> dict[str, Any]:
    """Looks at a campaign until it is in one of the states."""
    seen: dict[str, Any] = {}
    for _ in range(calls):
        seen = await caller.ok("round_status", evolution=campaign_id)
        if seen["state"] in states:
            return seen
        await anyio.sleep(0.5)
    raise AssertionError(f"it is not {states}: {seen}")


async def test_a_campaign_from_request_to_verdict(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        started = await caller.ok(
            "start_training", request=STEPS, profile="original", campaign={"target": 0.7, "max_runs": 3}, key="k"
        )
        campaign_id = started["campaign"]["campaign_id"]
        assert started["state"] == "running"
        assert started["settings"]["learning_rate"]["value"] == 1e-5
        assert started["next"]["tool"] == "round_status"
        again = await caller.ok("start_training", request=STEPS, campaign={"target": 0.7}, key="k")
        assert again["campaign"]["campaign_id"] == campaign_id
        seen = await until(caller, campaign_id, "complete")
        campaign = seen["campaign"]
        assert campaign["verdict"] == "target_reached"
        first, second = campaign["runs"]
        assert "change" not in first
        assert (second["change"]["key"], second["change"]["old"], second["change"]["new"]) == (
            "learning_rate",
            1e-5,
            3e-4,
        )
        assert second["after"]["split"] == "test"
        assert seen["next"]["arguments"]["run_id"] == campaign["best_run"] == second["run_id"]
        analysis = await caller.ok("analyze_run", run_id=second["run_id"])
        assert all("override fixed it" in one["blocked"] for one in analysis["findings"] if "learning_rate" in str(one))
        shown = await caller.ok(
            "start_training", request=STEPS, campaign={"resume": campaign_id}
        )  # a complete one is shown
        assert shown["state"] == "complete"
        assert "campaigns" not in await caller.ok("round_status")


async def test_in_approve_mode_only_a_person_lets_it_go_on(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        started = await caller.ok(
            "start_training",
            request=STEPS,
            profile="original",
            confirmed=True,
            campaign={"target": 0.7, "ask": True},
        )
        campaign_id = started["campaign"]["campaign_id"]
        waiting = await until(caller, campaign_id, "awaiting_approval")
        assert "runs" not in waiting["campaign"]
        assert campaign_id in waiting["approve_command"]
        assert waiting["next"]["tool"] == "start_training"
        # taking it up again, also as confirmed, starts nothing
        arguments = waiting["next"]["arguments"]
        assert (await caller.ok("start_training", confirmed=True, **arguments))["state"] == "awaiting_approval"
        assert command(root, "approve", campaign_id).returncode == 1  # no terminal
        assert (await caller.ok("list_runs"))["total"] == 0
        assert (await caller.ok("round_status"))["campaigns"] == [campaign_id]
        done = command(root, "reject", campaign_id, "--reason", "no")
        assert done.returncode == 0, done.stderr
        assert (await caller.ok("start_training", **arguments))["state"] == "running"
        over = await until(caller, campaign_id, "complete")
        assert over["campaign"]["verdict"] == "refused"


async def test_a_killed_process_is_taken_up_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.2")
    async with in_memory(root, "auto") as caller:
        root.mkdir(parents=True)
        (root / "config.yaml").write_text("child_environment: [FAKE_*]\n")
        started = await caller.ok("start_training", request=STEPS, profile="original", campaign={"target": 0.7})
        campaign_id = started["campaign"]["campaign_id"]
        for _ in range(100):
            if list((root / "runs").glob("*/metrics.jsonl")):
                break
            await anyio.sleep(0.2)
        note = (root / "campaigns" / "processes" / campaign_id / "process.json").read_text()
        os.kill(int(note.split('"pid":')[1].split(",")[0]), signal.SIGKILL)
        seen = await until(caller, campaign_id, "interrupted")
        assert seen["next"]["arguments"]["campaign"] == {"resume": campaign_id}
        monkeypatch.setenv("FAKE_STEP_S", "0")
        assert (await caller.ok("start_training", **seen["next"]["arguments"]))["state"] == "running"
        over = await until(caller, campaign_id, "complete")
        assert over["campaign"]["verdict"] == "target_reached"


@pytest.mark.parametrize(
    ("campaign", "words"),
    [
        ({"runs": 3}, ["campaign has no 'runs'", "max_runs"]),
        ({"max_runs": 0}, ["campaign.max_runs 0", "1 to 100"]),
        ({"max_runs": "many"}, ["campaign.max_runs", "integer"]),
        ({"target": 90}, ["campaign.target 90", "0 to 1"]),
        ({"max_minutes": -1}, ["campaign.max_minutes -1"]),
        ({"approved": True}, ["campaign has no 'approved'"]),
        ({"resume": "nosuch"}, ["there is no campaign 'nosuch'"]),
        ({"max_episodes": 10}, ["less than one run"]),
    ],
)
async def test_what_is_wrong_is_refused(root: Path, campaign: dict[str, Any], words: list[str]) -> None:
    async with in_memory(root, "auto") as caller:
        text = await caller.refused("start_training", request=STEPS, campaign=campaign)
    for word in words:
        assert word in text
    assert not (root / "runs").is_dir() or not list((root / "runs").glob("*/run.json"))


async def test_own_code_is_refused(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        text = await caller.refused(
            "start_training", request="tiny", overrides={"env": "python:a:B"}, campaign={"target": 0.5}
        )
    assert "a tool call may not choose" in text
