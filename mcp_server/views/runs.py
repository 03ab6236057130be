"""Short views of runs for answers: an evaluation with its meaning, a run in one line, thinned steps."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mcp_server.answers import Part, clip

if TYPE_CHECKING:
    from trainer.runs.detectors.types import Alert
    from trainer.runs.types import RunDocument

MAX_ALERTS_SHOWN = 8
"""Anomalies of one answer, the most severe first."""

MAX_EVIDENCE_SHOWN = 4

MAX_STEPS_SHOWN = 40
"""Rows of one answer; more are thinned evenly."""


class Evaluation(Part):
    """A success rate with everything that gives it meaning."""

    metric: str = "success"
    split: str
    n: int
    mean: float
    ci95: tuple[float, float] = Field(description="Wilson interval.")


class Step(Part):
    """One optimiser step; what was not measured is left out."""

    step: int
    reward: float | None = Field(None, description="Mean training reward.")
    flat: float | None = Field(None, description="Share of groups without variance.")
    entropy: float | None = None
    cut: float | None = Field(None, description="Share of truncated episodes.")
    grad: float | None = Field(None, description="Gradient norm.")
    s: float | None = Field(None, description="Seconds.")


class EvidenceView(Part):
    """A number and the bound that it crossed."""

    step: int
    metric: str
    value: float | None = None
    bound: float | None = None


class AlertView(Part):
    """What a detector says."""

    kind: str
    severity: str
    step: int
    say: str
    evidence: list[EvidenceView]
    times: int = 1
    cause: str
    advice: str


def alert_views(alerts: "Sequence[Alert]", since_step: int = 0) -> list[AlertView]:
    """Alerts of later steps, one for each anomaly in its worst form, the most severe first. The end of a process is
    told whatever the step."""
    from trainer.runs.detectors.feed import strongest

    new = [one for one in alerts if one.step > since_step or one.detector in ("crash", "oom", "stall")]
    return [
        AlertView(
            kind=alert.name,
            severity=str(alert.severity),
            step=alert.step,
            say=clip(alert.say, 300),
            evidence=[
                EvidenceView(step=one.step, metric=one.metric, value=_short(one.value), bound=_short(one.threshold))
                for one in alert.evidence[-MAX_EVIDENCE_SHOWN:]
            ],
            times=times,
            cause=alert.cause,
            advice=alert.advice,
        )
        for alert, times in strongest(new)[:MAX_ALERTS_SHOWN]
    ]


def evaluation(document: "RunDocument", when: str) -> Evaluation | None:
    """The evaluation `before`, `after` or `validation` of a run."""
    found = document.eval.get(when)
    if found is None:
        return None
    low, high = found.ci95
    return Evaluation(
        metric=found.metric,
        split=found.split,
        n=found.n,
        mean=round(found.mean, 4),
        ci95=(round(low, 4), round(high, 4)),
    )


def evaluation_text(found: Evaluation | None) -> str:
    """`0.95 [0.90, 0.98] n=128`."""
    return (
        "not measured" if found is None else f"{found.mean:.2f} [{found.ci95[0]:.2f}, {found.ci95[1]:.2f}] n={found.n}"
    )


def run_line(document: "RunDocument") -> str:
    """A run in one line: id, state, verdict or step, test success before and after."""
    parts = [f"{document.run_id} {document.state}"]
    if document.verdict is not None:
        parts[0] += f" ({str(document.verdict).replace('_', ' ')})"
    if document.failure is not None:
        parts[0] += f" ({document.failure.kind}: {clip(document.failure.message, 200)})"
    parts.append(f"step {document.step}" + (f"/{document.planned_steps}" if document.planned_steps else ""))
    before, after = evaluation(document, "before"), evaluation(document, "after")
    if after is not None:
        parts.append(f"test success {evaluation_text(before)} → {evaluation_text(after)}")
    return ", ".join(parts)


def steps_of(rows: Sequence[Mapping[str, Any]], since_step: int) -> list[Step]:
    """The steps after `since_step`, oldest first."""
    return [_step(row) for row in rows if isinstance(row.get("step"), int) and row["step"] > since_step]


def _step(row: Mapping[str, Any]) -> Step:
    total = _total(row.get("seconds"))
    return Step(
        step=row["step"],
        reward=_short(row.get("reward_mean")),
        flat=_short(row.get("frac_zero_variance")),
        entropy=_short(row.get("entropy")),
        cut=_short(row.get("truncated_rate")),
        grad=_short(row.get("grad_norm")),
        s=_short(total),
    )


def thinned(steps: Sequence[Step], limit: int = MAX_STEPS_SHOWN) -> list[Step]:
    """At most `limit` steps, evenly spread, the first and the last among them."""
    if len(steps) <= limit:
        return list(steps)
    chosen = {round(index * (len(steps) - 1) / (limit - 1)) for index in range(limit)}
    return [steps[index] for index in sorted(chosen)]


def seconds_per_step(rows: Sequence[Mapping[str, Any]], last: int = 10) -> float | None:
    """Median seconds of the last steps by their phases; where those are not measured, by the gaps of a running
    `time_s`, and None before the second step."""
    totals = [_total(row.get("seconds")) for row in rows[-last:]]
    measured = [one for one in totals if one]
    if measured:
        return statistics.median(measured)
    times = [row["time_s"] for row in rows if _is_number(row.get("time_s"))][-(last + 1) :]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > earlier]
    return statistics.median(gaps) if gaps else None


def _total(seconds: Any) -> float | None:
    """Sum of the phases of a step."""
    if not isinstance(seconds, Mapping):
        return None
    return math.fsum(one for one in seconds.values() if _is_number(one))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> float | None:
    """Three significant digits; None for what is no number."""
    return float(f"{value:.3g}") if _is_number(value) else None
