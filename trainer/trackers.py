"""The worker's side of trackers: transformers' own callbacks for wandb and trackio, kept from costing a run."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from trainer import reporting
from trainer.config import TrainingConfig

OnEvent = Callable[..., None]


class Tracker(TrainerCallback):
    """One tracker. What it raises becomes a `warning` event, once, and ends the tracking, not the training."""

    def __init__(self, name: str, inner: TrainerCallback, on_event: OnEvent) -> None:
        self.name = name
        self._inner: TrainerCallback | None = inner
        self._on_event = on_event
        self._more: dict[str, float] = {}

    def _call(self, stage: str, call: Callable[[TrainerCallback], None]) -> None:
        if self._inner is None:
            return
        try:
            call(self._inner)
        except Exception as error:  # whatever a client of a web service raises: the run is worth more than its curves
            self._inner = None
            text = " ".join(str(error).split())[:300]
            self._on_event(
                "warning", text=f"{self.name} failed at {stage} and is left out: {type(error).__name__}: {text}"
            )

    def remember(self, values: Mapping[str, float]) -> None:
        """Adds our own measures, by tag, to the next line that the tracker gets (transformers prefixes `train/`)."""
        self._more |= {tag.replace("train/", "episodes/", 1): value for tag, value in values.items()}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        self._call("the start", lambda inner: inner.on_train_begin(args, state, control, **more))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        own, self._more = self._more, {}
        self._call("a step", lambda inner: inner.on_log(args, state, control, logs={**(logs or {}), **own}, **more))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self._call("the end", lambda inner: inner.on_train_end(args, state, control, **more))
        if self.name == "wandb":  # else the next run of a warm worker would go on in this one's curves
            self._inner = self._inner or TrainerCallback()
            self._call("the end", lambda _: import_module("wandb").finish())


def trackers_of(config: TrainingConfig, directory: Path, on_event: OnEvent) -> list[Tracker]:
    """A callback for each tracker that the run reports to; one that cannot be made is a `warning` event."""
    names = reporting.external(config)
    if "wandb" in names:
        os.environ["WANDB_MODE"] = reporting.wandb_mode(os.environ)
        os.environ.setdefault("WANDB_PROJECT", reporting.PROJECT)
        os.environ.setdefault("WANDB_DIR", str(directory))
        os.environ.setdefault("WANDB_INIT_TIMEOUT", "30")
    found = []
    for name in names:
        try:
            (kind,) = get_reporting_integration_callbacks([name])
            found.append(Tracker(name, kind(), on_event))
        except (ImportError, RuntimeError) as error:
            on_event("warning", text=f"{name} is left out: {error}")
    return found
