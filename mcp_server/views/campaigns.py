"""A campaign in the answers of tools: its runs, the change of each with its reason, how it stands, what is next."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from mcp_server.answers import Next, Part, clip
from mcp_server.jobs.campaigning import CampaignView
from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.campaign.types import Change
    from trainer.runs.types import Eval

CHECK_AGAIN_S = 15


class ChangePart(Part):
    """One changed setting. `old` is what the report calls `from`."""

    key: str
    old: float
    new: float
    reason: str


class CampaignRunPart(Part):
    """A run of a campaign."""

    run_id: str
    state: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    change: ChangePart | None = None


class CampaignPart(Part):
    """A campaign at a glance."""

    campaign_id: str
    state: str
    verdict: str | None = None
    reason: str | None = None
    target: float | None = None
    max_runs: int
    runs: list[CampaignRunPart] = Field(default_factory=list)
    best_run: str | None = None
    confirmation: str | None = None
    proposed: ChangePart | None = None
    """The change of the run that waits for a person; None: the first run, or none waits."""
    approve_command: str | None = None


def campaign_part(state: ServerState, view: CampaignView) -> CampaignPart:
    """The campaign for an answer."""
    campaign = view.campaign
    waits = view.word == "awaiting_approval"
    return CampaignPart(
        campaign_id=campaign.campaign_id,
        state=view.word,
        verdict=None if campaign.verdict is None else str(campaign.verdict),
        reason=None if campaign.reason is None else clip(campaign.reason, 500),
        target=campaign.request.target,
        max_runs=campaign.request.max_runs,
        runs=[
            CampaignRunPart(
                run_id=one.run_id,
                state=one.state,
                before=_short(one.eval.get("before")),
                after=_short(one.success),
                change=_change(one.change),
            )
            for one in campaign.runs
        ],
        best_run=campaign.best_run,
        confirmation=None if campaign.confirmation is None else campaign.confirmation.sentence,
        proposed=None if campaign.next is None else _change(campaign.next.change),
        approve_command=state.command("approve", campaign.campaign_id) if waits else None,
    )


def _change(change: "Change | None") -> ChangePart | None:
    if change is None:
        return None
    return ChangePart(key=change.key, old=change.before, new=change.to, reason=clip(change.reason, 500))


def _short(found: "Eval | None") -> dict[str, Any] | None:
    if found is None:
        return None
    document = found.model_dump(mode="json")
    return {key: document[key] for key in ("metric", "split", "n", "mean", "ci95")}


def campaign_text(view: CampaignView) -> str:
    """How it stands, in one line."""
    from optimizer.campaign.report import headline

    text = headline(view.campaign)
    confirmation = view.campaign.confirmation
    if confirmation is not None:
        text += f". {confirmation.sentence}"
    return f"Campaign {text} ({view.word.replace('_', ' ')})."


def after_campaign(view: CampaignView) -> Next:
    """The most useful next step."""
    campaign, name = view.campaign, view.campaign.campaign_id
    status = {"evolution": name}
    if view.word == "running":
        return Next(say="Look again after check_again_s.", tool="round_status", arguments=status)
    if view.word == "awaiting_approval":
        say = "Show approve_command to the person; after they decided, take the campaign up again."
        return Next(say=say, tool="start_training", arguments=_resume(view))
    if view.word == "interrupted":
        return Next(say="Take it up again.", tool="start_training", arguments=_resume(view))
    if campaign.best_run is not None:
        return Next(say="See what the best run achieved.", tool="analyze_run", arguments={"run_id": campaign.best_run})
    return Next(say="See the runs.", tool="list_runs")


def _resume(view: CampaignView) -> dict[str, Any]:
    campaign = view.campaign
    return {"request": campaign.request.request, "campaign": {"resume": campaign.campaign_id}}
