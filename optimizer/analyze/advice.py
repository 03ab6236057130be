"""Tuning advice: from a finding's lever to values for this run, how sure that is, and what would show whether it helps.

Advice is no proof. A lever that policy decided becomes a patch and is tried in pairs; one that somebody fixed can only
be tried in a second run, whose test tells no smaller difference than its size allows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.analyze.levers import weight
from optimizer.candidates import values_to_try
from optimizer.types import Direction, Finding
from skill_bank.policy import ResolvedPolicy
from trainer.runs.types import Eval

MAX_VALUES = 3
"""Values named, the most promising first."""

DETECTABLE_Z = 1.959963984540054 + 0.8416212335729143
"""Difference in standard errors that a two-sided 5 % test finds in 80 % of cases (z of .975 plus z of .8)."""


@dataclass(frozen=True)
class Advice:
    """What to change, and what it would be measured by."""

    finding: str
    kind: str
    key: str
    current: Any
    values: tuple[float, ...]
    """To try, the best first; empty: the lever is at the end of its safe range."""
    confidence: float
    """The finding's times the table's."""
    table: str
    """How sure the decision table is: low, medium, high."""
    measured_by: str

    @property
    def sentence(self) -> str:
        """In words."""
        if not self.values:
            return (
                f"{self.key} {_shown(self.current)} is at the end of its safe range: nothing to try in that direction."
            )
        first, *rest = (_shown(one) for one in self.values)
        others = f" (or {', '.join(rest)})" if rest else ""
        return (
            f"Try {self.key} {_shown(self.current)} → {first}{others}; confidence {self.confidence:.2f} "
            f"(finding × table: {self.table}). Measured by {self.measured_by}."
        )


def advise(
    findings: Sequence[Finding], config: Mapping[str, Any], policy: ResolvedPolicy, test: Eval | None
) -> list[Advice]:
    """Advice for each finding with a lever, the surest first.

    `config` is the run's, `policy` the one of rllm-config in its situation (safe ranges), `test` its last evaluation.
    """
    found = [
        _advice(one, config, policy, test) for one in findings if one.lever is not None and one.lever.key in config
    ]
    return sorted((one for one in found if one is not None), key=lambda one: -one.confidence)


def _advice(finding: Finding, config: Mapping[str, Any], policy: ResolvedPolicy, test: Eval | None) -> Advice | None:
    lever = finding.lever
    assert lever is not None
    current = config[lever.key]
    numeric = isinstance(current, int | float) and not isinstance(current, bool)
    if not numeric or (lever.direction is not Direction.SET and current <= 0):
        return None
    low, high = policy.get(f"{lever.key}.min"), policy.get(f"{lever.key}.max")
    values = tuple(values_to_try(current, lever, low, high))[:MAX_VALUES]
    return Advice(
        finding=finding.id,
        kind=finding.kind,
        key=lever.key,
        current=current,
        values=values,
        confidence=finding.confidence * weight(lever),
        table=lever.confidence,
        measured_by=_measure(lever.key, values, finding.blocked, test),
    )


def _measure(key: str, values: Sequence[float], blocked: str | None, test: Eval | None) -> str:
    if blocked is None:
        return "a paired trial on test success (propose_patch, try_patch)"
    change = f" with {key}={_shown(values[0])}" if values else ""
    smallest = "" if test is None else f"; n {test.n} tells differences from about {detectable(test):.2f}"
    return f"a second run{change} and the same seed, compared on the same test problems (compare_runs{smallest})"


def detectable(test: Eval) -> float:
    """The difference of two rates with n problems each that a test finds in four cases of five: 2.80 · sqrt(2p(1−p)/n),
    with p drawn away from 0 and 1 by one problem."""
    p = min(max(test.mean, 1 / test.n), 1 - 1 / test.n)
    return DETECTABLE_Z * math.sqrt(2 * p * (1 - p) / test.n)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
