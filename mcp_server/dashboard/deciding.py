"""A person's decision about a patch on the dashboard.

As in a terminal, approving asks for the beginning of the digest of the outcome. Beyond that the request holds the mark
of everything the page showed (`patches.Seen.mark`), so a patch, a skill or a trial that changed meanwhile is refused.
Clicks take turns under a lock: the second one finds the patch in another stage and is told so. A decision in a terminal
that comes in between is found by `approve`, which takes the digests that were shown.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_server.dashboard.patches import Seen, see
from mcp_server.dashboard.shaping import BadQuestion, NotThere
from mcp_server.dashboard.source import Source
from optimizer.approvals import TYPED_CHARACTERS, ApprovalError, Channel, check_terminal, digest_typed
from optimizer.patch_store import PatchError, Stage
from optimizer.promote import approve, promote, reject
from skill_bank.files import lock_of
from skill_bank.types import BankError


class Refused(Exception):
    """A decision that was not carried out: says why and what to do."""


@dataclass(frozen=True)
class Deciding:
    """Whether people may decide on this dashboard."""

    allowed: bool
    why_not: str | None = None

    @classmethod
    def here(cls) -> Self:
        """By the rule of the terminal: a person must have started it, at a terminal that no agent drives."""
        try:
            check_terminal(sys.stdin.isatty())
        except ApprovalError as error:
            return cls(False, f"{error}. This dashboard is for reading only")
        return cls(True)


class Decision(BaseModel):
    """What the page sends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    decision: Literal["approve", "reject"]
    mark: str = Field(min_length=64, max_length=64)
    """`mark` of the document that the page showed."""
    typed: str = Field("", max_length=64)
    """The beginning of the digest, as the person typed it."""
    reason: str = Field("", max_length=500)


def decision_from(body: bytes) -> Decision:
    """Raises BadQuestion."""
    try:
        return Decision.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadQuestion(f"the decision cannot be read: {where} {first['msg'].lower()}") from error
    except (ValueError, RecursionError) as error:
        raise BadQuestion("the decision must be a JSON object") from error


def decide(source: Source, patch_id: str, decision: Decision) -> dict[str, Any]:
    """Carries out a decision and returns what became of the patch. Raises NotThere, Refused."""
    home = source.home()
    if home is None or patch_id not in home.patches.ids():
        raise NotThere(f"there is no patch {patch_id[:64]!r}")
    with lock_of(home.patches.folder(patch_id) / "click"):
        seen = see(home, patch_id)
        if seen.record.stage in (Stage.ACTIVE, Stage.REJECTED, Stage.ARCHIVED):
            raise Refused(f"it is decided already: patch {patch_id} is {seen.record.stage}. Nothing was changed")
        if seen.mark != decision.mark:
            raise Refused("the patch, its skill or its trial changed after it was shown. Look at it again, then decide")
        try:
            if decision.decision == "reject":
                _reject(source, patch_id, decision)
            else:
                _approve(source, patch_id, decision, seen)
        except (ApprovalError, PatchError, BankError) as error:
            raise Refused(str(error)) from error
        record = home.patches.read(patch_id)
    return {"patch_id": patch_id, "stage": str(record.stage), "version": (record.model_extra or {}).get("version")}


def _approve(source: Source, patch_id: str, decision: Decision, seen: Seen) -> None:
    home = source.state.home()
    if seen.digests is None:
        raise Refused(seen.why_not or "it cannot be approved")
    if not digest_typed(decision.typed, seen.digests.result):
        raise Refused(f"those are not the first {TYPED_CHARACTERS} characters of the digest: nothing was approved")
    approve(home, patch_id, Channel.DASHBOARD, reason=decision.reason.strip() or None, shown=seen.digests)
    promote(home, patch_id)


def _reject(source: Source, patch_id: str, decision: Decision) -> None:
    reason = " ".join(decision.reason.split())
    if not reason:
        raise Refused("rejecting needs a reason: it is remembered, and the same change is not proposed again")
    reject(source.state.home(), patch_id, Channel.DASHBOARD, reason)
