"""Tools for improvement rounds: start them, see how they stand."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import anyio.to_thread
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.approvals.channels import verdict_text
from mcp_server.dashboard.mcp_app import SHOWN_ON_DASHBOARD
from mcp_server.dashboard.running import dashboard_hint
from mcp_server.jobs.campaigning import CampaignView, is_campaign, open_campaigns, view_of
from mcp_server.jobs.evolving import EvolutionView, Standing, resume_evolution, standing, start_evolution
from mcp_server.jobs.meta_evolving import META, MetaView, evolve_meta_layer, meta_view
from mcp_server.state import ServerState
from mcp_server.tooling import ToolSpec
from mcp_server.tools.training import EvoContext, state_of
from mcp_server.views.campaigns import CHECK_AGAIN_S, CampaignPart, after_campaign, campaign_part, campaign_text

MAX_ROUNDS_SHOWN = 6

MAX_PATCHES_SHOWN = 6
"""Of those that wait, and of those that are open."""

ROUNDS_WITH_PATCHES = 2
"""In brief, the newest rounds whose patches are listed."""

BRIEF_TEXT, FULL_TEXT = 80, 400
"""Characters of a description or a note, by `detail`."""


class PatchView(Part):
    """A patch at a glance."""

    patch_id: str
    stage: str
    description: str | None = None
    verdict: str | None = None
    reason: str | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    pairs: int | None = None
    trial_id: str | None = None


class RoundView(Part):
    """A round: run, test success, what was found, tried and promoted."""

    round: int
    state: str
    skill_version: str | None = None
    run_id: str | None = None
    """A round of layer meta trains nothing."""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    findings: list[str] = Field(default_factory=list)
    lever: str | None = None
    patch_id: str | None = Field(None, description="The promoted patch.")
    verdict: str | None = None
    version_after: str | None = None
    patches: list[PatchView] = Field(default_factory=list)
    note: str | None = None


class RoundsAnswer(Answer):
    """Rounds of one evolution, and everything that is open; or one campaign."""

    evolution: str | None = None
    state: str = Field(description="running, awaiting_approval, interrupted, complete, none.")
    request: str | None = None
    rounds_wanted: int | None = None
    rounds: list[RoundView] = Field(default_factory=list)
    omitted: int = 0
    """Earlier rounds left out."""
    waiting: list[PatchView] = Field(default_factory=list, description="Patches for a person.")
    open: list[PatchView] = Field(default_factory=list, description="Patches without a decision.")
    patches: dict[str, int] = Field(default_factory=dict)
    """Patches by stage."""
    active_runs: list[str] = Field(default_factory=list)
    evolutions: list[str] = Field(default_factory=list)
    approve_command: str | None = Field(None, description="For a person, in a terminal.")
    check_again_s: int | None = None
    log: list[str] = Field(default_factory=list)
    """Last words of a process that ended early."""
    campaign: CampaignPart | None = None
    campaigns: list[str] = Field(default_factory=list)
    """Those that are not complete."""


async def round_status(
    ctx: EvoContext,
    evolution: Annotated[
        str | None, Field(description="Or a campaign, or meta; default: the latest evolution.")
    ] = None,
    detail: Literal["brief", "full"] = "brief",
) -> Annotated[CallToolResult, RoundsAnswer]:
    """Use to see where everything stands: rounds with run, success and patches, what waits for a person, active runs,
    the next step."""
    state = state_of(ctx)
    if evolution is not None and is_campaign(state, evolution):
        view = await anyio.to_thread.run_sync(view_of, state, evolution)
        return answer(campaign_text(view), _campaign_answer(state, view))
    if evolution == META:
        return await _meta_answer(state, await anyio.to_thread.run_sync(lambda: meta_view(state.home())), detail)
    found = await anyio.to_thread.run_sync(standing, state, evolution)
    return answer(_standing_text(state, found), _rounds_answer(state, found, detail))


async def evolve(
    ctx: EvoContext,
    request: Annotated[str | None, Field(description="As for start_training.")] = None,
    rounds: Annotated[int | None, Field(ge=1, le=100, description="Default: by the request, else 2.")] = None,
    profile: Annotated[str | None, Field(description="'original': the plain base.")] = None,
    plan: Annotated[Literal["quick", "default"] | None, Field(description="Of trials; default: by policy.")] = None,
    resume: Annotated[str | None, Field(description="Evolution to take up again.")] = None,
    layer: Annotated[
        Literal["traj", "meta"], Field(description="meta: the optimiser's own skills; no request.")
    ] = "traj",
) -> Annotated[CallToolResult, RoundsAnswer]:
    """Use to improve the training skills in rounds: train, analyse, propose a patch, try it, stop where a person must
    approve. Answers at once; follow it with round_status. Once the person decided, call it with resume."""
    from optimizer.round_types import RoundError

    state = state_of(ctx)
    if layer == META or resume == META:
        if request:
            raise RoundError("layer meta trains nothing: leave out the request")
        return await _meta_answer(state, await anyio.to_thread.run_sync(evolve_meta_layer, state, rounds), "brief")
    if resume is not None:
        view = await anyio.to_thread.run_sync(resume_evolution, state, resume)
    elif request is not None and request.strip():
        view = await anyio.to_thread.run_sync(start_evolution, state, request, rounds, profile, plan)
    else:
        raise RoundError("evolve needs a request (what to train), or resume with the id of an evolution")
    found = await anyio.to_thread.run_sync(standing, state, view.evolution)
    data = _rounds_answer(state, found)
    if found.evolution is not None and found.evolution.running:
        data.next = _follow(found.evolution)
    return answer(_standing_text(state, found), data)


def _state_word(view: EvolutionView | None) -> str:
    if view is None:
        return "none"
    if view.running:
        return "running"
    if view.complete:
        return "complete"
    return "awaiting_approval" if view.awaiting is not None else "interrupted"


def _standing_text(state: ServerState, found: Standing) -> str:
    view = found.evolution
    parts = []
    if view is None:
        parts.append("No rounds yet.")
    else:
        word = _state_word(view).replace("_", " ")
        parts.append(f"Evolution {view.evolution} {word}: round {len(view.rounds)} of {view.rounds_wanted}.")
    if found.waiting:
        first = found.waiting[0]
        parts.append(f"{len(found.waiting)} patch(es) wait for a person, first {first.patch_id}: {verdict_text(first)}")
        parts.append(_ways(state, first.patch_id))
    if found.active_runs:
        parts.append(f"Active runs: {', '.join(found.active_runs[:3])}.")
    return " ".join(parts)


def _ways(state: ServerState, patch_id: str) -> str:
    """How a person decides about a patch."""
    command = state.command("approve", patch_id)
    return f"They decide in a terminal of their own: {command}, {dashboard_hint(state.root)}."


async def _meta_answer(state: ServerState, view: MetaView, detail: str) -> CallToolResult:
    """The optimiser's own rounds."""
    word = "none"
    if view.rounds or view.running:
        word = "running" if view.running else "complete" if view.complete else "interrupted"
        word = "awaiting_approval" if view.awaiting is not None and not view.running else word
    last = view.documents[-1] if view.documents else None
    said = "" if last is None else last["say"] or last["note"] or ""
    data = RoundsAnswer(
        evolution=META,
        state=word,
        rounds=_round_views(view.documents, detail),
        omitted=view.total - len(view.documents),
        approve_command=None if view.awaiting is None else state.command("approve", view.awaiting),
        check_again_s=15 if view.running else None,
        log=view.child.last_words() if word == "interrupted" and view.child is not None else [],
        next=_after_meta(view),
    )
    text = f"Layer meta {word.replace('_', ' ')}, {view.total} round(s). {clip(said, FULL_TEXT)}"
    if view.awaiting is not None:
        text += f" Patch {view.awaiting} waits for a person. {_ways(state, view.awaiting)}"
    return answer(text, data)


def _after_meta(view: MetaView) -> Next:
    if view.running:
        return Next(say="Look again after check_again_s.", tool="round_status", arguments={"evolution": META})
    if view.awaiting is not None:
        return Next(say="A person has to decide.", tool="review_patch", arguments={"patch_id": view.awaiting})
    if view.rounds and not view.complete:
        return Next(say="Take it up again.", tool="evolve", arguments={"resume": META})
    return Next(say="See where the training skills stand.", tool="round_status")


def _rounds_answer(state: ServerState, found: Standing, detail: str = "brief") -> RoundsAnswer:
    width = FULL_TEXT if detail == "full" else BRIEF_TEXT
    view = found.evolution
    documents = [] if view is None else list(view.documents)
    running = view is not None and view.running
    command = state.command("approve", found.waiting[0].patch_id) if found.waiting else None
    interrupted = view is not None and not running and not view.complete and view.awaiting is None
    return RoundsAnswer(
        evolution=None if view is None else view.evolution,
        state=_state_word(view),
        request=None if view is None else clip(view.request, 300),
        rounds_wanted=None if view is None else view.rounds_wanted,
        rounds=_round_views(documents[-MAX_ROUNDS_SHOWN:], detail),
        omitted=max(0, len(documents) - MAX_ROUNDS_SHOWN),
        waiting=[_patch_view(one, width) for one in found.waiting[:MAX_PATCHES_SHOWN]],
        open=[_patch_view(one, width) for one in found.open_patches[-MAX_PATCHES_SHOWN:]],
        patches=found.counts,
        active_runs=list(found.active_runs[:10]),
        evolutions=list(found.evolutions[-10:]),
        approve_command=command,
        check_again_s=15 if running else None,
        campaigns=open_campaigns(state),
        log=view.child.last_words() if interrupted and view is not None and view.child is not None else [],
        next=_after_status(found),
    )


def _campaign_answer(state: ServerState, view: CampaignView) -> RoundsAnswer:
    interrupted = view.word == "interrupted" and view.child is not None
    part = campaign_part(state, view)
    return RoundsAnswer(
        state=view.word,
        request=clip(view.campaign.request.request, 300),
        approve_command=part.approve_command,
        check_again_s=CHECK_AGAIN_S if view.word == "running" else None,
        log=view.child.last_words() if interrupted and view.child is not None else [],
        campaign=part,
        next=after_campaign(view),
    )


def _round_views(documents: Sequence[dict[str, Any]], detail: str) -> list[RoundView]:
    """Rounds, oldest first. In brief: patches of the newest ones only, and without their descriptions."""
    views = [_round_view(one, FULL_TEXT if detail == "full" else BRIEF_TEXT) for one in documents]
    if detail == "brief":
        for view in views[:-ROUNDS_WITH_PATCHES]:
            view.patches = []
        for patch in (patch for view in views for patch in view.patches):
            patch.description = None
    return views


def _round_view(document: dict[str, Any], width: int) -> RoundView:
    evals = document["eval"]
    return RoundView(
        round=document["round"],
        state=document["state"],
        skill_version=document["skill_version"],
        run_id=document["run_id"],
        before=_short_eval(evals["before"]),
        after=_short_eval(evals["after"]),
        findings=document["findings"][:5],
        lever=_clipped(document.get("lever"), width),
        patch_id=document["patch_id"],
        verdict=document["verdict"],
        version_after=document["version_after"],
        patches=[_round_patch(one, width) for one in document["patches"]],
        note=_clipped(document["note"], width),
    )


def _round_patch(outcome: dict[str, Any], width: int) -> PatchView:
    values: dict[str, Any] = {key: outcome.get(key) for key in PatchView.model_fields}
    values["description"] = _clipped(outcome.get("description"), width)
    return PatchView(**values)


def _clipped(text: str | None, width: int) -> str | None:
    return None if text is None else clip(text, width)


def _short_eval(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {key: found[key] for key in ("metric", "split", "n", "mean", "ci95")}


def _patch_view(record: Any, width: int) -> PatchView:
    return PatchView(
        patch_id=record.patch_id,
        stage=str(record.stage),
        description=clip(record.description, width),
        verdict=record.verdict,
        reason=(record.model_extra or {}).get("reason"),
        effect=record.effect,
        ci95=record.ci95,
        pairs=record.pairs,
        trial_id=record.trials[-1] if record.trials else None,
    )


def _after_status(found: Standing) -> Next:
    view = found.evolution
    if found.waiting:
        patch = {"patch_id": found.waiting[0].patch_id}
        return Next(say="A person has to decide.", tool="review_patch", arguments=patch)
    if view is not None and view.running:
        if found.active_runs:
            watch = {"run_id": found.active_runs[0], "wait_s": 30}
            return Next(say="Watch its run.", tool="monitor_run", arguments=watch)
        return _follow(view)
    if view is not None and not view.complete:
        return Next(say="Take it up again.", tool="evolve", arguments={"resume": view.evolution})
    if found.active_runs:
        return Next(say="Watch the active run.", tool="monitor_run", arguments={"run_id": found.active_runs[0]})
    if found.open_patches:
        patch = {"patch_id": found.open_patches[-1].patch_id}
        return Next(say="Go on with the newest open patch.", tool="try_patch", arguments=patch)
    return Next(
        say="Train, or let rounds run by themselves with evolve.", tool="load_skill", arguments={"skill": "rllm-train"}
    )


def _follow(view: EvolutionView) -> Next:
    return Next(say="Look again after check_again_s.", tool="round_status", arguments={"evolution": view.evolution})


_SEE_STATUS = Next(say="See rounds and evolutions.", tool="round_status")

SPECS = [
    ToolSpec(
        round_status,
        title="Show where things stand",
        read_only=True,
        help_with=_SEE_STATUS,
        meta=SHOWN_ON_DASHBOARD,
    ),
    ToolSpec(evolve, title="Evolve the training skills", open_world=True, help_with=_SEE_STATUS),
]
