"""Environments: the contract, tasks that are disjoint and seeded."""

import random

import pytest

from trainer.envs import house_rules, lookup, registry
from trainer.envs.base import EnvironmentFault, EnvironmentSpec, Split, split_of
from trainer.envs.calculator import Calculator

NAMES = ("calculator", "house_rules", "lookup")
"""The shipped environments that make their own problems."""


def test_the_shipped_environments_are_registered() -> None:
    assert set(NAMES) <= set(registry.names())
    assert registry.load("calculator").tools == ("calculate", "finish")
    assert registry.load("lookup").tools == ("finish", "look_up")


def test_unknown_environment_lists_what_is_allowed() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"unknown environment 'calculater'.*calculator.*Did you mean calculator"
    ):
        registry.load("calculater")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("difficulty", ["simple", "mixed", "hard"])
def test_splits_share_no_problem(name: str, difficulty: str) -> None:
    spec = registry.load(name)
    assert spec.tasks is not None
    key = (lambda row: (row["register"], row["prompt"])) if name == "lookup" else (lambda row: _numbers(row["prompt"]))
    parts = {split: {key(row) for row in spec.tasks(split, 100, 3, difficulty)} for split in Split}
    assert all(len(part) == 100 for part in parts.values())
    assert not parts[Split.TRAIN] & parts[Split.TEST]
    assert not parts[Split.TRAIN] & parts[Split.VALIDATION]
    assert not parts[Split.VALIDATION] & parts[Split.TEST]


def _numbers(prompt: str) -> str:
    """The expression (and house) of a question, whatever words stand around it."""
    return "".join(c for c in prompt if c in "0123456789+-*()@ ").strip()


@pytest.mark.parametrize("name", NAMES)
def test_tasks_depend_on_the_seed_alone_and_longer_sets_begin_with_shorter_ones(name: str) -> None:
    make = registry.load(name).tasks
    assert make is not None
    assert make("train", 20, 1, "mixed") == make("train", 30, 1, "mixed")[:20]
    assert make("train", 20, 1, "mixed") != make("train", 20, 2, "mixed")


def test_asking_for_more_problems_than_there_are_says_how_many_there_are() -> None:
    with pytest.raises(ValueError, match=r"different test problems, 900 were asked for"):
        Calculator.tasks(Split.TEST, 900, 1, "simple")


def test_new_houses_belong_to_one_split() -> None:
    train = {row["house"] for row in house_rules.HouseRules.tasks(Split.TRAIN, 200, 1)}
    test = {row["house"] for row in house_rules.HouseRules.tasks(Split.TEST, 200, 1)}
    assert not train & test
    fixed = {row["house"] for row in house_rules.HouseRules.tasks(Split.TEST, 60, 1, houses="fixed", count=4)}
    assert fixed <= set(house_rules.fixed_houses(4))


def test_house_answers_by_hand() -> None:
    forms = {house_rules.meaning(h): h for h in house_rules.HOUSES}
    assert set(forms) == set(house_rules.MEANINGS)
    assert house_rules.expression(forms["{b} - {a}"], 3, 10) == "10 - 3"
    assert house_rules.expression(forms["({a} + {b}) * 2"], 3, 10) == "(3 + 10) * 2"


def test_lookup_chain_by_hand() -> None:
    row = lookup.Lookup.tasks(Split.TRAIN, 1, 5, "hard")[0]
    environment = lookup.Lookup()
    environment.reset(**row)
    words = row["prompt"].removeprefix("What is the ").removesuffix("?").split(" of ")
    person = words[-1]
    for link in reversed(words[1:-1]):
        person = environment.look_up(person, link.removeprefix("the "))
    environment.finish(environment.look_up(person, words[0]).upper())
    assert environment.finished
    assert environment.get_reward() == 1.0
    with pytest.raises(ValueError, match="nobody is called Bob"):
        environment.look_up("Bob", "pet")


def test_split_shares_are_what_they_say() -> None:
    counts = dict.fromkeys(Split, 0)
    for i in range(5000):
        counts[split_of(i)] += 1
    assert 0.57 < counts[Split.TRAIN] / 5000 < 0.63
    assert 0.17 < counts[Split.TEST] / 5000 < 0.23


class NoReset:
    def get_reward(self) -> float:
        return 0.0

    def tool(self) -> str:
        """A tool."""
        return "x"


class NoDocstring:
    def reset(self, **row: object) -> None: ...

    def get_reward(self) -> float:
        return 0.0

    def tool(self) -> str:
        return "x"


@pytest.mark.parametrize(
    ("thing", "words"),
    [(NoReset, "no method `reset`"), (NoDocstring, "`tool` has no docstring"), (print, "is not a class")],
)
def test_a_class_that_breaks_the_contract_is_told_what_is_missing(thing: type, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        EnvironmentSpec.of("mine", thing)


def test_own_classes_are_found_behind_ours(tmp_path, monkeypatch) -> None:
    (tmp_path / "trainer.py").write_text("raise RuntimeError('must never be imported')")
    (tmp_path / "my_env_for_test.py").write_text(
        "class Mine:\n"
        "    def reset(self, **row): return None\n"
        "    def get_reward(self): return 1.0\n"
        "    def look(self) -> str:\n"
        "        '''Look.'''\n"
        "        return 'seen'\n"
    )
    spec = registry.load("python:my_env_for_test:Mine", (tmp_path,))
    assert spec.tools == ("look",)
    with pytest.raises(EnvironmentFault, match="no module nothing_here"):
        registry.load("python:nothing_here:Mine", (tmp_path,))
    with pytest.raises(EnvironmentFault, match="has no Other"):
        registry.load("python:my_env_for_test:Other", (tmp_path,))


def test_problems_differ_in_kind_by_difficulty() -> None:
    simple = Calculator.tasks(Split.TRAIN, 50, 1, "simple")
    hard = Calculator.tasks(Split.TRAIN, 50, 1, "hard")
    assert all(len(_numbers(row["prompt"])) <= 8 for row in simple)
    assert any("(" in row["prompt"] for row in hard)
    assert random.Random(1).random() == 0.13436424411240122  # the generator that all of this rests on
