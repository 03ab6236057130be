"""Tools that turn recorded tool calls into segments and findings."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.findings.evidence import SessionSegments, analyse_layer, segment
from mcp_server.tooling import ToolSpec
from mcp_server.tools.monitoring import FindingView, evidence_text, finding_view
from mcp_server.tools.training import EvoContext, state_of

if TYPE_CHECKING:
    from optimizer.analyze.claims import Checked
    from optimizer.segment.types import Segment

Session = Annotated[str | None, Field(description="Id or its beginning.")]


class SegmentView(Part):
    """Calls that belong together."""

    id: str
    session: str
    layer: str
    skill: str | None = None
    agent: str | None = None
    first_line: int
    last_line: int
    calls: int
    failed: int
    outcome: str
    runs: list[str] = Field(default_factory=list)


class SessionView(Part):
    """A recorded session."""

    session: str
    events: int
    bad_lines: int
    segments: int


class SegmentsAnswer(Answer):
    """Sessions and their segments, the newest last."""

    sessions: list[SessionView]
    layers: dict[str, int] = Field(description="Segments by layer.")
    skills: dict[str, int] = Field(description="Segments by skill in force.")
    outcomes: dict[str, int] = Field(description="ok, failed, unknown.")
    segments: list[SegmentView] = Field(description="The newest.")
    total: int
    cursor: str | None = Field(None, description="For those before.")


async def segment_trajectories(
    ctx: EvoContext,
    session: Session = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    cursor: str | None = None,
) -> Annotated[CallToolResult, SegmentsAnswer]:
    """Use after training sessions, before analyze_trajectories: cuts recorded tool calls into segments by the skill in
    force, with layer and outcome. Default: all sessions."""
    found = await anyio.to_thread.run_sync(segment, state_of(ctx), session)
    segments = [one for each in found for one in each.segments]
    end = len(segments) if cursor is None else _place_of(cursor, segments)
    page = segments[max(0, end - limit) : end]
    data = SegmentsAnswer(
        sessions=[_session_view(one) for one in found[-20:]],
        layers=dict(Counter(one.layer for one in segments)),
        skills=dict(Counter(one.skill for one in segments if one.skill is not None)),
        outcomes=dict(Counter(one.outcome for one in segments)),
        segments=[_segment_view(one) for one in page],
        total=len(segments),
        cursor=_cursor_of(page[0]) if page and end > limit else None,
        next=_after_segments(found),
    )
    return answer(f"{len(segments)} segments in {len(found)} session(s): {_counts(data.layers)}.", data)


def _cursor_of(segment: "Segment") -> str:
    return f"{segment.session}:{segment.id}"


def _place_of(cursor: str, segments: "list[Segment]") -> int:
    """How many segments come before the one that a cursor names."""
    from optimizer.index.query import SearchError

    for index, one in enumerate(segments):
        if _cursor_of(one) == cursor:
            return index
    raise SearchError(f"cursor {clip(cursor, 140)!r} belongs to no listed segment: leave it out to begin anew")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _session_view(one: SessionSegments) -> SessionView:
    return SessionView(session=one.session, events=one.events, bad_lines=one.bad_lines, segments=len(one.segments))


def _segment_view(one: "Segment") -> SegmentView:
    return SegmentView(
        id=one.id,
        session=one.session,
        layer=one.layer,
        skill=one.skill,
        agent=None if one.agent == "main" else one.agent,
        first_line=one.first_line,
        last_line=one.last_line,
        calls=one.tool_calls,
        failed=len(one.failed),
        outcome=one.outcome,
        runs=one.runs[:5],
    )


def _after_segments(found: list[SessionSegments]) -> Next:
    for layer in ("rllm", "traj"):
        named = next((one for one in reversed(found) if any(each.layer == layer for each in one.segments)), None)
        if named is not None:
            arguments = {"session": named.session, "layer": layer}
            return Next(say=f"Analyse the work of layer {layer}.", tool="analyze_trajectories", arguments=arguments)
    if any(one.segments for one in found):
        newest = next(one for one in reversed(found) if one.segments)
        return Next(
            say="No skill of ours was in force, so its layer is not known: analyse the whole session.",
            tool="analyze_trajectories",
            arguments={"session": newest.session, "layer": "any"},
        )
    return Next(
        say="Nothing is recorded yet; open a skill, then train.", tool="load_skill", arguments={"skill": "rllm-train"}
    )


class ClaimView(Part):
    """A claim with its verdict."""

    id: str
    verified: str
    """yes | machine form only | no."""
    statement: str = ""
    """What was checked."""
    reason: str
    untested: str | None = None
    """Text that says more than was checked."""
    evidence: list[str] = Field(default_factory=list)


class TrajectoryAnswer(Answer):
    """Findings about the agent's work and about the runs it launched."""

    session: str
    layer: str
    segments: int
    tool_calls: int
    runs: list[str]
    findings: list[FindingView]
    """The surest first."""
    total: int
    claims: list[ClaimView] = Field(default_factory=list)
    """Those of this call; the report keeps all."""
    series: int = 0
    """Series of numbers that were read from tool output; the report lists them."""
    report_id: str
    report: str = Field(description="Markdown file.")


async def analyze_trajectories(
    ctx: EvoContext,
    session: Annotated[str | None, Field(description="Id or its beginning; all: every one.")] = None,
    layer: Annotated[
        Literal["rllm", "traj", "any"] | None,
        Field(description="rllm: training. traj: optimising. any: whole session (default where one is named)."),
    ] = None,
    round: Annotated[int | None, Field(ge=1, description="The session of this round.")] = None,
    claims: Annotated[
        list[dict[str, Any]] | None,
        Field(
            description="Your findings to check: {text, metric, split, run, steps: [first, last], comparator: "
            "eq|lt|gt|falls_to|rises_to|mean|min|max|count, value, lines, session}. Metric as the cited lines print it."
        ),
    ] = None,
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> Annotated[CallToolResult, TrajectoryAnswer]:
    """Use after segment_trajectories to find what held the agent back (failures, crashes, settings that never ran,
    numbers nobody measured) and what its runs show, with evidence; checks your own claims. Default: newest session."""
    work = partial(analyse_layer, state_of(ctx), session, layer, round_number=round, claims=claims or ())
    found = await anyio.to_thread.run_sync(work)
    views = [finding_view(one) for one in found.report.findings]
    checked = [_claim_view(one) for one in found.report.claims if one.id in found.given]
    movable = next((one for one in views if one.lever is not None and one.blocked is None), None)
    if movable is not None:
        step = Next(say="Turn the finding into a patch.", tool="propose_patch", arguments={"finding": movable.id})
    else:
        step = Next(
            say="No finding has a lever: write a patch of a section where the evidence asks for one, or train on.",
            tool="skill_status",
            arguments={} if found.report.layer == "other" else {"group": found.report.layer},
        )
    report = found.report
    data = TrajectoryAnswer(
        session=report.sessions[0],
        layer=report.layer,
        segments=report.segments,
        tool_calls=report.tool_calls,
        runs=report.runs,
        findings=views[:limit],
        total=len(views),
        claims=checked,
        series=report.series_total,
        report_id=report.report_id,
        report=str(found.path.with_suffix(".md")),
        next=step,
    )
    first = f" The surest: {views[0].what}" if views else ""
    held = sum(1 for one in checked if one.verified != "no")
    judged = f" {held} of {len(checked)} claim(s) hold." if checked else ""
    return answer(
        f"{len(views)} finding(s) in {report.segments} segments of layer {report.layer}.{judged}{first}", data
    )


def _claim_view(one: "Checked") -> ClaimView:
    return ClaimView(
        id=one.id,
        verified=str(one.verified),
        statement=clip(one.statement, 200),
        reason=clip(one.reason, 300),
        untested=None if one.untested is None else clip(one.untested, 200),
        evidence=[evidence_text(each) for each in one.evidence[:3]],
    )


_SEGMENT_FIRST = Next(say="See which sessions there are.", tool="segment_trajectories")

SPECS = [
    ToolSpec(segment_trajectories, title="Cut trajectories into segments", idempotent=True, help_with=_SEGMENT_FIRST),
    ToolSpec(analyze_trajectories, title="Analyse trajectories", idempotent=True, help_with=_SEGMENT_FIRST),
]
