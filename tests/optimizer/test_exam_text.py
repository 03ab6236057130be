"""Patches that carry an exam are refused: problems of evaluations, statements of graders; ordinary advice is not."""

import inspect
import time
from typing import Any

import pytest

from optimizer.exam_text import _statements, exam_text, grader_text, guards_of
from optimizer.home import Home
from optimizer.patch_store import PatchError
from optimizer.stage import Proposal, stage
from trainer.config import TrainingConfig
from trainer.envs.base import Split
from trainer.envs.calculator import Calculator
from trainer.envs.lookup import Lookup
from trainer.runs.registry import create_run
from trainer.tasks import TEST_SEED


def proposal(body: str, **fields: Any) -> Proposal:
    values = {"skill": "rllm-config", "section": "procedure", "description": "advice", "slug": "advice", **fields}
    return Proposal(body=body, **values)


@pytest.fixture
def run(home: Home) -> TrainingConfig:
    config = TrainingConfig(env="calculator", difficulty="mixed", problems=64, seed=7)
    create_run(home.workspace, config)
    return config


def test_a_test_problem_of_a_run_is_refused(home: Home, run: TrainingConfig) -> None:
    rows = Calculator.tasks(Split.TEST, run.test_problems, run.seed + TEST_SEED, "mixed")
    question = str(rows[3]["prompt"])
    with pytest.raises(PatchError, match=r"holds a task of .*:test"):
        stage(home.bank, home.patches, proposal(f"When asked:\n\n> {question}\n\nuse the calculator first."))
    assert home.patches.ids() == []


def test_a_validation_problem_is_refused_and_a_training_problem_is_not(home: Home, run: TrainingConfig) -> None:
    validation = Calculator.tasks(Split.VALIDATION, run.validation_problems, run.seed, "mixed")
    training = Calculator.tasks(Split.TRAIN, run.problems, run.seed, "mixed")
    assert ":validation" in (exam_text(home.workspace, f"For example: {validation[0]['prompt']}") or "")
    told = [exam_text(home.workspace, f"For example: {row['prompt']}") for row in training]
    assert told == [None] * len(training)


def test_without_runs_nothing_is_guarded_but_graders(home: Home) -> None:
    assert guards_of(home.workspace) == []
    assert exam_text(home.workspace, "Raise the learning rate to 3e-4 for models below 10M parameters.") is None


def test_code_of_a_grader_is_refused_however_it_is_spaced(home: Home) -> None:
    name, statement = next(one for one in _statements() if one[0] in ("calculator", "lookup", "house_rules"))
    assert name in (grader_text(f"Do this: `{statement}`") or "")
    assert grader_text(" ".join(statement)) is not None
    with pytest.raises(PatchError, match="code of the grader"):
        stage(home.bank, home.patches, proposal(f"```\n{statement}\n```"))


def test_the_shipped_skills_hold_no_exam(home: Home, run: TrainingConfig) -> None:
    for skill in home.bank.skills():
        for section in home.bank.source(skill).base.sections:
            assert exam_text(home.workspace, section.text.raw) is None, (skill, section.name)


def test_equal_exams_are_made_once_and_quickly(home: Home) -> None:
    for seed in (1, 1, 2):
        create_run(home.workspace, TrainingConfig(env="lookup", problems=64, seed=seed))
    began = time.process_time()
    found = guards_of(home.workspace)
    assert time.process_time() - began < 20
    exams = [Lookup.tasks(Split.TEST, 128, seed + TEST_SEED, "mixed") for seed in (1, 2)]
    asked = [{(str(row["prompt"]), str(row["answer"])) for row in exam} for exam in exams]  # alike but for the table
    assert {one.origin.split(":")[1] for one in found} == {"validation", "test"}
    assert sum(one.origin.endswith(":test") for one in found) == len(asked[0]) + len(asked[1])


def test_a_damaged_run_guards_nothing_and_stops_nothing(home: Home, run: TrainingConfig) -> None:
    for path in home.workspace.runs.glob("*/config.json"):
        path.write_text("{", encoding="utf-8")
    assert guards_of(home.workspace) == []


def test_graders_of_our_environments_are_known() -> None:
    assert {"calculator", "lookup", "house_rules"} <= {name for name, _ in _statements()}
    assert inspect.isfunction(Calculator.get_reward)
