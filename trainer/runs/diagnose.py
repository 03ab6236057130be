"""What held a run back, in one sentence with numbers, computed from its metrics, evaluations and configuration. Pure.

1. A number that was not measured is missing, never zero: a rule without its numbers says nothing.
2. An explanation takes what it explains with it: a completion cap that cuts most episodes also makes groups all wrong;
   only the cap is reported then.
3. Rules about the start of a run (cap, parser, diversity, difficulty) look at its first third, before learning has
   changed the policy; rules about learning look at the way from start to end.
4. `diagnose` always says something: at least `healthy` or `inconclusive`.

Thresholds are a value (`Thresholds`), so that policy can set them. Their defaults come from the anomaly catalogue of
TRL practice and from runs of the bundled model with known faults.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.config import TrainingConfig
from trainer.runs.diagnose_rules import EXPLAINS, RULES
from trainer.runs.findings import DEFAULT_THRESHOLDS, Evidence, Finding, FindingKind, Thresholds
from trainer.runs.rundir import RunDirectory
from trainer.runs.series import RunSeries
from trainer.runs.types import Eval, Failure, Verdict

__all__ = ["DEFAULT_THRESHOLDS", "Evidence", "Finding", "FindingKind", "Thresholds", "diagnose", "diagnose_run"]


def diagnose(
    metrics: Sequence[Mapping[str, Any]],
    evals: Mapping[str, Eval],
    config: TrainingConfig,
    *,
    failure: Failure | None = None,
    goal_reached: bool | None = None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> list[Finding]:
    """Findings about one run, the one that explains most first; never empty."""
    evidence = Evidence(RunSeries(metrics), config, thresholds, evals, failure, goal_reached)
    found: list[Finding] = []
    explained: set[FindingKind] = set()
    for rule in RULES:
        finding = rule(evidence)
        if finding is None or finding.kind in explained:
            continue
        found.append(finding)
        explained |= EXPLAINS.get(finding.kind, frozenset())
    return found


def diagnose_run(directory: RunDirectory, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> list[Finding]:
    """`diagnose` for what a run directory holds now. Raises RunError where it cannot be read."""
    document = directory.read_document()
    return diagnose(
        directory.metrics(),
        document.eval,
        directory.read_config(),
        failure=document.failure,
        goal_reached=None if document.verdict is None else document.verdict is Verdict.GOAL_REACHED,
        thresholds=thresholds,
    )
