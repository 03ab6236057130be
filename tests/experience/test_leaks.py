"""What tells an evaluation, and what only looks like it: lessons must be able to speak of a kind of task."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pool_helpers import lesson

from trainer.envs.base import Split
from trainer.envs.calculator import Calculator
from trainer.envs.house_rules import HouseRules
from trainer.envs.lookup import Lookup
from trainer.experience.leaks import LeakError, LeakGuard, check_disjoint, guarded_rows
from trainer.experience.pool import ExperiencePool
from trainer.experience.records import Status

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
    assume(len({row["prompt"] for row in rows}) == 3)  # else the words alone are no task
    guard = LeakGuard(guarded_rows(rows, "t"))
    for row in rows:
        assert guard.leak(lesson(row["prompt"], "use it")) is not None
        assert guard.leak(lesson("A task", f"of {row['prompt'].upper()} gives {row['answer']}")) is not None
    for when in ("In house 123, what is x @ y?", "What is the x of the y of z?", "What is x + y?"):
        assert guard.leak(lesson(when, "use calculate with (x + y) * 2, then finish with its result")) is None


def test_splits_that_share_a_problem_are_refused() -> None:
    held = {"run:validation": ROWS[:1], "run:test": ROWS[1:]}
    check_disjoint([{"prompt": "What is 4 + 4?"}], held)
    with pytest.raises(LeakError, match=r"'what is 3 \+ 4' is also one of run:validation"):
        check_disjoint([{"prompt": "What is 4 + 4?"}, {"prompt": "what is 3 + 4"}], held)


SAM = "What is the pet of Sam?"
SYSTEM = {"role": "system", "content": "Be short."}


@pytest.mark.parametrize(
    ("training", "other", "same"),
    [
        # the world decides the answer: equal answers of two registers are chance, different ones of one are labels
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "dog", "register": 2}, False),
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "cat", "register": 2}, False),
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "cat", "register": 1}, True),
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "Cat!", "register": 1}, True),
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "dog"}, False),
        ({"prompt": SAM, "answer": "cat", "register": 1}, {"prompt": SAM, "answer": "cat"}, True),
        ({"prompt": SAM, "register": 1}, {"prompt": SAM, "register": 1, "id": 9, "level": "hard"}, True),
        # nothing but the answer decides it: a hidden word
        ({"prompt": "Guess the word", "answer": "crane"}, {"prompt": "Guess the word", "answer": "slate"}, False),
        ({"prompt": "Guess the word", "answer": "crane"}, {"prompt": "guess the word.", "answer": "CRANE"}, True),
        ({"prompt": "Guess", "answer": ["a", "b"]}, {"prompt": "Guess", "answer": ["a", "c"]}, False),
        ({"prompt": "What is 3 + 4?", "answer": 7}, {"prompt": "What is 3 + 4?", "answer": "7"}, True),
        ({"prompt": "What is 3 + 4?", "answer": 7.0}, {"prompt": "What is 3 + 4?", "answer": 7}, True),
        ({"prompt": "What is 3 + 4?", "answer": 7}, {"prompt": "What is 3 + 4?"}, True),
        # a conversation is asked as a whole
        ({"prompt": SAM}, {"prompt": [{"role": "user", "content": SAM}]}, True),
        ({"prompt": [SYSTEM, {"role": "user", "content": SAM}]}, {"prompt": [SYSTEM, {"role": "user", "content": SAM}]},
         True),
        ({"prompt": [{"role": "user", "content": "Text one."}, {"role": "assistant", "content": "Read."},
                     {"role": "user", "content": "Who is it about?"}]},
         {"prompt": [{"role": "user", "content": "Text two."}, {"role": "assistant", "content": "Read."},
                     {"role": "user", "content": "Who is it about?"}]}, False),
    ],
)  # fmt: skip
def test_a_problem_is_its_words_and_what_decides_its_answer(
    training: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    for a, b in ((training, other), (other, training)):
        if same:
            with pytest.raises(LeakError, match="also one of run:test"):
                check_disjoint([a], {"run:test": [b]})
        else:
            check_disjoint([a], {"run:test": [b]})


@pytest.mark.parametrize("difficulty", ["simple", "mixed", "hard"])
@pytest.mark.parametrize("environment", [Lookup, HouseRules, Calculator])
def test_the_shipped_environments_share_no_problem(environment: Any, difficulty: str) -> None:
    rows = {split: environment.tasks(split, 64, 1, difficulty) for split in Split}
    held = {"run:validation": rows[Split.VALIDATION], "run:test": rows[Split.TEST]}
    check_disjoint(rows[Split.TRAIN], held)
    with pytest.raises(LeakError):
        check_disjoint([*rows[Split.TRAIN], rows[Split.TEST][7]], held)


def test_words_that_several_problems_share_are_no_task_but_with_an_answer() -> None:
    words = [{"prompt": "Guess the word", "answer": answer} for answer in ("crane", "slate")]
    guard = LeakGuard(guarded_rows(words, "run:test"))
    assert guard.leak(lesson("Guess the word", "begin with many vowels")) is None
    assert guard.leak(lesson("Guess the word", "begin with raise")) is None
    assert "answer" in (guard.leak(lesson("Guess the word", "begin with slate")) or "")
    assert "a task" in (LeakGuard(guarded_rows(words[:1], "t")).leak(lesson("Guess the word", "use vowels")) or "")
    # an environment that shows its task when it is reset
    puzzles = [{"prompt": "Solve the puzzle below.", "seed": seed} for seed in range(3)]
    assert guarded_rows(puzzles, "run:test") == []
    assert len(guarded_rows(puzzles[:1], "run:test")) == 1
    same = [{"prompt": "Solve the puzzle below.", "answer": "7", "seed": seed} for seed in range(3)]
    assert len(guarded_rows(same, "run:test")) == 1  # it may be told once only, and is guarded


def test_a_pool_learns_from_later_problems_that_words_are_shared(tmp_path: Path) -> None:
    with ExperiencePool(tmp_path / "p.db", create=True) as pool:
        pool.protect(guarded_rows([{"prompt": SAM, "answer": "cat", "register": 1}], "a:test"))
        with pytest.raises(LeakError):
            pool.add(lesson(SAM, "use look_up with Sam and pet"))
        assert pool.protect(guarded_rows([{"prompt": SAM, "answer": "dog", "register": 2}], "b:test")) == []
        added = pool.add(lesson(SAM, "use look_up with Sam and pet"))
        for answer in ("cat", "dog"):
            with pytest.raises(LeakError, match="answer"):
                pool.add(lesson(SAM, f"it is a {answer}"))
        assert pool.protect(guarded_rows([{"prompt": SAM, "answer": "owl", "register": 3}], "c:test")) == []
        assert pool.find(added.record.id).status is Status.ACTIVE
