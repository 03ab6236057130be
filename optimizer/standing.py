"""Standing approvals: what a person grants beforehand, so that automatic rounds need not stop at every patch.

A grant is bounded: patches of one group of skills, with the verdict `better`, at most so many, until a moment. It is
given at a terminal, as every approval is, and may be revoked at any time. A patch that uses one is recorded with the
channel `standing` and the id of the grant. Patches of prose and unproven ones never use a grant: nothing measured them.
"""

import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.approvals import ApprovalError
from optimizer.audit import AuditLog, current_user
from optimizer.ids import check_id
from optimizer.layers import Layer
from optimizer.patch_store import PatchKind, PatchRecord
from skill_bank.files import lock_of, read_json, write_json_atomic

MOST_PATCHES = 20
LONGEST_S = 30 * 24 * 3600.0
"""A month: a grant that nobody remembers is no decision."""

VERDICTS = ("better",)
"""Verdicts that a grant may name."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\Z")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class StandingApproval(BaseModel):
    """`approvals/<grant_id>.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = 1
    grant_id: str
    layer: str
    """Group of skills whose patches it is for."""
    verdict: str = "better"
    max_patches: int = Field(ge=1, le=MOST_PATCHES)
    user: str = Field(default_factory=current_user)
    created_at: float
    expires_at: float
    revoked_at: float | None = None
    used_for: list[str] = Field(default_factory=list)
    """Patches that used it, in order."""

    def why_not(self, record: PatchRecord, now: float) -> str | None:
        """Why the patch may not use it; None: it may."""
        if self.revoked_at is not None:
            return "it was revoked"
        if now > self.expires_at:
            return "it has expired"
        if record.group != self.layer:
            return f"it is for skills of {self.layer}"
        if record.kind is PatchKind.PROSE or record.verdict != self.verdict:
            return f"it is for patches with the verdict {self.verdict}"
        if record.patch_id not in self.used_for and len(self.used_for) >= self.max_patches:
            return f"its {self.max_patches} patches are used up"
        return None


def seconds_of(text: str) -> float:
    """Seconds of `90s`, `30m`, `8h` or `2d`. Raises ApprovalError."""
    found = _DURATION.match(text.strip().lower())
    if found is None or not 0 < float(found[1]) * _UNITS[found[2]] <= LONGEST_S:
        raise ApprovalError(
            f"{text!r} is no duration for a standing approval: write for instance 30m, 8h or 2d, 30d at most"
        )
    return float(found[1]) * _UNITS[found[2]]


class StandingApprovals:
    """The grants of a workspace."""

    def __init__(self, workspace: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = workspace / "approvals"
        self.audit = AuditLog(workspace)
        self.clock = clock

    def _path(self, grant_id: str) -> Path:
        return self.root / f"{check_id(grant_id, 'standing approval')}.json"

    def draft(self, layer: str, max_patches: int, expires: str, verdict: str = "better") -> StandingApproval:
        """A grant that is not given yet, for showing. Raises ApprovalError for what may not be granted."""
        groups = [str(one) for one in Layer if one is not Layer.OTHER]
        if layer not in groups:
            raise ApprovalError(f"there is no layer {layer!r}. A standing approval is for one of: {', '.join(groups)}")
        if verdict not in VERDICTS:
            raise ApprovalError(f"a standing approval is for patches that are {', '.join(VERDICTS)}, not {verdict!r}")
        if not 1 <= max_patches <= MOST_PATCHES:
            raise ApprovalError(f"a standing approval is for 1 to {MOST_PATCHES} patches, not {max_patches}")
        now = self.clock()
        return StandingApproval(
            grant_id=f"standing-{secrets.token_hex(6)}",
            layer=layer,
            verdict=verdict,
            max_patches=max_patches,
            created_at=now,
            expires_at=now + seconds_of(expires),
        )

    def grant(self, approval: StandingApproval, channel: str) -> None:
        """Puts a grant in force."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json_atomic(self._path(approval.grant_id), approval.model_dump(mode="json"))
        self.audit.append(
            "standing_granted",
            channel=channel,
            grant_id=approval.grant_id,
            layer=approval.layer,
            verdict=approval.verdict,
            max_patches=approval.max_patches,
            expires_at=approval.expires_at,
        )

    def read(self, grant_id: str) -> StandingApproval:
        """One grant. Raises ApprovalError naming those there are, or where its file is damaged."""
        path = self._path(grant_id)
        try:
            return StandingApproval.model_validate(read_json(path))
        except FileNotFoundError as error:
            known = ", ".join(self.ids()) or "none yet"
            raise ApprovalError(f"there is no standing approval {grant_id!r}. There are: {known}") from error
        except (ValueError, ValidationError) as error:
            raise ApprovalError(f"{path} cannot be read ({error}): revoke it by deleting it") from error

    def ids(self) -> list[str]:
        """All grants, by id."""
        if not self.root.is_dir():
            return []
        return sorted(path.stem for path in self.root.glob("standing-*.json"))

    def all(self) -> list[StandingApproval]:
        """All grants, oldest first."""
        return sorted((self.read(one) for one in self.ids()), key=lambda one: one.created_at)

    def revoke(self, grant_id: str, channel: str) -> StandingApproval:
        """Ends a grant; what used it stays approved."""
        path = self._path(grant_id)
        self.read(grant_id)
        with lock_of(path):
            grant = self.read(grant_id)
            if grant.revoked_at is None:
                grant = grant.model_copy(update={"revoked_at": self.clock()})
                write_json_atomic(path, grant.model_dump(mode="json"))
                self.audit.append("standing_revoked", channel=channel, grant_id=grant_id)
        return grant

    def use_for(self, record: PatchRecord) -> StandingApproval | None:
        """Takes a place of the first grant that the patch may use; None where there is none. A patch that took one
        before keeps it, so a round that was killed in between takes none twice."""
        for grant_id in self.ids():
            path = self._path(grant_id)
            with lock_of(path):
                grant = self.read(grant_id)
                if grant.why_not(record, self.clock()) is not None:
                    continue
                if record.patch_id not in grant.used_for:
                    grant = grant.model_copy(update={"used_for": [*grant.used_for, record.patch_id]})
                    write_json_atomic(path, grant.model_dump(mode="json"))
            return grant
        return None


def describe_grant(grant: StandingApproval, now: float) -> dict[str, Any]:
    """The grant for a report."""
    left = max(grant.max_patches - len(grant.used_for), 0)
    over = grant.revoked_at is not None or now > grant.expires_at or left == 0
    return {**grant.model_dump(mode="json"), "left": left, "in_force": not over}
