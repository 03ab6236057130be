"""What happens around an optimiser step: the guard, the clock, the metrics line, the question whether to go on."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer import parallel
from trainer.algorithms.agreement import agreement

if TYPE_CHECKING:
    from trainer.grpo import AgentGRPO


SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""Where `save_every` is null: what a killed run loses at most, plus a step."""


OF_THE_UPDATE = {"loss": "loss", "grad_norm": "grad_norm", "learning_rate": "learning_rate"}
"""TRL's name → ours, of what is one number whatever the number of processes."""

OF_TOKENS = {
    "kl": "kl",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
    "cispo_clip_ratio": "clip_high",
}
"""The same, of means over the tokens that this process trains."""


def _finite(logs: dict[str, Any], names: dict[str, str]) -> dict[str, float]:
    """The values of `logs` that are finite numbers, under our names."""
    found = {ours: logs.get(theirs) for theirs, ours in names.items() if theirs in logs}
    return {name: float(v) for name, v in found.items() if isinstance(v, int | float) and math.isfinite(v)}


class NonFinite(RuntimeError):
    """Two updates in a row were not finite."""


class StepRecorder(TrainerCallback):
    """TRL calls it at the edges of each step."""

    def __init__(self, trainer: "AgentGRPO") -> None:
        self.trainer = trainer
        self._began = 0.0
        self._pending: dict[str, Any] | None = None
        self._bad_updates = 0
        self._saved = time.monotonic()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._began = time.perf_counter()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Without gradients the optimiser does nothing: no step on momentum alone, none on NaN."""
        parameters = [p for p in self.trainer.model.parameters() if p.grad is not None]
        finite = all(bool(torch.isfinite(p.grad).all()) for p in parameters)
        if not finite:
            self._bad_updates += 1
            self.trainer.on_event("nonfinite", step=state.global_step + 1, in_a_row=self._bad_updates)
        else:
            self._bad_updates = 0
        if not finite or self.trainer.skip_update:
            for parameter in parameters:
                parameter.grad = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        total = time.perf_counter() - self._began
        seconds = dict(self.trainer._seconds)
        prepare = seconds.pop("prepare", 0.0)
        seconds["update"] = max(0.0, total - prepare - sum(seconds.values()))
        seconds["other"] = prepare
        self._pending = {
            "step": state.global_step,
            "time_s": round(total, 4),
            **self.trainer._line,
            "seconds": {k: round(v, 4) for k, v in seconds.items()},
        }

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if self._pending is None or logs is None:
            return
        line, self._pending = self._pending, None
        line |= agreement(parallel.gather(self.trainer._pairs))
        line |= self.trainer.stripped.metrics()
        line |= _finite(logs, OF_THE_UPDATE)
        line |= parallel.weighted_means(_finite(logs, OF_TOKENS), self.trainer.own_tokens)
        if self.trainer.skip_update:
            line["grad_norm"] = 0.0
            line["update_skipped"] = True
        self.trainer.on_step(line)
        if self._bad_updates >= 2:
            raise NonFinite(
                f"the gradient was not finite in two updates in a row, last at step {state.global_step}. The learning "
                f"rate {self.trainer.settings.learning_rate:g} is probably too high; try half of it."
            )
        decided: tuple[str | None, bool] = (None, False)
        if parallel.is_main():
            reason = self.trainer.after_step(state.global_step)
            decided = reason, self._checkpoint_is_due(state, reason)
        reason, control.should_save = parallel.agree(decided)
        if reason is not None:
            control.should_training_stop = True

    def _checkpoint_is_due(self, state: TrainerState, reason: str | None) -> bool:
        every = self.trainer.settings.save_every
        if self.trainer.on_checkpoint is None or every == 0 or reason == "target":
            return False
        if reason is not None:  # stopped, and may be resumed
            return True
        if state.global_step >= state.max_steps:
            return False
        return state.global_step % every == 0 if every else time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._saved = time.monotonic()
        parallel.wait_for_all()  # each rank has written its random states
        if self.trainer.on_checkpoint is not None and parallel.is_main():
            self.trainer.on_checkpoint(state.global_step, Path(args.output_dir) / f"checkpoint-{state.global_step}")
