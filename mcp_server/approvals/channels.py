"""The channels through which a person's decision about a patch reaches the server.

1. A client that can ask its user is asked (both protocol eras); the answer is recorded with channel `elicitation`,
   because a client may be set up to answer by itself. What is approved is what was shown: the question holds the digest
   of the outcome, and a patch that changed in between is refused.
2. Otherwise nothing is applied, and the answer names the command for a terminal, where a person types the digest. So
   it is for a client whose token may not approve (`mcp_server/access/roles.py`).
3. No argument of any tool approves. The decision is a parameter that the client's user fills; what a model sends under
   its name is ignored by the SDK and refused by our argument check.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp_types import ClientCapabilities
from pydantic import BaseModel, Field

from mcp_server.access.roles import Role, caller_now, refusal
from mcp_server.answers import clip
from mcp_server.state import ServerState
from skill_bank.visible import visible_text

if TYPE_CHECKING:
    from optimizer.approvals import Origin
    from optimizer.home import Home
    from optimizer.patch_store import PatchRecord
    from optimizer.promote import Digests

MAX_DIFF = 4000
"""Characters of a diff shown in an answer or a question."""


class Decision(BaseModel):
    """What the user says."""

    decision: Literal["later", "approve", "reject"] = Field(description="approve puts the patch in force.")
    reason: str = Field("", description="Why, in a few words; wanted for reject.", max_length=500)


@dataclass(frozen=True)
class Shown:
    """A patch as it is shown to the person."""

    record: "PatchRecord"
    digests: "Digests | None"
    """What an approval would be bound to; None: it no longer compiles."""
    diff: str
    may_approve: bool
    why_not: str | None = None
    """Why it cannot be approved now."""


async def show(ctx: Context[ServerState, Any], patch_id: str | None) -> Shown:
    """Reads the patch. Raises PatchError where there is none."""
    return await anyio.to_thread.run_sync(read_patch, ctx.request_context.lifespan_context, patch_id)


async def ask(ctx: Context[ServerState, Any], shown: Annotated[Shown, Resolve(show)]) -> "Decision | Elicit[Decision]":
    """Asks the user where the client can; else the decision is `later`."""
    if not shown.may_approve or why_not_asked(ctx, shown.diff) is not None:
        return Decision(decision="later", reason="")
    return Elicit(question(shown), Decision)


def why_not_asked(ctx: Context[ServerState, Any], diff: str = "") -> str | None:
    """Why the user of this client cannot be asked for a decision, or None. What is approved has to be shown whole."""
    if not can_ask(ctx.client_capabilities):
        return "this client cannot ask its user"
    caller = caller_now()
    if not caller.role.includes(Role.APPROVE):
        return refusal("approving", Role.APPROVE, caller)
    if len(diff) > MAX_DIFF:
        return f"its diff has {len(diff):,} characters, too many to be shown in a question"
    return None


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether the client shows forms to its user; an empty declaration, older than the choice of modes, means forms."""
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def question(shown: Shown) -> str:
    """The question: the same text for the same patch, so that an answer belongs to exactly what was shown."""
    assert shown.digests is not None
    record = shown.record
    return "\n".join(
        [
            f"Put patch {record.patch_id} of skill {record.skill} in force?",
            clip(record.description, 300),
            verdict_text(record),
            f"Digest of the outcome: {shown.digests.result[:12]}",
            "",
            visible_text(shown.diff),
        ]
    )


def verdict_text(record: "PatchRecord") -> str:
    """Verdict, effect, interval and pairs in one line."""
    if record.verdict is None:
        return "Effect not measured." if record.kind == "prose" else "Not tried yet."
    effect = "" if record.effect is None else f", effect {record.effect:+.3f}"
    interval = "" if record.ci95 is None else f" [{record.ci95[0]:+.3f}, {record.ci95[1]:+.3f}]"
    pairs = "" if record.pairs is None else f", {record.pairs} pairs"
    return f"Trial: {record.verdict}{effect}{interval}{pairs} (difference in test success)."


def read_patch(state: ServerState, patch_id: str | None) -> Shown:
    """A patch by id, or the one that has waited longest for a person. Raises PatchError, BankError."""
    from optimizer.patch_store import PatchError
    from optimizer.promote import check_may_approve, proposed
    from skill_bank.types import BankError

    home = state.home()
    record = home.patches.read(patch_id) if patch_id is not None else waiting_patch(home)
    try:
        check_may_approve(record)
        found = proposed(home, record)
    except (PatchError, BankError) as error:
        path = home.patches.folder(record.patch_id) / "patch.diff"
        return Shown(record, None, path.read_text(encoding="utf-8") if path.exists() else "", False, str(error))
    return Shown(record, found.digests, found.diff, True)


def waiting_patch(home: "Home") -> "PatchRecord":
    """The patch that has waited longest for a person. Raises PatchError where none waits."""
    from optimizer.patch_store import PatchError, Stage

    for record in home.patches.all():
        if record.stage in (Stage.TRIED, Stage.APPROVED) and record.verdict == "better":
            return record
    known = ", ".join(f"{one.patch_id} ({one.stage})" for one in home.patches.all()[-5:]) or "there are none yet"
    raise PatchError(f"no patch waits for a person. Patches: {known}")


def apply_decision(state: ServerState, shown: Shown, decision: Decision, origin: "Origin") -> "PatchRecord":
    """Carries out what the person said about what was shown. Raises ApprovalError, PatchError, BankError."""
    from optimizer.approvals import Channel
    from optimizer.patch_store import Stage
    from optimizer.promote import approve, promote, reject

    home = state.home()
    patch_id = shown.record.patch_id
    record = home.patches.read(patch_id)
    if decision.decision == "reject":
        return reject(home, patch_id, Channel.ELICITATION, decision.reason or "no reason given", origin=origin)
    if decision.decision == "approve" and record.stage is not Stage.APPROVED:
        why = decision.reason or None
        approve(home, patch_id, Channel.ELICITATION, reason=why, origin=origin, shown=shown.digests)
        record = home.patches.read(patch_id)
    if record.stage is Stage.APPROVED:
        promote(home, patch_id)
    return home.patches.read(patch_id)
