"""The fresh look at a promoted patch: a few pairs, on seeds that no trial has used, in the round after its promotion.

The estimate that got a patch accepted is a little too high on average, because luck helped it over the bar. Fresh pairs
are free of that. Their estimate is shown beside the claimed one and beside what the proposer predicted, and taking the
patch back is proposed when the one-sided 90 % upper bound of the fresh effect lies below half of the claimed gain (a
single run instead of pairs would have the wrong sign in 13 to 21 % of cases).
"""

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from optimizer.patch_store import PatchRecord
from optimizer.trial.plan import TrialPlan
from optimizer.trial.screen import ScreenRow
from optimizer.trial.statistics import critical_t, spread

PAIRS = 4
"""Fresh pairs of a promoted patch."""

KEPT_SHARE = 0.5
"""Share of the claimed gain that the upper bound of the fresh effect must reach."""

_LEVEL = 0.10


class FreshCheck(BaseModel):
    """What fresh pairs say about a patch in force."""

    model_config = ConfigDict(frozen=True, extra="allow")

    patch_id: str
    trial_id: str | None = None
    round: int | None = None
    """Round in which it was measured."""
    claimed: float
    """Effect of the trial that promoted it."""
    predicted: float | None = None
    """What the proposer expected."""
    effect: float
    """Mean difference of the fresh pairs, patched minus base."""
    standard_error: float
    upper90: float
    """One-sided 90 % upper bound of the fresh effect."""
    pairs: int
    base_mean: float
    patched_mean: float
    demote: bool
    """Taking the patch back is proposed."""
    prediction_holds: bool | None = None
    """The predicted change lies below the upper bound; None: nothing was predicted."""

    @property
    def say(self) -> str:
        """One sentence with the numbers."""
        text = (
            f"fresh pairs of {self.patch_id}: effect {self.effect:+.3f} over {self.pairs} pairs (90 % upper bound "
            f"{self.upper90:+.3f}), claimed {self.claimed:+.3f}"
        )
        if self.predicted is not None:
            held = "within reach" if self.prediction_holds else "not reached"
            text += f", predicted {self.predicted:+.3f} ({held})"
        if self.demote:
            text += ". Less than half of the claim is left: taking it back is proposed"
        return text


def fresh_check(
    record: PatchRecord, rows: Sequence[ScreenRow], plan: TrialPlan, number: int | None = None
) -> FreshCheck:
    """Judges the fresh rows of a promoted patch, measured in round `number`.

    Raises ValueError with fewer than two rows, or for a patch that claims nothing.
    """
    if len(rows) < 2:
        raise ValueError(f"{len(rows)} fresh pairs say nothing about {record.patch_id}: two at least")
    if record.effect is None:
        raise ValueError(f"patch {record.patch_id} was promoted without a trial: there is no claim to check")
    differences = [row.candidates[record.patch_id].success - row.base.success for row in rows]
    n = len(differences)
    effect = math.fsum(differences) / n
    error = spread(differences, plan.eval_tasks) / math.sqrt(n)
    upper = effect + critical_t(_LEVEL, n - 1) * error
    predicted = None if record.expected is None else record.expected.change
    return FreshCheck(
        patch_id=record.patch_id,
        trial_id=record.trials[-1] if record.trials else None,
        round=number,
        claimed=record.effect,
        predicted=predicted,
        effect=effect,
        standard_error=error,
        upper90=upper,
        pairs=n,
        base_mean=math.fsum(row.base.success for row in rows) / n,
        patched_mean=math.fsum(row.candidates[record.patch_id].success for row in rows) / n,
        demote=record.effect > 0 and upper < KEPT_SHARE * record.effect,
        prediction_holds=None if predicted is None else upper >= predicted,
    )
