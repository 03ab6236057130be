"""Rows that are trained without the lessons they were sampled with, in TRL's loss (formula: algorithms/offpolicy.py).

TRL broadcasts its clip range and `delta` over (B, T), so (B, 1) tensors in their place give each row its own; and it
takes `old_per_token_logps` from the batch after the log-probabilities were computed, so they can be set in between.
Batches without such rows are left alone: their loss is TRL's, bit for bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer.algorithms.offpolicy import ClipRange, LossPart, off_policy_metrics, old_logps, row_bounds
from trainer.config import TrainingConfig

if TYPE_CHECKING:
    from trainer.grpo import AgentGRPO

STRIPPED = "stripped"
"""Column of the batch: (B,) bool."""
OLD = "old_per_token_logps"


class StrippedRows:
    """Bounds, ratios and statistics of one trainer."""

    def __init__(self, config: TrainingConfig) -> None:
        experience = config.experience
        self.on = ClipRange(*config.clip_range)
        self.off = self.on
        self.behaviour = self.positive_only = False
        if experience is not None:
            self.off = ClipRange(experience.off_clip_low, experience.off_clip_high, experience.off_dual_clip)
            self.behaviour = experience.experience_old_logps == "behaviour"
            self.positive_only = experience.off_positive_only
        self.parts: list[LossPart] = []
        """Of the present update."""
        self._batch: dict[str, Any] | None = None

    @contextmanager
    def bounds(self, trainer: "AgentGRPO", batch: dict[str, Any]) -> Iterator[None]:
        """Gives TRL's loss the bounds of each row, and takes them back."""
        if STRIPPED not in batch:
            yield
            return
        bounds = row_bounds(batch[STRIPPED], self.on, self.off)
        before = trainer.epsilon_low, trainer.epsilon_high, trainer.args.delta
        trainer.epsilon_low, trainer.epsilon_high = bounds.low, bounds.high
        trainer.args.delta = bounds.delta
        self._batch = batch
        try:
            yield
        finally:
            trainer.epsilon_low, trainer.epsilon_high, trainer.args.delta = before
            self._batch = None

    def scored(self, logps: Tensor, mask: Tensor | None) -> None:
        """Called with the (B, T) log-probabilities of the training prompts, before the loss uses them."""
        batch = self._batch
        if batch is None or mask is None:
            return
        current, sampled = logps.detach(), batch["sampling_per_token_logps"]
        if self.behaviour:
            batch[OLD] = old_logps(current, sampled, batch[STRIPPED])
        old = batch.get(OLD)
        self.parts.append(
            LossPart(current, current if old is None else old, sampled, batch["advantages"], batch[STRIPPED], mask)
        )

    def sampled_as_trained(self, batch: dict[str, Any], mask: Tensor) -> Tensor:
        """The tokens of `mask` whose two probabilities should agree: those of rows that were not stripped."""
        return mask & ~batch[STRIPPED][:, None] if STRIPPED in batch else mask

    def metrics(self) -> dict[str, float]:
        """Numbers of the present update; none without stripped rows."""
        return off_policy_metrics(self.parts, self.on, self.off)
