"""The decision table: from what was found to the lever that is worth trying, read from the policy of rllm-analyze.

`decisions.<finding> = {lever, direction: up|down|set, factor | value, candidates, confidence}`; the lever is a key of
the policy of rllm-config. A finding that the table does not name has no lever: a person or an agent has to decide.
"""

from typing import Any

from optimizer.types import Direction, Lever
from skill_bank.policy import ResolvedPolicy

LEVER_SKILL = "rllm-config"
"""The skill whose policy the table's levers are keys of."""

ROW_OF = {"zero_reward_at_cap": "truncation"}
"""Kinds of finding that ask for the lever of another row: what goes together is worth a trial, and proves nothing."""

_CONFIDENCE = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""Weight of the table's own confidence when findings are ranked: a guess must not go before a sure thing."""


class LeverTable:
    """The decisions of one compiled policy."""

    def __init__(self, decisions: dict[str, Any]) -> None:
        self.decisions = decisions

    @classmethod
    def from_policy(cls, policy: ResolvedPolicy) -> "LeverTable":
        """Reads `decisions`. Raises PolicyError where the policy has none."""
        return cls(policy.require("decisions"))

    def lever_for(self, kind: str) -> Lever | None:
        """The lever for a kind of finding, or None."""
        row = self.decisions.get(kind, self.decisions.get(ROW_OF.get(kind, "")))
        if row is None:
            return None
        direction = Direction(row["direction"])
        first = row["value"] if direction is Direction.SET else row.get("factor")
        choices = list(row.get("candidates") or ([] if first is None else [first]))
        return Lever(
            skill=LEVER_SKILL,
            key=row["lever"],
            direction=direction,
            choices=tuple(choices),
            confidence=row["confidence"],
        )


def weight(lever: Lever | None) -> float:
    """How much the table trusts the lever; 0 without one."""
    return 0.0 if lever is None else _CONFIDENCE[lever.confidence]
