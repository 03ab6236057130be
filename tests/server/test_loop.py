"""A scripted client finishes the whole loop through tools only, a person approving in a terminal; both eras.

The client knows no order of tools by heart beyond what `next` names: it follows it, and stops at what a person does.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from server_helpers import REQUEST, Caller, events_of, in_memory, over_stdio
from terminal import approve_in_terminal, command

pytestmark = pytest.mark.anyio


async def improve(caller: Caller, root: Path, request: str, profile: str | None, wait_s: float) -> dict[str, Any]:
    """start → monitor → analyse → segment → analyse trajectories → propose → try → approve → compile → second run."""
    opened = await caller.raw("load_skill", skill="rllm-train")
    assert not opened.is_error
    start = {"request": request} | ({"profile": profile} if profile else {})
    first = await caller.ok("start_training", **start, key="first")
    run_one = await caller.until_over(first["run_id"], wait_s=wait_s, calls=200)
    analysis = await caller.ok("analyze_run", run_id=first["run_id"])
    await caller.raw("load_skill", skill="traj-optimize")
    segments = await caller.ok("segment_trajectories")
    assert segments["next"]["tool"] == "analyze_trajectories"
    trajectories = await caller.ok("analyze_trajectories", **segments["next"]["arguments"])
    assert first["run_id"] in trajectories["runs"]
    assert {one["id"] for one in analysis["findings"]} <= {one["id"] for one in trajectories["findings"]}
    patch = await caller.ok(trajectories["next"]["tool"], **trajectories["next"]["arguments"])
    trial = await caller.ok(patch["next"]["tool"], **patch["next"]["arguments"])
    for _ in range(400):
        if trial["state"] != "running":
            break
        trial = await caller.ok(trial["next"]["tool"], **{**trial["next"]["arguments"], "wait_s": wait_s})
    assert trial["state"] == "decided", trial
    assert trial["verdict"] == "better", trial
    assert trial["ci95"][0] > 0
    review = await caller.ok(trial["next"]["tool"], **trial["next"]["arguments"])
    assert review["applied"] is False
    assert review["approve_command"].endswith(f"--workspace {root} approve {patch['patch_id']}")
    waiting = await caller.ok("round_status")
    assert [one["patch_id"] for one in waiting["waiting"]] == [patch["patch_id"]]
    code, shown = approve_in_terminal(root, patch["patch_id"])
    assert code == 0, shown
    review = await caller.ok(review["next"]["tool"], **review["next"]["arguments"])
    assert review["applied"] is True
    assert review["version"] == "rllm-config@2"
    compiled = await caller.ok(review["next"]["tool"])
    second = await caller.ok(compiled["next"]["tool"], **compiled["next"]["arguments"])
    run_two = await caller.until_over(second["run_id"], wait_s=wait_s, calls=200)
    return {"first": run_one, "second": run_two, "started": second, "patch": patch, "trial": trial}


def check(found: dict[str, Any], root: Path) -> None:
    """The second run trained by the patch and did better; everything is on record."""
    assert found["second"]["after"]["mean"] > found["first"]["after"]["mean"] + 0.2
    source = found["started"]["settings"]["learning_rate"]["source"]
    assert found["patch"]["patch_id"] in source
    audit = [json.loads(line) for line in (root / "audit.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["channel"]) for one in audit] == [("approved", "terminal"), ("promoted", "terminal")]
    tools = [one.get("tool") for one in events_of(root)]
    for tool in ("load_skill", "start_training", "propose_patch", "try_patch", "review_patch", "compile_skills"):
        assert tool in tools


async def test_the_loop_over_stdio(root: Path, era: str) -> None:
    async with over_stdio(root, era) as caller:
        check(await improve(caller, root, REQUEST, "original", 3), root)


async def test_an_agents_shell_cannot_approve(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        patch_id = await tried_patch(caller)
        assert command(root, "approve", patch_id).returncode == 1
        code, shown = approve_in_terminal(root, patch_id, wrong=True)
        assert code == 1
        assert "nothing was approved" in shown
        assert (await caller.ok("review_patch"))["applied"] is False


async def tried_patch(caller: Caller, request: str = REQUEST) -> str:
    """A patch whose trial said better."""
    await caller.ok("start_training", request=request, profile="original")
    await caller.until_over()
    analysis = await caller.ok("analyze_run")
    patch = await caller.ok("propose_patch", finding=analysis["findings"][0]["id"])
    for _ in range(60):
        trial = await caller.ok("try_patch", patch_id=patch["patch_id"], wait_s=3)
        if trial["state"] == "decided":
            assert trial["verdict"] == "better"
            return str(patch["patch_id"])
    raise AssertionError("the trial did not end")


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_loop_on_real_training(root: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EVO_WORKER")
    async with in_memory(root, era) as caller:
        check(await improve(caller, root, REQUEST, "original", 45), root)
