"""Tools that start, stop and list runs."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.mcpserver import Context, ElicitationResult, Resolve
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.access.roles import origin_of
from mcp_server.answers import MAX_REPEATED_BYTES, Answer, Next, Part, answer, clip
from mcp_server.approvals.campaigns import RunDecision, WaitingRun, apply_run_decision, ask_about_run, show_run
from mcp_server.capture import session_of
from mcp_server.jobs.background import runs_to_show
from mcp_server.jobs.campaigning import CampaignView, CampaignWish, begin
from mcp_server.jobs.starting import Started, StartRequest, overruled, shown_settings, start_training_run
from mcp_server.state import ServerState
from mcp_server.tooling import ToolSpec
from mcp_server.views.campaigns import CHECK_AGAIN_S, CampaignPart, after_campaign, campaign_part, campaign_text
from mcp_server.views.runs import Evaluation, evaluation, run_line
from trainer.runs.errors import RunError

if TYPE_CHECKING:
    from trainer.runs.types import RunDocument

MAX_LISTED = 1000
"""Runs whose entries in a list are kept."""

RunId = Annotated[str | None, Field(description="Id or its beginning; default: the latest.")]

EvoContext = Context[ServerState, Any]


def state_of(ctx: EvoContext) -> ServerState:
    """The state of the server that this call reached."""
    return ctx.request_context.lifespan_context


def session_of_call(ctx: EvoContext) -> str:
    """The session that this call belongs to: the one it names, else the server's."""
    return session_of(ctx.request_context.params or {}) or state_of(ctx).session


class Setting(Part):
    """A value of the configuration and who chose it."""

    value: Any
    source: str = Field(description="request, override, policy (with skill, section, patch) or default")


class StartAnswer(Answer):
    """What was started, or what would be."""

    elastic = ("warnings", "not_understood", "settings")

    state: str = Field(description="As in list_runs; confirmation_needed: not started.")
    run_id: str | None = None
    existing: bool = Field(False, description="It was started before.")
    steps: int | None = Field(None, description="At most.")
    episodes_per_step: int | None = None
    settings: dict[str, Setting] = Field(default_factory=dict)
    skill_versions: dict[str, str] = Field(default_factory=dict)
    not_understood: list[str] = Field(default_factory=list)
    """Words of the request that had no effect."""
    warnings: list[str] = Field(default_factory=list)
    campaign: CampaignPart | None = None
    check_again_s: int | None = None
    """Of a campaign."""


async def start_training(
    ctx: EvoContext,
    waiting: Annotated[WaitingRun | None, Resolve(show_run)],
    decided: Annotated[ElicitationResult[RunDecision], Resolve(ask_about_run)],
    request: Annotated[str, Field(description="English or Chinese: 'tiny on 64 mixed problems, reward >= 0.9'.")] = "",
    overrides: Annotated[
        dict[str, Any] | None,
        Field(description="Fields to fix: {'seed': 2}. Not what a skill should choose."),
    ] = None,
    profile: Annotated[str | None, Field(description="'original': a plain base.")] = None,
    key: Annotated[
        str | None,
        Field(max_length=200, description="Yours; one key starts one run."),
    ] = None,
    confirmed: Annotated[bool, Field(description="The user agreed to the plan.")] = False,
    resume: Annotated[str | None, Field(description="Run that ended early; goes on from its last checkpoint.")] = None,
    campaign: Annotated[
        dict[str, Any] | None,
        Field(
            description="Train, analyse, change a setting, train again: {'max_runs': 5, 'target': 0.9}, max_episodes, "
            "max_minutes, ask (a person approves each run); or {'resume': id}."
        ),
    ] = None,
) -> Annotated[CallToolResult, StartAnswer]:
    """Use to train a small tool-using agent. Answers at once with run_id; follow it with monitor_run; the run outlives
    client and server. What the request does not name comes from skill rllm-config, with its origin. In
    approve mode ('ask me first') it answers with a plan, until called again with confirmed."""
    state = state_of(ctx)
    wanted = StartRequest(request, overrides or {}, profile, key, confirmed, session_of_call(ctx), resume)
    if campaign is not None and resume is not None:
        raise RunError("resume goes on with one run; a campaign goes on with campaign={'resume': id}: give one of them")
    if campaign is not None:
        if waiting is not None and isinstance(decided, AcceptedElicitation):
            origin = origin_of(ctx.request_context)
            await anyio.to_thread.run_sync(apply_run_decision, state, waiting, decided.data, origin)
        view = await anyio.to_thread.run_sync(lambda: begin(state, wanted, CampaignWish.of(campaign)))
        return answer(campaign_text(view), _campaign_started(state, view, wanted))
    started = await anyio.to_thread.run_sync(start_training_run, state, wanted)
    return answer(_start_text(started), _start_answer(started, wanted))


def _start_text(started: Started) -> str:
    document = started.document
    if document is None:
        return f"Not started: the request asks for the user's agreement first. Plan: {started.plan}."
    known = "exists already" if started.existing else str(document.state)
    warned = f" {len(started.warnings)} warning(s)." if started.warnings else ""
    return f"Run {document.run_id} {known}: {started.plan}.{warned}"


def _start_answer(started: Started, wanted: StartRequest) -> StartAnswer:
    document = started.document
    if document is None:
        arguments: dict[str, Any] = {"overrides": wanted.overrides} if wanted.overrides else {}
        arguments |= {"profile": wanted.profile} if wanted.profile else {}
        say = "Show the plan to the user; once they agree, start it"
        step = train_with(say, wanted.request, confirmed=True, **arguments)
    else:
        watch = {"run_id": document.run_id, "since_step": 0, "wait_s": 30}
        step = Next(say="Watch it.", tool="monitor_run", arguments=watch)
    return StartAnswer(
        state="confirmation_needed" if document is None else str(document.state),
        run_id=None if document is None else document.run_id,
        existing=started.existing,
        steps=started.config.planned_steps,
        episodes_per_step=started.config.episodes_per_step,
        settings={name: Setting(value=value, source=source) for name, value, source in started.settings},
        skill_versions=started.skill_versions,
        not_understood=list(started.not_understood),
        warnings=[clip(one, 300) for one in started.warnings],
        next=step,
    )


def train_with(say: str, request: str, **arguments: Any) -> Next:
    """Training by a request, which is left out where it is too long to be sent back."""
    if len(request.encode("utf-8", "surrogatepass")) > MAX_REPEATED_BYTES:
        return Next(say=f"{say}, with the same request.", tool="start_training", arguments=arguments)
    return Next(say=f"{say}.", tool="start_training", arguments={"request": request, **arguments})


def _campaign_started(state: ServerState, view: CampaignView, wanted: StartRequest) -> StartAnswer:
    resolved = view.resolved
    return StartAnswer(
        state=view.word,
        existing=False,
        steps=None if resolved is None else resolved.config.planned_steps,
        settings={}
        if resolved is None
        else {name: Setting(value=value, source=source) for name, value, source in shown_settings(resolved)},
        not_understood=[] if resolved is None else [span.text for span in resolved.unknown],
        warnings=[]
        if resolved is None
        else [clip(one, 300) for one in (*resolved.warnings, *overruled(resolved, wanted.overrides))],
        campaign=campaign_part(state, view),
        check_again_s=CHECK_AGAIN_S if view.word == "running" else None,
        next=after_campaign(view),
    )


class StopAnswer(Answer):
    """How far a stop has come."""

    run_id: str
    state: str
    step: int
    stop_reason: str | None = None


async def stop_run(ctx: EvoContext, run_id: RunId = None) -> Annotated[CallToolResult, StopAnswer]:
    """Use to end a run that the user wants to end. It finishes its step and keeps model and numbers. Name the run where
    there are several."""
    from mcp_server.jobs.starting import stop_in_background

    document = await anyio.to_thread.run_sync(stop_in_background, state_of(ctx), run_id)
    if document.state.is_final:
        text = f"Run {run_line(document)}."
        step = Next(say="See what it achieved.", tool="analyze_run", arguments={"run_id": document.run_id})
    else:
        text = f"Run {document.run_id} was asked to stop and ends after the step it is in."
        watch = {"run_id": document.run_id, "since_step": document.step, "wait_s": 30}
        step = Next(say="Wait for its end.", tool="monitor_run", arguments=watch)
    data = StopAnswer(
        run_id=document.run_id,
        state=str(document.state),
        step=document.step,
        stop_reason=document.stop_reason,
        next=step,
    )
    return answer(text, data)


class RunEntry(Part):
    """A run at a glance."""

    run_id: str
    state: str
    verdict: str | None = None
    step: int
    planned_steps: int | None = None
    before: Evaluation | None = None
    after: Evaluation | None = None
    request: str | None = None
    round: int | None = None


class RunsAnswer(Answer):
    """Runs, the newest first."""

    runs: list[RunEntry]
    total: int
    """Runs that match, listed or not."""
    cursor: str | None = Field(None, description="For the next page.")


RunStateName = Literal["queued", "starting", "running", "finished", "failed", "stopped", "lost"]


async def list_runs(
    ctx: EvoContext,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    state: RunStateName | None = None,
    cursor: Annotated[str | None, Field(description="From the answer before.")] = None,
) -> Annotated[CallToolResult, RunsAnswer]:
    """Use to see which runs there are, the newest first, with state and success on held-out problems."""
    server = state_of(ctx)
    found = await runs_to_show(server)
    documents = [run.document for run in found if state is None or run.document.state == state]
    begin = 0
    if cursor is not None:
        ids = [document.run_id for document in documents]
        if cursor not in ids:
            raise RunError(f"cursor {clip(cursor, 64)!r} belongs to no listed run: leave it out to begin anew")
        begin = ids.index(cursor) + 1
    page = documents[begin : begin + limit]
    more = begin + len(page) < len(documents)
    data = RunsAnswer(
        runs=[_entry(server, one) for one in page],
        total=len(documents),
        cursor=page[-1].run_id if more else None,
        next=_after_list([str(one.state) for one in page], [one.run_id for one in page]),
    )
    text = f"{len(page)} of {len(documents)} runs." if documents else f"There are no runs in {server.root} yet."
    return answer(f"{text} The newest: {run_line(page[0])}." if page else text, data)


def _entry(state: ServerState, document: "RunDocument") -> RunEntry:
    """The run in a list. A document that did not change is the same object as before, and so is its entry."""
    known = state.listed_runs.get(document.run_id)
    if known is not None and known[0] is document and isinstance(known[1], RunEntry):
        return known[1]
    entry = RunEntry(
        run_id=document.run_id,
        state=str(document.state),
        verdict=None if document.verdict is None else str(document.verdict),
        step=document.step,
        planned_steps=document.planned_steps,
        before=evaluation(document, "before"),
        after=evaluation(document, "after"),
        request=None if document.request is None else clip(document.request, 80),
        round=document.round,
    )
    if len(state.listed_runs) >= MAX_LISTED:
        state.listed_runs.clear()
    state.listed_runs[document.run_id] = (document, entry)
    return entry


def _after_list(states: list[str], ids: list[str]) -> Next:
    active = [one for one, state in zip(ids, states, strict=True) if state in ("queued", "starting", "running")]
    if active:
        return Next(say="Watch the active run.", tool="monitor_run", arguments={"run_id": active[0]})
    if ids:
        return Next(say="See what the newest one achieved.", tool="analyze_run", arguments={"run_id": ids[0]})
    return Next(say="Start one.", tool="start_training", arguments={"request": EXAMPLE_REQUEST})


EXAMPLE_REQUEST = "train the tiny calculator agent on 64 mixed problems, reward >= 0.9"
"""Where nobody asked for anything yet."""

_SEE_RUNS = Next(say="See which runs there are.", tool="list_runs")

SPECS = [
    ToolSpec(
        start_training,
        title="Start a training run",
        open_world=True,
        help_with=Next(
            say="Correct what the message names and start again; the fields are explained here.",
            tool="load_skill",
            arguments={"skill": "rllm-config"},
        ),
        meta={"anthropic/alwaysLoad": True},
    ),
    ToolSpec(stop_run, title="Stop a run", destructive=True, idempotent=True, help_with=_SEE_RUNS),
    ToolSpec(list_runs, title="List runs", read_only=True, help_with=_SEE_RUNS),
]
