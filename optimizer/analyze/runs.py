"""Findings from a run: the diagnosis of `trainer.runs`, with evidence, metrics and a lever for each.

A value that the request, `--set`, a config file or an agent's override fixed is no lever: policy does not decide it, so
a patch could not change it and the run says nothing for or against one. The finding stays and says so.
"""

import math
from typing import Any

from optimizer.analyze.levers import LeverTable, weight
from optimizer.ids import content_id
from optimizer.types import Evidence, Finding, Lever, Metric, RunEvidence
from trainer.runs import findings as diagnosis
from trainer.runs.diagnose import diagnose_run
from trainer.runs.findings import DEFAULT_THRESHOLDS, Thresholds
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, RunDocument

POLICY_SOURCES = frozenset({"policy", "default"})
"""Where a value may come from for a patch to move it."""

_SOURCE_WORDS = {
    "request": "the request text fixed it",
    "set": "--set fixed it",
    "override": "an agent's override fixed it",
    "config": "the config file fixed it",
}


def analyse_run(
    directory: RunDirectory, table: LeverTable, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> list[Finding]:
    """Findings of one run, the most explaining first, never empty. Raises RunError where the run cannot be read."""
    document = directory.read_document()
    rows = directory.metrics()
    return [_finding(one, document, rows, table) for one in diagnose_run(directory, thresholds)]


def actionable(findings: list[Finding]) -> list[Finding]:
    """Those whose lever a patch may move, the surest first (detector's confidence times the table's)."""
    movable = [one for one in findings if one.lever is not None and one.blocked is None]
    return sorted(movable, key=lambda one: -one.confidence * weight(one.lever))


def _finding(found: diagnosis.Finding, document: RunDocument, rows: list[dict[str, Any]], table: LeverTable) -> Finding:
    lever = table.lever_for(found.kind)
    return Finding(
        id=f"finding-{content_id(document.run_id, found.kind, length=12)}",
        kind=str(found.kind),
        what=found.sentence,
        evidence=_evidence(found, document.run_id, rows),
        metrics=_metrics(found, document, rows),
        confidence=found.confidence,
        lever=lever,
        blocked=None if lever is None else blocked_by(lever, document.provenance),
        run_id=document.run_id,
    )


def blocked_by(lever: Lever, provenance: dict[str, dict[str, Any]]) -> str | None:
    """Why a patch may not move the lever: something stronger than policy set it in this run. None: it may."""
    source = str(provenance.get(lever.key, {}).get("source", "default"))
    if source in POLICY_SOURCES:
        return None
    words = _SOURCE_WORDS.get(source, f"it came from {source}")
    return f"{lever.key} is no lever here: {words}, so policy did not decide it. Leave it open to let it be tuned"


def _evidence(found: diagnosis.Finding, run_id: str, rows: list[dict[str, Any]]) -> list[Evidence]:
    """The steps a sentence is about: first, best where one is named, last."""
    steps = [row["step"] for row in rows if isinstance(row.get("step"), int)]
    named = found.numbers.get("best_step")
    wanted = (
        ([steps[0]] if steps else []) + ([named] if isinstance(named, int) else []) + ([steps[-1]] if steps else [])
    )
    chosen = list(dict.fromkeys(wanted))
    if not chosen:
        return [RunEvidence(run_id=run_id)]
    return [RunEvidence(run_id=run_id, step=step) for step in chosen]


def _metrics(found: diagnosis.Finding, document: RunDocument, rows: list[dict[str, Any]]) -> list[Metric]:
    """The finding's own numbers (means over steps of the training split) and the two test evaluations."""
    third = max(1, len(rows) // 3)
    episodes = sum(int(row.get("episodes") or 0) for row in rows[:third])
    metrics: list[Metric] = []
    for name, value in found.numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        rate = name.startswith(("reward_", "frac_", "truncated_", "parse_", "tool_", "finish_", "env_error"))
        error = _rate_error(float(value), episodes) if rate and episodes else None
        metrics.append(
            Metric(name=name, split="train", value=float(value), n=episodes if rate else None, standard_error=error)
        )
    for when in ("before", "after"):
        evaluation = document.eval.get(when)
        if evaluation is not None:
            metrics.append(_eval_metric(evaluation, when))
    return metrics


def _eval_metric(evaluation: Eval, when: str) -> Metric:
    return Metric(
        name=f"{evaluation.metric}_{when}",
        split=evaluation.split,
        value=evaluation.mean,
        n=evaluation.n,
        standard_error=_rate_error(evaluation.mean, evaluation.n),
    )


def _rate_error(rate: float, n: int) -> float | None:
    """sqrt(p (1 - p) / n) of a share; None for a value that is none."""
    return math.sqrt(rate * (1 - rate) / n) if 0 <= rate <= 1 and n > 0 else None
