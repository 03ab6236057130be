"""Generated tasks in a training set: exact shares, nothing that a run is evaluated on, clear errors."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from generation_helpers import write_rows
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import ConfigError, TrainingConfig
from trainer.datafiles import DataFault
from trainer.envs import registry
from trainer.generation.mixing import answer_fields, mixed, shares
from trainer.generation.types import Manifest
from trainer.settings import resolve
from trainer.tasks import build_tasks, training_order


def generated(count: int, start: int = 1000) -> list[dict[str, Any]]:
    return [{"prompt": f"Compute {start + i} + 1.", "answer": str(start + i + 1)} for i in range(count)]


@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0.01, 1.0))
def test_shares_keep_size_and_ratio(problems: int, originals: int, ratio: float) -> None:
    made, kept = shares(problems, min(problems, originals), ratio)
    assert made + kept <= problems
    assert kept <= originals
    total = made + kept
    # to a whole problem; where too few originals are there the set shrinks instead of the share growing
    assert abs(made - ratio * total) <= 1.0


@pytest.mark.parametrize(
    ("problems", "originals", "ratio", "expected"),
    [
        (64, 64, 0.5, (32, 32)),
        (64, 64, 0.25, (16, 48)),
        (10, 10, 1.0, (10, 0)),
        (64, 20, 0.5, (20, 20)),
        (7, 7, 0.5, (4, 3)),
    ],
)
def test_shares_by_hand(problems: int, originals: int, ratio: float, expected: tuple[int, int]) -> None:
    assert shares(problems, originals, ratio) == expected


def config(path: Path, **more: Any) -> TrainingConfig:
    values = {"problems": 20, "generated_tasks": str(path), "test_problems": 8, "validation_problems": 8, **more}
    return TrainingConfig.model_validate(values)


def test_the_share_is_exact_over_an_epoch_and_the_same_every_time(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "tasks.jsonl", generated(40))
    spec = registry.load("calculator")
    tasks = build_tasks(config(path, generated_ratio=0.3), spec, tmp_path)
    assert len(tasks.train) == 20
    assert tasks.mixture is not None
    assert (tasks.mixture.generated, tasks.mixture.originals, tasks.mixture.left_out) == (6, 14, {})
    assert tasks.mixture.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    ours = {row["prompt"] for row in generated(40)}
    for epoch in range(3):
        order = training_order(20, 60, seed=1)[20 * epoch : 20 * (epoch + 1)]
        drawn = Counter(tasks.train[problem]["prompt"] in ours for problem, _ in order)
        assert drawn == {True: 6, False: 14}
    again = build_tasks(config(path, generated_ratio=0.3), spec, tmp_path)
    assert again.train == tasks.train
    assert again.fingerprint == tasks.fingerprint
    plain = build_tasks(config(path).model_copy(update={"generated_tasks": None}), spec, tmp_path)
    assert (tasks.validation, tasks.test) == (plain.validation, plain.test)
    assert tasks.train[:14] == plain.train[:14]
    assert plain.mixture is None
    assert build_tasks(config(path, generated_ratio=0.3, seed=2), spec, tmp_path).train != tasks.train


def test_what_a_run_is_evaluated_on_is_left_out_and_counted(tmp_path: Path) -> None:
    spec = registry.load("calculator")
    assert spec.tasks is not None
    plain = build_tasks(config(tmp_path).model_copy(update={"generated_tasks": None}), spec, tmp_path)
    stolen = [*plain.validation[:3], *({**row, "prompt": f"Now: {row['prompt']}"} for row in plain.test[:3])]
    path = write_rows(tmp_path / "tasks.jsonl", [*stolen, plain.train[0], *generated(12)])
    tasks = build_tasks(config(path, generated_ratio=0.6), spec, tmp_path)
    held = {row["prompt"] for row in [*plain.validation, *plain.test]}
    assert not held & {row["prompt"].removeprefix("Now: ") for row in tasks.train}
    assert tasks.mixture is not None
    assert sum(tasks.mixture.left_out.values()) >= 1
    with pytest.raises(DataFault, match=r"gives 12 tasks of 19 \(left out: 1 as duplicate, 6 as leak\).*needs 14"):
        build_tasks(config(path, generated_ratio=0.7), spec, tmp_path)


def test_without_a_manifest_the_words_alone_decide(tmp_path: Path) -> None:
    """Nobody knows then that `register` is a world and no answer, so more is refused."""
    held = {"test": [{"prompt": "What is the pet of Ada?", "answer": "cat", "register": 1}]}
    rows = [{"prompt": "What is the pet of Ada?", "answer": "dog", "register": 2}] * 2
    path = write_rows(tmp_path / "tasks.jsonl", rows)
    with pytest.raises(DataFault, match="2 as leak"):
        mixed([], held, path, ratio=1.0, problems=1, seed=1)
    manifest = Manifest(
        set_id="s", env="lookup", explorer="scripted", model=None, seed=1, asked=1, kept=1,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(), answers=["answer"], tools={}, fields=[], originals=1,
        solved=1, found_by={}, templates=1, confirmed=0, draws=1, dropped={}, guarded=1,
    )  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(manifest.model_dump(mode="json")))
    assert answer_fields(path) == ["answer"]
    train, mixture = mixed([], held, path, ratio=1.0, problems=1, seed=1)
    assert (train, mixture.left_out) == (rows[:1], {})
    write_rows(path, generated(2))  # another file under this name
    assert answer_fields(path) is None


def test_settings_are_strict(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "tasks.jsonl", generated(40))
    resolved = resolve(overrides={"generated_tasks": "tasks.jsonl", "generated_ratio": 0.25}, folder=tmp_path)
    assert resolved.config.generated_tasks == str(path.resolve())
    assert resolved.config.generated_share == 0.25
    assert resolved.provenance["generated_tasks"]["source"] == "set"
    assert resolve(overrides={"generated_tasks": str(path)}).config.generated_share == 0.5
    for overrides, message in (
        ({"generated_ratio": 0.5}, "has no tasks to mix"),
        ({"generated_tasks": "gone.jsonl"}, "there is no file .*gone.jsonl"),
        ({"generated_tasks": str(path), "generated_ratio": 0}, "generated_ratio"),
        ({"generated_tasks": str(path), "problems": 128}, "holds 40 tasks; a share of 0.5 of 128 problems needs 64"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve(overrides=overrides, folder=tmp_path)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"bad\.jsonl:1: no `prompt`"):
        resolve(overrides={"generated_tasks": "bad.jsonl"}, folder=tmp_path)


@pytest.mark.slow
def test_an_evaluation_meets_fresh_problems_and_the_run_s_own_training_set(tmp_path: Path) -> None:
    """Of 250 test problems of other seeds some are near to generated tasks; an evaluation is none the poorer for it."""
    from trainer.evaluate_main import problems_of
    from trainer.evaluation.types import EvaluationPlan, Subject
    from trainer.world import open_world

    spec = registry.load("calculator")
    assert spec.tasks is not None
    rows = spec.tasks("train", 10, 99, "mixed")
    trained = config(write_rows(tmp_path / "tasks.jsonl", rows))
    world = open_world(trained, tmp_path)
    plan = EvaluationPlan(
        evaluation_id="e", created_at=0.0, target="tiny", config=trained, learned=(trained,), n=250, seeds=(1, 11),
        subjects=(Subject(name="base", model="tiny"),), splits=("train", "test"),
    )  # fmt: skip
    found, _ = problems_of(plan, world)
    assert found["train", 1] == build_tasks(trained, spec, tmp_path).train
    assert len(found["test", 11]) == 250
    assert not {row["prompt"] for row in rows} & {row["prompt"] for row in found["test", 11]}
