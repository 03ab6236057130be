"""A client that can ask its user lets them decide about the next run of a campaign; both eras."""

from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestParams, ElicitResult
from server_helpers import REQUEST, in_memory
from test_approvals_channels import answering
from test_campaign_tool import until

from mcp_server.approvals.campaigns import RunDecision, WaitingRun, apply_run_decision
from mcp_server.state import ServerState
from optimizer.approvals import HERE, ApprovalError
from optimizer.audit import AuditLog

pytestmark = pytest.mark.anyio

ASKING = {"request": f"{REQUEST}, 4 steps", "profile": "original", "confirmed": True}


async def waiting_campaign(root: Path) -> dict[str, Any]:
    """The arguments that take a campaign up again whose first run waits for a person."""
    async with in_memory(root, "auto") as caller:
        started = await caller.ok("start_training", **ASKING, campaign={"target": 0.7, "ask": True, "max_runs": 1})
        seen = await until(caller, started["campaign"]["campaign_id"], "awaiting_approval")
        return dict(seen["next"]["arguments"])


async def test_the_user_approves_or_ends_it(root: Path, era: str) -> None:
    arguments = await waiting_campaign(root)
    campaign_id = arguments["campaign"]["resume"]
    asked: list[ElicitRequestParams] = []
    for action, content in (("decline", None), ("accept", {"decision": "later", "reason": ""})):
        async with in_memory(root, era, elicitation_callback=answering(asked, action, content)) as caller:
            assert (await caller.ok("start_training", **arguments))["state"] == "awaiting_approval"
    assert AuditLog(root).entries() == []
    assert campaign_id in asked[0].message
    assert "run 1 of at most 1" in asked[0].message
    async with in_memory(
        root, era, elicitation_callback=answering(asked, "accept", {"decision": "approve", "reason": "go"})
    ) as caller:
        assert (await caller.ok("start_training", **arguments))["state"] in ("running", "complete")
        over = await until(caller, campaign_id, "complete")
        assert len(over["campaign"]["runs"]) == 1
        await caller.ok("start_training", **arguments)
    assert len(asked) == 3, "what was decided is not asked about again"
    entry = AuditLog(root).entries()[-1]
    assert (entry["kind"], entry["channel"], entry["campaign_id"]) == ("approved", "elicitation", campaign_id)
    assert (entry["reason"], entry["campaign_run"]) == ("go", 1)
    assert entry["client"].startswith("mcp")


async def test_a_run_that_changed_after_it_was_shown_is_not_decided_about(root: Path) -> None:
    campaign_id = (await waiting_campaign(root))["campaign"]["resume"]
    shown = WaitingRun(campaign_id, "0" * 64, "?")
    with pytest.raises(ApprovalError, match="changed after it was shown"):
        apply_run_decision(ServerState(root), shown, RunDecision(decision="approve", reason=""), HERE)
    apply_run_decision(ServerState(root), shown, RunDecision(decision="later", reason=""), HERE)
    assert AuditLog(root).entries() == []


async def test_an_ordinary_start_asks_nothing(root: Path, era: str) -> None:
    async def nobody(context: Any, params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError("asked")

    async with in_memory(root, era, elicitation_callback=nobody) as caller:
        await caller.ok("start_training", request=f"{REQUEST}, 2 steps")
        assert "there is no campaign" in await caller.refused("start_training", campaign={"resume": "none"})
        assert "campaign.resume" in await caller.refused("start_training", campaign={"resume": 5})
