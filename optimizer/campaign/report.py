"""What a campaign says: its JSON document and the same in words. Pure."""

from typing import Any

from optimizer.campaign.types import Campaign, CampaignRun, CampaignState, Change
from trainer.runs.types import Eval

_VERDICTS = {
    "target_reached": "target reached",
    "no_improvement": "no improvement",
    "budget_spent": "budget spent",
    "nothing_left": "nothing left to change",
    "refused": "refused by a person",
}


def campaign_document(campaign: Campaign, *, running: bool = False) -> dict[str, Any]:
    """The JSON document of a campaign. `running`: a process carries it on."""
    request = campaign.request
    confirmation, planned = campaign.confirmation, campaign.next
    return {
        "campaign_id": campaign.campaign_id,
        "state": str(campaign.state),
        "running": running,
        "verdict": None if campaign.verdict is None else str(campaign.verdict),
        "reason": campaign.reason,
        "request": request.request,
        "target": request.target,
        "runs": [_run_document(one) for one in campaign.runs],
        "best_run": campaign.best_run,
        "confirmation": None if confirmation is None else confirmation.model_dump(mode="json"),
        "next": None if planned is None else {"number": planned.number, "change": change_document(planned.change)},
        "choices": [one.model_dump(mode="json") for one in campaign.choices],
        "consents": [one.model_dump(mode="json") for one in campaign.consents],
        "budget": {
            "max_runs": request.max_runs,
            "max_episodes": request.max_episodes,
            "max_minutes": None if request.max_seconds is None else request.max_seconds / 60,
        },
        "spent": {
            "runs": len(campaign.runs),
            "episodes": sum(one.episodes for one in campaign.runs),
            "minutes": round(sum(one.seconds for one in campaign.runs) / 60, 2),
        },
    }


def change_document(change: Change | None) -> dict[str, Any] | None:
    """A change with its old and its new value as `from` and `to`; None for the first run."""
    if change is None:
        return None
    values = change.model_dump(mode="json")
    return {"key": values.pop("key"), "from": values.pop("before"), **values}


def _run_document(run: CampaignRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "state": run.state,
        "eval": {name: _eval(run.eval.get(name)) for name in ("before", "after")},
        "change": change_document(run.change),
        "findings": [{"kind": one.kind, "what": one.what, "confidence": one.confidence} for one in run.findings],
        "steps": run.steps,
        "episodes": run.episodes,
        "seconds": run.seconds,
        "parts": run.parts,
    }


def _eval(result: Eval | None) -> dict[str, Any] | None:
    return None if result is None else result.model_dump(mode="json")


def headline(campaign: Campaign) -> str:
    """Id, state, verdict and reason in one line."""
    if campaign.verdict is not None:
        return f"{campaign.campaign_id}: {_VERDICTS[campaign.verdict]}: {campaign.reason}"
    if campaign.state is CampaignState.AWAITING_APPROVAL and campaign.next is not None:
        return f"{campaign.campaign_id}: run {campaign.next.number} waits for a person"
    count = len(campaign.runs)
    return f"{campaign.campaign_id}: {campaign.state}, {count} of at most {campaign.request.max_runs} runs"


def success_text(result: Eval | None) -> str:
    """`0.953 [0.901, 0.981]`, or a dash."""
    return "–" if result is None else f"{result.mean:.3f} [{result.ci95[0]:.3f}, {result.ci95[1]:.3f}]"


def change_text(run: CampaignRun) -> str:
    """`learning_rate 6e-06 → 0.00018`, or a dash."""
    change = run.change
    return "–" if change is None else f"{change.key} {change.before:g} → {change.to:g}"


def proposal_lines(campaign: Campaign) -> list[str]:
    """What a person has to see before saying yes to the next run."""
    planned = campaign.next
    if planned is None:
        return []
    config = campaign.basis.training(planned.overrides)
    lines = [
        f"run {planned.number} of at most {campaign.request.max_runs}: {config.model} / {config.env} "
        f"({config.difficulty}), up to {config.planned_steps} steps, {planned.episodes:,} episodes"
    ]
    if planned.change is None:
        lines.append("  the first run: nothing is changed")
    else:
        change = planned.change
        lines.append(f"  change     {change.key} {change.before:g} → {change.to:g}")
        lines.append(f"  because    {change.reason}")
    return lines


def note_lines(campaign: Campaign) -> list[str]:
    """Below the table of runs: why each change was made, how it ended, what the best run is worth."""
    lines = [f"{one.run_id}: {one.change.reason}" for one in campaign.runs if one.change is not None]
    lines.append(headline(campaign))
    if campaign.best_run is not None:
        best = next(one for one in campaign.runs if one.run_id == campaign.best_run)
        tested = [one for one in campaign.runs if one.success is not None]
        shared = f", the best of {len(tested)} on the same problems" if len(tested) > 1 else ""
        lines.append(f"best run {best.run_id}: test success {success_text(best.success)}{shared}")
    if campaign.confirmation is not None:
        lines.append(campaign.confirmation.sentence)
    return lines
