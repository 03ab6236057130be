"""From attempts to templates, by hand: what becomes a slot, which reading the originals choose, what is refused."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.envs import registry
from trainer.envs.problem import same_world, world_of
from trainer.experience.trajectories import Call
from trainer.generation.journal import Journal
from trainer.generation.learn import Learned, learn
from trainer.generation.play import EnvironmentTrouble, Player, plain
from trainer.generation.profile import profile_of, values_in
from trainer.generation.screen import Guards, Screen
from trainer.generation.search import search
from trainer.generation.templates import Template, fill_row, readings
from trainer.generation.types import Attempt, FoundBy, Reason


def attempt(*calls: tuple[str, dict[str, Any], str], original: int = 0) -> Attempt:
    made = tuple(Call(tool, arguments, result, False) for tool, arguments, result in calls)
    return Attempt(original, FoundBy.POLICY, "by hand", made)


def read(row: dict[str, Any], one: Attempt) -> list[Template]:
    found = readings(one, row)
    assert isinstance(found, list)
    return found


def test_numbers_of_a_formula_are_slots_at_their_own_places() -> None:
    """`7 - 7` stands in the question as a whole, so the first 7 is the first one."""
    row = {"prompt": "What is 7 - 7?", "answer": "0"}
    (template,) = read(row, attempt(("calculate", {"expression": "7 - 7"}, "0"), ("finish", {"answer": "0"}, "done")))
    assert template.text == "What is {0} - {1}?"
    assert template.answer_fields == ("answer",)
    assert template.calls[0].filled(("5", "3"), ()) == {"expression": "5 - 3"}
    assert template.calls[1].filled(("5", "3"), ("2",)) == {"answer": "2"}
    assert fill_row(template, row, ("5", "3"), ("2", "done")) == {"prompt": "What is 5 - 3?", "answer": "2"}
    assert row == {"prompt": "What is 7 - 7?", "answer": "0"}
    assert template.match("What is 12 - 4?") == ("12", "4")
    assert template.match("What is 12 + 4?") is None


def test_answers_of_earlier_calls_are_followed_and_worlds_stay() -> None:
    row = {"prompt": "What is the pet of the boss of Ada?", "answer": "cat", "register": 17, "level": 2}
    (template,) = read(
        row,
        attempt(
            ("look_up", {"person": "Ada", "field": "boss"}, "Leo"),
            ("look_up", {"person": "Leo", "field": "pet"}, "cat"),
            ("finish", {"answer": "cat"}, "done"),
        ),
    )
    assert template.text == "What is the {0} of the {1} of {2}?"
    assert [slot.role for slot in template.slots] == ["look_up.field", "look_up.field", "look_up.person"]
    assert template.calls[1].filled(("city", "friend", "Eva"), ("Jon",)) == {"person": "Jon", "field": "city"}
    assert template.match("What is the pet of the boss of the boss of Ada?") is None  # a slot takes as many words
    made = fill_row(template, row, ("city", "friend", "Eva"), ("Jon", "Rome", "done"))
    assert made == {"prompt": "What is the city of the friend of Eva?", "answer": "Rome", "register": 17, "level": 2}


def test_fields_keep_their_type_and_follow_slots() -> None:
    row = {"prompt": "Buy 4 figs", "count": 4, "total": 36.0}
    (template,) = read(row, attempt(("times", {"a": 4, "b": 9}, "36.0"), ("pay", {"amount": 36.0}, "ok")))
    made = fill_row(template, row, ("5",), ("45.0", "ok"))
    assert made == {"prompt": "Buy 5 figs", "count": 5, "total": 45.0}
    assert (type(made["count"]), type(made["total"])) == (int, float)
    assert template.calls[1].filled(("5",), ("45.0",)) == {"amount": 45.0}
    with pytest.raises(ValueError, match="could not convert"):
        fill_row(template, row, ("5",), ("forty", "ok"))


def test_a_guess_that_was_right_is_no_template() -> None:
    row = {"prompt": "What is 3 + 4?", "answer": "7"}
    guessed = attempt(("calculate", {"expression": "3 + 3"}, "6"), ("finish", {"answer": "7"}, "done"))
    assert readings(guessed, row) is Reason.UNFOUNDED
    assert readings(attempt(("ring", {}, "ding")), {"prompt": "Ring the bell."}) is Reason.NOTHING_SHARED


def test_a_number_that_is_used_twice_may_be_a_constant() -> None:
    """`2 @ 5` by `(2 + 5) * 2`: either 2 of the call may be the question's, or a constant."""
    row = {"prompt": "In house 9, what is 2 @ 5?", "answer": "14", "house": 9}
    found = read(row, attempt(("calculate", {"expression": "(2 + 5) * 2"}, "14"), ("finish", {"answer": "14"}, "done")))
    filled = {one.calls[0].filled(["7"] * len(one.slots), ())["expression"] for one in found}
    assert filled == {"(7 + 7) * 7", "(7 + 7) * 2", "(2 + 7) * 7", "(2 + 7) * 2"}


HOUSE = 360  # there `a @ b` is (a + b) * 2


def house_rows(*numbers: tuple[int, int]) -> list[dict[str, Any]]:
    return [
        {"prompt": f"In house {HOUSE}, what is {a} @ {b}?", "answer": str((a + b) * 2), "house": HOUSE}
        for a, b in numbers
    ]


def learned_from(
    tmp_path: Path, rows: list[dict[str, Any]], *attempts: Attempt, solution: bool = False
) -> tuple[list[Learned], Counter[Reason]]:
    tmp_path.mkdir(exist_ok=True)
    spec = registry.load("house_rules")
    player = Player(spec if solution else replace(spec, solution=None))
    journal = Journal(tmp_path / "journal.jsonl")
    return learn(player, rows, attempts, journal, needed_support=2, seed=1, tell=lambda done, of: None)


def by(expression: str, answer: str) -> Attempt:
    return attempt(("calculate", {"expression": expression}, answer), ("finish", {"answer": answer}, "done"))


def test_the_originals_choose_the_reading(tmp_path: Path) -> None:
    (one,), dropped = learned_from(tmp_path, house_rows((2, 5), (3, 4)), by("(2 + 5) * 2", "14"))
    assert one.template.calls[0].filled(("8", "9"), ()) == {"expression": "(8 + 9) * 2"}
    assert one.solved == (0, 1)
    assert not dropped


def test_a_lucky_way_is_refuted_by_another_original(tmp_path: Path) -> None:
    """3 @ 6 is 18 in this house, and so is 3 * 6; 4 @ 5 is 18, too, but 4 * 5 is not."""
    learned, dropped = learned_from(tmp_path, house_rows((3, 6), (4, 5)), by("3 * 6", "18"))
    assert (learned, dropped) == ([], Counter({Reason.REFUTED: 1}))


def test_a_way_that_nothing_else_supports_is_not_used(tmp_path: Path) -> None:
    learned, dropped = learned_from(tmp_path, house_rows((3, 6)), by("3 * 6", "18"))
    assert (learned, dropped) == ([], Counter({Reason.UNSUPPORTED: 1}))


def test_a_lucky_way_is_refuted_by_the_class(tmp_path: Path) -> None:
    rows = [*house_rows((3, 6)), {"prompt": "House 360: compute 2 @ 19.", "answer": "42", "house": HOUSE}]
    lucky = by("3 * 6", "18")
    right = replace(by("(2 + 19) * 2", "42"), original=1)  # one 2 is a constant: the class says which
    learned, dropped = learned_from(tmp_path, rows, lucky, solution=True)
    assert (learned, dropped) == ([], Counter({Reason.REFUTED: 1}))
    (one,), dropped = learned_from(tmp_path / "both", rows, lucky, right, solution=True)
    assert one.template.calls[0].filled(("3", "4"), ()) == {"expression": "(3 + 4) * 2"}
    assert dropped == Counter({Reason.REFUTED: 1})


words = st.text("bcdfgh", min_size=1, max_size=6)
numbers = st.integers(0, 999).map(str)


@given(
    st.lists(st.one_of(words, numbers), min_size=1, max_size=4, unique=True), st.lists(numbers, min_size=4, max_size=4)
)
def test_a_template_asks_its_own_question_again(values: list[str], others: list[str]) -> None:
    question = "Tell " + " then ".join(f"<{value}>" for value in values) + "!"
    calls = [("tell", {"what": value}, f"told {number}") for number, value in enumerate(values)]
    found = readings(attempt(*calls), {"prompt": question})
    if not isinstance(found, list):
        assert found is Reason.AMBIGUOUS
        return
    for template in found:
        assert template.asked(template.values) == question
        assert template.match(question) == template.values
        filled = [other if slot.number else "zz" for slot, other in zip(template.slots, others, strict=False)]
        assert template.match(template.asked(filled)) == tuple(filled)


# ---- worlds, guards, screens


def test_worlds_differ_by_what_is_neither_answer_nor_label() -> None:
    a = {"prompt": "x", "answer": "1", "register": 5, "id": 3, "gold": "u"}
    assert world_of(a, ["gold"]) == (("register", "5"),)
    assert same_world(world_of(a, ["gold"]), ())
    assert not same_world(world_of(a, ["gold"]), (("register", "6"),))


def test_a_leak_is_one_in_the_same_world_only() -> None:
    guards = Guards({"test": [{"prompt": "What is the pet of Ada?", "answer": "cat", "register": 5}]}, ["answer"])
    assert "test" in (guards.leak({"prompt": "what is the pet of Ada", "answer": "dog", "register": 5}) or "")
    assert guards.leak({"prompt": "What is the pet of Ada?", "answer": "dog", "register": 6}) is None
    assert guards.leak({"prompt": "What is the pet of Ben?", "answer": "dog", "register": 5}) is None
    assert guards.leak({"prompt": "What is the pet of Ada?", "answer": "dog"}) is not None  # it may be that world
    near = Guards({"validation": [{"prompt": "What is 3 + 4?", "answer": "7"}]}, ["answer"])
    assert near.leak({"prompt": "Please work out 3 + 4.", "answer": "7"}) is not None
    assert near.leak({"prompt": "Please work out 4 + 3.", "answer": "7"}) is None


def test_repetitions_are_known_by_words_by_calls_and_by_nearness() -> None:
    calls = (Call("calculate", {"expression": "3 + 4"}, "7", False),)
    screen = Screen([{"prompt": "What is 5 + 6?", "answer": "11"}], ["answer"])
    screen.add({"prompt": "What is 3 + 4?", "answer": "7"}, calls)
    other = (Call("calculate", {"expression": "1"}, "1", False),)
    assert screen.repeats({"prompt": "what is 5 + 6?", "answer": "11"}, other) is Reason.DUPLICATE
    assert screen.repeats({"prompt": "Sum 3 and 4", "answer": "7"}, calls) is Reason.DUPLICATE
    assert screen.repeats({"prompt": "What is  3 + 4 ?", "answer": "7"}, other) is Reason.NEAR_DUPLICATE
    assert screen.repeats({"prompt": "What is 3 + 8?", "answer": "11"}, other) is None


# ---- exploring


def test_values_are_what_texts_show() -> None:
    found = values_in('What is (12 + 3) * 4, asks "Jon Doe" of New York?')
    assert {"(12 + 3) * 4", "12", "Jon Doe", "New York", "asks"} <= set(found)
    assert not {"What", "is", "of"} & set(found)


def test_a_tool_that_hangs_costs_its_own_work_only() -> None:
    class Slow:
        def reset(self, **row: Any) -> None: ...

        def wait(self, long: bool) -> str:
            """
            Wait.

            Args:
                long: Whether for long.
            """
            if long:
                threading.Event().wait(3)
            return "waited"

        def get_reward(self) -> float:
            return 1.0

    import threading

    from trainer.envs.base import EnvironmentSpec

    player = Player(EnvironmentSpec.of("slow", Slow), timeout_s=0.2)
    with pytest.raises(EnvironmentTrouble, match="wait gave no answer within 0\\.2 s"):
        player.guarded(lambda: player.play({"prompt": "x"}, [("wait", {"long": True})]))
    assert player.guarded(lambda: player.play({"prompt": "x"}, [("wait", {"long": False})])).reward == 1.0


def test_a_reset_that_hangs_is_named() -> None:
    import time

    from trainer.envs.base import EnvironmentSpec

    class Stuck:
        tool_timeouts = {"reset": 0.2}  # noqa: RUF012 - as users write it

        def reset(self, **row: object) -> None:
            time.sleep(3)

        def get_reward(self) -> float:
            return 1.0

        def wait(self) -> str:
            """Wait."""
            return "waited"

    player = Player(EnvironmentSpec.of("stuck", Stuck))
    with pytest.raises(EnvironmentTrouble, match="reset gave no answer within 0\\.2 s"):
        player.guarded(lambda: player.play({"prompt": "x"}, []))


def test_the_search_follows_a_chain_and_leaves_out_what_is_not_needed() -> None:
    spec = registry.load("lookup")
    assert spec.tasks is not None
    (row,) = [one for one in spec.tasks("train", 40, 1, "mixed") if one["prompt"].count(" of ") == 2][:1]
    player = Player(spec)
    found = search(player, profile_of(spec, [row]), row, 0, calls=400, seed=1)
    assert found
    assert [len(one.calls) for one in found] == sorted(len(one.calls) for one in found)
    for one in found:
        assert player.play(row, plain(one.calls)).reward == 1.0
        assert one.calls[-1].tool == "finish"
    assert found == search(player, profile_of(spec, [row]), row, 0, calls=400, seed=1)
