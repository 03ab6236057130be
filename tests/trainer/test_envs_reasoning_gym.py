"""reasoning_gym: problems of the package, disjoint splits, its own verifiers."""

from importlib.util import find_spec

import pytest

from trainer.envs.base import EnvironmentFault, EnvironmentSpec, Split
from trainer.envs.reasoning_gym import ReasoningGym

installed = pytest.mark.skipif(
    find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed (pip install 'mcp-evo[reasoning-gym]')",
)


def play(row: dict, answer: str) -> float:
    environment = ReasoningGym()
    environment.reset(**{key: value for key, value in row.items() if key != "prompt"})
    environment.finish(answer)
    assert environment.finished
    return environment.get_reward()


def test_the_class_meets_the_contract() -> None:
    assert EnvironmentSpec.of("reasoning_gym", ReasoningGym).tools == ("calculate", "finish")


@pytest.mark.skipif(find_spec("reasoning_gym") is not None, reason="reasoning-gym is installed")
def test_without_the_package_its_extra_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"pip install 'mcp-evo\[reasoning-gym\]'"):
        ReasoningGym.tasks(Split.TRAIN, 2, 1, dataset="chain_sum")


def test_a_dataset_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"dataset .*for instance chain_sum.* got no dataset"):
        ReasoningGym.tasks(Split.TRAIN, 2, 1)
    with pytest.raises(ValueError, match="got datasets"):
        ReasoningGym.tasks(Split.TRAIN, 2, 1, dataset="chain_sum", datasets="x")


@installed
def test_no_question_stands_in_two_splits_and_sets_depend_on_the_seed_alone() -> None:
    parts = [ReasoningGym.tasks(split, 40, 3, dataset="chain_sum") for split in Split]
    assert len({row["prompt"] for part in parts for row in part}) == 120
    assert ReasoningGym.tasks(Split.TRAIN, 10, 3, dataset="chain_sum") == parts[0][:10]
    assert ReasoningGym.tasks(Split.TRAIN, 10, 4, dataset="chain_sum") != parts[0][:10]


@installed
def test_answers_are_scored_by_the_verifier() -> None:
    row = ReasoningGym.tasks(Split.TRAIN, 1, 3, dataset="chain_sum", config={"min_terms": 2, "max_terms": 2})[0]
    expression = row["prompt"].split(":")[-1].strip().removesuffix("=").strip()
    right = ReasoningGym().calculate(expression)
    assert play(row, right) == 1.0
    assert play(row, right + "1") == 0.0
    assert play(row, "") == 0.0


@installed
def test_partial_scores_are_given_only_when_asked_for() -> None:
    row = ReasoningGym.tasks(Split.TRAIN, 1, 3, dataset="chain_sum", partial=True)[0]
    wordy = f"It is {_answer(row)}"
    assert 0 < play(row, wordy) < 1
    assert play({**row, "partial": False}, wordy) == 0.0


def _answer(row: dict) -> str:
    import reasoning_gym

    dataset = reasoning_gym.create_dataset("chain_sum", seed=0, size=100_000)
    return dataset[row["index"]]["answer"]


@installed
def test_a_verifier_that_raises_calls_the_answer_wrong() -> None:
    row = ReasoningGym.tasks(Split.TRAIN, 1, 3, dataset="prime_factorization")[0]
    assert play(row, "no idea") == 0.0


@installed
def test_difficulty_follows_the_curriculum_and_datasets_mix() -> None:
    simple, hard = (
        ReasoningGym.tasks(Split.TRAIN, 30, 1, difficulty, dataset="chain_sum") for difficulty in ("simple", "hard")
    )
    length = [sum(len(row["prompt"]) for row in rows) for rows in (simple, hard)]
    assert length[0] < length[1]
    mixed = ReasoningGym.tasks(Split.TRAIN, 30, 1, dataset=["chain_sum", "leg_counting"])
    assert {row["dataset"] for row in mixed} == {"chain_sum", "leg_counting"}


@installed
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": "chain_sums"}, "has no dataset 'chain_sums'. Did you mean chain_sum"),
        ({"dataset": "chain_sum", "config": {"terms": 3}}, "terms.*Arguments: .*min_terms"),
        ({"dataset": "chain_sum", "config": {"min_terms": -1}}, "min_terms"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ReasoningGym.tasks(Split.TRAIN, 2, 1, **arguments)


@installed
def test_a_dataset_that_bounds_its_size_works_too() -> None:
    assert len(ReasoningGym.tasks(Split.TEST, 3, 1, dataset="word_ladder")) == 3


@installed
def test_an_episode_plays(scripted) -> None:
    row = ReasoningGym.tasks(Split.TRAIN, 1, 3, dataset="chain_sum")[0]
    turn = f'<tool_call>\n{{"name": "finish", "arguments": {{"answer": "{_answer(row)}"}}}}\n</tool_call>'
    arguments = {key: value for key, value in row.items() if key != "prompt"}
    (episode,), _ = scripted([[turn]], EnvironmentSpec.of("reasoning_gym", ReasoningGym), **arguments)
    assert episode.reward == 1.0
