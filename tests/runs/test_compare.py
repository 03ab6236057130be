"""Comparison of runs: what may be compared with what, which test is used, and what the verdict says."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainingConfig
from trainer.runs.compare import (
    Measure,
    Origin,
    compare_runs,
    config_differences,
    difference,
    measures_of,
    pairs_of,
)
from trainer.runs.errors import RunError
from trainer.runs.proportions import independent_test, paired_test
from trainer.runs.registry import Run, create_run, find_run
from trainer.runs.statistics import wilson
from trainer.runs.types import Eval, RunState
from trainer.runs.workspace import Workspace


def config_of(**values: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(values)


def eval_of(solved: int, n: int, split: str = "test") -> Eval:
    return Eval.model_validate(
        {"metric": "success", "split": split, "n": n, "mean": solved / n, "ci95": wilson(solved, n)}
    )


def make(
    workspace: Workspace,
    run_id: str,
    *,
    before: int = 30,
    after: int | None = 60,
    n: int = 100,
    outcomes: list[bool] | None = None,
    rewards: list[float] | None = None,
    **config: Any,
) -> Run:
    """A finished run with these results; `outcomes` are written as the episodes of its last test."""
    directory = create_run(workspace, config_of(**config), run_id=run_id)
    evals = {"before": eval_of(before, n), "validation": eval_of(70, 100, "validation")}
    if outcomes is not None:
        after, n = sum(outcomes), len(outcomes)
        rows = [
            {"task": i, "prompt": f"problem {i}", "row": {"answer": str(i)}, "reward": float(one), "valid": True}
            for i, one in enumerate(outcomes)
        ]
        (directory.path / "eval-after.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if after is not None:
        evals["after"] = eval_of(after, n)
    for step, reward in enumerate(rewards or [], start=1):
        directory.append_metrics({"step": step, "reward_mean": reward, "episodes": 16})
    directory.set_fields(state=RunState.RUNNING, started_at=time.time(), eval=evals)
    directory.finish(RunState.FINISHED)
    return find_run(workspace, run_id)


def test_configurations_are_shown_where_they_differ(workspace: Workspace) -> None:
    configs = {
        "a": config_of(learning_rate=1e-4, seed=1, folder="/x"),
        "b": config_of(learning_rate=1e-5, seed=1, folder="/y"),
        "c": config_of(learning_rate=1e-4, seed=1, env_args={"houses": "fixed"}),
    }
    found = config_differences(configs)
    assert [one.field for one in found] == ["env_args", "learning_rate"]
    assert found[1].values == {"a": 1e-4, "b": 1e-5, "c": 1e-4}


def test_same_test_problems_are_compared_in_pairs(workspace: Workspace) -> None:
    """20 solved by b only, 4 by a only: the paired test sees what the rates alone do not."""
    a = make(workspace, "a", outcomes=[True] * 60 + [True] * 4 + [False] * 20 + [False] * 44)
    b = make(workspace, "b", outcomes=[True] * 60 + [False] * 4 + [True] * 20 + [False] * 44, learning_rate=1e-4)
    assert pairs_of(a.directory, b.directory) == (4, 20, 128)
    found = compare_runs([a, b])
    (one,) = found.differences
    assert one.test.startswith("exact McNemar")
    assert one.p == pytest.approx(paired_test(4, 20).p)
    assert one.p < 0.01
    assert independent_test(64, 128, 80, 128).p > 0.04
    assert (one.verdict, one.difference) == ("better", pytest.approx(16 / 128))
    assert one.ci95[0] > 0
    assert "The model of b is better than that of a" in found.verdict
    assert "which configuration is better" in found.verdict


def test_other_problems_are_compared_as_independent(workspace: Workspace) -> None:
    a, b = make(workspace, "a", after=50, seed=1), make(workspace, "b", after=80, seed=2)
    (one,) = compare_runs([a, b]).differences
    assert "independent" in one.test
    assert one.p == pytest.approx(independent_test(50, 100, 80, 100).p)
    assert one.verdict == "better"


def test_no_difference_is_said_where_none_is_shown(workspace: Workspace) -> None:
    found = compare_runs([make(workspace, "a", after=50), make(workspace, "b", after=54)])
    assert found.differences[0].verdict == "no difference shown"
    assert "no difference is shown" in found.verdict


def test_a_difference_may_be_shown_although_intervals_overlap(workspace: Workspace) -> None:
    a, b = make(workspace, "a", after=102, n=128), make(workspace, "b", after=115, n=128)
    assert a.document.eval["after"].ci95[1] > b.document.eval["after"].ci95[0]
    assert compare_runs([a, b]).differences[0].verdict == "better"


def test_asking_several_times_has_its_price(workspace: Workspace) -> None:
    """p = .028 alone is below .05; as the smallest of five it is not."""
    base = make(workspace, "base", after=50)
    near = [make(workspace, f"n{i}", after=51) for i in range(4)]
    one = make(workspace, "one", after=65)
    assert compare_runs([base, one]).differences[0].verdict == "better"
    many = {each.second: each for each in compare_runs([base, one, *near]).differences}
    assert many["one"].p < 0.05 < many["one"].p_adjusted
    assert many["one"].verdict == "no difference shown"


def test_different_tasks_are_not_compared(workspace: Workspace) -> None:
    found = compare_runs([make(workspace, "a"), make(workspace, "b", env="lookup")])
    assert found.differences == []
    assert "env 'calculator' and 'lookup'" in found.notes[0]
    assert "mcp-evo evaluate a --against b" in found.notes[0]
    assert found.verdict.startswith("Nothing can be said")


def test_a_run_without_a_last_test_is_named(workspace: Workspace) -> None:
    found = compare_runs([make(workspace, "a"), make(workspace, "b", after=None)])
    assert found.differences == []
    assert found.notes == ["b has no test after training: not compared"]


def measure(origin: Origin, metric: str = "success", split: str = "test") -> Measure:
    return Measure(
        run_id=f"{origin.name.lower()}", name="x", metric=metric, split=split, origin=origin, n=100, mean=0.5, ci95=None
    )


@pytest.mark.parametrize(
    "other",
    [
        measure(Origin.TRAINING, "reward", "train"),
        measure(Origin.TRAINING),
        measure(Origin.BEST_OF_SEVERAL, split="validation"),
        measure(Origin.HELD_OUT, split="validation"),
        measure(Origin.HELD_OUT, metric="reward"),
    ],
)
def test_a_training_mean_or_another_split_never_meets_a_held_out_rate(other: Measure) -> None:
    with pytest.raises(RunError, match="not the same thing"):
        difference(measure(Origin.HELD_OUT), other)


@pytest.mark.parametrize("origin", [Origin.TRAINING, Origin.BEST_OF_SEVERAL])
def test_what_was_chosen_or_trained_on_has_no_test(origin: Origin) -> None:
    with pytest.raises(RunError, match="no test"):
        difference(measure(origin), measure(origin))


def test_measures_say_how_they_came_about(workspace: Workspace) -> None:
    """Rewards of the last third (steps 7 to 9): mean .8, standard error .1 / sqrt 3."""
    run = make(workspace, "a", rewards=[0.1] * 6 + [0.7, 0.8, 0.9])
    found = {one.name: one for one in measures_of(run)}
    assert found.keys() == {"before", "after", "best validation", "training reward"}
    assert found["best validation"].ci95 is None
    assert found["after"].origin is Origin.HELD_OUT
    training = found["training reward"]
    assert (training.mean, training.n, training.split) == (pytest.approx(0.8), 48, "train")
    assert training.ci95 == pytest.approx((0.8 - 1.96 * 0.1 / 3**0.5, 0.8 + 1.96 * 0.1 / 3**0.5), abs=1e-4)


def test_runs_that_go_on_are_named_and_counts_are_checked(workspace: Workspace) -> None:
    a = make(workspace, "a")
    queued = create_run(workspace, config_of(), run_id="q")
    notes = compare_runs([a, find_run(workspace, "q")]).notes
    assert notes[0] == "q is queued: its numbers may change"
    assert queued.run_id == "q"
    for wrong in ([a], [a, a], []):
        with pytest.raises(RunError, match="name 2 to 12 different runs"):
            compare_runs(wrong)


def test_a_torn_episode_file_is_no_pair(workspace: Workspace) -> None:
    a, b = (make(workspace, name, outcomes=[True] * 50 + [False] * 50) for name in "ab")
    path: Path = b.directory.path / "eval-after.jsonl"
    path.write_text(path.read_text()[:-40])
    assert pairs_of(a.directory, b.directory) is None
    assert "independent" in compare_runs([a, b]).differences[0].test
