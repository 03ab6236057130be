"""The tool compare_runs over runs of the worker that trains nothing."""

import base64
from pathlib import Path

import pytest
from mcp_types import ImageContent
from server_helpers import in_memory

pytestmark = pytest.mark.anyio


async def test_two_runs_and_their_curves(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        ids = []
        for rate in ("3e-4", "1e-6"):
            started = await caller.ok(
                "start_training", request=f"train tiny on 64 problems, 12 steps, seed 1, lr {rate}"
            )
            ids.append(started["run_id"])
            await caller.until_over(ids[-1])
        found = await caller.ok("compare_runs", runs=ids)
        pictured = await caller.raw("compare_runs", runs=[ids[0]], image=True)
        missing = await caller.refused("compare_runs", runs=["nothing", ids[0]])
        alone = await caller.refused("compare_runs", runs=[ids[0]])
        twice = await caller.refused("compare_runs", runs=[ids[0], ids[0]])
    assert found["runs"] == ids
    assert found["config"] == {"learning_rate": {ids[0]: 3e-4, ids[1]: 1e-6}}
    assert {one["name"] for one in found["measures"]} >= {"before", "after", "training reward"}
    (tested,) = found["differences"]
    assert tested["verdict"] in ("worse", "no difference shown")
    assert ids[1] in found["verdict"]
    assert found["next"]["tool"] == "analyze_run"
    assert "there is no run 'nothing'" in missing
    assert "name 2 to 12 different runs" in alone
    assert "name 2 to 12 different runs" in twice
    image = next(part for part in pictured.content if isinstance(part, ImageContent))
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
