"""Generated sets of the shipped environments and of a made-up one: right answers, refusals, going on after a stop."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from generation_helpers import contents, folder_for, nothing, produce, purchase, purchases, write_rows
from shop_world import DAYS, LAMPS, PRICES, ROOMS, TEAMS

from trainer.envs import registry
from trainer.envs.base import EnvironmentSpec, Split, split_of
from trainer.envs.house_rules import meaning
from trainer.envs.lookup import facts_of
from trainer.experience.tokens import normalised
from trainer.generation.folder import SetFolder
from trainer.generation.produce import originals_of
from trainer.generation.types import GenerationError
from trainer.world import open_world


def calculator_answer(row: dict[str, Any]) -> str:
    expression = re.search(r"[(\d][\d ()+*-]*[\d)]", row["prompt"])
    assert expression is not None
    return str(eval(expression.group(), {"__builtins__": {}}))


def house_answer(row: dict[str, Any]) -> str:
    a, b = map(int, re.search(r"(\d+) @ (\d+)", row["prompt"]).groups())  # type: ignore[union-attr]
    assert str(row["house"]) in row["prompt"]
    return str(eval(meaning(row["house"]).format(a=a, b=b), {"__builtins__": {}}))


def lookup_answer(row: dict[str, Any]) -> str:
    facts = facts_of(random.Random(f"register/{row['register']}"))
    value, *links, person = row["prompt"].removeprefix("What is the ").removesuffix("?").split(" of ")
    for link in reversed(links):
        person = facts[person][link.removeprefix("the ")]
    return facts[person][value]


def shop_answer(row: dict[str, Any]) -> int:
    count, item = re.fullmatch(r"Buy (\d+) pieces of (\w+) and pay\.", row["prompt"]).groups()  # type: ignore[union-attr]
    return int(count) * PRICES[row["branch"]][item]


def shop_set(where: Path, rows: list[dict[str, Any]] | None = None, env: str = "Shop", **plan: Any) -> SetFolder:
    data = write_rows(where / "shop.jsonl", rows if rows is not None else purchases())
    config = {"env": f"python:shop_world:{env}", "data": str(data), "problems": 64}
    return folder_for(where, config=config, **plan)


@pytest.mark.parametrize(
    ("env", "answer", "by"),
    [
        ("calculator", calculator_answer, "search"),
        ("house_rules", house_answer, "solution"),
        ("lookup", lookup_answer, "search"),
    ],
)
def test_answers_are_right_by_other_means(tmp_path: Path, env: str, answer: Any, by: str) -> None:
    folder = folder_for(tmp_path, config={"env": env, "seed": 3}, count=8)
    manifest = produce(folder)
    assert manifest.kept == manifest.confirmed == 8
    assert manifest.found_by[by] > 0
    spec = registry.load(env)
    assert spec.owner is not None
    tasks = originals_of(folder.read_plan(), open_world(folder.read_plan().config, tmp_path))
    before = {normalised(str(row["prompt"])) for row in tasks.train} if env != "lookup" else set()
    for row, provenance in folder.read_tasks():
        assert row["answer"] == answer(row)
        assert Split(spec.owner(row)) is Split.TRAIN  # so no test of any seed can hold it
        assert normalised(row["prompt"]) not in before
        environment = spec.factory()
        environment.reset(**{key: value for key, value in row.items() if key != "prompt"})
        for call in provenance["reference"]:
            assert getattr(environment, call["tool"])(**call["arguments"]) == call["result"]
        assert environment.get_reward() == 1.0


def test_owners_are_those_of_the_generators() -> None:
    for env in ("calculator", "house_rules", "lookup"):
        spec = registry.load(env)
        assert spec.tasks is not None
        assert spec.owner is not None
        for split in Split:
            assert {Split(spec.owner(row)) for row in spec.tasks(split, 12, 5, "mixed")} == {split}
    assert registry.load("calculator").owner({"prompt": "Compute 3 + 4."}) is split_of("3 + 4")  # type: ignore[misc]


def test_an_environment_without_solution_gets_tasks_that_many_originals_support(tmp_path: Path) -> None:
    folder = shop_set(tmp_path, count=20)
    manifest = produce(folder)
    assert (manifest.kept, manifest.confirmed, manifest.answers) == (20, 0, ["total"])
    assert manifest.tools == {"multiply": ["a", "b"], "pay": ["amount"], "price": ["item"]}
    tasks = folder.read_tasks()
    assert all(row["total"] == shop_answer(row) and isinstance(row["total"], int) for row, _ in tasks)
    assert all(one["support"] >= 2 for _, one in tasks)
    assert {one["template"] for _, one in tasks} == {"Buy {0} pieces of {1} and pay."}
    # numbers lie within those that were seen, and some of them were not
    counts = {int(row["prompt"].split()[1]) for row, _ in tasks}
    assert counts <= set(range(2, 9))
    assert counts - {2, 3, 5, 8}


def test_no_task_is_one_of_validation_or_test_or_an_original(tmp_path: Path) -> None:
    """The originals' numbers leave 7 · 4 · 2 = 56 problems; a set that wants them all gets only those that are new."""
    folder = shop_set(tmp_path, count=500)
    plan = folder.read_plan()
    tasks = originals_of(plan, open_world(plan.config, tmp_path))
    manifest = produce(folder)
    held = {(row["prompt"], row["branch"]) for row in [*tasks.validation, *tasks.test]}
    before = {(row["prompt"], row["branch"]) for row in tasks.train}
    made = [(row["prompt"], row["branch"]) for row, _ in folder.read_tasks()]
    assert len(made) == len(set(made)) == manifest.kept
    assert not set(made) & (held | before)
    assert manifest.guarded == len(held)
    assert manifest.dropped["tasks"]["leak"] > 0
    assert manifest.dropped["tasks"]["duplicate"] > 0
    everything = {(purchase(n, item, b)["prompt"], b) for n in range(2, 9) for b in PRICES for item in PRICES[b]}
    # 32 problems are given, so 24 are new; what reads like a held one in the same shop counts as held
    assert 16 <= len(made) <= len(everything - held - before) == 24


def test_what_the_class_gives_to_another_split_is_not_made(tmp_path: Path) -> None:
    folder = shop_set(tmp_path, env="Elsewhere", count=6)
    manifest = produce(folder)
    assert manifest.dropped["tasks"]["other_split"] > 0
    assert manifest.fields == ["branch", "notes", "total"]
    assert {row["branch"] for row, _ in folder.read_tasks()} == {"North"}


def test_a_state_is_a_goal_too(tmp_path: Path) -> None:
    both = [(room, lamp) for room in ROOMS for lamp in LAMPS]
    rows = [{"prompt": f"Light the {lamp} lamp in the {room}.", "lamp": lamp, "room": room} for room, lamp in both[::2]]
    data = write_rows(tmp_path / "lamps.jsonl", rows)
    config = {"env": "python:shop_world:Switches", "data": str(data), "problems": 64}
    folder = folder_for(tmp_path, config=config, count=3, calls=400)
    assert produce(folder).answers == []
    for row, provenance in folder.read_tasks():
        assert row["prompt"] == f"Light the {row['lamp']} lamp in the {row['room']}."
        assert (row["room"], row["lamp"]) in both[1::2]
        (call,) = provenance["reference"]
        assert call["arguments"] == {"lamp": row["lamp"], "room": row["room"]}


def test_the_last_call_may_take_several_arguments(tmp_path: Path) -> None:
    both = [(team, day) for team in TEAMS for day in DAYS]
    rows = [
        {"prompt": f"Reserve the room of {team} for {day}.", "room": TEAMS[team], "day": day}
        for number, (team, day) in enumerate(both)
        if number % 3
    ]
    data = write_rows(tmp_path / "desk.jsonl", rows)
    config = {"env": "python:shop_world:Desk", "data": str(data), "problems": 64}
    folder = folder_for(tmp_path, config=config, count=3)
    assert produce(folder).answers == ["room"]
    for row, _ in folder.read_tasks():
        team, day = re.fullmatch(r"Reserve the room of (\w+) for (\w+)\.", row["prompt"]).groups()  # type: ignore[union-attr]
        assert (team, day) in both[::3]  # those that were not given
        assert (row["room"], row["day"]) == (TEAMS[team], day)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Generous", r"no template holds|fillings became a task \(.*trivial"),
        ("Moody", r"none of \d+ originals of .* was solved. Left out: not deterministic \d+"),
        ("Undecided", "The environment said: owner: ValueError: 'all' is not a valid Split"),
        ("Broken", "The environment said: reset: RuntimeError: the shop is closed"),
    ],
)
def test_what_cannot_be_verified_gives_no_tasks_but_a_reason(tmp_path: Path, env: str, message: str) -> None:
    folder = shop_set(tmp_path, purchases((2, 7)), env=env, calls=60)
    with pytest.raises(GenerationError, match=message):
        produce(folder)
    assert not folder.manifest_path.exists()


def test_a_set_that_was_cut_off_anywhere_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = shop_set(tmp_path, purchases((2, 7)), name="whole", count=5)
    produce(whole)
    journal = whole.journal_path.read_bytes()
    plan = whole.plan_path.read_bytes()
    rng = random.Random(7)
    for number, size in enumerate([0, 1, len(journal) - 1, *rng.sample(range(len(journal)), 5)]):
        cut = SetFolder(tmp_path / f"cut-{number}")
        cut.path.mkdir()
        cut.plan_path.write_bytes(plan)
        cut.journal_path.write_bytes(journal[:size])
        produce(cut)
        assert contents(cut) == contents(whole)
        assert cut.journal_path.read_bytes() == journal


def test_an_interrupted_set_does_not_repeat_what_it_did(tmp_path: Path) -> None:
    folder = shop_set(tmp_path)

    def stop(doing: str, done: int, of: int) -> None:
        if doing == "filling templates" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        produce(folder, stop)
    before = folder.journal_path.read_bytes()
    assert not folder.tasks_path.exists()
    produce(folder)
    assert folder.journal_path.read_bytes().startswith(before)


def test_a_set_is_not_gone_on_with_when_its_problems_have_changed(tmp_path: Path) -> None:
    folder = shop_set(tmp_path)
    produce(folder)
    write_rows(tmp_path / "shop.jsonl", purchases((2, 4, 6, 9)))
    with pytest.raises(GenerationError, match="the problems are not those that this set was begun with"):
        produce(folder)


def test_tasks_share_nothing_that_can_be_changed(tmp_path: Path) -> None:
    """The prompt is a list of messages here, and rows hold a list that the environment itself appends to."""
    rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in purchases()]
    folder = shop_set(tmp_path, rows, count=6)
    produce(folder, nothing)
    first = folder.read_tasks()
    assert all(row["notes"] == ["a list"] for row, _ in first)
    untouched = json.dumps(first[1:])
    first[0][0]["notes"].append("changed")
    first[0][0]["prompt"][0]["content"] = "changed"
    first[0][1]["reference"][0]["arguments"]["item"] = "changed"
    assert json.dumps(first[1:]) == untouched
    assert json.dumps(folder.read_tasks()[1:]) == untouched
    again = [{**row, "prompt": row["prompt"][0]["content"]} for row, _ in folder.read_tasks()]
    assert len({(row["prompt"], row["branch"]) for row in again}) == 6  # not six times the last one
    assert all(row["total"] == shop_answer(row) for row in again)


def test_another_seed_makes_other_tasks(tmp_path: Path) -> None:
    rows = purchases((2, 7))
    a, b, again = (
        shop_set(tmp_path, rows, name=name, seed=seed, count=5) for name, seed in (("a", 1), ("b", 2), ("c", 1))
    )
    for folder in (a, b, again):
        produce(folder)
    assert contents(a)[:2] == contents(again)[:2]
    assert contents(a)[0] != contents(b)[0]


def test_the_class_is_asked_by_its_contract_only() -> None:
    """A class method `owner` or `solution` is no tool."""

    class Told:
        @classmethod
        def owner(cls, row: dict[str, Any]) -> str:
            return "train"

        @classmethod
        def solution(cls, row: dict[str, Any]) -> list[Any]:
            return []

        def reset(self, **row: Any) -> None: ...

        def look(self) -> str:
            """Look."""
            return ""

    spec = EnvironmentSpec.of("told", Told)
    assert spec.tools == ("look",)
    assert spec.owner is not None
    assert spec.owner({}) == "train"
