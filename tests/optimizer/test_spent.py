"""What an evolution costs, by hand, and the budgets that end it between two rounds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import say_yes

from optimizer.evolve import evolve, new_request, resume
from optimizer.home import Home
from optimizer.round_types import EvolveRequest, Round
from optimizer.spent import Spent, spent
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher

Runners = Callable[[Path, bool], PooledArms]
TEXT = "train the tiny calculator agent on 64 mixed problems, seed 1"


def request(**fields: Any) -> EvolveRequest:
    return EvolveRequest(evolution="e", request=TEXT, rounds=3, folder="/", seed=1, **fields)


def test_which_budget_is_spent() -> None:
    assert Spent(100, 60).over(request()) is None
    assert Spent(99, 60).over(request(budget_episodes=100)) is None
    assert "100 episodes is spent (100)" in (Spent(100, 60).over(request(budget_episodes=100)) or "")
    assert Spent(0, 119).over(request(budget_minutes=2)) is None
    assert "2 minutes is spent (2.0)" in (Spent(0, 120).over(request(budget_minutes=2)) or "")


def test_episodes_and_time_by_hand(home: Home) -> None:
    history = [
        {"time": 130.0, "state": "trained"},
        {"time": 150.0, "state": "awaiting_approval"},
        {"time": 9000.0, "state": "closed"},  # a person slept in between
    ]
    first = Round(
        round=1,
        evolution="e",
        position=1,
        request="x",
        run_id="gone",
        trial_seed=1,
        trial_id="t1",
        created_at=100.0,
        history=history,
        checks=[{"patch_id": "001-a"}],
    )
    arm = {"success": 0.5, "n": 128, "episodes": 512}
    for folder, name, row in (
        ("t1", "pairs.jsonl", {"base": arm, "patched": arm}),
        ("screening-round-000001", "screening.jsonl", {"base": arm, "candidates": {"a": arm, "b": arm}}),
        ("fresh-001-a", "screening.jsonl", {"base": arm, "candidates": {"001-a": arm}}),
    ):
        path = home.trials / folder / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n", encoding="utf-8")
    # two lines each: 2 x 2 arms, 2 x 3, 2 x 2 = 14 arms of 640 episodes
    assert spent(home, [first]) == Spent(14 * 640, 50.0)


@pytest.mark.parametrize("fields", [{"budget_episodes": 1000}, {"budget_minutes": 0.001}])
def test_a_budget_ends_an_evolution_between_two_rounds(
    home: Home, launcher: LocalLauncher, runners: Runners, fields: dict[str, Any]
) -> None:
    wanted = new_request(home, TEXT, 3, "original", evolution="evolve-1", seed=5, plan="quick", **fields)
    more: dict[str, Any] = {"launcher": launcher, "runners": runners}
    document = evolve(home, wanted, say_yes, lambda one: None, **more)
    (only,) = document["rounds"]
    assert only["patch_id"] is not None  # the round itself was finished
    assert "budget" in document["stopped"]
    # 4 pairs or more, two arms each, 512 episodes and 128 tasks
    assert document["spent"]["episodes"] >= 4 * 2 * (512 + 128)
    assert len(resume(home, None, say_yes, lambda one: None, **more)["rounds"]) == 1
