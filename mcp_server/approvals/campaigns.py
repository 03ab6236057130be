"""A person's decision about the next run of a campaign, asked for when an agent takes the campaign up again.

As for a patch (`mcp_server/approvals/channels.py`), the client asks its user where it can, and otherwise the answer
names the command for a terminal. What is decided about is bound by its digest: the run's number and its settings.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import Context, Elicit, Resolve
from pydantic import BaseModel, Field

from mcp_server.answers import clip
from mcp_server.approvals.channels import why_not_asked
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.approvals import Origin
    from optimizer.campaign.types import Campaign


class RunDecision(BaseModel):
    """What the user says."""

    decision: Literal["later", "approve", "reject"] = Field(description="approve trains it; reject ends the campaign.")
    reason: str = Field("", description="Why, in a few words; wanted for reject.", max_length=500)


LATER = RunDecision(decision="later", reason="")


@dataclass(frozen=True)
class WaitingRun:
    """The next run of a campaign as it is shown to the person."""

    campaign_id: str
    digest: str
    question: str


async def show_run(ctx: Context[ServerState, Any], campaign: dict[str, Any] | None) -> WaitingRun | None:
    """The run that waits in the campaign which a call takes up again; None: the call is about none."""
    name = None if campaign is None else campaign.get("resume")
    if not isinstance(name, str):
        return None
    return await anyio.to_thread.run_sync(_waiting, ctx.request_context.lifespan_context, name)


async def ask_about_run(
    ctx: Context[ServerState, Any], waiting: Annotated[WaitingRun | None, Resolve(show_run)]
) -> "RunDecision | Elicit[RunDecision]":
    """Asks the user where the client can and may; else the decision is `later`."""
    if waiting is None or why_not_asked(ctx) is not None:
        return LATER
    return Elicit(waiting.question, RunDecision)


def _waiting(state: ServerState, name: str) -> WaitingRun | None:
    from optimizer.campaign.machine import digest_of
    from optimizer.campaign.store import CampaignStore
    from optimizer.campaign.types import CampaignState

    store = CampaignStore(state.root)
    if not store.exists(name):
        return None  # the tool itself says so
    campaign = store.read(name)
    if campaign.state is not CampaignState.AWAITING_APPROVAL:
        return None
    digest = digest_of(campaign)
    return WaitingRun(campaign.campaign_id, digest, _question(campaign, digest))


def _question(campaign: "Campaign", digest: str) -> str:
    """The same text for the same run, so that an answer belongs to exactly what was shown."""
    from optimizer.campaign.report import proposal_lines

    lines = [f"Train the next run of campaign {campaign.campaign_id}?", *proposal_lines(campaign)]
    return "\n".join([*(clip(one, 500) for one in lines), f"Digest of its settings: {digest[:12]}"])


def apply_run_decision(state: ServerState, waiting: WaitingRun, decision: RunDecision, origin: "Origin") -> None:
    """Records what the person said about what was shown. Raises ApprovalError, CampaignError."""
    from optimizer.approvals import ApprovalError, Channel
    from optimizer.campaign.machine import answer_campaign, digest_of
    from optimizer.campaign.store import CampaignStore
    from optimizer.round_types import Answer

    if decision.decision == "later":
        return
    home = state.home()
    store = CampaignStore(home.root)
    with store.carrying_on(waiting.campaign_id):
        campaign = store.read(waiting.campaign_id)
        if digest_of(campaign) != waiting.digest:
            raise ApprovalError(
                f"the next run of {waiting.campaign_id} changed after it was shown: nothing was decided. Take the "
                "campaign up again to see it as it is"
            )
        answer = Answer(decision.decision, Channel.ELICITATION, decision.reason or None, origin)
        answer_campaign(home, store, campaign, answer)
