"""The other way through an explanation: which compiled lines and policy values rest on an event, run, finding, trial or
patch.

A patch rests on the finding it answers, and with it on the events and runs the finding names, on the events that
launched or looked at those runs, and, for patches of the optimiser's own policy, on the patches and trials that the
finding is about. It rests on its own trials, too. What it made of the skill is there only while it is in force.
"""

from collections.abc import Callable
from typing import Any

from optimizer.analyze.report import ReportError
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
from optimizer.ids import check_id
from optimizer.patch_store import PatchRecord
from optimizer.promote import version_label
from optimizer.stage import built
from optimizer.trial.folder import TrialFolder
from optimizer.types import EventEvidence, Finding, RunEvidence
from trainer.runs.errors import RunError
from trainer.runs.registry import find_run

STARTS = ("event", "run", "finding", "trial", "patch")
"""What a walk to the compiled skills may begin with."""


def explain_down(home: Home, start: str, what: str) -> list[dict[str, Any]]:
    """The chain from one of `STARTS`: itself, then for each patch that rests on it the finding, the patch, its
    approval, its trials, and the values and lines that it has in force.

    Raises ExplainError, BadId for what does not exist.
    """
    walks: dict[str, Callable[[Home, str], tuple[dict[str, Any], list[PatchRecord]]]] = {
        "event": _from_event,
        "run": _from_run,
        "finding": _from_finding,
        "trial": _from_trial,
        "patch": _from_patch,
    }
    entry, records = walks[start](home, what)
    chain = [{**entry, "patches": [one.patch_id for one in records]}]
    for record in records:
        chain += [one for one in _below(home, record) if (one["kind"], one["id"]) != (start, entry["id"])]
    return chain


def _below(home: Home, record: PatchRecord) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = []
    finding = _finding_of(record)
    if finding is not None:
        chain.append(finding_entry(finding, record.report_id))
    chain.append(patch_entry(record))
    chain += approval_entries(home, record.patch_id)
    chain += [trial_entry(home, record, trial_id) for trial_id in record.trials]
    return [*chain, *_values(home, record), *_lines(home, record)]


def _values(home: Home, record: PatchRecord) -> list[dict[str, Any]]:
    """What the patch sets in the policy that is compiled now."""
    policy = built(home.bank, record.skill, record.profile).policy
    if policy is None:
        return []
    last = {(one.key, repr(one.when)): one for one in policy.assignments}
    return [
        {
            "kind": "value",
            "id": f"{record.skill}:{one.key}",
            "value": one.value,
            "when": None if one.when is None else dict(one.when),
            "overruled": last[one.key, repr(one.when)] is not one,
            "profile": record.profile,
            "section": one.origin.section,
            "file": one.origin.file,
            "line": one.origin.line,
            "version": version_label(home, record.skill),
        }
        for one in policy.assignments
        if one.origin.patch == record.patch_id
    ]


def _lines(home: Home, record: PatchRecord) -> list[dict[str, Any]]:
    """The lines of the compiled SKILL.md that come from the patch."""
    compiled = built(home.bank, record.skill, record.profile)
    lines = compiled.files["SKILL.md"].decode("utf-8").split("\n")
    return [
        {
            "kind": "line",
            "id": f"{record.skill}:{number}",
            "text": lines[number - 1],
            "profile": record.profile,
            "section": origin.section,
            "file": origin.file,
            "line": origin.line,
            "version": version_label(home, record.skill),
        }
        for number, origin in enumerate(compiled.origins, start=1)
        if origin is not None and origin.patch == record.patch_id
    ]


def _finding_of(record: PatchRecord) -> Finding | None:
    return None if record.finding is None else Finding.model_validate(record.finding)


def _cites(record: PatchRecord, field: str, name: str) -> bool:
    """Whether the finding of a patch of the optimiser's policy is about a patch or a trial."""
    return name in ((record.finding or {}).get(field) or [])


def _runs(finding: Finding) -> set[str]:
    """Runs that a finding rests on."""
    named = {one.run_id for one in finding.evidence if isinstance(one, RunEvidence)}
    return named if finding.run_id is None else named | {finding.run_id}


def _resting(home: Home, holds: Callable[[Finding], bool]) -> list[PatchRecord]:
    found = []
    for record in home.patches.all():
        finding = _finding_of(record)
        if finding is not None and holds(finding):
            found.append(record)
    return found


def _from_event(home: Home, what: str) -> tuple[dict[str, Any], list[PatchRecord]]:
    session, sign, number = what.rpartition(":")
    if not sign or not number.isdigit():
        raise ExplainError(f"event:{what}: write event:SESSION:LINE, as findings name their evidence")
    line = int(number)
    event = home.trajectories.event(session, line)
    launched_here = event.run_id is not None and _session_of(home, event.run_id) == session

    def holds(finding: Finding) -> bool:
        if any(
            isinstance(one, EventEvidence) and (one.session, one.line) == (session, line) for one in finding.evidence
        ):
            return True
        return launched_here and event.run_id in _runs(finding)

    return event_entry(home, session, line), _resting(home, holds)


def _session_of(home: Home, run_id: str) -> str | None:
    try:
        return find_run(home.workspace, run_id).document.session
    except RunError:
        return None


def _from_run(home: Home, what: str) -> tuple[dict[str, Any], list[PatchRecord]]:
    records = _resting(home, lambda finding: what in _runs(finding))
    try:
        run_id = find_run(home.workspace, check_id(what, "run")).document.run_id
    except RunError as error:
        if not records:
            raise ExplainError(f"{error}") from error
        return {"kind": "run", "id": what, "missing": True, "events": []}, records
    events = [one["id"] for one in events_of_run(home, run_id)]
    return {"kind": "run", "id": run_id, "events": events}, records


def _from_finding(home: Home, what: str) -> tuple[dict[str, Any], list[PatchRecord]]:
    records = _resting(home, lambda finding: finding.id == what)
    try:
        report, finding = home.reports.find(what)
    except ReportError as error:
        if not records:
            raise ExplainError(f"{error}") from error
        kept = _finding_of(records[0])
        assert kept is not None
        return finding_entry(kept, records[0].report_id), records
    return finding_entry(finding, report.report_id), records


def _from_trial(home: Home, what: str) -> tuple[dict[str, Any], list[PatchRecord]]:
    check_id(what, "trial")
    every = home.patches.all()
    own = [one for one in every if what in one.trials]
    if not own:
        known = ", ".join(trial for one in every[-4:] for trial in one.trials) or "none yet"
        raise ExplainError(f"no patch has a trial {what!r}. There are: {known}")
    entry = trial_entry(home, own[0], what)
    folder = TrialFolder(home.trials / what)
    decision = folder.decision() if folder.exists else None
    if decision is not None:  # its own words: the patch holds those of its latest trial
        summary = decision.summary
        entry |= {
            "verdict": str(decision.verdict),
            "effect": None if summary is None else summary.effect,
            "ci95": None if summary is None or summary.interval is None else list(summary.interval),
            "pairs": 0 if summary is None else summary.pairs,
        }
    return entry, own + [one for one in every if _cites(one, "trials", what)]


def _from_patch(home: Home, what: str) -> tuple[dict[str, Any], list[PatchRecord]]:
    record = home.patches.read(what)
    return patch_entry(record), [record, *(one for one in home.patches.all() if _cites(one, "patches", what))]
