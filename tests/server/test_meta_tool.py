"""`evolve` with layer meta: a process of its own, rounds that are read from their files, and a person who decides."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from filled import filled_workspace
from server_helpers import Caller, in_memory, text_of

from mcp_server.jobs.meta_evolving import MAX_ROUNDS_READ
from optimizer.home import Home
from optimizer.meta.rounds import MetaRounds
from optimizer.round_types import RoundState

pytestmark = pytest.mark.anyio


async def until_over(caller: Caller) -> dict[str, Any]:
    with anyio.fail_after(120):
        while True:
            found = await caller.ok("round_status", evolution="meta")
            if found["state"] != "running":
                return found
            assert found["check_again_s"] > 0
            assert found["next"]["arguments"] == {"evolution": "meta"}
            await anyio.sleep(0.3)


async def test_a_round_without_records_ends_and_says_what_is_missing(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        started = await caller.ok("evolve", layer="meta")
        assert started["evolution"] == "meta"
        assert started["state"] in ("running", "complete")
        again = await caller.ok("evolve", layer="meta")
        assert again["state"] in ("running", "complete")
        found = await until_over(caller)
        assert found["state"] == "complete", found
        assert found["rounds"][0]["round"] == 1
        assert "run_id" not in found["rounds"][0], "nothing is trained"
        text = await caller.raw("round_status", evolution="meta", detail="full")
        assert "not enough evidence, 0 of 30" in text.content[0].text  # type: ignore[union-attr]


def awaiting(home: Home, rounds: int) -> None:
    """Closed rounds, and a last one whose patch waits for a person."""
    store = MetaRounds(home.root)
    for number in range(1, rounds + 1):
        current = store.open_or_new("traj-optimize@1", number)
        state = RoundState.CLOSED if number < rounds else RoundState.AWAITING_APPROVAL
        store.move(current, state, candidates=["patch-001"], say=f"said {number}", note=None)


async def test_a_patch_that_waits_is_shown_and_not_overtaken(root: Path, era: str) -> None:
    awaiting(filled_workspace(root), MAX_ROUNDS_READ + 2)
    async with in_memory(root, era) as caller:
        found = await caller.ok("round_status", evolution="meta")
        assert found["state"] == "awaiting_approval"
        assert found["next"]["tool"] == "review_patch"
        assert found["next"]["arguments"] == {"patch_id": "patch-001"}
        assert found["approve_command"].endswith("approve patch-001")
        said = text_of(await caller.raw("round_status", evolution="meta"))
        assert found["approve_command"] in said
        assert f"--workspace {root} dashboard" in said
        assert (len(found["rounds"]), found["omitted"]) == (MAX_ROUNDS_READ, 2)
        assert "patches" not in found["rounds"][0], "in brief, of the newest rounds only"
        assert found["rounds"][-1]["patches"][0]["patch_id"] == "patch-001"
        full = await caller.ok("round_status", evolution="meta", detail="full")
        assert full["rounds"][0]["patches"][0]["description"]
        same = await caller.ok("evolve", resume="meta")
        assert same["state"] == "awaiting_approval"
        assert not (root / "meta" / "process").exists(), "nothing was started"


async def test_what_layer_meta_cannot_do_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_memory(root, "auto") as caller:
        assert "trains nothing" in await caller.refused("evolve", layer="meta", request="train tiny")
        assert '"traj" | "meta"' in await caller.refused("evolve", layer="rllm")
        monkeypatch.setenv("MCP_EVO_LAYER", "traj")
        assert "fixed to layer traj" in await caller.refused("evolve", layer="meta")
    assert not (root / "meta").exists()
