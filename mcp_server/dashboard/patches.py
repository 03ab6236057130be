"""Documents about patches: the list, and one patch with all that a person needs to decide."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_server.answers import clip
from mcp_server.dashboard.shaping import NotThere, Question, paged
from mcp_server.dashboard.source import Source

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.patch_store import PatchRecord
    from optimizer.promote import Digests

MAX_DIFF = 40_000
"""Characters of a diff that are shown. A patch whose diff is longer is not decided here: nobody has seen it whole."""

MAX_AUDIT = 20


@dataclass(frozen=True)
class Seen:
    """A patch as it stands now: what a decision made on the page is bound to."""

    record: "PatchRecord"
    diff: str
    digests: "Digests | None"
    """None: it can no longer be approved."""
    why_not: str | None
    """Why it cannot be approved now."""

    @property
    def mark(self) -> str:
        """Changes with anything that the page shows about the patch: its record with verdict and evidence, its diff,
        what it would be approved against."""
        bound = "" if self.digests is None else f"{self.digests.base}\n{self.digests.result}"
        text = f"{self.record.model_dump_json()}\n{bound}\n{self.diff}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def see(home: "Home", patch_id: str) -> Seen:
    """The patch as it stands now; its diff is of what would be compiled now, not of what was proposed.

    Raises PatchError where there is none.
    """
    from optimizer.patch_store import PatchError
    from optimizer.promote import check_may_approve, proposed
    from skill_bank.types import BankError

    record = home.patches.read(patch_id)
    try:
        check_may_approve(record)
        found = proposed(home, record)
    except (PatchError, BankError) as error:
        return Seen(record, _stored_diff(home, patch_id), None, str(error))
    if len(found.diff) > MAX_DIFF:
        return Seen(record, found.diff, None, "its diff is too long to be shown here whole: approve it in a terminal")
    return Seen(record, found.diff, found.digests, None)


def _stored_diff(home: "Home", patch_id: str) -> str:
    try:
        return (home.patches.folder(patch_id) / "patch.diff").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def waits_for_a_person(record: "PatchRecord") -> bool:
    """Whether nothing but a decision is missing."""
    if record.stage == "staged":
        return record.kind == "prose"
    return record.stage in ("tried", "approved") and (record.verdict == "better" or record.kind == "prose")


def patch_list(source: Source, question: Question) -> dict[str, Any]:
    """Patches: those that wait for a person first, then the newest."""
    home = source.home()
    records = [] if home is None else list(reversed(home.patches.all()))
    shown, page = paged(sorted(records, key=lambda one: not waits_for_a_person(one)), question)
    return {"patches": [patch_row(one) for one in shown], **page}


def patch_row(record: "PatchRecord") -> dict[str, Any]:
    """A patch in a line."""
    return {
        "patch_id": record.patch_id,
        "skill": record.skill,
        "kind": str(record.kind),
        "stage": str(record.stage),
        "waits": waits_for_a_person(record),
        "description": clip(record.description, 300),
        "verdict": record.verdict,
        "effect": record.effect,
        "ci95": None if record.ci95 is None else list(record.ci95),
        "pairs": record.pairs,
        "round": record.round,
        "created_at": record.created_at,
    }


def patch_page(source: Source, patch_id: str) -> dict[str, Any]:
    """One patch with diff, finding, evidence, trials, approval and what the audit log says about it."""
    home = source.home()
    if home is None or patch_id not in home.patches.ids():
        raise NotThere(f"there is no patch {patch_id[:64]!r}")
    seen = see(home, patch_id)
    record = seen.record
    return {
        **patch_row(record),
        "section": record.section,
        "layer": record.layer,
        "profile": record.profile,
        "scope": record.scope,
        "changes": [one.model_dump(mode="json") for one in record.changes],
        "expected": None if record.expected is None else record.expected.model_dump(mode="json"),
        "finding": record.finding,
        "source": record.source,
        "diff": seen.diff[:MAX_DIFF],
        "diff_cut": len(seen.diff) > MAX_DIFF,
        "digests": None if seen.digests is None else {"base": seen.digests.base, "result": seen.digests.result},
        "based_on_other": seen.digests is not None and seen.digests.base != record.base_digest,
        "mark": seen.mark,
        "why_not": seen.why_not,
        "may_reject": record.stage in ("staged", "tried", "approved"),
        "trials": [trial for name in record.trials if (trial := _trial(home, name)) is not None],
        "fresh": record.fresh,
        "history": record.history,
        "audit": _audit(home, patch_id),
        "command": source.state.command("approve", patch_id),
    }


def _trial(home: "Home", trial_id: str) -> dict[str, Any] | None:
    """Plan, pairs and verdict of a trial; None where its folder is gone."""
    from mcp_server.jobs.trying import is_being_run
    from optimizer.ids import ID_PATTERN
    from optimizer.trial.arms import TrialError
    from optimizer.trial.folder import TrialFolder
    from optimizer.trial.statistics import summarise

    if ID_PATTERN.match(trial_id) is None:
        return None
    folder = TrialFolder(home.trials / trial_id)
    try:
        spec = folder.spec()
        pairs = folder.pairs(spec)
        decision = folder.decision()
    except (TrialError, ValueError):
        return None
    if decision is not None:
        summary = decision.summary
    else:
        summary = summarise(pairs, spec.plan) if len(pairs) >= 2 else None
    return {
        "trial_id": trial_id,
        "kind": spec.kind,
        "plan": spec.plan.name,
        "max_pairs": spec.plan.max_pairs,
        "attempt": spec.attempt,
        "running": decision is None and is_being_run(folder),
        "verdict": None if decision is None else str(decision.verdict),
        "say": None if decision is None else decision.say,
        "next_step": None if decision is None else decision.next_step,
        "blocked_by": [] if decision is None else decision.blocked_by,
        "summary": None if summary is None else summary.model_dump(mode="json"),
        "left_out": spec.left_out,
        "pairs": [
            {
                "index": one.index,
                "scenario": one.scenario,
                "base": one.base.success,
                "patched": one.patched.success,
                "n": one.base.n,
                "collapsed": [
                    arm for arm, result in (("base", one.base), ("patched", one.patched)) if result.collapsed
                ],
            }
            for one in pairs
        ],
    }


def _audit(home: "Home", patch_id: str) -> list[dict[str, Any]]:
    """The newest entries about the patch, oldest first."""
    names = ("seq", "time", "kind", "channel", "user", "reason", "version")
    mine = [one for one in home.audit.entries() if one.get("patch_id") == patch_id]
    return [{name: one.get(name) for name in names} for one in mine[-MAX_AUDIT:]]
