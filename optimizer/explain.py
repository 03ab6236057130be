"""Explains a value or a line of a compiled skill: value → patch → approval → trial → finding → run → events.

`skill:policy.key` walks from the assignment that counts; `skill:12` from line 12 of the compiled SKILL.md. What comes
from the base of the skill ends there: nobody had to approve it. `event:SESSION:LINE`, `run:ID`, `finding:ID`,
`trial:ID` and `patch:ID` walk the other way (optimizer/explain_down.py).
"""

from typing import Any

from optimizer.explain_down import STARTS, explain_down
from optimizer.explain_entries import (
    ExplainError,
    approval_entries,
    event_entry,
    events_of_run,
    finding_entry,
    patch_entry,
    trial_entry,
)
from optimizer.home import Home
from optimizer.patch_store import PatchRecord
from optimizer.promote import version_label
from optimizer.stage import built
from optimizer.types import EventEvidence, Finding
from skill_bank.policy import Assignment, CompiledPolicy

BASE = "base"


def explain(home: Home, target: str, profile: str | None = None) -> dict[str, Any]:
    """`{chain: [{kind, id, …}]}` for `skill:policy.key` or `skill:line`, or for `event:…` and the like, the other way.

    Raises ExplainError, BankError, BadId.

    Without a profile, a patch's value is looked for in the live skill first and then under its profiles.
    """
    skill, sign, what = target.partition(":")
    if not sign or not what:
        raise ExplainError(
            f"{target!r}: write skill:policy.key or skill:line, for instance rllm-config:learning_rate, or, the other "
            f"way, one of {', '.join(f'{kind}:…' for kind in STARTS)}"
        )
    if skill in STARTS:
        return {"chain": explain_down(home, skill, what)}
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
    chain: list[dict[str, Any]] = [patch_entry(record)]
    chain += approval_entries(home, patch_id)
    chain += [trial_entry(home, record, trial_id) for trial_id in record.trials]
    if record.finding is not None:
        chain += _finding_chain(home, record)
    return chain


def _finding_chain(home: Home, record: PatchRecord) -> list[dict[str, Any]]:
    finding = Finding.model_validate(record.finding)
    chain: list[dict[str, Any]] = [finding_entry(finding, record.report_id)]
    for evidence in finding.evidence:
        if isinstance(evidence, EventEvidence):
            chain.append(event_entry(home, evidence.session, evidence.line))
    runs = dict.fromkeys(one.run_id for one in finding.evidence if not isinstance(one, EventEvidence))
    for run_id in runs:
        steps = [one.step for one in finding.evidence if not isinstance(one, EventEvidence) and one.run_id == run_id]
        chain.append({"kind": "run", "id": run_id, "steps": [one for one in steps if one is not None]})
        chain += events_of_run(home, run_id)
    return chain
