"""Arms: what one side of a pair trains with, and how a finished run becomes an arm's result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from optimizer.trial.types import ArmResult
from trainer.config import TrainingConfig
from trainer.runs.types import RunDocument, RunState

_WINDOW_EPISODES = 64
"""Episodes of a reward window at least: a window's mean is off by .06 at most two times out of three."""

_WINDOW_PROBLEMS = 32
"""Problems of a reward window at least. Episodes of one problem succeed or fail together where problems differ in
difficulty: windows of 64 episodes that are 16 problems called one stable run in twenty collapsed (simulated)."""

_COLLAPSE = 0.5
"""A collapse halves what was there: noise of two windows moves the ratio by a fifth at most."""


class TrialError(RuntimeError):
    """A pair that could not be measured: says which arm failed and why."""


class TrialCancelled(Exception):
    """Someone asked to stop; the pair in progress is lost, those before it are kept."""


@dataclass(frozen=True)
class ArmJob:
    """One run of a trial."""

    name: str
    """base, patched, or a candidate's patch id."""
    config: TrainingConfig
    folder: Path
    """Run directory."""


class ArmRunner(Protocol):
    """Runs arms side by side, each on its own single-threaded worker."""

    def run(self, jobs: Sequence[ArmJob], cancelled: Callable[[], bool]) -> list[ArmResult]:
        """One result a job, in their order. Raises TrialError or TrialCancelled; leaves no process behind."""
        ...


def reward_windows(metrics: Sequence[Mapping[str, Any]], generations: int = 1) -> list[float]:
    """Mean training reward of consecutive windows of at least 64 episodes and 32 problems (`generations`: episodes of a
    problem); a last, incomplete one is left out."""
    size = max(_WINDOW_EPISODES, _WINDOW_PROBLEMS * generations)
    windows: list[float] = []
    total = 0.0
    episodes = 0
    for row in metrics:
        reward = row.get("reward_mean")
        if reward is None:
            continue
        count = int(row.get("episodes") or 1)
        total += float(reward) * count
        episodes += count
        if episodes >= size:
            windows.append(total / episodes)
            total, episodes = 0.0, 0
    return windows


def collapse_of(
    metrics: Sequence[Mapping[str, Any]], after: float | None, nonfinite: bool, generations: int = 1
) -> str | None:
    """Why a run counts as collapsed, or None. `generations`: its episodes of a problem.

    Collapsed: it broke down numerically; or its last reward window is below half of its best one (both measured the
    same way, under the same sampling); or its final success is below half of the reward it started with.
    """
    if nonfinite:
        return "broke down numerically (not a number)"
    windows = reward_windows(metrics, generations)
    if len(windows) >= 2:
        best = max(windows)
        if windows[-1] < _COLLAPSE * best:
            return f"training reward fell from {best:.2f} to {windows[-1]:.2f}"
    if windows and after is not None and after < _COLLAPSE * windows[0]:
        return f"success {after:.2f} is below half of the reward at the start ({windows[0]:.2f})"
    return None


def result_of(document: RunDocument, metrics: Sequence[Mapping[str, Any]], generations: int = 1) -> ArmResult:
    """The arm's result from a finished run with `generations` episodes of a problem.

    Raises TrialError where the run says nothing about the arm.
    """
    after = document.eval.get("after")
    nonfinite = document.failure is not None and document.failure.kind == "nonfinite"
    if document.state is RunState.FINISHED and after is None:
        raise TrialError(f"run {document.run_id} finished without a final evaluation: look at its worker.log")
    if document.state is not RunState.FINISHED and not nonfinite:
        why = document.failure.message if document.failure is not None else f"it ended as {document.state}"
        raise TrialError(f"run {document.run_id} gave no result: {why}")
    reason = collapse_of(metrics, None if after is None else after.mean, nonfinite, generations)
    trained = sum(int(row.get("episodes") or 0) for row in metrics)
    return ArmResult(
        run_id=document.run_id,
        success=0.0 if after is None else after.mean,
        n=1 if after is None else after.n,
        collapsed=reason is not None,
        collapse_reason=reason,
        seconds=document.seconds,
        episodes=trained,
    )
