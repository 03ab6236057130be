"""Tool that searches recorded events. What it shows of them is recorded text: marked, capped, nothing hidden in it."""

import os
from typing import TYPE_CHECKING, Annotated, Literal

import anyio.to_thread
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.answers import MAX_ANSWER_BYTES, Answer, Next, Part, answer, clip
from mcp_server.state import LAYER_VARIABLE, ServerState
from mcp_server.tooling import ToolSpec
from mcp_server.tools.training import EvoContext, state_of
from mcp_server.views.recorded import UNTRUSTED, time_text

if TYPE_CHECKING:
    from optimizer.index.search import Hit, Page

MIN_SNIPPET = 40

MAX_SNIPPET = 240

HIT_BYTES = 260
"""What a hit takes beside its snippet."""


class HitView(Part):
    """An event that was found."""

    session: str
    line: int
    time: str | None = None
    kind: str = "tool_call"
    tool: str | None = None
    outcome: str = "unknown"
    agent: str | None = None
    skill: str | None = None
    layer: str = "other"
    run_id: str | None = None
    also: list[str] = Field(default_factory=list)
    """`source session:line` of other records of the same call."""
    recorded: str = ""


class SearchAnswer(Answer):
    """Newest first."""

    hits: list[HitView]
    total: int
    merged: int = 0
    """Records that are the same call as one of the hits."""
    cursor: str | None = None
    untrusted: str
    notes: list[str] = Field(default_factory=list)


async def search_trajectories(
    ctx: EvoContext,
    text: Annotated[str | None, Field(description="Words that all occur, taken literally.")] = None,
    tool: str | None = None,
    outcome: Literal["ok", "failed", "unknown"] | None = None,
    skill: str | None = None,
    file: Annotated[str | None, Field(description="Part of its path.")] = None,
    since: Annotated[str | None, Field(description="2026-01-31T15:00, or 2h, 3d ago.")] = None,
    until: str | None = None,
    layer: Literal["rllm", "traj", "meta", "other"] | None = None,
    session: str | None = None,
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    cursor: str | None = None,
) -> Annotated[CallToolResult, SearchAnswer]:
    """Use to find recorded tool calls and prompts, newest first; every filter must hold."""

    def find() -> "Page":
        from optimizer.index.query import Query, moment
        from optimizer.index.search import search

        state: ServerState = state_of(ctx)
        home = state.home()
        named = None if session is None else home.trajectories.resolve(session)
        query = Query(text, tool, outcome, skill, file, moment(since), moment(until), layer, named)
        width = (MAX_ANSWER_BYTES - 600) // limit - HIT_BYTES
        return search(
            home.index,
            query,
            limit=limit,
            cursor=cursor,
            reader=os.environ.get(LAYER_VARIABLE) or None,
            snippet=max(MIN_SNIPPET, min(MAX_SNIPPET, width)),
        )

    page = await anyio.to_thread.run_sync(find)
    notes = [clip(one, 300) for one in page.notices]
    if page.inside_words:
        notes.append("no word begins with the text; it stands inside of words")
    data = SearchAnswer(
        hits=[_view(one) for one in page.hits],
        total=page.total,
        merged=page.merged,
        cursor=page.cursor,
        untrusted=UNTRUSTED,
        notes=notes,
        next=_next(page),
    )
    return answer(f"{page.total} recorded events fit; {len(page.hits)} shown, newest first.", data)


def _view(hit: "Hit") -> HitView:
    return HitView(
        session=hit.session,
        line=hit.line,
        time=None if hit.time is None else time_text(hit.time),
        kind=clip(hit.kind, 40),
        tool=None if hit.tool is None else clip(hit.tool, 80),
        outcome=clip(hit.outcome, 20),
        agent=None if hit.agent == "main" else clip(hit.agent, 64),
        skill=None if hit.skill is None else clip(hit.skill, 64),
        layer=clip(hit.layer, 20),
        run_id=None if hit.run_id is None else clip(hit.run_id, 64),
        also=[f"{clip(one.source, 12)} {one.session}:{one.line}" for one in hit.also[:3]],
        recorded=clip(hit.snippet, MAX_SNIPPET),
    )


def _next(page: "Page") -> Next:
    if page.total == 0:
        return Next(say="Leave a filter out, or see which sessions there are.", tool="segment_trajectories")
    worked = next((one for one in page.hits if one.layer in ("rllm", "traj")), None)
    if worked is None:
        return Next(say="Narrow it down, or take the next page with the same arguments and `cursor`.")
    arguments = {"session": worked.session, "layer": worked.layer}
    return Next(say="See what held that session back.", tool="analyze_trajectories", arguments=arguments)


SPECS = [
    ToolSpec(
        search_trajectories,
        title="Search trajectories",
        read_only=True,
        help_with=Next(say="See which sessions there are.", tool="segment_trajectories"),
    )
]
