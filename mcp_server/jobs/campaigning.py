"""Campaigns as the tools see them: written down here, carried on by a process of their own, read from their files.

The process has no terminal, so in approve mode it stops in state `awaiting_approval`; the campaign is taken up again
after the decision. Everything is in `campaigns/`: a server that is killed loses nothing.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_server.jobs.background import Child, child_of, start_child
from mcp_server.jobs.starting import StartRequest, refuse_own_code
from mcp_server.state import ServerState

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from optimizer.campaign.types import Campaign
    from trainer.settings import Resolved


@dataclass(frozen=True)
class CampaignWish:
    """The argument `campaign` of start_training."""

    max_runs: int | None = None
    target: float | None = None
    max_episodes: int | None = None
    max_minutes: float | None = None
    ask: bool = False
    resume: str | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "CampaignWish":
        """Reads and checks the argument. Raises CampaignError naming what is allowed."""
        from pydantic import TypeAdapter, ValidationError

        from optimizer.campaign.types import CampaignError

        known = tuple(cls.__dataclass_fields__)
        unknown = [name for name in given if name not in known]
        try:
            if unknown:
                raise CampaignError(f"campaign has no {unknown[0]!r}. It may hold: {', '.join(known)}")
            return TypeAdapter(cls).validate_python(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            raise CampaignError(f"campaign.{name}: {str(first['msg']).lower()}") from error


@dataclass(frozen=True)
class CampaignView:
    """How a campaign stands."""

    campaign: "Campaign"
    running: bool
    child: Child | None
    resolved: "Resolved | None" = field(default=None, repr=False)
    """Of one that was begun by this call."""

    @property
    def word(self) -> str:
        """running | awaiting_approval | complete | interrupted."""
        state = str(self.campaign.state)
        if state == "closed":
            return "complete"
        if self.running:
            return "running"
        return state if state == "awaiting_approval" else "interrupted"


def begin(state: ServerState, wanted: StartRequest, wish: CampaignWish) -> CampaignView:
    """Starts a campaign, finds the one of the same key, or takes one up again.

    Raises ConfigError, BankError, CampaignError.
    """
    from optimizer.campaign.start import create, new_request, resolved_of
    from optimizer.campaign.store import CampaignStore
    from optimizer.campaign.types import DEFAULT_MAX_RUNS, CampaignError

    if wish.resume is not None:
        return take_up(state, wish.resume)
    if not wanted.request.strip():
        raise CampaignError("a campaign needs a request (what to train), or resume with the id of one")
    home = state.home()
    store = CampaignStore(home.root)
    known = None if wanted.key is None else _with_key(store, wanted.key)
    if known is not None:
        if known.request.request != wanted.request:
            raise CampaignError(
                f"key {wanted.key!r} belongs to campaign {known.campaign_id}, which was started by another request. "
                "Use another key for another campaign"
            )
        return view_of(state, known.campaign_id)
    request = new_request(
        wanted.request,
        overrides=wanted.overrides,
        override_source="override",
        profile=wanted.profile,
        folder=str(state.folder),
        target=_share(wish.target),
        max_runs=_count("max_runs", wish.max_runs, 100) or DEFAULT_MAX_RUNS,
        max_episodes=_count("max_episodes", wish.max_episodes, 100_000_000),
        max_seconds=_seconds(wish.max_minutes),
        ask=wish.ask,
        session=wanted.session,
        key=wanted.key,
    )
    resolved = resolved_of(home, request)
    refuse_own_code(resolved)
    campaign = create(home, request, resolved)
    start_process(state, campaign.campaign_id)
    return view_of(state, campaign.campaign_id, resolved)


def _share(target: float | None) -> float | None:
    from optimizer.campaign.types import CampaignError

    if target is not None and not 0 <= target <= 1:
        raise CampaignError(f"campaign.target {target:g} is not allowed: a share of solved test problems, 0 to 1")
    return target


def _count(name: str, value: int | None, most: int) -> int | None:
    from optimizer.campaign.types import CampaignError

    if value is not None and not 1 <= value <= most:
        raise CampaignError(f"campaign.{name} {value} is not allowed: 1 to {most:,}")
    return value


def _seconds(minutes: float | None) -> float | None:
    from optimizer.campaign.types import CampaignError

    if minutes is not None and minutes <= 0:
        raise CampaignError(f"campaign.max_minutes {minutes:g} is not allowed: above 0")
    return None if minutes is None else minutes * 60


def _with_key(store: Any, key: str) -> "Campaign | None":
    for name in reversed(store.ids()):
        campaign: Campaign = store.read(name)
        if campaign.request.key == key:
            return campaign
    return None


def take_up(state: ServerState, campaign_id: str) -> CampaignView:
    """Takes a campaign up again; one that runs, waits for a person or is complete is shown as it is."""
    view = view_of(state, campaign_id)
    if view.word == "interrupted":
        start_process(state, view.campaign.campaign_id)
        return view_of(state, view.campaign.campaign_id)
    return view


def start_process(state: ServerState, campaign_id: str) -> Child:
    """The process that carries a campaign on."""
    from optimizer.campaign.store import CampaignStore

    folder = CampaignStore(state.root).process_folder(campaign_id)
    child = start_child(state, ["train", "--auto", "--resume", campaign_id, "--json"], folder)
    state.expect_runs()
    return child


def view_of(state: ServerState, campaign_id: str, resolved: "Resolved | None" = None) -> CampaignView:
    """Reads a campaign. Raises CampaignError."""
    from optimizer.campaign.store import CampaignStore

    store = CampaignStore(state.root)
    campaign = store.read(campaign_id)
    child = child_of(store.process_folder(campaign.campaign_id))
    running = store.is_carried_on(campaign.campaign_id) or (child is not None and child.alive)
    return CampaignView(campaign, running, child, resolved)


def is_campaign(state: ServerState, name: str | None) -> bool:
    """Whether an id names a campaign of the workspace."""
    from optimizer.campaign.store import CampaignStore

    return name is not None and CampaignStore(state.root).exists(name)


def open_campaigns(state: ServerState) -> list[str]:
    """Ids of the campaigns that are not complete, oldest first; one that cannot be read is none of them."""
    from optimizer.campaign.store import CampaignStore
    from optimizer.campaign.types import CampaignError

    store = CampaignStore(state.root)
    found = []
    for name in store.ids():
        try:
            if store.read(name).state != "closed":
                found.append(name)
        except CampaignError as error:  # status must not fail on a damaged file of something else
            logger.warning("%s", error)
    return found
