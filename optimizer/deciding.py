"""The last step of a round, for every layer: who may decides about a tried patch, and what they say is carried out.

A standing approval answers first, then whoever is asked. Calling again after a death goes on where the patch stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from optimizer.approvals import Channel, StaleApproval
from optimizer.home import Home
from optimizer.patch_store import PatchRecord, Stage
from optimizer.promote import approve, promote, reject
from optimizer.round_types import Answer, Approver
from optimizer.trial.types import TrialVerdict


class Outcome(StrEnum):
    """What became of a patch."""

    NOT_BETTER = "not_better"
    """Its trial left nothing to decide."""
    REFUSED_ELSEWHERE = "refused_elsewhere"
    """Refused in another terminal while the round waited."""
    LATER = "later"
    """Nobody has decided yet."""
    REFUSED = "refused"
    STALE = "stale"
    """Approved, but the skill changed meanwhile: whoever decides is asked again."""
    PROMOTED = "promoted"


@dataclass(frozen=True)
class Decided:
    """An outcome."""

    outcome: Outcome
    record: PatchRecord
    text: str = ""
    """Of a stale approval: what happened."""


def decide_on(
    home: Home, patch_id: str, approver: Approver, answered: Callable[[PatchRecord, Answer], None]
) -> Decided:
    """Takes the patch as far as it goes now. `answered` is told a yes or no before it is carried out.

    Raises ApprovalError where an approval does not hold, BankError where the skill does not compile with the patch.
    """
    record = home.patches.read(patch_id)
    if record.verdict != TrialVerdict.BETTER:
        return Decided(Outcome.NOT_BETTER, record)
    if record.stage is Stage.REJECTED:
        return Decided(Outcome.REFUSED_ELSEWHERE, record)
    if record.stage is Stage.TRIED:
        answer = _standing_answer(home, record) or approver(record, home.patches.folder(patch_id))
        if answer.decision == "later":
            return Decided(Outcome.LATER, record)
        answered(record, answer)
        channel = Channel(answer.channel)
        if answer.decision == "reject":
            why = answer.reason or "no reason given"
            return Decided(Outcome.REFUSED, reject(home, patch_id, channel, why, origin=answer.origin))
        approve(home, patch_id, channel, reason=answer.reason, origin=answer.origin, shown=answer.shown)
        record = home.patches.read(patch_id)
    if record.stage is Stage.APPROVED:
        try:
            promote(home, patch_id)
        except StaleApproval as stale:
            return Decided(Outcome.STALE, record, str(stale))
        record = home.patches.read(patch_id)
    return Decided(Outcome.PROMOTED, record)


def _standing_answer(home: Home, record: PatchRecord) -> Answer | None:
    """Yes, where a person granted it beforehand."""
    grant = home.standing.use_for(record)
    if grant is None:
        return None
    place = f"{grant.used_for.index(record.patch_id) + 1} of {grant.max_patches}"
    return Answer("approve", Channel.STANDING, f"{grant.grant_id}, {place}")
