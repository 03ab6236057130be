"""Lessons by rule: recipes that hold for other values, in environments that the distiller does not know."""

import random
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trainer.envs.arithmetic import evaluate, show
from trainer.envs.house_rules import MEANINGS, HouseRules, meaning
from trainer.envs.lookup import Lookup
from trainer.experience.distil import Distilled, DistilOptions, Dropped, distil
from trainer.experience.records import SLOTTED, Polarity, Status
from trainer.experience.slots import needed, readings
from trainer.experience.trajectories import Call, Trajectory, trajectories_of, trajectory_of


def attempt(
    question: str,
    calls: list[tuple[str, dict[str, Any], str]],
    reward: float,
    group: str = "1/0",
    k: int = 0,
    **more: Any,
) -> Trajectory:
    made = tuple(Call(tool, arguments, result, result.startswith("Error:")) for tool, arguments, result in calls)
    return Trajectory(question, made, reward, group=group, place=f"{group}/{k}", **more)


def computed(question: str, expression: str, won: bool, group: str, k: int = 0) -> Trajectory:
    value = show(evaluate(expression))
    calls = [("calculate", {"expression": expression}, value), ("finish", {"answer": value}, "done")]
    return attempt(question, calls, float(won), group, k, answer=value if won else "")


def test_a_winning_call_becomes_a_recipe_with_slots() -> None:
    made = distil([computed("In house 123, what is 7 @ 5?", "(7 + 5) * 2", True, "1/0")], family="f", run_id="r")
    (record,) = made.records
    assert record.when_to_use == "In house 123, what is x @ y?"
    assert record.content == "use calculate with (x + y) * 2, then finish with its result"
    assert (record.polarity, record.status, record.family) == (Polarity.SUCCESS, Status.QUARANTINED, "f")
    assert record.tags == (SLOTTED,)
    assert [(one.run_id, one.trajectory) for one in record.evidence] == [("r", "1/0/0")]


def test_one_attempt_that_can_be_read_in_two_ways_gives_nothing_two_that_agree_do() -> None:
    unclear = computed("In house 123, what is 2 @ 5?", "(2 + 5) * 2", True, "1/0")
    assert distil([unclear]).records == []
    assert distil([unclear]).dropped == {Dropped.AMBIGUOUS: 1}
    clear = computed("In house 123, what is 7 @ 4?", "(7 + 4) * 2", True, "1/1")
    (record,) = distil([unclear, clear]).records
    assert record.content == "use calculate with (x + y) * 2, then finish with its result"
    assert len(record.evidence) == 2


def houses(seed: int = 1) -> tuple[Distilled, list[dict[str, Any]]]:
    rows = HouseRules.tasks("train", 40, 3, houses="fixed", count=4)  # type: ignore[arg-type]
    rng, attempts = random.Random(seed), []
    for number, row in enumerate(rows):
        found = re.search(r"(\d+) @ (\d+)", row["prompt"])
        assert found is not None
        for k in range(8):
            expression = rng.choice(MEANINGS).format(a=found[1], b=found[2])
            won = show(evaluate(expression)) == row["answer"]
            attempts.append(computed(row["prompt"], expression, won, f"1/{number}", k))
    return distil(attempts, family="house_rules"), rows


def test_houses_are_learnt_without_knowing_what_a_house_is() -> None:
    made, rows = houses()
    right = {Polarity.SUCCESS: 0, Polarity.FAILURE: 0, Polarity.CONTRAST: 0}
    for record in made.records:
        number = re.search(r"\d{3}", record.when_to_use)
        assert number is not None
        form = f"calculate with {meaning(int(number[0])).format(a='x', b='y')}"
        if record.polarity is Polarity.FAILURE:
            assert f"{form}," not in record.content
        else:
            assert record.content.startswith(f"use {form},")
        right[record.polarity] += 1
    assert right[Polarity.SUCCESS] >= len({row["house"] for row in rows})
    assert min(right.values()) >= 3
    assert not any(re.search(r"\d+ @ \d+", record.when_to_use) for record in made.records)


def test_a_chain_of_look_ups_with_words_as_literals() -> None:
    attempts = []
    for number, row in enumerate(Lookup.tasks("train", 12, 3, difficulty="hard")):  # type: ignore[arg-type]
        environment = Lookup()
        environment.reset(**row)
        calls = [
            (
                tool,
                arguments,
                environment.look_up(**arguments) if tool == "look_up" else environment.finish(**arguments),
            )
            for tool, arguments in Lookup.solution(row)
        ]
        attempts.append(attempt(row["prompt"], calls, environment.get_reward(), f"1/{number}", answer=row["answer"]))
    lessons = {record.when_to_use: record.content for record in distil(attempts).records}
    assert lessons["What is the x of the y of the z of u?"] == (
        "use look_up with person u and field z, then look_up with person its result and field y, then look_up with "
        "person its result and field x, then finish with its result"
    )


def test_an_answer_that_the_question_holds_too_takes_a_second_task() -> None:
    unclear = computed("In house 123, what is 98 @ 49?", "98 - 49", True, "1/0")
    assert distil([unclear]).dropped == {Dropped.AMBIGUOUS: 1}
    (record,) = distil([unclear, computed("In house 123, what is 9 @ 4?", "9 - 4", True, "1/1")]).records
    assert record.content == "use calculate with x - y, then finish with its result"


def test_contrast_names_what_losers_did_and_what_they_left_out() -> None:
    question = "In house 123, what is 7 @ 5?"
    group = [computed(question, "7 + 5", True, "1/0"), computed(question, "7 * 5", False, "1/0", 1)]
    contrast = [record for record in distil(group).records if record.polarity is Polarity.CONTRAST]
    assert [record.content for record in contrast] == [
        "use calculate with x + y, then finish with its result, not calculate with x * y"
    ]
    stopped = [attempt(question, [("calculate", {"expression": "7 + 5"}, "12")], 0.0, "1/0", k) for k in (1, 2)]
    contrast = [r for r in distil([group[0], *stopped]).records if r.polarity is Polarity.CONTRAST]
    assert [record.content for record in contrast] == [
        "use calculate with x + y, then finish with its result; do not end without finish"
    ]


def test_failures_need_several_attempts_and_nobody_who_won_so() -> None:
    question = "In house 123, what is 7 @ 5?"
    refused = [
        attempt(question, [("calculate", {"expression": "7 @ 5"}, "Error: unknown sign @")], 0.0, "1/0", k)
        for k in (0, 1)
    ]
    (record,) = distil(refused).records
    assert record.polarity is Polarity.FAILURE
    assert record.content == "do not use calculate with x: it answers 'Error: unknown sign @'"
    assert record.when_to_use == "In house 123, what is x?"
    assert distil(refused[:1]).records == []
    lost = [computed(question, "7 * 5", False, f"{step}/0") for step in (1, 2, 3)]
    assert [r.content for r in distil(lost).records] == [
        "do not use calculate with x * y, then finish with its result: it lost"
    ]
    won = computed("In house 123, what is 4 @ 6?", "4 * 6", True, "4/0")
    assert {r.polarity for r in distil([*lost, won]).records} == {Polarity.SUCCESS}


def test_what_is_left_out_is_counted() -> None:
    question = "How much is 7 plus 5?"
    attempts = [
        attempt(question, [], 1.0),
        attempt(question, [("finish", {"answer": "12"}, "done")], 1.0, answer="12"),
        attempt(question, [("finish", {"answer": "ok"}, "done")], 1.0, answer="12"),
        attempt(question, [("finish", {"answer": "7"}, "done")], 1.0, valid=False),
        attempt(question, [("finish", {"answer": "7"}, "done")], 1.0, guided=True),
        attempt(question, [("add", {"a": str(n)}, "?") for n in range(9)], 1.0),
    ]
    made = distil(attempts)
    assert made.records == []
    assert made.dropped == {
        Dropped.NO_CALLS: 1,
        Dropped.ANSWER_INSIDE: 1,
        Dropped.NOTHING_SHARED: 1,
        Dropped.NO_EVIDENCE: 1,
        Dropped.GUIDED: 1,
        Dropped.TOO_COMPLEX: 1,
    }
    assert made.attempts == 6


def test_only_calls_that_led_to_the_end_are_in_a_recipe() -> None:
    calls = [
        Call("calculate", {"expression": "7 +"}, "Error: cannot be read", True),
        Call("calculate", {"expression": "1 + 1"}, "2", False),
        Call("calculate", {"expression": "7 * 5"}, "35", False),
        Call("calculate", {"expression": "35 + 9"}, "44", False),
        Call("calculate", {"expression": "7 * 5"}, "35", False),
        Call("finish", {"answer": "44"}, "done", False),
    ]
    assert [one.arguments for one in needed(calls)] == [
        {"expression": "7 * 5"}, {"expression": "35 + 9"}, {"answer": "44"},
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 99), st.integers(2, 99), st.sampled_from(MEANINGS), st.integers(100, 999))
def test_the_recipe_of_an_attempt_gives_the_attempt_back(a: int, b: int, form: str, house: int) -> None:
    assume(len({a, b, house, 2}) == 4)
    expression = form.format(a=a, b=b)
    assume(evaluate(expression) not in {a, b, house})  # else the last answer may be the question's or the result
    (record,) = distil([computed(f"In house {house}, what is {a} @ {b}?", expression, True, "1/0")]).records
    assert record.content == f"use calculate with {form.format(a='x', b='y')}, then finish with its result"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.lists(st.text(max_size=12), max_size=4))
def test_any_text_is_read(question: str, values: list[str]) -> None:
    calls = [Call("tool", {"a": value, "b": value[::-1]}, value, False) for value in values]
    for one in readings(question, calls):
        assert one.slots <= one.bound


def test_episode_lines() -> None:
    line = {
        "step": 2, "group": 1, "generation": 3, "prompt": "What is 3 + 4?", "row": {"answer": "7"}, "reward": 1.0,
        "valid": True, "stop_reason": "finished",
        "messages": [
            {"role": "user", "content": "What is 3 + 4?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"type": "function", "function": {"name": "calculate", "arguments": {"expression": "3 + 4"}}},
                {"type": "function", "function": {"name": "calculate", "arguments": {"expression": "3 +"}}}]},
            {"role": "tool", "content": "7"}, {"role": "tool", "content": "Error: cannot be read"},
            {"role": "assistant", "content": "<tool_call>{"}, {"role": "tool", "content": "Error: bad"},
        ],
    }  # fmt: skip
    found = trajectory_of(line)
    assert found is not None
    assert [(one.tool, one.result, one.failed) for one in found.calls] == [
        ("calculate", "7", False), ("calculate", "Error: cannot be read", True),
    ]  # fmt: skip
    assert (found.answer, found.group, found.place, found.guided) == ("7", "2/1", "2/1/3", False)
    block = "\n\nSome Related Experience to help you to complete the task:<EXP>use it</EXP>\n\n"
    guided = trajectory_of(line | {"prompt": f"What is 3 + 4?{block}"})
    assert guided is not None
    assert (guided.question, guided.guided) == ("What is 3 + 4?", True)
    assert trajectories_of([{}, {"messages": []}, {"messages": [], "reward": 1.0}, line]) == [found]


@pytest.mark.parametrize("kind", list(Polarity))
def test_only_the_kinds_that_are_asked_for(kind: Polarity) -> None:
    rng, question = random.Random(1), "In house 123, what is 7 @ 5?"
    group = [computed(question, rng.choice(["7 + 5", "7 * 5"]), False, "1/0", k) for k in range(1, 8)]
    won = computed(question, "7 - 5", True, "1/0")
    made = distil([won, *group], options=DistilOptions(kinds=(kind,)))
    assert {record.polarity for record in made.records} == {kind}
