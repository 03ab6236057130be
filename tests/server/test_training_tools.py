"""start_training, monitor_run, stop_run, list_runs, analyze_run on a worker that trains nothing, in both eras."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from server_helpers import REQUEST, Caller, events_of, in_memory, text_of

from mcp_server.jobs.background import LOOK_EVERY_S

pytestmark = pytest.mark.anyio


async def test_a_run_from_request_to_findings(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        started = await caller.ok("start_training", request=REQUEST, profile="original")
        assert started["steps"] == 64
        assert started["settings"]["learning_rate"]["value"] == 1e-5
        assert started["settings"]["learning_rate"]["source"].startswith("policy: rllm-config")
        assert started["settings"]["env"]["source"] == "request: calculator"
        assert started["next"]["tool"] == "monitor_run"
        assert started["next"]["arguments"]["run_id"] == started["run_id"]
        seen = await caller.until_over()
        assert seen["run_id"] == started["run_id"]
        assert (seen["state"], seen["step"], seen["verdict"]) == ("finished", 64, "no_goal")
        assert seen["after"]["n"] == 128
        assert seen["after"]["ci95"][0] < seen["after"]["mean"] < seen["after"]["ci95"][1]
        assert "check_again_s" not in seen
        found = await caller.ok("analyze_run")
        first = found["findings"][0]
        assert first["kind"] == "learning_rate_too_low"
        assert first["lever"] == "rllm-config learning_rate up"
        assert first["evidence"][0].startswith(f"run {started['run_id']} step ")
        assert {one["name"] for one in first["numbers"]} >= {"learning_rate", "success_before", "success_after"}
        assert found["advice"][0].startswith("Try learning_rate 1e-05 → ")
        assert found["advice"][0].endswith("Measured by a paired trial on test success (propose_patch, try_patch).")
        assert [one["name"] for one in found["parts"][:4]] == [f"quarter {number}" for number in range(1, 5)]
        assert [one["steps"] for one in found["parts"][:4]] == [[1, 16], [17, 32], [33, 48], [49, 64]]
        assert [one["name"] for one in found["parts"][4:]] == ["epoch 1", "epoch 2"]
        assert any(one.startswith("experience_harm: ") for one in found["skipped"])
        assert found["next"] == {
            "say": f"{first['id']} has a lever; look at the work that launched the run before anything is proposed.",
            "tool": "segment_trajectories",
            "arguments": {"session": events_of(root)[0]["session"]},
        }
        assert Path(found["report"]).read_text(encoding="utf-8").startswith("# Report")
        listed = await caller.ok("list_runs")
        assert listed["total"] == 1
        assert listed["runs"][0]["request"] == REQUEST
    document = json.loads((root / "runs" / started["run_id"] / "run.json").read_text())
    text = Path(found["report"]).read_text(encoding="utf-8")
    assert "## What to try" in text
    assert "quarter 4, 49–64" in text
    analysis = json.loads((root / "runs" / started["run_id"] / "analysis.json").read_text())
    assert analysis["advice"][0]["sentence"] == found["advice"][0]
    assert analysis["findings"][0]["id"] == first["id"]
    assert document["session"].startswith("server-")
    assert document["skill_versions"]["rllm-config"]


async def test_a_run_whose_model_is_gone_is_analysed_without_advice(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        started = await caller.ok("start_training", request=REQUEST, profile="original")
        await caller.until_over()
        path = root / "runs" / started["run_id"] / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "model": "/nowhere/model"}))
        found = await caller.ok("analyze_run")
    assert found["findings"][0]["kind"] == "learning_rate_too_low"
    assert "advice" not in found


async def test_only_the_steps_since_are_told_and_long_lists_are_thinned(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        await caller.ok("start_training", request=REQUEST, profile="original")
        await caller.until_over()
        everything = await caller.ok("monitor_run", since_step=0)
        steps = [one["step"] for one in everything["steps"]]
        assert (steps[0], steps[-1], len(steps)) == (1, 64, 40)
        assert everything["omitted"] == 24
        rest = await caller.ok("monitor_run", since_step=60)
        assert [one["step"] for one in rest["steps"]] == [61, 62, 63, 64]
        assert (await caller.ok("monitor_run", since_step=64))["steps"] == []


async def test_an_answer_is_one_line_and_small_and_says_nothing_twice(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        result = await caller.raw("start_training", request=REQUEST)
        assert "\n" not in text_of(result)
        assert "monitor_run {" in text_of(result)
        with pytest.raises(json.JSONDecodeError):
            json.loads(text_of(result))
        await caller.until_over()
        for tool in ("monitor_run", "analyze_run", "list_runs"):
            answered = await caller.raw(tool)
            assert len(json.dumps(answered.structured_content).encode()) <= 8 * 1024


async def test_the_same_key_starts_one_run_even_at_once(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        ids: list[str] = []

        async def start() -> None:
            ids.append((await caller.ok("start_training", request=REQUEST, key="tuesday"))["run_id"])

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(start)
        assert len(ids) == 4
        assert len(set(ids)) == 1
        again = await caller.ok("start_training", request=REQUEST, key="tuesday")
        assert again["existing"] is True
        other = await caller.refused("start_training", request=REQUEST + ", 5 steps", key="tuesday")
        assert ids[0] in other
        assert "another key" in other.lower()
        assert (await caller.ok("list_runs"))["total"] == 1


async def test_a_request_that_asks_first_starts_nothing_until_it_is_confirmed(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        request = f"{REQUEST}, ask me before it starts"
        plan = await caller.ok("start_training", request=request, overrides={"mode": "approve", "max_steps": 3})
        assert plan["state"] == "confirmation_needed"
        assert "run_id" not in plan
        assert (await caller.ok("list_runs"))["runs"] == []
        started = await caller.ok(plan["next"]["tool"], **plan["next"]["arguments"])
        assert started["run_id"]
        assert started["steps"] == 3


PLAIN = "train on 64 mixed problems"
"""Names neither a model nor an environment."""

WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("start_training", {"request": REQUEST, "overrides": {"modell": "x"}}, ["modell", "model"]),
    ("start_training", {"request": PLAIN, "overrides": {"model": "tinyy"}}, ["tinyy", "tiny"]),
    ("start_training", {"request": REQUEST, "overrides": {"batch_size": 128}}, ["128", "64"]),
    ("start_training", {"request": REQUEST, "profile": "originel"}, ["originel", "original"]),
    ("start_training", {"request": REQUEST + ", learning rate 1e-4, lr 1e-3"}, ["1e-4", "1e-3"]),
    ("start_training", {"request": PLAIN, "overrides": {"env": "python:os:system"}}, ["env", "--config"]),
    ("start_training", {"request": REQUEST, "overrides": {"reward": "python:os:system"}}, ["reward", "--config"]),
    ("start_training", {"request": REQUEST, "overrides": {"folder": "."}}, ["folder", "--config"]),
    ("monitor_run", {"run_id": "nosuchrun"}, ["nosuchrun", "list_runs"]),
    ("monitor_run", {"run_id": "../../etc"}, ["'../../etc' is not a run id"]),
    ("stop_run", {"run_id": "nosuchrun"}, ["nosuchrun", "list_runs"]),
    ("analyze_run", {"run_id": "a b"}, ["is not a run id"]),
    ("list_runs", {"cursor": "nosuchrun"}, ["nosuchrun", "list_runs"]),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), WRONG, ids=[f"{one[0]}-{one[2][0]}" for one in WRONG])
async def test_what_cannot_be_is_refused_and_leaves_no_run(
    root: Path, era: str, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    async with in_memory(root, era) as caller:
        text = await caller.refused(tool, **arguments)
        for word in words:
            assert word in text
        assert "Next: " in text
        assert (await caller.ok("list_runs"))["runs"] == []


async def test_an_override_that_the_request_overrules_is_warned_about(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        started = await caller.ok("start_training", request=REQUEST + ", 2 steps", overrides={"max_steps": 7})
        assert started["steps"] == 2
        assert any("override max_steps=7 had no effect" in one for one in started["warnings"])


async def test_without_any_run_the_tools_say_how_to_begin(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        empty = await caller.ok("list_runs")
        assert empty["next"]["tool"] == "start_training"
        assert "no runs" in await caller.refused("monitor_run")
        started = await caller.ok("start_training", **empty["next"]["arguments"])
        assert started["run_id"]


def slow_worker(root: Path, step_s: float) -> None:
    """Lets the worker take time; it gets the variable through the workspace's configuration."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text("child_environment: [FAKE_STEP_S]\n", encoding="utf-8")


async def test_waiting_reports_progress_and_ends_with_news(
    root: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.5")
    slow_worker(root, 0.5)
    told: list[tuple[float, str]] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append((value, message or ""))

    async with in_memory(root, era) as caller:
        run_id = (await caller.ok("start_training", request=REQUEST + ", 40 steps"))["run_id"]
        while (await caller.ok("monitor_run", wait_s=2))["step"] < 2:
            pass
        result = await caller.client.call_tool(
            "monitor_run", {"run_id": run_id, "since_step": 1, "wait_s": 3}, progress_callback=progress
        )
        seen = result.structured_content
        assert seen is not None
        assert seen["state"] == "running"
        assert seen["steps"][0]["step"] == 2
        assert seen["check_again_s"] >= 1
        assert seen["seconds_left"] > 0
        assert len(told) >= 2
        assert [one for one, _ in told] == sorted({one for one, _ in told})
        assert "running, step" in told[-1][1]
        stopped = await caller.ok("stop_run")
        seen = await caller.until_over(run_id)
        assert seen["state"] == "stopped"
        assert seen["stop_reason"] == "user"
        again = await caller.ok("stop_run", run_id=run_id)
        assert again["state"] == "stopped"
        assert stopped["run_id"] == run_id


async def test_a_call_that_is_given_up_leaves_the_run_alone(
    root: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.2")
    slow_worker(root, 0.2)
    async with in_memory(root, era) as caller:
        run_id = (await caller.ok("start_training", request=REQUEST + ", 12 steps"))["run_id"]
        with anyio.move_on_after(1.0) as scope:
            await caller.raw("monitor_run", run_id=run_id, wait_s=30)
        assert scope.cancelled_caught
        assert (await caller.until_over(run_id))["state"] == "finished"


async def test_a_second_run_waits_and_is_started_without_anybody_watching(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.2")
    slow_worker(root, 0.2)
    async with in_memory(root, "auto") as caller:
        first = (await caller.ok("start_training", request=REQUEST + ", 10 steps"))["run_id"]
        second = await caller.ok("start_training", request=REQUEST + ", 11 steps")
        assert second["state"] == "queued"
        seen = await caller.ok("monitor_run", run_id=second["run_id"], wait_s=0)
        assert seen["waiting_for"] == [first]
        document = root / "runs" / second["run_id"] / "run.json"
        with anyio.fail_after(60):
            while json.loads(document.read_text())["state"] != "finished":
                await anyio.sleep(0.3)


async def test_a_failed_run_tells_class_and_log(root: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_DIE_AT_STEP", "3")
    root.mkdir(parents=True)
    (root / "config.yaml").write_text("child_environment: [FAKE_DIE_AT_STEP]\n", encoding="utf-8")
    async with in_memory(root, era) as caller:
        await caller.ok("start_training", request=REQUEST)
        seen = await caller.until_over()
        assert seen["state"] == "failed"
        assert seen["failure"]["kind"] == "killed"
        found = await caller.ok("analyze_run")
        assert found["findings"][0]["kind"] == "failed"


async def test_lists_have_pages(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        made = await many_runs(caller, 3)
        page = await caller.ok("list_runs", limit=2)
        assert page["total"] == 3
        ids = [one["run_id"] for one in page["runs"]]
        while "cursor" in page:
            page = await caller.ok("list_runs", limit=2, cursor=page["cursor"])
            ids += [one["run_id"] for one in page["runs"]]
        assert ids == list(reversed(made))
        assert (await caller.ok("list_runs", state="failed"))["runs"] == []


async def many_runs(caller: Caller, count: int) -> list[str]:
    """Short runs, oldest first."""
    made = []
    for number in range(count):
        made.append((await caller.ok("start_training", request=f"{REQUEST}, {number + 1} steps"))["run_id"])
        await caller.until_over(made[-1])
    return made


async def test_what_goes_wrong_is_an_alert_while_the_run_goes_on(
    root: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.3")
    slow_worker(root, 0.3)
    async with in_memory(root, era) as caller:
        request = REQUEST + ", 60 steps"
        await caller.ok("start_training", request=request, overrides={"max_completion_tokens": 24})
        seen = await caller.ok("monitor_run", wait_s=0)
        while not seen["alerts"]:
            seen = await caller.ok("monitor_run", wait_s=20, since_step=1)
        assert seen["state"] == "running"
        first = seen["alerts"][0]
        assert first["kind"] == "truncation"
        assert first["severity"] in ("warn", "critical")
        assert "24" in first["say"]
        evidence = first["evidence"][-1]
        assert evidence["metric"] == "truncated_rate"
        assert evidence["value"] >= evidence["bound"] > 0
        assert 1 < evidence["step"] <= seen["step"] < 30
        await caller.ok("stop_run")
        over = await caller.until_over()
        assert over["stop_reason"] == "user"
        analysis = await caller.ok("analyze_run")
        assert "truncation" in {one["kind"] for one in analysis["alerts"]}


async def test_a_run_whose_worker_was_killed_is_listed_as_failed_within_a_second(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "5")
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text("child_environment: [FAKE_STEP_S]\n", encoding="utf-8")
    async with in_memory(root, "auto") as caller:
        started = await caller.ok("start_training", request=REQUEST)
        path = root / "runs" / started["run_id"] / "run.json"
        with anyio.fail_after(30):
            while (await caller.ok("list_runs"))["runs"][0]["state"] != "running":
                await anyio.sleep(0.05)
        pid = json.loads(path.read_text())["pid"]
        assert (await caller.ok("list_runs"))["next"]["tool"] == "monitor_run"
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        with anyio.fail_after(30):
            while (await caller.ok("list_runs"))["runs"][0]["state"] == "running":
                await anyio.sleep(0.02)
        waited = time.monotonic() - began
        listed = await caller.ok("list_runs")
    assert listed["runs"][0]["state"] == "failed"
    assert json.loads(path.read_text())["failure"]["kind"] == "killed"
    assert waited < LOOK_EVERY_S + 5  # half a second and what a busy machine adds
