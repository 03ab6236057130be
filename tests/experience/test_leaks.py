"""What tells an evaluation, and what only looks like it: lessons must be able to speak of a kind of task."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_helpers import lesson

from trainer.envs.base import Split
from trainer.envs.house_rules import HouseRules
from trainer.envs.lookup import Lookup
from trainer.experience.leaks import LeakError, LeakGuard, check_disjoint, guarded_rows

ROWS = [
    {"prompt": "What is 3 + 4?", "answer": "7"},
    {"prompt": "In house 12, what is 5 @ 6?", "answer": 30},
    {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "What is the pet of the boss of Ada?"}],
     "answer": "horse"},
    {"prompt": "小明有三个苹果，又买了两个，现在有几个？", "answer": "5"},
    {"prompt": "What is 5?", "answer": "5"},
    {"prompt": "In house 244, what is 9 @ 5?", "answer": "4"},
    {"prompt": "In house 77, what is 2 @ 4?", "answer": "2"},
    {"prompt": "Hello", "answer": ""},
]  # fmt: skip
GUARD = LeakGuard(guarded_rows(ROWS, "run:validation"))


@pytest.mark.parametrize(
    ("when", "content"),
    [
        ("What is 3 + 4?", "use calculate"),
        ("WHAT IS  ３ + ４", "use calculate"),
        ("Sums such as 3 + 4", "use calculate"),
        ("Sums", "3 + 4 makes 7"),
        ("house 12: 5 @ 6", "use x * y"),
        ("5 @ 6 in house 12", "finish with 30"),
        ("Ada, her boss and the pet", "look up Ada first"),
        ("The boss of Ada and a pet", "the answer is horse"),
        ("小明有三个苹果，又买了两个，现在有几个", "相加"),
        ("What is 5?", "finish"),
        ("Asked before", "what is 9 @ 5 in house 244 gave 4"),  # 4 stands in 244, but not by itself
        ("Asked before", "what is 2 @ 4 in house 77 gave 2"),
    ],
)
def test_what_holds_a_task_or_its_answer(when: str, content: str) -> None:
    with pytest.raises(LeakError, match="run:validation"):
        GUARD.check(lesson(when, content))


@pytest.mark.parametrize(
    ("when", "content"),
    [
        ("What is x + y?", "use calculate with x + y, then finish with its result"),
        ("In house 12, what is x @ y?", "use calculate with (x + y) * 2"),
        ("In house 12, what is x @ y?", "use calculate with x * y; 7 or 30 may come out"),
        ("What is 13 + 4?", "use calculate"),
        ("What is 4 + 3?", "use calculate"),
        ("What is the x of the y of z?", "use look_up with person z and field y"),
        ("A call failed 5 times", "stop after 5 calls"),
        ("小明买了苹果", "相加"),
        ("Hello world", "greet"),
        ("What is 4 @ 2 in house 77?", "use calculate"),
    ],
)
def test_what_speaks_of_a_kind_of_task(when: str, content: str) -> None:
    assert GUARD.leak(lesson(when, content)) is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([HouseRules, Lookup]))
def test_every_evaluation_task_is_recognised_and_no_slotted_recipe_is(seed: int, environment: type) -> None:
    rows = environment.tasks(Split.TEST, 3, seed)  # type: ignore[attr-defined]
    guard = LeakGuard(guarded_rows(rows, "t"))
    for row in rows:
        assert guard.leak(lesson(row["prompt"], "use it")) is not None
        assert guard.leak(lesson("A task", f"of {row['prompt'].upper()} gives {row['answer']}")) is not None
    for when in ("In house 123, what is x @ y?", "What is the x of the y of z?", "What is x + y?"):
        assert guard.leak(lesson(when, "use calculate with (x + y) * 2, then finish with its result")) is None


def test_splits_that_share_a_problem_are_refused() -> None:
    guards = guarded_rows(ROWS, "run:test")
    check_disjoint([{"prompt": "What is 4 + 4?"}], guards)
    with pytest.raises(LeakError, match="also one of run:test"):
        check_disjoint([{"prompt": "What is 4 + 4?"}, {"prompt": "what is 3 + 4"}], guards)
