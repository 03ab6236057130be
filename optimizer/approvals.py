"""Approvals: a person's decision about one patch, bound to exactly what that person saw.

1. An approval names the patch, the digest of the skill it was shown against (base) and the digest of what would come
   out (result). If either is another one when the patch is to be promoted, the approval is void.
2. It is used once. A promotion that was killed half way may be finished with it; after that it is spent.
3. It expires. Every decision, use and refusal is in the audit log with its channel. No argument of a tool approves: the
   channels are a terminal with a person at it, a client that asks its user, the dashboard, and `--yes`, recorded as
   `unattended`.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.audit import AuditLog, current_user
from optimizer.ids import check_id
from skill_bank.files import lock_of, read_json, write_json_atomic

EXPIRES_AFTER_S = 7 * 24 * 3600.0
"""A week: what a person saw is still what they remember."""

TYPED_CHARACTERS = 6
"""Characters of the digest a person types: 16 million possibilities, so no habit of the fingers."""

AGENT_VARIABLES = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI")
"""Set in shells that an agent drives: what runs there is not a person typing."""


class Channel(StrEnum):
    """How a decision reached us."""

    TERMINAL = "terminal"
    """A person typed the digest."""
    ELICITATION = "elicitation"
    """The client asked its user, or was set up to answer by itself: no proof of a person."""
    DASHBOARD = "dashboard"
    """A button of the dashboard, whose page is only on this machine and behind a token."""
    STANDING = "standing"
    """A bounded grant that a person gave beforehand (optimizer/standing.py)."""
    UNATTENDED = "unattended"
    """`--yes`: decided beforehand, without seeing the patch."""
    AGENT = "agent"
    """A tool was called. It approves nothing: it can only take out of force what a person let in."""


@dataclass(frozen=True)
class Origin:
    """Who passed a decision on to us, as far as the channel says so."""

    token: str | None = None
    """Name of the token that the client showed."""
    client: str | None = None
    """Name and version that the client gave itself: its own word."""

    def fields(self) -> dict[str, str]:
        """What is known, for a document or an entry of the audit log."""
        return {name: value for name, value in (("token", self.token), ("client", self.client)) if value is not None}


HERE = Origin()
"""A person or process on this machine, about whom the channel and the user's name say everything."""


class ApprovalError(PermissionError):
    """An approval that does not hold: says why and how to get one that does."""


class StaleApproval(ApprovalError):
    """The skill under the patch is another one than the person saw: the patch was re-based and waits to be asked about
    again."""


class Approval(BaseModel):
    """`patches/<patch_id>/approval.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = 1
    approval_id: str
    patch_id: str
    decision: Literal["approve", "reject"]
    channel: Channel
    base_digest: str
    result_digest: str
    reason: str | None = None
    user: str = Field(default_factory=current_user)
    token: str | None = None
    client: str | None = None
    """Its origin."""
    created_at: float
    expires_at: float
    used_at: float | None = None
    completed_at: float | None = None
    """The promotion it was used for is complete: it is spent."""

    @property
    def origin(self) -> Origin:
        return Origin(self.token, self.client)


class ApprovalLedger:
    """Decisions about the patches of a workspace."""

    def __init__(self, workspace: Path, clock: Callable[[], float] = time.time) -> None:
        self.workspace = workspace
        self.audit = AuditLog(workspace)
        self.clock = clock

    def path(self, patch_id: str) -> Path:
        return self.workspace / "patches" / check_id(patch_id, "patch") / "approval.json"

    def record(
        self,
        patch_id: str,
        decision: Literal["approve", "reject"],
        channel: Channel,
        *,
        base_digest: str,
        result_digest: str,
        reason: str | None = None,
        origin: Origin = HERE,
    ) -> Approval:
        """Writes a decision; it replaces an earlier one about the same patch."""
        now = self.clock()
        approval = Approval(
            approval_id=f"approval-{secrets.token_hex(6)}",
            patch_id=patch_id,
            decision=decision,
            channel=channel,
            base_digest=base_digest,
            result_digest=result_digest,
            reason=reason,
            token=origin.token,
            client=origin.client,
            created_at=now,
            expires_at=now + EXPIRES_AFTER_S,
        )
        path = self.path(patch_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock_of(path):
            write_json_atomic(path, approval.model_dump(mode="json"))
        self.audit.append(
            "approved" if decision == "approve" else "rejected",
            channel=channel,
            patch_id=patch_id,
            approval_id=approval.approval_id,
            base_digest=base_digest,
            result_digest=result_digest,
            reason=reason,
            **origin.fields(),
        )
        return approval

    def read(self, patch_id: str) -> Approval | None:
        """The decision about a patch, or None. Raises ApprovalError where the file is damaged."""
        path = self.path(patch_id)
        try:
            return Approval.model_validate(read_json(path))
        except FileNotFoundError:
            return None
        except (ValueError, ValidationError) as error:
            raise ApprovalError(f"{path} cannot be read ({error}): approve the patch again") from error

    def use(self, patch_id: str, *, base_digest: str, result_digest: str) -> Approval:
        """Takes the approval for promoting the patch from `base_digest` to `result_digest`, both as they are now.

        Raises ApprovalError, with an entry in the audit log, where it does not hold.
        """
        path = self.path(patch_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock_of(path):
            approval = self.read(patch_id)
            why = self._objection(approval, base_digest, result_digest)
            if approval is None or why is not None:
                self.refuse(patch_id, why or "nobody approved it", base_digest=base_digest, result_digest=result_digest)
            assert approval is not None
            if approval.used_at is None:
                approval = approval.model_copy(update={"used_at": self.clock()})
                write_json_atomic(path, approval.model_dump(mode="json"))
            return approval

    def refuse(self, patch_id: str, why: str, **fields: Any) -> NoReturn:
        """Enters a refusal in the audit log and raises it as ApprovalError."""
        approval = self.read(patch_id)
        approval_id = None if approval is None else approval.approval_id
        self.audit.append("refused", patch_id=patch_id, approval_id=approval_id, reason=why, **fields)
        raise ApprovalError(f"patch {patch_id} is not promoted: {why}. Ask for approval: mcp-evo approve {patch_id}")

    def _objection(self, approval: Approval | None, base_digest: str, result_digest: str) -> str | None:
        if approval is None:
            return "nobody approved it"
        if approval.decision != "approve":
            return f"it was rejected ({approval.reason or 'no reason given'})"
        if approval.completed_at is not None:
            return "its approval was used already"
        if self.clock() > approval.expires_at:
            return "its approval has expired"
        if approval.base_digest != base_digest:
            return "the skill changed since it was approved"
        if approval.result_digest != result_digest:
            return "the patch changed since it was approved"
        return None

    def complete(self, approval: Approval) -> None:
        """Marks the approval as spent."""
        path = self.path(approval.patch_id)
        with lock_of(path):
            current = self.read(approval.patch_id)
            if current is not None and current.approval_id == approval.approval_id:
                spent = current.model_copy(update={"completed_at": self.clock()})
                write_json_atomic(path, spent.model_dump(mode="json"))


def check_terminal(
    is_terminal: bool, environment: Mapping[str, str] | None = None, *, command: str = "mcp-evo approve"
) -> None:
    """Raises ApprovalError unless a person can be at this terminal; `command` is what they should give there."""
    variables = os.environ if environment is None else environment
    if not is_terminal:
        raise ApprovalError(
            "approving needs a person at a terminal, and standard input is none. "
            f"Run `{command}` in a terminal of your own"
        )
    driven = next((name for name in AGENT_VARIABLES if variables.get(name)), None)
    if driven is not None:
        raise ApprovalError(
            f"this shell belongs to an agent ({driven} is set): an agent cannot approve. "
            f"Run `{command}` in a terminal of your own"
        )


def digest_typed(typed: str, result_digest: str) -> bool:
    """Whether the characters typed are the first ones of the digest."""
    return typed.strip().lower() == result_digest[:TYPED_CHARACTERS].lower()


def describe(approval: Approval) -> dict[str, Any]:
    """The approval for a report."""
    return {
        "approval_id": approval.approval_id,
        "decision": approval.decision,
        "channel": str(approval.channel),
        "user": approval.user,
        "created_at": approval.created_at,
        "reason": approval.reason,
        **approval.origin.fields(),
    }
