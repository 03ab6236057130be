"""Evaluation: what is planned, that splits are disjoint, how episodes are counted, and the real process on `tiny`."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainer.config import ConfigError, TrainingConfig
from trainer.envs.base import Split
from trainer.evaluate import Evaluator
from trainer.evaluate_main import check_disjoint, identity_of, problems_of
from trainer.evaluation.categories import category_of
from trainer.evaluation.folder import (
    EvaluationFolder,
    find_evaluation,
    start_evaluation,
    stop_evaluation,
    wait_for,
)
from trainer.evaluation.plan import Wishes, default_ks, plan_evaluation
from trainer.evaluation.report import result_lines
from trainer.evaluation.scoring import compare_subjects, split_result
from trainer.evaluation.types import EpisodeScore, EvaluationError
from trainer.models.catalog import BUNDLED_TINY, resolve_model
from trainer.models.load import load
from trainer.runs.errors import RunError
from trainer.runs.registry import create_run
from trainer.runs.statistics import wilson
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace, create_workspace
from trainer.tasks import DataFault, Tasks
from trainer.world import open_world


def config_of(**values: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(values)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / ".mcp-evo")


def finished_run(workspace: Workspace, config: TrainingConfig, run_id: str = "run-a") -> Path:
    """A run whose trained model is the bundled one again."""
    directory = create_run(workspace, config, run_id=run_id)
    shutil.copytree(BUNDLED_TINY, directory.model_folder)
    directory.set_fields(state=RunState.RUNNING, started_at=time.time())
    directory.finish(RunState.FINISHED)
    return directory.path


# ---- the plan


def test_a_run_is_its_trained_model_against_its_base_on_its_own_problems(workspace: Workspace) -> None:
    path = finished_run(workspace, config_of(env="lookup", difficulty="hard", seed=7, max_turns=6))
    plan = plan_evaluation(workspace, "run-a", Wishes(n=40))
    assert [one.name for one in plan.subjects] == ["base", "trained"]
    assert plan.subjects[0].model == "tiny"
    assert plan.subjects[1].model == str(path / "model")
    assert plan.subjects[1].run_id == plan.run_id == "run-a"
    assert (plan.config.env, plan.config.difficulty, plan.config.max_turns) == ("lookup", "hard", 6)
    assert plan.seeds == (7,)
    assert plan.splits == ("test",)
    assert plan_evaluation(workspace, "latest", Wishes()).run_id == "run-a"
    assert plan_evaluation(workspace, "run", Wishes()).run_id == "run-a"  # the beginning of an id


def test_another_environment_drops_what_was_written_for_the_first(workspace: Workspace) -> None:
    finished_run(workspace, config_of(env="house_rules", env_args={"houses": "fixed"}, system_prompt="Obey."))
    plan = plan_evaluation(workspace, "run-a", Wishes(env="calculator", overrides=["max_turns=7"]))
    assert plan.config.env == "calculator"
    assert plan.config.env_args == {}
    assert plan.config.system_prompt is None
    assert plan.config.max_turns == 7
    same = plan_evaluation(workspace, "run-a", Wishes(env="house_rules"))
    assert same.config.env_args == {"houses": "fixed"}


def test_a_model_and_others_against_it(workspace: Workspace) -> None:
    finished_run(workspace, config_of())
    plan = plan_evaluation(workspace, "tiny", Wishes(env="lookup", against=["run-a", "tiny", "qwen-0.5b"]))
    assert [one.name for one in plan.subjects] == ["tiny", "run-a", "tiny-2", "qwen-0.5b"]
    assert plan.run_id is None
    assert plan.config.env == "lookup"


def test_relative_models_are_looked_for_beside_the_workspace_wherever_the_process_stands(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for name in ("mine", "other"):
        shutil.copytree(BUNDLED_TINY, project / "models" / name)
    monkeypatch.chdir("/")  # where Claude Desktop starts a server
    wishes = Wishes(env="calculator", against=["models/other"])
    plan = plan_evaluation(workspace, "./models/mine", wishes, folder=project)
    assert [Path(one.model) for one in plan.subjects] == [project / "models" / "mine", project / "models" / "other"]


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (Wishes(n=0), "1 to 100,000"),
        (Wishes(samples=0), "1 to 1,024"),
        (Wishes(samples=4, ks=(8,)), "at least 8 attempts"),
        (Wishes(ks=(0,)), "pass@0"),
        (Wishes(seeds=(-1,)), "seed -1"),
        (Wishes(temperature=0), "temperature 0"),
        (Wishes(splits=("tset",)), "unknown split tset"),  # type: ignore[arg-type]
        (Wishes(n=100_000, samples=100), "Lower n or samples"),
    ],
)
def test_impossible_wishes_are_one_clear_error(workspace: Workspace, wishes: Wishes, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        plan_evaluation(workspace, "tiny", wishes)


def test_what_is_neither_run_nor_model_says_what_there_is(workspace: Workspace) -> None:
    with pytest.raises(EvaluationError, match=r"neither a run nor a model.*Did you mean tiny"):
        plan_evaluation(workspace, "tinyy", Wishes())
    with pytest.raises(ConfigError, match="does not exist"):
        plan_evaluation(workspace, "./nothing/here", Wishes())
    with pytest.raises(ConfigError, match="unknown key 'learnrate'"):
        plan_evaluation(workspace, "tiny", Wishes(overrides=["learnrate=1"]))


def test_a_run_without_a_model_cannot_be_evaluated(workspace: Workspace) -> None:
    directory = create_run(workspace, config_of(), run_id="run-b")
    with pytest.raises(RunError, match=r"run-b is queued and has no trained model\. Wait for its end"):
        plan_evaluation(workspace, "run-b", Wishes())
    directory.finish(RunState.FAILED)
    with pytest.raises(RunError, match=r"run-b is failed .* Go on with it \(mcp-evo runs resume"):
        plan_evaluation(workspace, "run-b", Wishes())


def test_default_ks() -> None:
    assert [default_ks(n) for n in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


# ---- problems


def plan_of(workspace: Workspace, **wishes: Any) -> Any:
    return plan_evaluation(workspace, "tiny", Wishes(**wishes))


@pytest.mark.parametrize("env", ["calculator", "house_rules", "lookup"])
def test_shipped_environments_have_disjoint_splits_over_seeds(workspace: Workspace, tmp_path: Path, env: str) -> None:
    plan = plan_of(workspace, env=env, n=60, splits=("train", "validation", "test"), seeds=(1, 2, 3))
    problems, warnings = problems_of(plan, open_world(plan.config, tmp_path))
    assert warnings == []
    assert {key: len(rows) for key, rows in problems.items()} == {
        (split, seed): 60 for split in ("train", "validation", "test") for seed in (1, 2, 3)
    }
    by_split = {
        split: {identity_of(row) for (other, _), rows in problems.items() if other == split for row in rows}
        for split in ("train", "validation", "test")
    }
    assert not by_split["test"] & (by_split["train"] | by_split["validation"])
    assert not by_split["train"] & by_split["validation"]


def test_a_problem_on_two_sides_is_refused_also_when_only_the_run_trained_on_it() -> None:
    row = {"prompt": "What is 2 + 3?", "answer": "5"}
    other = {"prompt": "What is 4 + 3?", "answer": "7"}
    check_disjoint(Tasks([row], [], []), {("train", 1): [row], ("test", 1): [other]})
    with pytest.raises(DataFault, match=r"test split is also in the train split of .*'What is 2 \+ 3\?'"):
        check_disjoint(Tasks([row], [], []), {("test", 1): [{**row, "id": 17, "answer": "five"}]})
    with pytest.raises(DataFault, match="validation"):
        check_disjoint(Tasks([], [row], []), {("test", 2): [other, row]})


def numbered_file(folder: Path) -> Path:
    file = folder / "tasks.jsonl"
    file.write_text("".join(f'{{"prompt": "What is {i} + 1?", "answer": "{i + 1}"}}\n' for i in range(100)))
    return file


def test_another_run_must_not_have_learned_from_the_test(workspace: Workspace, tmp_path: Path) -> None:
    """Two runs on one file with two seeds: each one's training holds problems of the other's test."""
    file = str(numbered_file(tmp_path))
    for run_id, seed in (("one", 1), ("two", 2), ("same", 1)):
        finished_run(workspace, config_of(data=file, seed=seed), run_id)
    fair = plan_evaluation(workspace, "one", Wishes(n=15, against=["same"]))
    assert len(fair.learned) == 2
    problems_of(fair, open_world(fair.config, tmp_path))
    unfair = plan_evaluation(workspace, "one", Wishes(n=15, against=["two"]))
    with pytest.raises(DataFault, match="of what a model was trained with"):
        problems_of(unfair, open_world(unfair.config, tmp_path))
    moved = plan_evaluation(workspace, "one", Wishes(n=15, overrides={"seed": 2}))
    with pytest.raises(DataFault, match="of what a model was trained with"):
        problems_of(moved, open_world(moved.config, tmp_path))


def test_generated_problems_are_fair_to_runs_of_any_seed_and_difficulty(workspace: Workspace, tmp_path: Path) -> None:
    finished_run(workspace, config_of(seed=1, problems=400), "one")
    finished_run(workspace, config_of(seed=2, problems=400, difficulty="hard"), "two")
    plan = plan_evaluation(workspace, "one", Wishes(n=200, against=["two"], difficulty="simple", seeds=(7,)))
    problems_of(plan, open_world(plan.config, tmp_path))


def test_the_splits_of_a_file_do_not_move_with_the_seed(workspace: Workspace, tmp_path: Path) -> None:
    file = numbered_file(tmp_path)
    plan = plan_of(workspace, overrides={"data": str(file)}, n=15, seeds=(1, 2))
    problems, _ = problems_of(plan, open_world(plan.config, tmp_path))
    assert problems["test", 1] == problems["test", 2]


# ---- kinds


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"prompt": "What is 3 + 4?"}, "1 operator"),
        ({"prompt": "Compute (3 + 4) * -2."}, "2 operators"),
        ({"prompt": "In house 110, what is 3 @ 4?"}, "1 operator"),
        ({"prompt": "What is the pet of the boss of the friend of Ada?"}, "2 links"),
        ({"prompt": "What is the pet of Ada?"}, "all"),
        ({"prompt": [{"role": "user", "content": "What is 1 - 2?"}]}, "1 operator"),
        ({"prompt": "What is 3 + 4?", "category": "sums"}, "sums"),
        ({"prompt": "x", "level": 3}, "3"),
        ({"prompt": "x", "category": "", "difficulty": "hard"}, "hard"),
        ({"prompt": "well-known words"}, "all"),
    ],
)
def test_kinds_of_problems(row: dict[str, Any], kind: str) -> None:
    assert category_of(row) == kind


# ---- scores


def score(problem: str, success: bool, **values: Any) -> EpisodeScore:
    defaults: dict[str, Any] = {
        "subject": "base",
        "split": "test",
        "seed": 1,
        "sample": 0,
        "category": "all",
        "turns": 2,
        "tool_calls": 1,
        "tool_errors": 0,
        "parse_errors": 0,
        "attempted_calls": 2,
        "stop_reason": "finished",
        "tokens": 40,
    }
    return EpisodeScore(problem=problem, success=success, **{**defaults, **values})


def test_a_split_counted_by_hand() -> None:
    scores = [
        score("a", True, category="easy", turns=1),
        score("b", False, category="easy", tool_calls=0, parse_errors=2, stop_reason="parse_errors"),
        score("c", True, category="hard", turns=3, tool_errors=1),
        score("d", False, category="hard", attempted_calls=0, tool_calls=0, stop_reason="max_tokens", tokens=80),
    ]
    found = split_result(scores, "test", (1,), 2.0)
    assert (found.metric, found.split, found.n, found.problems, found.samples) == ("success", "test", 4, 4, 1)
    assert found.mean == 0.5
    assert found.ci95 == pytest.approx(wilson(2, 4))
    assert found.parse_ok_rate == pytest.approx(1 - 2 / 6)
    assert found.tool_call_rate == 0.5
    assert found.correct_given_valid_call == 1.0
    assert found.finish_rate == 0.5
    assert found.truncated_rate == 0.25
    assert found.tool_error_rate == pytest.approx(1 / 3)
    assert found.turns_mean == 2.0
    assert found.tokens_mean == 50.0
    assert [(one.category, one.n, one.mean) for one in found.categories] == [("easy", 2, 0.5), ("hard", 2, 0.5)]


def test_pass_at_k_of_a_split_is_the_mean_over_problems() -> None:
    """Problem a: 1 of 4, b: 3 of 4. pass@2: 1 - C(3,2)/C(4,2) = 1/2 and 1 - 0 = 1; pass@4: both 1."""
    scores = [score("a", i < 1, sample=i) for i in range(4)] + [score("b", i < 3, sample=i) for i in range(4)]
    found = split_result(scores, "test", (1, 2, 4, 8), 1.0)
    assert found.pass_at.keys() == {"1", "2", "4"}  # 8 attempts there are not
    assert [found.pass_at[k].mean for k in ("1", "2", "4")] == pytest.approx([0.5, 0.75, 1.0])
    assert found.n == 8
    assert found.pass_at["2"].n == 2


def pairs(first: Sequence[bool], second: Sequence[bool]) -> tuple[list[EpisodeScore], list[EpisodeScore]]:
    def rows(values: Sequence[bool]) -> list[EpisodeScore]:
        return [score(f"p{i}", one) for i, one in enumerate(values)]

    return rows(first), rows(second)


def test_two_subjects_by_hand() -> None:
    """12 problems solved only after, 2 only before, 26 alike: p = 2 (1 + 14 + 91) / 2^14."""
    first, second = pairs([True] * 2 + [False] * 12 + [True] * 26, [False] * 2 + [True] * 12 + [True] * 26)
    found = compare_subjects(first, second, "test", ("base", "trained"))
    assert found.difference == pytest.approx(10 / 40)
    assert found.p == pytest.approx(2 * 106 / 2**14)
    assert found.verdict == "better"
    assert found.ci95[0] > 0
    assert "exact McNemar" in found.sentence
    assert "trained is better than base" in found.sentence
    assert compare_subjects(second, first, "test", ("a", "b")).verdict == "worse"


def test_identical_subjects_show_no_difference() -> None:
    first, second = pairs([True, False] * 20, [True, False] * 20)
    found = compare_subjects(first, second, "test", ("base", "trained"))
    assert (found.difference, found.p, found.verdict) == (0.0, 1.0, "no difference shown")
    assert found.ci95[0] < 0 < found.ci95[1]


def test_several_attempts_are_tested_over_problems_not_over_attempts() -> None:
    """One problem of five went from 0/100 to 100/100: a hundred attempts at it are one piece of evidence."""
    first = [score(f"p{i}", False, sample=s) for i in range(5) for s in range(100)]
    second = [score(f"p{i}", i == 0, sample=s) for i in range(5) for s in range(100)]
    found = compare_subjects(first, second, "test", ("base", "trained"))
    assert found.difference == pytest.approx(0.2)
    assert found.verdict == "no difference shown"
    assert found.problems == 5


def test_other_problems_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="same test problems"):
        compare_subjects([score("a", True)], [score("b", True)], "test", ("base", "trained"))


# ---- the process


def test_the_process_repeats_the_test_of_a_run_under_one_grader(workspace: Workspace, tmp_path: Path) -> None:
    """The trained model is a copy of the base: every pair is equal, and equal to what the run's own test computes."""
    config = config_of(problems=8, test_problems=16, seed=5, threads=1, device="cpu")
    finished_run(workspace, config)
    plan = plan_evaluation(workspace, "run-a", Wishes(n=16))
    folder = start_evaluation(workspace, plan)
    standing = wait_for(folder, 240)
    assert standing.state == "finished", (standing, folder.log_tail(30))
    assert standing.result is not None
    base, trained = standing.result.subjects
    assert base.splits == {"test": trained.splits["test"].model_copy(update={"seconds": base.splits["test"].seconds})}
    world = open_world(config, tmp_path)
    own, _ = Evaluator(config, load(resolve_model("tiny"), "cpu"), world.spec, world.tasks(config)).run(Split.TEST)
    again = base.splits["test"]
    assert (again.mean, again.n, again.ci95) == (own.mean, own.n, own.ci95)
    assert (again.turns_mean, again.tool_call_rate, again.parse_ok_rate) == (
        own.turns_mean,
        own.tool_call_rate,
        own.parse_ok_rate,
    )
    (comparison,) = standing.result.comparisons
    assert (comparison.difference, comparison.p, comparison.verdict) == (0.0, 1.0, "no difference shown")
    assert len(folder.episodes_path.read_text().splitlines()) == 32
    assert find_evaluation(workspace) == folder
    text = "\n".join(result_lines(standing.result))
    assert "base" in text
    assert "2 operators" in text


def test_what_goes_wrong_in_the_process_is_its_last_word(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(
        "class Leaky:\n"
        "    def reset(self, **row): self.reward = 0.0\n"
        "    def guess(self, answer: str) -> str:\n"
        "        '''Guess.\n\n        Args:\n            answer: It.\n        '''\n"
        "        return 'done'\n"
        "    def get_reward(self) -> float: return self.reward\n"
        "    @classmethod\n"
        "    def tasks(cls, split, n, seed, difficulty):\n"
        "        return [{'prompt': f'Say {i}', 'answer': str(i)} for i in range(n)]\n"
    )
    plan = plan_evaluation(
        workspace, "tiny", Wishes(env="python:leaky:Leaky", n=8, overrides={"problems": 8}), folder=tmp_path
    )
    folder = start_evaluation(workspace, plan)
    standing = wait_for(folder, 120)
    assert standing.state == "failed"
    assert standing.failure is not None
    assert standing.failure.kind == "data"
    assert "also in the train split" in standing.failure.message


def test_a_killed_process_is_a_failed_evaluation(workspace: Workspace) -> None:
    folder = start_evaluation(workspace, plan_of(workspace, n=8))
    assert folder.standing().state == "running"
    assert stop_evaluation(folder)
    standing = folder.standing()
    assert standing.state == "failed"
    assert standing.failure is not None
    assert standing.failure.kind == "killed"


def test_unknown_evaluations_are_named(workspace: Workspace) -> None:
    with pytest.raises(EvaluationError, match="no evaluations yet"):
        find_evaluation(workspace)
    with pytest.raises(EvaluationError, match="no evaluation 'eval-x'"):
        find_evaluation(workspace, "eval-x")
    with pytest.raises(EvaluationError, match="holds no plan"):
        EvaluationFolder(workspace.root).read_plan()


def test_one_that_is_just_being_started_is_not_taken_for_dead(workspace: Workspace) -> None:
    plan = plan_of(workspace, n=8)
    folder = EvaluationFolder(workspace.root / "evaluations" / plan.evaluation_id)
    folder.path.mkdir(parents=True)
    folder.plan_path.write_text(plan.model_dump_json())
    assert folder.standing().state == "running"
    long_ago = time.time() - 60
    os.utime(folder.plan_path, (long_ago, long_ago))
    assert folder.standing().state == "failed"
