"""The list of the detectors: rows 1 to 31 of the runtime catalogue, and two that live beside a finding."""

from importlib import import_module

from trainer.runs.detectors.types import Detector

NAMES = (
    "nonfinite",
    "loss_explosion",
    "grad_spike",
    "grad_vanish",
    "reward_collapse",
    "reward_stuck_zero",
    "reward_plateau",
    "zero_variance",
    "too_easy",
    "entropy_collapse",
    "entropy_explosion",
    "kl_runaway",
    "clip_saturation",
    "truncation",
    "length_runaway",
    "format_degeneration",
    "tools_abandoned",
    "never_submits",
    "gibberish",
    "echo_trap",
    "reward_hacking",
    "reward_component_takeover",
    "eval_regression",
    "stall",
    "crash",
    "oom",
    "throughput_drop",
    "env_errors",
    "mask_integrity",
    "off_policy_drift",
    "experience_harm",
    "lr_flat",
    "no_diversity",
)
"""Modules of this package, one detector each."""


def _load(name: str) -> Detector:
    detector = import_module(f"trainer.runs.detectors.{name}").DETECTOR
    assert isinstance(detector, Detector)
    return detector


CATALOGUE: tuple[Detector, ...] = tuple(_load(name) for name in NAMES)

BY_ID = {detector.id: detector for detector in CATALOGUE}
