"""Claims through the tool: an agent trains, states what it saw, and is told what holds."""

from pathlib import Path
from typing import Any

import pytest
from server_helpers import REQUEST, events_of, in_memory

pytestmark = pytest.mark.anyio


async def test_an_agent_checks_its_own_findings(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.raw("load_skill", skill="rllm-train")
        run_id = (await caller.ok("start_training", request=REQUEST))["run_id"]
        await caller.until_over()
        seen = await caller.ok("monitor_run", run_id=run_id, since_step=30)
        row = seen["steps"][0]
        recorded = events_of(root)
        line = max(n for n, one in enumerate(recorded) if one.get("tool") == "monitor_run")
        metric = next(name for name in row if name.startswith("reward"))
        claim: dict[str, Any] = {
            "metric": metric, "run": run_id, "steps": [row["step"], row["step"]], "comparator": "eq",
            "value": row[metric], "lines": [line],
        }  # fmt: skip
        claims = [
            claim,
            {**claim, "value": row[metric] + 1},
            {**claim, "split": "test"},
            {**claim, "text": "it is what it is because the learning rate is right"},
            {"text": "training went well"},
        ]
        found = await caller.ok("analyze_trajectories", layer="rllm", claims=claims)
        assert [one["verified"] for one in found["claims"]] == ["yes", "no", "no", "machine form only", "no"]
        assert "not on test" in found["claims"][2]["reason"]
        assert f"line {line}" in found["claims"][0]["evidence"][0]
        refused = await caller.refused("analyze_trajectories", claims=[{"metric": "x", "comparator": "causes"}])
        assert "falls_to" in refused
