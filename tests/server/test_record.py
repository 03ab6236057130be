"""Every tool call is on record: session, tool, input, outcome, response, duration; and can be segmented."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from server_helpers import PROTOCOL, REQUEST, events_of, in_memory

from mcp_server.capture import MAX_RECORDED_BYTES, bounded
from mcp_server.in_place import SLOW_S, SLOW_TIMES
from mcp_server.server import build_server
from optimizer.events import Event
from optimizer.index.merge import call_hash
from optimizer.store import TrajectoryStore
from skill_bank.files import lock_of

pytestmark = pytest.mark.anyio


def calls(root: Path) -> list[dict[str, Any]]:
    return [one for one in events_of(root) if one["kind"] in ("tool_call", "tool_failure")]


async def test_listing_tools_leaves_no_trace(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.client.list_tools()
    assert not root.exists()


async def test_calls_are_recorded_with_outcome_run_and_duration(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        run_id = (await caller.ok("start_training", request=REQUEST, profile="original"))["run_id"]
        await caller.until_over()
        await caller.refused("monitor_run", run_id="nosuchrun")
        await caller.refused("monitor_run", nonsense=1)
    recorded = calls(root)
    first = recorded[0]
    assert first["tool"] == "start_training"
    assert first["input"] == {"request": REQUEST, "profile": "original"}
    assert first["outcome"] == "ok"
    assert first["run_id"] == run_id
    assert first["duration_s"] > 0
    assert first["response"]["data"]["run_id"] == run_id
    assert recorded[1]["tool"] == "monitor_run"
    assert recorded[1]["run_id"] == run_id, "the latest run was meant"
    wrong_run, wrong_argument = recorded[-2:]
    assert (wrong_run["kind"], wrong_run["outcome"]) == ("tool_failure", "failed")
    assert "nosuchrun" in wrong_run["reason"]
    assert "no argument 'nonsense'" in wrong_argument["reason"]
    kinds = [one["kind"] for one in events_of(root)]
    assert (kinds[0], kinds[-1]) == ("session_start", "session_end")
    client = events_of(root)[0]["response"]
    assert client["client"]["name"] == "mcp"
    assert client["protocol"] == PROTOCOL[era]


async def test_a_skill_opens_a_segment_of_its_layer(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("list_runs")
        await caller.raw("load_skill", skill="rllm-train", args="train something small")
        await caller.ok("skill_status")
        await caller.raw("load_skill", skill="traj-status")
        await caller.ok("round_status")
        found = await caller.ok("segment_trajectories")
        assert found["skills"] == {"rllm-train": 1, "traj-status": 1}
        assert found["layers"] == {"other": 1, "rllm": 1, "traj": 1}
        assert [one["calls"] for one in found["segments"]] == [1, 2, 2]
        assert found["sessions"][0]["bad_lines"] == 0
        again = await caller.ok("segment_trajectories")
        assert [one["id"] for one in again["segments"]] == [one["id"] for one in found["segments"]]


async def test_an_unknown_skill_is_refused_with_those_there_are(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        text = await caller.refused("load_skill", skill="rllm-trane")
        assert "rllm-train" in text
        assert "skill_status" in text


async def test_analysis_of_a_layer_nobody_worked_in_says_what_to_do(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        assert "load_skill" in await caller.refused("analyze_trajectories")
        await caller.raw("load_skill", skill="rllm-train")
        text = await caller.refused("analyze_trajectories", layer="traj")
        assert "traj-loop" in text
        assert "segment_trajectories" in text
        assert "nosuchsession" in await caller.refused("analyze_trajectories", session="nosuchsession")


async def test_failing_calls_become_findings_with_session_and_line(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.raw("load_skill", skill="rllm-monitor")
        for _ in range(3):
            await caller.refused("monitor_run", run_id="nosuchrun")
        found = await caller.ok("analyze_trajectories")
        (finding,) = found["findings"]
        assert finding["kind"] == "repeated_failing_call"
        assert [one.split()[0::2] for one in finding["evidence"]] == [["session", "line"]] * 3
        session, line = finding["evidence"][0].split()[1::2]
    event = (root / "trajectories" / "raw" / session / "events.jsonl").read_text().splitlines()[int(line)]
    assert json.loads(event)["input"] == {"run_id": "nosuchrun"}


async def test_a_call_that_named_no_run_does_not_spoil_the_analysis(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.raw("load_skill", skill="rllm-train")
        for text in ("x" * 5000, "../x"):
            await caller.refused("analyze_run", run_id=text)
        found = await caller.ok("analyze_trajectories")
        assert found["findings"]


async def test_a_client_may_name_the_session(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.client.call_tool("list_runs", {}, meta={"mcp-evo/session": "claude-1"})
        await caller.client.call_tool("list_runs", {})
        with pytest.raises(MCPError, match="mcp-evo/session"):
            await caller.client.call_tool("list_runs", {}, meta={"mcp-evo/session": "../up"})
    sessions = sorted(path.name for path in (root / "trajectories" / "raw").iterdir())
    assert len(sessions) == 2
    assert sessions[0] == "claude-1"
    assert not (root.parent / "up").exists()


def test_the_environment_may_name_the_session(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EVO_SESSION", "chosen")

    async def once() -> None:
        async with in_memory(root, "auto") as caller:
            await caller.ok("list_runs")

    anyio.run(once)
    assert [path.name for path in (root / "trajectories" / "raw").iterdir()] == ["chosen"]


async def test_secrets_are_not_recorded(root: Path) -> None:
    secret = "sk-ant-" + "a" * 40
    async with in_memory(root, "auto") as caller:
        await caller.raw("start_training", request=f"train tiny with key {secret}", overrides={"max_steps": 1})
        await caller.until_over()
    raw = b"".join(path.read_bytes() for path in (root / "trajectories").rglob("*.jsonl"))
    assert secret.encode() not in raw
    assert b"[redacted:" in raw


async def test_a_record_that_cannot_be_written_breaks_no_call(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "trajectories").write_text("not a folder", encoding="utf-8")
    server = build_server(root)
    assert server.name == "evo"
    async with in_memory(root, "auto") as caller:
        result = await caller.raw("list_runs")
    assert result.content


def test_large_values_are_kept_by_size_and_hash() -> None:
    small = {"a": 1, "b": ["x"]}
    assert bounded(small, MAX_RECORDED_BYTES) == small
    large = bounded({"run_id": "r1", "rows": ["x" * 100] * 100}, MAX_RECORDED_BYTES)
    assert large["run_id"] == "r1"
    assert "rows" not in large
    assert large["bytes"] > MAX_RECORDED_BYTES
    assert len(large["sha256"]) == 64
    half = bounded({"text": "\ud800" * 3000}, MAX_RECORDED_BYTES)  # half of a pair is no text
    assert half["bytes"] > 9000


async def test_the_client_s_id_of_a_call_is_kept(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.client.call_tool("list_runs", {}, meta={"claudecode/toolUseId": "toolu_7"})
        await caller.client.call_tool("list_runs", {}, meta={"claudecode/toolUseId": "x" * 1000})
        await caller.client.call_tool("list_runs", {})
    assert [one.get("call_id") for one in calls(root)] == ["toolu_7", None, None]


async def test_long_arguments_are_known_again(root: Path, era: str) -> None:
    """A hook keeps the same arguments whole; the index compares them by a hash that clipping does not change."""
    text = "train " + "x" * 100_000
    async with in_memory(root, era) as caller:
        await caller.refused("start_training", request=text)
    (recorded,) = calls(root)
    assert len(recorded["input"]["request"]) < 70_000
    assert call_hash("mcp__evo__start_training", {"request": text}) == call_hash("start_training", recorded["input"])


async def test_while_another_process_writes_the_session_other_requests_go_on(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("list_runs")  # opens the session
        (file,) = (root / "trajectories" / "raw").glob("*/events.jsonl")
        answered: list[str] = []

        async def call() -> None:
            await caller.ok("list_runs", limit=7)
            answered.append("recorded")

        async with anyio.create_task_group() as tasks:
            with lock_of(file):
                tasks.start_soon(call)
                with anyio.fail_after(10):
                    await caller.client.list_tools()  # the server answers meanwhile
                await anyio.sleep(0.3)
                assert answered == []
        assert answered == ["recorded"]
    assert [one["input"] for one in calls(root)] == [{}, {"limit": 7}]


async def test_records_of_quick_disks_take_no_thread_and_of_slow_ones_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[int] = []
    slow = 0.0
    append = TrajectoryStore.append

    def noted(self: TrajectoryStore, *events: Event, wait: bool = True) -> None:
        writers.append(threading.get_ident())
        time.sleep(slow)
        append(self, *events, wait=wait)

    monkeypatch.setattr(TrajectoryStore, "append", noted)
    async with in_memory(root, "auto") as caller:
        for _ in range(6):
            await caller.ok("list_runs")
        assert set(writers[-3:]) == {threading.get_ident()}
        slow = 2 * SLOW_S
        for _ in range(SLOW_TIMES + 2):
            await caller.ok("list_runs")
        assert threading.get_ident() not in writers[-2:]
    assert len(calls(root)) == 6 + SLOW_TIMES + 2
