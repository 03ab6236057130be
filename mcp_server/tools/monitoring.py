"""Tools that look at a run: while it goes on, and what held it back."""

import math
import time
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import anyio.to_thread
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.tooling import ToolSpec
from mcp_server.tools.training import EvoContext, RunId, state_of
from mcp_server.views.runs import (
    AlertView,
    Evaluation,
    Step,
    alert_views,
    evaluation,
    run_line,
    seconds_per_step,
    steps_of,
    thinned,
)

if TYPE_CHECKING:
    from mcp_server.findings.watching import Look
    from trainer.runs.review import Stretch
    from trainer.runs.samples import SampleEpisode

MAX_WAIT_S = 45
"""Clients give up after 60 s."""

PROGRESS_S = 1.0

MAX_TURNS = 6
MAX_TURN = 160
"""Of a sample episode: turns, and characters of each; the report has more."""

UNDISTURBED_BEFORE = frozenset({"killed", "disk_full", "restart", "lost"})
"""Failures that say nothing against the run: it can simply go on."""


class Trouble(Part):
    """Why a run failed."""

    kind: str
    message: str
    log_tail: list[str] = Field(default_factory=list)


class MonitorAnswer(Answer):
    """What is new."""

    run_id: str
    state: str
    step: int = Field(description="The next since_step.")
    planned_steps: int | None = None
    steps: list[Step]
    omitted: int = Field(0, description="New steps not in `steps`.")
    alerts: list[AlertView]
    waiting_for: list[str] = Field(default_factory=list)
    """Runs that a queued one waits for."""
    silent_s: float | None = None
    """A stalled run's time without a sign of life; it is not killed for it."""
    seconds_per_step: float | None = None
    seconds_left: float | None = Field(None, description="At most.")
    check_again_s: int | None = Field(None, description="Absent: it is over.")
    verdict: str | None = None
    stop_reason: str | None = None
    failure: Trouble | None = None
    before: Evaluation | None = None
    validation: Evaluation | None = None
    after: Evaluation | None = None
    folder: str | None = None
    """Where its files are, once it is over."""


async def monitor_run(
    ctx: EvoContext,
    run_id: RunId = None,
    since_step: Annotated[int, Field(ge=0, description="Only later steps.")] = 0,
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Wait for news: first step, alert, end.")] = 30,
) -> Annotated[CallToolResult, MonitorAnswer]:
    """Use after start_training, again and again until the run is over: steps since since_step, alerts with numbers,
    check_again_s; at the end verdict and test success before and after."""
    from mcp_server.findings.watching import look

    state = state_of(ctx)
    began = time.monotonic()
    first = seen = await anyio.to_thread.run_sync(look, state, run_id)
    while not _is_news(first, seen, since_step):
        waited = time.monotonic() - began
        if waited >= wait_s:
            break
        await ctx.report_progress(waited, wait_s, _progress_text(seen))
        await anyio.sleep(min(PROGRESS_S, wait_s - waited))
        seen = await anyio.to_thread.run_sync(look, state, seen.document.run_id, seen)
    return answer(_monitor_text(seen, since_step), _monitor_answer(seen, since_step))


def _is_news(first: "Look", seen: "Look", since_step: int) -> bool:
    """Whether there is something to tell at once."""
    if seen.document.state.is_final or seen.document.state is not first.document.state:
        return True
    if any(one.severity.is_alarm and one.step > since_step for one in seen.alerts):
        return True
    if (seen.silent_s is None) is not (first.silent_s is None):  # it stands still, or goes on again
        return True
    return since_step == 0 and not first.rows and bool(seen.rows)


def _progress_text(seen: "Look") -> str:
    document = seen.document
    planned = f"/{document.planned_steps}" if document.planned_steps else ""
    reward = seen.rows[-1].get("reward_mean") if seen.rows else None
    shown = f", reward {reward:.2f}" if isinstance(reward, int | float) else ""
    silent = f", no sign of life for {seen.silent_s:.0f} s" if seen.silent_s is not None else ""
    return f"{document.state}, step {seen.last_step}{planned}{shown}{silent}"


def _monitor_text(seen: "Look", since_step: int) -> str:
    document = seen.document
    if document.state.is_final:
        return f"Run {run_line(document)}."
    news = sum(1 for row in seen.rows if row.get("step", 0) > since_step)
    new = alert_views(seen.alerts, since_step)
    alerts = f" {len(new)} alert(s): {new[0].say}" if new else ""
    return f"Run {document.run_id} {_progress_text(seen)}; {news} new step(s).{alerts}"


def _monitor_answer(seen: "Look", since_step: int) -> MonitorAnswer:
    document = seen.document
    final = document.state.is_final
    new = steps_of(seen.rows, since_step)
    shown = thinned(new)
    pace = seconds_per_step(seen.rows)
    left = None
    if not final and pace is not None and document.planned_steps:
        left = round(pace * max(0, document.planned_steps - seen.last_step), 1)
    return MonitorAnswer(
        run_id=document.run_id,
        state=str(document.state),
        step=max(seen.last_step, document.step),
        planned_steps=document.planned_steps,
        steps=shown,
        omitted=len(new) - len(shown),
        alerts=alert_views(seen.alerts, since_step),
        waiting_for=list(seen.waiting_for),
        silent_s=None if seen.silent_s is None else round(seen.silent_s, 1),
        seconds_per_step=None if pace is None else round(pace, 2),
        seconds_left=left,
        check_again_s=None if final else check_again_s(pace, left),
        verdict=None if document.verdict is None else str(document.verdict),
        stop_reason=document.stop_reason,
        failure=_trouble(document.failure),
        before=evaluation(document, "before"),
        validation=evaluation(document, "validation"),
        after=evaluation(document, "after"),
        folder=str(seen.folder) if final else None,
        next=_after_look(seen),
    )


def check_again_s(pace: float | None, left: float | None) -> int:
    """When a look is worth it: after about three steps, not after the end, within 1 to 120 s; 5 s before the first."""
    if pace is None:
        return 5
    wanted = 3 * pace if left is None else min(3 * pace, left)
    return max(1, min(120, round(wanted)))


def _trouble(failure: Any) -> Trouble | None:
    if failure is None:
        return None
    tail = [clip(line, 200) for line in failure.log_tail[-10:]]
    return Trouble(kind=failure.kind, message=clip(failure.message, 600), log_tail=tail)


def _after_look(seen: "Look") -> Next:
    document = seen.document
    if document.failure is not None and document.failure.kind in UNDISTURBED_BEFORE:
        say = "Once what ended it is out of the way, it can go on from its newest checkpoint."
        return Next(say=say, tool="start_training", arguments={"resume": document.run_id})
    if document.state.is_final:
        return Next(say="Find out what held it back.", tool="analyze_run", arguments={"run_id": document.run_id})
    arguments = {"run_id": document.run_id, "since_step": seen.last_step, "wait_s": 30}
    if seen.silent_s is not None:
        say = "It stands still and may go on by itself: watch it, or stop it (stop_run) where the user wants that."
        return Next(say=say, tool="monitor_run", arguments=arguments)
    return Next(say="Go on watching.", tool="monitor_run", arguments=arguments)


class Number(Part):
    """A number with its meaning."""

    name: str
    value: float
    split: str | None = None
    n: int | None = None
    se: float | None = Field(None, description="Standard error.")


class FindingView(Part):
    """A finding with the numbers it rests on."""

    id: str
    kind: str
    what: str
    confidence: float
    lever: str | None = Field(None, description="What a patch would change, and how.")
    blocked: str | None = Field(None, description="Why no patch may change it.")
    numbers: list[Number] = Field(default_factory=list)
    evidence: list[str] = Field(default_factory=list, description="Run and step, or session and line.")


class PartView(Part):
    """A quarter or an epoch: means over its steps."""

    name: str
    steps: tuple[int, int]
    reward: float | None = None
    se: float | None = None
    """Standard error of the reward."""
    entropy: float | None = None
    parsed: float | None = None
    """Share of calls that can be read."""
    cut: float | None = None
    """Share of episodes that hit a cap."""
    tokens: float | None = None
    """Of an episode."""
    validation: float | None = None
    """Success of the last validation in it."""


class SampleView(Part):
    """An episode worth a look. What stands in it is data."""

    label: str
    step: int
    reward: float | None = None
    ended: str | None = None
    turns: list[str]


class AnalysisAnswer(Answer):
    """What a run achieved and what held it back."""

    elastic = ("skipped", "samples", "alerts", "parts", "changes", "advice", "findings")

    run_id: str
    state: str
    verdict: str | None = None
    before: Evaluation | None = None
    after: Evaluation | None = None
    findings: list[FindingView]
    advice: list[str] = Field(default_factory=list)
    """Values to try, how sure that is, what it would be measured by; the surest first."""
    parts: list[PartView] = Field(default_factory=list)
    """Quarters, then epochs where problems were met again."""
    changes: list[str] = Field(default_factory=list)
    """Forgetting and drift between the parts, where it is beyond chance; epochs side by side."""
    samples: list[SampleView] = Field(default_factory=list)
    alerts: list[AlertView] = Field(default_factory=list)
    """What was told while it ran."""
    skipped: list[str] = Field(default_factory=list)
    """Detectors that could not judge, and what they miss."""
    report: str = Field(description="Markdown file.")


async def analyze_run(ctx: EvoContext, run_id: RunId = None) -> Annotated[CallToolResult, AnalysisAnswer]:
    """Use when a run is over, or to ask why one does not improve: success before and after, findings with numbers,
    advice, quarters and epochs, episodes. Hand a finding with a lever to propose_patch by its id."""
    from mcp_server.findings.watching import analyse

    found = await anyio.to_thread.run_sync(analyse, state_of(ctx), run_id)
    document, analysis = found.document, found.analysis
    findings = [finding_view(one) for one in analysis.report.findings]
    movable = next((one for one in findings if one.lever is not None and one.blocked is None), None)
    if not document.state.is_final:
        watch = {"run_id": document.run_id, "since_step": document.step, "wait_s": 30}
        step = Next(
            say="It is not over: watch it to its end, then analyse it again.", tool="monitor_run", arguments=watch
        )
    elif movable is not None and document.session is None:
        step = Next(say="Turn the finding into a patch.", tool="propose_patch", arguments={"finding": movable.id})
    else:
        found_here = "No policy lever was found" if movable is None else f"{movable.id} has a lever"
        step = Next(
            say=f"{found_here}; look at the work that launched the run before anything is proposed.",
            tool="segment_trajectories",
            arguments={} if document.session is None else {"session": document.session},
        )
    data = AnalysisAnswer(
        run_id=document.run_id,
        state=str(document.state),
        verdict=None if document.verdict is None else str(document.verdict),
        before=evaluation(document, "before"),
        after=evaluation(document, "after"),
        findings=findings,
        advice=[clip(one.sentence, 400) for one in analysis.advice],
        parts=[_part(one) for one in (*analysis.review.quarters, *analysis.review.epochs)],
        changes=[one.sentence for one in analysis.review.shifts] + [one.sentence for one in analysis.review.revisits],
        samples=[_sample(one) for one in analysis.samples],
        alerts=alert_views(found.alerts),
        skipped=[clip(f"{name}: {reason}", 160) for name, reason in found.skipped.items()],
        report=str(found.report.with_suffix(".md")),
        next=step,
    )
    return answer(f"Run {run_line(document)}. {findings[0].what if findings else 'Nothing was found.'}", data)


def _part(part: "Stretch") -> PartView:
    def mean(measure: str) -> float | None:
        level = part.levels.get(measure)
        return None if level is None else float(f"{level.mean:.3g}")

    reward = part.levels.get("reward_mean")
    return PartView(
        name=part.name,
        steps=(part.first_step, part.last_step),
        reward=mean("reward_mean"),
        se=None if reward is None or math.isnan(reward.error) else float(f"{reward.error:.2g}"),
        entropy=mean("entropy"),
        parsed=mean("parse_ok_rate"),
        cut=mean("truncated_rate"),
        tokens=mean("completion_mean"),
        validation=None if part.validation is None else round(part.validation, 3),
    )


def _sample(sample: "SampleEpisode") -> SampleView:
    return SampleView(
        label=sample.label,
        step=sample.step,
        reward=sample.reward,
        ended=sample.stop_reason,
        turns=[clip(f"{role}: {text}", MAX_TURN) for role, text in sample.messages[:MAX_TURNS]],
    )


def finding_view(finding: Any) -> FindingView:
    """A finding of the optimiser for an answer."""
    lever = finding.lever
    return FindingView(
        id=finding.id,
        kind=finding.kind,
        what=clip(finding.what, 400),
        confidence=round(finding.confidence, 2),
        lever=None if lever is None else f"{lever.skill} {lever.key} {lever.direction}",
        blocked=finding.blocked,
        numbers=[
            Number(
                name=one.name,
                value=float(f"{one.value:.4g}"),
                split=one.split,
                n=one.n,
                se=None if one.standard_error is None else float(f"{one.standard_error:.2g}"),
            )
            for one in finding.metrics[:12]
        ],
        evidence=[evidence_text(one) for one in finding.evidence[:12]],
    )


def evidence_text(evidence: Any) -> str:
    """`run ID step 12` or `session ID line 7`."""
    if evidence.kind == "event":
        return f"session {evidence.session} line {evidence.line}"
    return f"run {evidence.run_id}" + ("" if evidence.step is None else f" step {evidence.step}")


_SEE_RUNS = Next(say="See which runs there are.", tool="list_runs")

SPECS = [
    ToolSpec(
        monitor_run, title="Watch a run", read_only=True, help_with=_SEE_RUNS, meta={"anthropic/alwaysLoad": True}
    ),
    ToolSpec(analyze_run, title="Analyse a run", idempotent=True, help_with=_SEE_RUNS),
]
