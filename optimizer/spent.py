"""What an evolution has cost so far: episodes (training and evaluation, runs and trials) and time at work.

Episodes come from what is on disk (metrics of runs, pairs of trials, rows of screenings and fresh looks), time from the
history of the rounds: the hours in which a round waits for a person or lies still between two commands do not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimizer.home import Home
from optimizer.round_types import EvolveRequest, Round, RoundState
from skill_bank.files import read_json_lines
from trainer.runs.errors import RunError
from trainer.runs.registry import find_run


@dataclass(frozen=True)
class Spent:
    """Cost so far."""

    episodes: int
    seconds: float

    def over(self, request: EvolveRequest) -> str | None:
        """Which budget of the request is spent, in words; None: none."""
        if request.budget_episodes is not None and self.episodes >= request.budget_episodes:
            return f"the budget of {request.budget_episodes:,} episodes is spent ({self.episodes:,})"
        if request.budget_minutes is not None and self.seconds >= request.budget_minutes * 60:
            return f"the budget of {request.budget_minutes:g} minutes is spent ({self.seconds / 60:.1f})"
        return None


def spent(home: Home, rounds: Sequence[Round]) -> Spent:
    """The cost of these rounds."""
    runs = dict.fromkeys(one.run_id for one in rounds)
    episodes = sum(_of_run(home, run_id) for run_id in runs)
    for path in dict.fromkeys(path for one in rounds for path in _trials(home, one)):
        episodes += sum(_of_row(row) for _, row in read_json_lines(path).rows)
    return Spent(episodes, sum(_at_work(one) for one in rounds))


def _of_run(home: Home, run_id: str) -> int:
    try:
        run = find_run(home.workspace, run_id)
        trained = sum(int(row.get("episodes") or 0) for row in run.directory.metrics())
    except RunError:
        return 0
    return trained + sum(one.n for one in run.document.eval.values())


def _trials(home: Home, current: Round) -> Iterator[Path]:
    if current.trial_id is not None:
        yield home.trials / current.trial_id / "pairs.jsonl"
    yield home.trials / f"screening-round-{current.round:06d}" / "screening.jsonl"
    for check in current.checks:
        yield home.trials / f"fresh-{check['patch_id']}"[:64] / "screening.jsonl"


def _of_row(row: dict[str, Any]) -> int:
    """Episodes of a pair or of a row of a screening."""
    arms = [row.get("base"), row.get("patched"), *(row.get("candidates") or {}).values()]
    return sum(int(arm.get("episodes") or 0) + int(arm.get("n") or 0) for arm in arms if isinstance(arm, dict))


def _at_work(current: Round) -> float:
    """Seconds between consecutive entries of a round's history, without those behind `awaiting_approval`."""
    seconds, before, waits = 0.0, current.created_at, False
    for entry in current.history:
        if not waits:
            seconds += max(entry["time"] - before, 0.0)
        before, waits = entry["time"], entry["state"] == RoundState.AWAITING_APPROVAL
    return seconds
