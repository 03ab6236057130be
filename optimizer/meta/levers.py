"""Which lever a patch moved, as a name two patches share when they push the same key the same way in the same place."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from optimizer.patch_store import PatchRecord
from optimizer.types import Direction

BETTER = "better"


def lever_name(key: str, direction: str) -> str:
    """`learning_rate up`."""
    return f"{key.removesuffix('.default')} {direction}"


def lever_of(record: PatchRecord) -> str | None:
    """The lever that a patch moves; None for prose and for patches that move several or say no direction."""
    lever = (record.finding or {}).get("lever")
    if lever is not None:
        return lever_name(str(lever["key"]), str(lever["direction"]))
    if len(record.changes) != 1:
        return None
    change = record.changes[0]
    if not _is_number(change.before) or not _is_number(change.after) or change.before == change.after:
        return None
    return lever_name(change.key, Direction.UP if change.after > change.before else Direction.DOWN)


def place_of(scope: Mapping[str, Any] | None, profile: str | None) -> str:
    """Where a patch acts: its scope and profile, as one text."""
    return json.dumps([scope or {}, profile], sort_keys=True, default=str)


def value_of(record: PatchRecord) -> float | None:
    """The number that a patch of one value sets."""
    after = record.changes[0].after if len(record.changes) == 1 else None
    return float(after) if after is not None and _is_number(after) else None


def failures_in_a_row(records: Iterable[PatchRecord], lever: str, place: str) -> int:
    """Trials of a lever in a place that ended in a rejection since the last one that was better.

    `records` oldest first. A patch that a person refused counts as what its trial said.
    """
    failures = 0
    for record in records:
        if record.verdict is None or lever_of(record) != lever or place_of(record.scope, record.profile) != place:
            continue
        if record.verdict == BETTER:
            failures = 0
        elif record.stage == "rejected":
            failures += 1
    return failures


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
