"""Tools for patches: propose, try, review."""

import time
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.mcpserver import ElicitationResult, Resolve
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.access.roles import origin_of
from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.approvals.channels import (
    MAX_DIFF,
    Decision,
    Shown,
    apply_decision,
    ask,
    show,
    verdict_text,
    why_not_asked,
)
from mcp_server.dashboard.running import dashboard_hint
from mcp_server.findings.proposing import Draft, propose_from_finding, propose_text
from mcp_server.jobs.trying import TrialView, look_at_trial, try_or_look
from mcp_server.tooling import ToolSpec
from mcp_server.tools.monitoring import MAX_WAIT_S, PROGRESS_S
from mcp_server.tools.training import EvoContext, state_of


class ChangeView(Part):
    """A policy value that a patch sets."""

    key: str
    when: dict[str, Any] | None = None
    before: Any = None
    after: Any = None


class PatchAnswer(Answer):
    """A staged patch."""

    elastic = ("diff", "changes")

    patch_id: str
    skill: str
    section: str
    kind: str = Field(description="policy (tried in pairs) or prose (not measured).")
    stage: str
    description: str
    scope: dict[str, Any] | None = None
    profile: str | None = Field(None, description="Changes only runs with it.")
    changes: list[ChangeView]
    diff: str


async def propose_patch(
    ctx: EvoContext,
    finding: Annotated[str | None, Field(description="Its id gives value and scope; prefer this.")] = None,
    skill: Annotated[str | None, Field(description="Without finding: what to change.")] = None,
    section: Annotated[str | None, Field(description="As skill_status names it.")] = None,
    body: Annotated[
        str | None, Field(description="Text; values in a `yaml policy` block, `when` inside scope.")
    ] = None,
    action: Literal["append", "prepend", "replace", "insert_after"] = "append",
    scope: Annotated[
        dict[str, Any] | None,
        Field(description="E.g. {'params': '<10M', 'env': 'calculator'}."),
    ] = None,
    description: Annotated[str | None, Field(max_length=300)] = None,
    run_id: Annotated[str | None, Field(description="Run it is made for.")] = None,
) -> Annotated[CallToolResult, PatchAnswer]:
    """Use after analyze_run or analyze_trajectories to turn a finding into a small patch of a skill, staged, not in
    force. Give finding, or skill, section and body. A refusal names the check that failed."""
    state = state_of(ctx)
    if finding is not None:
        record = await anyio.to_thread.run_sync(propose_from_finding, state, finding)
    else:
        draft = _draft(skill, section, body, action, scope, description, run_id)
        record = await anyio.to_thread.run_sync(propose_text, state, draft)
    text = (state.root / "patches" / record.patch_id / "patch.diff").read_text(encoding="utf-8")
    if record.kind == "policy":
        step = Next(
            say="Try it against the skill without it.", tool="try_patch", arguments={"patch_id": record.patch_id}
        )
    else:
        step = Next(
            say="Prose cannot be measured: a person reads and decides.",
            tool="review_patch",
            arguments={"patch_id": record.patch_id},
        )
    data = PatchAnswer(
        patch_id=record.patch_id,
        skill=record.skill,
        section=record.section,
        kind=str(record.kind),
        stage=str(record.stage),
        description=clip(record.description, 300),
        scope=record.scope,
        profile=record.profile,
        changes=[ChangeView(**one.model_dump()) for one in record.changes],
        diff=text[:MAX_DIFF],
        next=step,
    )
    return answer(f"Patch {record.patch_id} of {record.skill} is staged: {record.description}.", data)


def _draft(
    skill: str | None,
    section: str | None,
    body: str | None,
    action: str,
    scope: dict[str, Any] | None,
    description: str | None,
    run_id: str | None,
) -> Draft:
    from optimizer.patch_store import PatchError

    missing = [name for name, value in (("skill", skill), ("section", section), ("body", body)) if not value]
    if skill is None or section is None or body is None or missing:
        raise PatchError(
            f"a patch needs a finding, or skill, section and body (missing: {', '.join(missing)}). analyze_run gives "
            "finding ids, skill_status with a skill gives its sections"
        )
    return Draft(skill, section, body, action, scope, description, run_id)


class PairView(Part):
    """Both arms on one scenario and seed: test success."""

    scenario: str
    seed: int
    base: float
    patched: float


class TrialAnswer(Answer):
    """How a trial stands."""

    elastic = ("pair_results", "log", "scenarios")

    patch_id: str
    trial_id: str
    state: str = Field(description="running, decided or interrupted.")
    verdict: str | None = Field(None, description="better, worse, inconclusive.")
    reason: str | None = None
    say: str | None = None
    """The verdict in one sentence."""
    effect: float | None = Field(None, description="Test success, patched minus base.")
    ci95: tuple[float, float] | None = Field(None, description="Only at a look of the plan.")
    pairs: int
    max_pairs: int
    next_look: int | None = Field(None, description="In pairs.")
    attempt: int
    scenarios: list[str]
    pair_results: list[PairView]
    seconds_per_pair: float | None = None
    seconds_left: float | None = Field(None, description="At most.")
    check_again_s: int | None = None
    log: list[str] = Field(default_factory=list)
    """Last words of a process that ended early."""


async def try_patch(
    ctx: EvoContext,
    patch_id: str,
    plan: Annotated[
        Literal["quick", "default"] | None, Field(description="quick: 16 pairs at most; default: 24.")
    ] = None,
    more: Annotated[bool, Field(description="After 'promising': go on, or once more.")] = False,
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Wait for the next pair.")] = 0,
) -> Annotated[CallToolResult, TrialAnswer]:
    """Use on a staged policy patch: starts a paired trial with and without it (same seeds, same number of episodes) and
    answers at once; call it again until it has a verdict. An interrupted trial goes on behind its last pair."""
    state = state_of(ctx)
    view = await anyio.to_thread.run_sync(try_or_look, state, patch_id, plan, more)
    known, began = len(view.pairs), time.monotonic()
    while view.running and len(view.pairs) == known and (waited := time.monotonic() - began) < wait_s:
        await ctx.report_progress(waited, wait_s, f"{known} of at most {view.spec.plan.max_pairs} pairs")
        await anyio.sleep(min(PROGRESS_S, wait_s - waited))
        view = await anyio.to_thread.run_sync(look_at_trial, state, patch_id)
    return answer(_trial_text(view), _trial_answer(view))


def _trial_text(view: TrialView) -> str:
    if view.decision is not None:
        return f"Trial {view.spec.trial_id} ended. {view.decision.say}."
    verb = "started" if view.began and not view.pairs else "running" if view.running else "interrupted"
    effect = "" if view.summary is None else f", mean difference so far {view.summary.effect:+.3f}"
    return f"Trial {view.spec.trial_id} {verb}: {len(view.pairs)} of at most {view.spec.plan.max_pairs} pairs{effect}."


def _trial_answer(view: TrialView) -> TrialAnswer:
    spec, decision = view.spec, view.decision
    summary = decision.summary if decision is not None else view.summary
    pace = view.seconds_per_pair
    running = decision is None and view.running
    left = None if pace is None or not running else round(pace * (spec.plan.max_pairs - len(view.pairs)), 1)
    return TrialAnswer(
        patch_id=spec.patch_id,
        trial_id=spec.trial_id,
        state="decided" if decision is not None else "running" if running else "interrupted",
        verdict=None if decision is None else str(decision.verdict),
        reason=None if decision is None or decision.reason is None else str(decision.reason),
        say=None if decision is None else clip(decision.say, 400),
        effect=None if summary is None else round(summary.effect, 4),
        ci95=None if summary is None or summary.interval is None else _rounded(summary.interval),
        pairs=len(view.pairs),
        max_pairs=spec.plan.max_pairs,
        next_look=None if decision is not None else spec.plan.next_look(len(view.pairs)),
        attempt=spec.attempt,
        scenarios=[one.name for one in spec.scenarios],
        pair_results=[
            PairView(
                scenario=one.scenario,
                seed=one.seed,
                base=round(one.base.success, 4),
                patched=round(one.patched.success, 4),
            )
            for one in view.pairs
        ],
        seconds_per_pair=None if pace is None else round(pace, 1),
        seconds_left=left,
        check_again_s=None if not running else max(2, min(120, round(pace or 5))),
        log=view.child.last_words() if view.child is not None and not running and decision is None else [],
        next=_after_trial(view),
    )


def _rounded(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 4), round(interval[1], 4)


def _after_trial(view: TrialView) -> Next:
    patch = {"patch_id": view.spec.patch_id}
    decision = view.decision
    if decision is None:
        say = "Wait for the next pair." if view.running else "Nobody runs it now: take it up again."
        return Next(say=say, tool="try_patch", arguments={**patch, "wait_s": MAX_WAIT_S} if view.running else patch)
    if decision.verdict == "better":
        return Next(say="Show it to the person who decides.", tool="review_patch", arguments=patch)
    if decision.more_allowed or decision.reason == "promising":
        return Next(say=clip(decision.next_step, 300), tool="try_patch", arguments={**patch, "more": True})
    return Next(say=f"{clip(decision.next_step, 300)}. Other findings are in the analysis", tool="analyze_run")


class ReviewAnswer(Answer):
    """A patch, what a person said about it, and what became of it."""

    elastic = ("diff", "changes")

    patch_id: str
    applied: bool = Field(description="In force.")
    stage: str
    decision: str = Field(description="approve, reject, later, not_asked.")
    skill: str
    version: str | None = None
    profile: str | None = None
    verdict: str | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    pairs: int | None = None
    finding: str | None = None
    changes: list[ChangeView]
    digest: str | None = Field(None, description="The person types its beginning.")
    diff: str
    approve_command: str | None = Field(None, description="For a person, in a terminal.")


async def review_patch(
    ctx: EvoContext,
    shown: Annotated[Shown, Resolve(show)],
    decided: Annotated[ElicitationResult[Decision], Resolve(ask)],
    patch_id: Annotated[str | None, Field(description="Default: the one that waits longest.")] = None,
) -> Annotated[CallToolResult, ReviewAnswer]:
    """Use when a trial said better (or a patch is prose): shows the person diff, finding and verdict and lets them
    decide. If the client cannot ask, the answer holds the command that the person runs; call it again afterwards. No
    argument approves."""
    state = state_of(ctx)
    decision = decided.data if isinstance(decided, AcceptedElicitation) else Decision(decision="later", reason="")
    record = await anyio.to_thread.run_sync(apply_decision, state, shown, decision, origin_of(ctx.request_context))
    not_asked = why_not_asked(ctx, shown.diff)
    applied = record.stage == "active"
    command = None if applied or not shown.may_approve else state.command("approve", record.patch_id)
    extra = record.model_extra or {}
    data = ReviewAnswer(
        patch_id=record.patch_id,
        applied=applied,
        stage=str(record.stage),
        decision=decision.decision if shown.may_approve and not_asked is None else "not_asked",
        skill=record.skill,
        version=extra.get("version"),
        profile=record.profile,
        verdict=record.verdict,
        effect=record.effect,
        ci95=record.ci95,
        pairs=record.pairs,
        finding=None if record.finding is None else clip(str(record.finding.get("what")), 400),
        changes=[ChangeView(**one.model_dump()) for one in record.changes],
        digest=None if shown.digests is None else shown.digests.result,
        diff=shown.diff[:MAX_DIFF],
        approve_command=command,
        next=_after_review(record, shown, command),
    )
    return answer(_review_text(data, shown, not_asked, dashboard_hint(state.root)), data)


def _review_text(data: ReviewAnswer, shown: Shown, not_asked: str | None, hint: str) -> str:
    head = f"Patch {data.patch_id} of {data.skill}: {verdict_text(shown.record)}"
    if data.applied:
        return f"{head} It is in force as {data.version}."
    if data.stage == "rejected":
        return f"{head} It is rejected and will not be proposed again."
    if shown.why_not is not None:
        return f"{head} NOT applied: {shown.why_not}."
    why = "" if not_asked is None else f" ({not_asked})"
    ways = f"In a terminal of their own: {data.approve_command}, {hint}."
    return f"{head} NOT applied: a person has to approve it{why}. {ways}"


def _after_review(record: Any, shown: Shown, command: str | None) -> Next:
    patch = {"patch_id": record.patch_id}
    if record.stage == "active":
        return Next(say="Make sure that everything is compiled, then train again.", tool="compile_skills")
    if command is not None:
        return Next(
            say="Show the command to the person and wait; look again afterwards.", tool="review_patch", arguments=patch
        )
    if record.stage in ("staged", "tried") and record.kind == "policy":
        return Next(say="Try it first.", tool="try_patch", arguments=patch)
    return Next(say="See where things stand.", tool="round_status")


_SEE_STATUS = Next(say="See patches and rounds.", tool="round_status")

SPECS = [
    ToolSpec(
        propose_patch, title="Propose a patch", help_with=Next(say="See sections and patches.", tool="skill_status")
    ),
    ToolSpec(try_patch, title="Try a patch", open_world=True, help_with=_SEE_STATUS),
    ToolSpec(
        review_patch,
        title="Review a patch",
        help_with=_SEE_STATUS,
        meta={"anthropic/requiresUserInteraction": True},
    ),
]
