"""The entries of an explanation: one `{kind, id, …}` for each thing in its chain, whichever way it is walked."""

from typing import Any

from optimizer.approvals import describe
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.patch_store import PatchRecord
from optimizer.types import Finding
from trainer.runs.errors import RunError
from trainer.runs.registry import find_run


class ExplainError(ValueError):
    """Nothing to explain there: says what may be asked."""


def patch_entry(record: PatchRecord) -> dict[str, Any]:
    """A patch."""
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


def approval_entries(home: Home, patch_id: str) -> list[dict[str, Any]]:
    """The decision about a patch, where there is one."""
    approval = home.ledger.read(patch_id)
    return [] if approval is None else [{"kind": "approval", "id": approval.approval_id, **describe(approval)}]


def trial_entry(home: Home, record: PatchRecord, trial_id: str) -> dict[str, Any]:
    """A trial of a patch, with what the patch has from its trials."""
    return {
        "kind": "trial",
        "id": trial_id,
        "verdict": record.verdict,
        "effect": record.effect,
        "ci95": None if record.ci95 is None else list(record.ci95),
        "pairs": record.pairs,
        "path": str(home.trials / trial_id),
    }


def finding_entry(finding: Finding, report_id: str | None) -> dict[str, Any]:
    """A finding."""
    return {
        "kind": "finding",
        "id": finding.id,
        "finding": finding.kind,
        "what": finding.what,
        "metrics": [one.model_dump(mode="json") for one in finding.metrics],
        "report_id": report_id,
    }


def events_of_run(home: Home, run_id: str) -> list[dict[str, Any]]:
    """The events that launched and looked at a run, in the session that its document names."""
    try:
        session = find_run(home.workspace, run_id).document.session
    except RunError:
        return []
    if session is None:
        return []
    found = [event for event in home.trajectories.read(session).events if event.run_id == run_id]
    return [event_entry(home, session, event.line) for event in found]


def event_entry(home: Home, session: str, line: int) -> dict[str, Any]:
    """An event; `missing` where it was pruned since."""
    entry: dict[str, Any] = {"kind": "event", "id": f"{session}:{line}", "session": session, "line": line}
    try:
        event = home.trajectories.event(session, line)
    except BadId:
        return {**entry, "missing": True}
    return {**entry, "tool": event.tool, "outcome": str(event.outcome), "time": event.time, "run_id": event.run_id}
