"""The one door for patches: every proposal, by rule or by an agent, passes the same checks before it is staged.

Checked: the layer may write the group; the section exists; it holds nothing of an exam (`exam_text.py`); the patch
compiles and its policy fits the schema and its scope; the edit budget; every character can be seen; it changes
something; it does not repeat an active patch or a rejected one. A staged patch is in the skill bank (not in force) and
in `patches/<id>/`; a refused one leaves nothing behind.
"""

import difflib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.exam_text import exam_text
from optimizer.layers import check_write
from optimizer.patch_store import (
    Expectation,
    PatchError,
    PatchKind,
    PatchRecord,
    PatchStore,
    PolicyChange,
    Stage,
    effect_hash,
)
from optimizer.types import Finding
from skill_bank.bank import PatchText, SkillBank, next_patch_id
from skill_bank.policy import CompiledPolicy
from skill_bank.types import BuiltSkill, PatchAction
from skill_bank.visible import first_unseen
from trainer.runs.workspace import Workspace


@dataclass(frozen=True)
class EditBudget:
    """How large one patch may be: small edits are the ones a trial can say something about."""

    lines: int = 40
    policy_keys: int = 2
    characters: int = 8000
    """However few the lines are: what a person can read before they approve it."""


@dataclass(frozen=True)
class Proposal:
    """A patch that someone wants."""

    skill: str
    section: str
    body: str
    description: str
    slug: str
    """Last part of its id."""
    layer: str = "traj"
    action: PatchAction = PatchAction.APPEND
    scope: Mapping[str, Any] | None = None
    profile: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    """Situation in which the values before and after are told."""
    source: str = "rule"
    finding: Finding | None = None
    expected: Expectation | None = None
    report_id: str | None = None
    round: int | None = None
    effect: str | None = None
    """Its effect hash, where the proposer knows it."""


def profile_of(bank: SkillBank, skill: str, profile: str | None) -> str | None:
    """The profile, where the skill has it: profiles are named per skill."""
    return profile if profile is not None and profile in bank.source(skill).manifest.profiles else None


def built(bank: SkillBank, skill: str, profile: str | None, *extra: PatchText | str) -> BuiltSkill:
    """The skill as it compiles under a profile, with further patches, in memory."""
    return bank.compile(skill, profile=profile, extra_patches=list(extra), dry_run=True).skills[skill]


def refuse(message: str) -> PatchError:
    return PatchError(message)


def stage(bank: SkillBank, store: PatchStore, proposal: Proposal, budget: EditBudget | None = None) -> PatchRecord:
    """Checks a proposal and stages it. Raises LayerError, PatchError or BankError; then nothing was written."""
    group = bank.group_of(proposal.skill)
    check_write(proposal.layer, group)
    _check_section(bank, proposal)
    _check_size(proposal, budget or EditBudget())
    _check_seen(proposal)
    _check_exam(store, proposal)
    profile = profile_of(bank, proposal.skill, proposal.profile)
    used = {patch for skill in bank.skills() for patch in bank.patches(skill)} | set(store.ids())
    patch_id = next_patch_id(used, proposal.slug)
    text = _text(bank, proposal, patch_id)
    before = built(bank, proposal.skill, profile)
    after = built(bank, proposal.skill, profile, text)
    changes = _changes(before.policy, after.policy, patch_id, proposal.context)
    keys = {change.key.split(".")[0] for change in changes}
    limit = (budget or EditBudget()).policy_keys
    if len(keys) > limit:
        raise refuse(
            f"the patch sets {len(keys)} policy keys ({', '.join(sorted(keys))}), allowed are {limit}: "
            "a trial of several levers at once does not tell which one worked. Propose them one by one"
        )
    record = PatchRecord(
        patch_id=patch_id,
        skill=proposal.skill,
        group=group,
        layer=proposal.layer,
        section=proposal.section,
        kind=PatchKind.POLICY if changes else PatchKind.PROSE,
        description=proposal.description,
        scope=None if proposal.scope is None else dict(proposal.scope),
        changes=changes,
        effect_hash=effect_hash(proposal.skill, proposal.section, changes, proposal.body),
        expected=proposal.expected,
        profile=profile,
        finding=None if proposal.finding is None else proposal.finding.model_dump(mode="json"),
        report_id=proposal.report_id,
        source=proposal.source,
        round=proposal.round,
        base_digest=before.digest,
        result_digest=after.digest,
        history=[{"time": time.time(), "stage": Stage.STAGED, "why": "passed every check"}],
    )
    _check_memory(store, record)
    _check_changes_something(before, after, changes, proposal)
    bank.add_patch(text, profile=profile)
    store.write_texts(patch_id, text.text, diff_of(before, after))
    store.write(record)
    return record


def _check_section(bank: SkillBank, proposal: Proposal) -> None:
    names = [section.name for section in bank.source(proposal.skill).base.sections]
    if proposal.section not in names:
        raise refuse(f"{proposal.skill} has no section {proposal.section!r}. Its sections: {', '.join(names)}")


def _check_size(proposal: Proposal, budget: EditBudget) -> None:
    lines = len(proposal.body.strip().splitlines())
    if not proposal.body.strip():
        raise refuse("the patch has no text: say what the skill should say or which policy value it should hold")
    if lines > budget.lines:
        raise refuse(f"the patch has {lines} lines, allowed are {budget.lines}: split it, or say less")
    if len(proposal.body) > budget.characters:
        raise refuse(
            f"the patch has {len(proposal.body):,} characters, allowed are {budget.characters:,}: split it, or say less"
        )


def _check_seen(proposal: Proposal) -> None:
    """Refuses characters that a person who approves the patch would not see and a model would read."""
    for what, text in (("text", proposal.body.replace("\r\n", "\n")), ("description", proposal.description)):
        found = first_unseen(text)
        if found is not None:
            raise refuse(
                f"the {what} of the patch holds a character that cannot be seen ({found[1]} at {found[0]}): write it "
                "without control, zero-width, bidirectional, tag and variation characters"
            )


def _check_exam(store: PatchStore, proposal: Proposal) -> None:
    """Refuses text of graders and evaluation problems. The exams are those of the runs beside the patches."""
    held = exam_text(Workspace(store.root.parent), f"{proposal.description}\n{proposal.body}")
    if held is not None:
        raise refuse(
            f"the patch is refused: {held}. A skill that holds its exam scores without helping; say what holds for "
            "other problems as well"
        )


def _check_memory(store: PatchStore, record: PatchRecord) -> None:
    rejected = store.rejected_with(record.effect_hash)
    if rejected is not None:
        interval = "" if rejected.ci95 is None else f", effect in [{rejected.ci95[0]:+.3f}, {rejected.ci95[1]:+.3f}]"
        raise refuse(
            f"the same change was rejected before as {rejected.patch_id} ({rejected.why}{interval}): "
            "propose another value, scope or lever"
        )
    for other in store.all():
        same = other.effect_hash == record.effect_hash and other.profile == record.profile
        if same and other.stage in (Stage.ACTIVE, Stage.STAGED, Stage.TRIED, Stage.APPROVED):
            raise refuse(f"patch {other.patch_id} ({other.stage}) does the same: use that one")


def _check_changes_something(
    before: BuiltSkill, after: BuiltSkill, changes: list[PolicyChange], proposal: Proposal
) -> None:
    if before.files == after.files:
        raise refuse("the patch changes nothing in the compiled skill")
    if changes and proposal.context and all(change.before == change.after for change in changes):
        now = ", ".join(f"{change.key} = {change.before}" for change in changes)
        raise refuse(f"the patch sets what is in force already ({now})")


def _changes(
    before: CompiledPolicy | None, after: CompiledPolicy | None, patch_id: str, context: Mapping[str, Any]
) -> list[PolicyChange]:
    """The values that the patch itself sets, with those in force before in the proposal's situation."""
    if after is None:
        return []
    known = {} if before is None else before.resolve(dict(context)).flat
    return [
        PolicyChange(
            key=one.key,
            when=None if one.when is None else dict(one.when),
            before=known.get(one.key),
            after=one.value,
        )
        for one in after.assignments
        if one.origin.patch == patch_id
    ]


def _text(bank: SkillBank, proposal: Proposal, patch_id: str) -> PatchText:
    finding = proposal.finding
    return bank.render_patch(
        proposal.skill,
        id=patch_id,
        target_section=proposal.section,
        action=proposal.action,
        description=proposal.description,
        source=proposal.source if finding is None else f"{proposal.source}: finding {finding.id}",
        created=time.strftime("%Y-%m-%d", time.gmtime()),
        scope=proposal.scope,
        body=proposal.body,
    )


def diff_of(before: BuiltSkill, after: BuiltSkill) -> str:
    """What changes in the compiled files, as a unified diff; a comma at a line's end is no change."""
    lines: list[str] = []
    for name in sorted({*before.files, *after.files}):
        old, new = (_lines(one.files.get(name, b"")) for one in (before, after))
        lines += difflib.unified_diff(old, new, f"a/{before.name}/{name}", f"b/{after.name}/{name}", n=1, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _lines(data: bytes) -> list[str]:
    return [line.removesuffix(",") for line in data.decode("utf-8").split("\n")]
