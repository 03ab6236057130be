"""From a decision to a skill in force, and back: approve, reject, promote, roll back. Everything is in the audit log.

A patch is promoted only with an approval that holds now, and approved only with the verdict `better` (a prose patch,
whose effect nothing measures, on its text alone; an unproven one only with a reason, and labelled so).
"""

from dataclasses import dataclass
from typing import Any

from filelock import FileLock

from optimizer.approvals import HERE, Approval, ApprovalError, Channel, Origin, StaleApproval
from optimizer.home import Home
from optimizer.patch_store import PatchError, PatchKind, PatchRecord, Stage
from optimizer.stage import built, diff_of
from skill_bank.files import lock_of
from skill_bank.patchfile import parse_patch
from skill_bank.types import Patch, PatchStatus

BETTER = "better"


@dataclass(frozen=True)
class Digests:
    """What a patch is approved against: the skill without it and with it, as they compile now."""

    base: str
    result: str


@dataclass(frozen=True)
class Proposed:
    """What a patch would do now: what a person is shown, and what their approval is bound to."""

    diff: str
    digests: Digests


@dataclass(frozen=True)
class Promotion:
    """A patch that is in force."""

    patch_id: str
    version: str
    """Version of the skill, for instance `rllm-config@3`."""
    approval: Approval


def current_digests(home: Home, record: PatchRecord) -> Digests:
    """The digests now. Raises BankError where the patch no longer compiles."""
    base = built(home.bank, record.skill, record.profile)
    result = built(home.bank, record.skill, record.profile, record.patch_id)
    return Digests(base.digest, result.digest)


def proposed(home: Home, record: PatchRecord) -> Proposed:
    """Digests and diff of what would be compiled now, which is not always what was staged: the skill may have changed.

    Raises BankError where the patch no longer compiles, PatchError where its text is not the one that was staged.
    """
    before = built(home.bank, record.skill, record.profile)
    after = built(home.bank, record.skill, record.profile, record.patch_id)
    check_as_staged(home, record)
    return Proposed(diff_of(before, after), Digests(before.digest, after.digest))


def check_as_staged(home: Home, record: PatchRecord) -> None:
    """Raises PatchError where the patch's own text is not the one that was staged: its trial was of another one."""
    if not _is_as_staged(home, record):
        raise PatchError(
            f"the text of patch {record.patch_id} is not the one that was staged and tried: propose the change anew, "
            "or put the text back that patch.md in its folder holds"
        )


def _is_as_staged(home: Home, record: PatchRecord) -> bool:
    staged, _ = parse_patch(home.patches.text(record.patch_id), f"{record.patch_id}.md", record.skill)
    return staged is not None and _says(staged) == _says(home.bank.patches(record.skill)[record.patch_id])


def check_may_approve(record: PatchRecord, *, unproven: bool = False, reason: str | None = None) -> None:
    """Raises PatchError unless the patch is in a state in which a person may approve it."""
    if record.stage in (Stage.ACTIVE, Stage.REJECTED, Stage.ARCHIVED):
        raise PatchError(f"patch {record.patch_id} is {record.stage}: there is nothing to approve")
    if record.kind is PatchKind.PROSE or record.verdict == BETTER:
        return
    standing = f"its verdict is {record.verdict}" if record.verdict else "it was not tried"
    if not unproven:
        raise PatchError(
            f"patch {record.patch_id} is not proven ({standing}): run `mcp-evo patches try {record.patch_id}`, "
            "or approve it with --unproven and a --reason"
        )
    if not reason:
        raise PatchError("approving an unproven patch needs a --reason, which stays in the skill's history")


def approve(
    home: Home,
    patch_id: str,
    channel: Channel,
    *,
    reason: str | None = None,
    unproven: bool = False,
    origin: Origin = HERE,
    shown: Digests | None = None,
) -> Approval:
    """Records an approval of the patch as it is now. The caller has made sure that a person decided.

    Raises ApprovalError where the digests are no longer those that were `shown`, PatchError (also where the text is not
    the one that was staged), BankError.
    """
    with _deciding(home, patch_id):
        record = home.patches.read(patch_id)
        check_may_approve(record, unproven=unproven, reason=reason)
        digests = current_digests(home, record)
        if shown is not None and digests != shown:
            raise ApprovalError(f"patch {patch_id} or its skill changed after it was shown: nothing was approved")
        check_as_staged(home, record)
        note = f"unproven: {reason}" if unproven and record.verdict != BETTER else reason
        approval = home.ledger.record(
            patch_id,
            "approve",
            channel,
            base_digest=digests.base,
            result_digest=digests.result,
            reason=note,
            origin=origin,
        )
        home.patches.move(patch_id, Stage.APPROVED, f"approved ({channel})")
        return approval


def _deciding(home: Home, patch_id: str) -> FileLock:
    """One decision about a patch at a time: of two who approve it at once the second finds it decided. Raises
    PatchError where there is no such patch."""
    return lock_of(home.patches.folder(home.patches.read(patch_id).patch_id) / "decision")


def rebase(home: Home, patch_id: str) -> PatchRecord:
    """Puts a patch on its skill as it compiles now: new digests and a new diff, checked by compiling. An approval of
    what was before is void; the verdict stays, with the base of its trial in the trial's plan.

    Raises BankError where it no longer compiles, PatchError where nothing of it is left to change, ApprovalError where
    its own text is not the one that was staged (what was tried is not what would be asked about).
    """
    record = home.patches.read(patch_id)
    if not _is_as_staged(home, record):
        home.ledger.refuse(patch_id, "the patch changed since it was approved")
    before = built(home.bank, record.skill, record.profile)
    after = built(home.bank, record.skill, record.profile, patch_id)
    if before.files == after.files:
        raise PatchError(
            f"patch {patch_id} changes nothing any more: {record.skill} says the same without it. Reject it with "
            f"`mcp-evo reject {patch_id} --reason …`"
        )
    home.patches.write_diff(patch_id, diff_of(before, after))
    stage = Stage.TRIED if record.verdict is not None else Stage.STAGED
    why = f"re-based on {version_label(home, record.skill)}"
    return home.patches.move(patch_id, stage, why, base_digest=before.digest, result_digest=after.digest)


def _says(patch: Patch) -> tuple[Any, ...]:
    """All of a patch file that decides what it does, its status apart."""
    scope = None if patch.scope is None else dict(patch.scope)
    return patch.text.raw, patch.target_section, patch.action, scope, patch.depends_on, patch.supersedes


def reject(home: Home, patch_id: str, channel: Channel, reason: str, *, origin: Origin = HERE) -> PatchRecord:
    """Records a person's refusal; the patch is remembered and not proposed again."""
    record = home.patches.read(patch_id)
    if record.stage in (Stage.ACTIVE, Stage.ARCHIVED):
        raise PatchError(f"patch {patch_id} is {record.stage}: take it back with `mcp-evo skills rollback`")
    home.ledger.record(
        patch_id,
        "reject",
        channel,
        base_digest=record.base_digest,
        result_digest=record.result_digest,
        reason=reason,
        origin=origin,
    )
    return dismiss(home, patch_id, f"refused by a person: {reason}")


def dismiss(home: Home, patch_id: str, why: str) -> PatchRecord:
    """Takes a patch out of the running, in the bank and in the store, and remembers its effect."""
    record = home.patches.move(patch_id, Stage.REJECTED, why)
    home.patches.remember_rejected(record, why)
    if home.bank.patches(record.skill)[patch_id].status is not PatchStatus.REJECTED:
        home.bank.set_status(record.skill, patch_id, PatchStatus.REJECTED)
    return record


def is_active(home: Home, record: PatchRecord) -> bool:
    """Whether the list the patch is made for names it, or a squash made it part of the base."""
    source = home.bank.source(record.skill)
    manifest = source.manifest
    active = manifest.active if record.profile is None else manifest.profiles[record.profile].active
    return record.patch_id in active or record.patch_id in source.folded(record.profile)


def promote(home: Home, patch_id: str) -> Promotion:
    """Puts an approved patch in force: list, compile, version, audit. A promotion that was killed is finished.

    Raises ApprovalError (with an entry in the audit log) where the approval does not hold, its subclass StaleApproval
    where the skill changed meanwhile, BankError where the skill does not compile with it.
    """
    with _deciding(home, patch_id):
        return _promoted(home, patch_id)


def _promoted(home: Home, patch_id: str) -> Promotion:
    record = home.patches.read(patch_id)
    approval = home.ledger.read(patch_id)
    if approval is not None and approval.completed_at is not None:
        home.ledger.refuse(patch_id, "its approval was used already")
    half_way = approval is not None and approval.used_at is not None and approval.completed_at is None
    if not (half_way and is_active(home, record)):
        digests = current_digests(home, record)
        if approval is not None and approval.decision == "approve" and approval.base_digest != digests.base:
            moved = rebase(home, patch_id)
            home.audit.append(
                "refused",
                patch_id=patch_id,
                approval_id=approval.approval_id,
                reason="the skill changed since it was approved",
                base_digest=digests.base,
                result_digest=digests.result,
            )
            raise StaleApproval(
                f"patch {patch_id} is not promoted: the skill changed since it was approved. The patch was put on "
                f"{record.skill} as it is now ({moved.history[-1]['why']}); its trial keeps the base it was run on. "
                f"Look at it again: mcp-evo approve {patch_id}"
            )
        approval = home.ledger.use(patch_id, base_digest=digests.base, result_digest=digests.result)
    # also after a death in between: activating again changes nothing but what the first one had not come to
    home.bank.activate(record.skill, patch_id, profile=record.profile, reason=f"promote {patch_id}")
    assert approval is not None
    version = version_label(home, record.skill)
    home.audit.append(
        "promoted",
        channel=approval.channel,
        patch_id=patch_id,
        skill=record.skill,
        version=version,
        profile=record.profile,
        approval_id=approval.approval_id,
        verdict=record.verdict,
        **approval.origin.fields(),
    )
    home.ledger.complete(approval)
    home.patches.move(patch_id, Stage.ACTIVE, f"promoted as {version}", version=version)
    return Promotion(patch_id, version, approval)


def version_label(home: Home, skill: str) -> str:
    """Newest version of a skill, `rllm-config@3`."""
    record = home.bank.version(skill)
    return f"{skill}@0" if record is None else record.label


def take_back(home: Home, patch_id: str, *, channel: Channel, reason: str) -> str:
    """Takes a promoted patch out of force; returns the new version of the skill."""
    record = home.patches.read(patch_id)
    if record.stage is not Stage.ACTIVE:
        raise PatchError(f"patch {patch_id} is {record.stage}, not active: there is nothing to take back")
    home.bank.deactivate(record.skill, patch_id, profile=record.profile, reason=f"take back {patch_id}")
    version = version_label(home, record.skill)
    home.audit.append(
        "rolled_back", channel=channel, patch_id=patch_id, skill=record.skill, version=version, reason=reason
    )
    home.patches.move(patch_id, Stage.ARCHIVED, f"taken back: {reason}")
    return version


def roll_back(home: Home, skill: str, number: int, *, channel: Channel, reason: str, origin: Origin = HERE) -> str:
    """Makes a skill what it was in a version; patches that are no longer in force are archived."""
    home.bank.rollback(skill, number, reason=reason)
    version = version_label(home, skill)
    home.audit.append(
        "rolled_back", channel=channel, skill=skill, to=number, version=version, reason=reason, **origin.fields()
    )
    for record in home.patches.all():
        if record.skill == skill and record.stage is Stage.ACTIVE and not is_active(home, record):
            home.patches.move(record.patch_id, Stage.ARCHIVED, f"rolled back to version {number}: {reason}")
    return version


def check_only_takes_away(home: Home, skill: str, number: int) -> None:
    """Raises PatchError unless everything that a version has in force is in force now: a version that would bring back
    a patch that was taken out is for a person to restore."""
    record = home.bank.version_record(skill, number)
    source = home.bank.source(skill)
    now = {*source.manifest.active, *source.manifest.folded}
    for profile in source.manifest.profiles.values():
        now.update(profile.active, profile.folded)
    then = {path.rpartition("/")[2].removesuffix(".md") for path in record.sources if "/patches/" in path}
    back = sorted(then - now)
    if back:
        raise PatchError(
            f"version {number} of {skill} would put {', '.join(back)} in force again, which only a person can: "
            f"`mcp-evo skills rollback {skill} {number}` in a terminal"
        )
