"""Explains a value or a line of a compiled skill: value → patch → approval → trial → finding → run → events.

`skill:policy.key` walks from the assignment that counts; `skill:12` from line 12 of the compiled SKILL.md. What comes
from the base of the skill ends there: nobody had to approve it.
"""

from typing import Any

from optimizer.approvals import describe
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.patch_store import PatchRecord
from optimizer.promote import version_label
from optimizer.stage import built
from optimizer.types import EventEvidence, Finding
from skill_bank.policy import Assignment, CompiledPolicy
from trainer.runs.errors import RunError
from trainer.runs.registry import find_run

BASE = "base"


class ExplainError(ValueError):
    """Nothing to explain there: says what may be asked."""


def explain(home: Home, target: str, profile: str | None = None) -> dict[str, Any]:
    """`{chain: [{kind, id, …}]}` for `skill:policy.key` or `skill:line`. Raises ExplainError, BankError.

    Without a profile, a patch's value is looked for in the live skill first and then under its profiles.
    """
    skill, sign, what = target.partition(":")
    if not sign or not what:
        raise ExplainError(f"{target!r}: write skill:policy.key or skill:line, for instance rllm-config:learning_rate")
    if what.isdigit():
        return {"chain": _explain_line(home, skill, int(what), profile)}
    found, under = _assignment(home, skill, what, profile)
    entry = {
        "kind": "value",
        "id": f"{skill}:{found.key}",
        "value": found.value,
        "when": None if found.when is None else dict(found.when),
        "profile": under,
        "section": found.origin.section,
        "file": found.origin.file,
        "line": found.origin.line,
        "version": version_label(home, skill),
    }
    return {"chain": [entry, *_origin(home, skill, found.origin.patch, found.origin.file)]}


def _assignment(home: Home, skill: str, key: str, profile: str | None) -> tuple[Assignment, str | None]:
    """The last assignment of the key, one by a patch before one of the base; with the profile it stands in."""
    profiles = [profile] if profile is not None else [None, *sorted(home.bank.source(skill).manifest.profiles)]
    fallback: tuple[Assignment, str | None] | None = None
    known: set[str] = set()
    for one in profiles:
        policy: CompiledPolicy = home.bank.policy(skill, one)
        known |= set(policy.keys)
        assignments = _preferred(policy, key)
        for assignment in reversed(assignments):
            if assignment.origin.patch != BASE and _has_record(home, assignment.origin.patch):
                return assignment, one
        if assignments and fallback is None:
            fallback = assignments[-1], one
    if fallback is None:
        raise ExplainError(f"{skill} has no policy key {key!r}. It has: {', '.join(sorted(known)) or 'none'}")
    return fallback


def _preferred(policy: CompiledPolicy, key: str) -> tuple[Assignment, ...]:
    """Assignments of the key itself, else of its default, else of everything below it."""
    below = policy.explain(key)
    for exact in (key, f"{key}.default"):
        found = tuple(one for one in below if one.key == exact)
        if found:
            return found
    return below


def _has_record(home: Home, patch_id: str) -> bool:
    return (home.patches.folder(patch_id) / "patch.json").exists()


def _explain_line(home: Home, skill: str, number: int, profile: str | None) -> list[dict[str, Any]]:
    """The chain from a line of the compiled SKILL.md, as the skill compiles now (under the profile)."""
    compiled = built(home.bank, skill, profile)
    lines = compiled.files["SKILL.md"].decode("utf-8").split("\n")
    if not 1 <= number <= len(lines):
        raise ExplainError(f"{skill} has {len(lines)} lines, there is no line {number}")
    entry: dict[str, Any] = {
        "kind": "line",
        "id": f"{skill}:{number}",
        "text": lines[number - 1],
        "profile": profile,
        "version": version_label(home, skill),
    }
    origin = compiled.origins[number - 1] if number <= len(compiled.origins) else None
    if origin is None:
        return [entry]
    entry |= {"section": origin.section, "file": origin.file, "line": origin.line}
    return [entry, *_origin(home, skill, origin.patch, origin.file)]


def _origin(home: Home, skill: str, patch_id: str, file: str) -> list[dict[str, Any]]:
    """The chain from a patch (or the base) on."""
    if patch_id == BASE or not _has_record(home, patch_id):
        return [{"kind": "base" if patch_id == BASE else "shipped_patch", "id": patch_id, "skill": skill, "file": file}]
    record = home.patches.read(patch_id)
    chain: list[dict[str, Any]] = [_patch_entry(record)]
    approval = home.ledger.read(patch_id)
    if approval is not None:
        chain.append({"kind": "approval", "id": approval.approval_id, **describe(approval)})
    for trial_id in record.trials:
        chain.append(
            {
                "kind": "trial",
                "id": trial_id,
                "verdict": record.verdict,
                "effect": record.effect,
                "ci95": None if record.ci95 is None else list(record.ci95),
                "pairs": record.pairs,
                "path": str(home.trials / trial_id),
            }
        )
    if record.finding is not None:
        chain += _finding_chain(home, record)
    return chain


def _patch_entry(record: PatchRecord) -> dict[str, Any]:
    return {
        "kind": "patch",
        "id": record.patch_id,
        "skill": record.skill,
        "description": record.description,
        "scope": record.scope,
        "changes": [one.model_dump(mode="json") for one in record.changes],
        "stage": str(record.stage),
        "source": record.source,
        "created_at": record.created_at,
    }


def _finding_chain(home: Home, record: PatchRecord) -> list[dict[str, Any]]:
    finding = Finding.model_validate(record.finding)
    chain: list[dict[str, Any]] = [
        {
            "kind": "finding",
            "id": finding.id,
            "finding": finding.kind,
            "what": finding.what,
            "metrics": [one.model_dump(mode="json") for one in finding.metrics],
            "report_id": record.report_id,
        }
    ]
    for evidence in finding.evidence:
        if isinstance(evidence, EventEvidence):
            chain.append(_event_entry(home, evidence.session, evidence.line))
    runs = dict.fromkeys(one.run_id for one in finding.evidence if not isinstance(one, EventEvidence))
    for run_id in runs:
        steps = [one.step for one in finding.evidence if not isinstance(one, EventEvidence) and one.run_id == run_id]
        chain.append({"kind": "run", "id": run_id, "steps": [one for one in steps if one is not None]})
        chain += _events_of_run(home, run_id)
    return chain


def _events_of_run(home: Home, run_id: str) -> list[dict[str, Any]]:
    """The events that launched and looked at a run, in the session that its document names."""
    try:
        session = find_run(home.workspace, run_id).document.session
    except RunError:
        return []
    if session is None:
        return []
    found = [event for event in home.trajectories.read(session).events if event.run_id == run_id]
    return [_event_entry(home, session, event.line) for event in found]


def _event_entry(home: Home, session: str, line: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": "event", "id": f"{session}:{line}", "session": session, "line": line}
    try:
        event = home.trajectories.event(session, line)
    except BadId:
        return {**entry, "missing": True}
    return {**entry, "tool": event.tool, "outcome": str(event.outcome), "time": event.time, "run_id": event.run_id}
