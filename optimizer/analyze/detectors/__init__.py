"""Detectors: one file a kind of finding, each with its rule, what it needs and what it does not claim in its docstring.

A detector is a function from a `View` to findings. It reads the view and nothing else, and is deterministic.
"""

from collections.abc import Callable

from optimizer.analyze.detectors import (
    abandoned_run,
    config_not_launched,
    data_missing,
    failing_calls,
    launch_crash,
    loss_of_focus,
    metric_mixup,
    not_like_for_like,
    orchestrator_skipped,
    skill_not_followed,
    training_facts,
    unverified_claim,
    wasted_waiting,
)
from optimizer.analyze.view import View
from optimizer.types import Finding

Detector = Callable[[View], list[Finding]]

DETECTORS: tuple[Detector, ...] = (
    failing_calls.detect,
    launch_crash.detect,
    config_not_launched.detect,
    abandoned_run.detect,
    skill_not_followed.detect,
    orchestrator_skipped.detect,
    wasted_waiting.detect,
    loss_of_focus.detect,
    unverified_claim.detect,
    metric_mixup.detect,
    not_like_for_like.detect,
    data_missing.detect,
    training_facts.detect,
)


def detect_all(view: View) -> list[Finding]:
    """Findings of every detector, the surest first; equal ones in the order of the detectors."""
    found = [one for detect in DETECTORS for one in detect(view)]
    return sorted(found, key=lambda one: -one.confidence)
