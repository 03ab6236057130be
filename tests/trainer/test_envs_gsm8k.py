"""gsm8k: local files, disjoint splits, the grader, and a hub that does not answer."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.envs.base import Split
from trainer.envs.gsm8k import Gsm8k


def solution(number: int, lines: int) -> str:
    """A reference solution of that many lines, in the form of the data set."""
    steps = [f"Step {i}: 1 + {i} = <<1+{i}={1 + i}>>{1 + i}." for i in range(lines)]
    return "\n".join([*steps, f"#### {number:,}"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [{"question": f"Ann has {i} boxes; how much?", "answer": solution(1000 + i, 2 + i % 5)} for i in range(200)]
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parts(**arguments: object) -> dict[Split, list]:
    return {split: Gsm8k.tasks(split, 1000, 7, **arguments) for split in Split}


def test_every_question_stands_in_exactly_one_split(file: Path) -> None:
    prompts = {split: [row["prompt"] for row in rows] for split, rows in parts(file=str(file)).items()}
    everything = [prompt for part in prompts.values() for prompt in part]
    assert len(everything) == len(set(everything)) == 200
    assert 90 < len(prompts[Split.TRAIN]) < 150
    assert 20 < len(prompts[Split.TEST]) < 60
    assert 20 < len(prompts[Split.VALIDATION]) < 60


def test_an_official_test_file_is_the_test_split_and_its_questions_leave_the_others(file: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.csv"
    with open(test, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([("question", "answer"), ("Ann has 3 boxes; how much?", "1003"), ("A new one?", "#### -2.5")])
    found = parts(file=str(file), test_file=str(test))
    assert {row["prompt"] for row in found[Split.TEST]} == {"Ann has 3 boxes; how much?", "A new one?"}
    rest = [row["prompt"] for split in (Split.TRAIN, Split.VALIDATION) for row in found[split]]
    assert len(rest) == len(set(rest)) == 199
    assert "Ann has 3 boxes; how much?" not in rest


def test_the_order_depends_on_the_seed_alone_and_longer_sets_begin_with_shorter_ones(file: Path) -> None:
    long, short = (Gsm8k.tasks(Split.TRAIN, n, 1, file=str(file)) for n in (50, 10))
    assert long[:10] == short
    assert Gsm8k.tasks(Split.TRAIN, 10, 2, file=str(file)) != short
    assert {row["answer"] for row in short} <= {str(1000 + i) for i in range(200)}


def test_difficulty_is_the_length_of_the_solution(file: Path) -> None:
    by_prompt = {f"Ann has {i} boxes; how much?": 2 + i % 5 for i in range(200)}
    simple = parts(file=str(file), difficulty="simple")
    hard = parts(file=str(file), difficulty="hard")
    assert {by_prompt[row["prompt"]] for rows in simple.values() for row in rows} == {2, 3}
    assert {by_prompt[row["prompt"]] for rows in hard.values() for row in rows} == {5, 6}


@pytest.mark.parametrize(
    ("expected", "answer", "right"),
    [
        ("Some work.\n#### 1,200", "1200", True),
        ("1200", "$1,200.00", True),
        ("1200", "1,200 dollars a month", True),
        ("#### 0.5", "1/2", True),
        ("#### -3", "-3 degrees", True),
        ("#### -3", "3", False),
        ("#### 18", "18.5", False),
        ("#### 18", "17 or 18", False),
        ("#### 18", "eighteen", False),
        (18, "18", True),
        (2.5, "2.50", True),
    ],
)
def test_the_grader_compares_numbers(expected: str | float, answer: str, right: bool) -> None:
    environment = Gsm8k()
    environment.reset(answer=expected)
    environment.finish(answer)
    assert environment.finished
    assert environment.get_reward() == float(right)


def test_the_calculator_is_a_tool_and_an_answer_is_needed() -> None:
    environment = Gsm8k()
    environment.reset(answer="#### 6")
    assert environment.calculate("(1 + 2) * 2") == "6"
    assert environment.get_reward() == 0.0
    with pytest.raises(ValueError, match="names no number"):
        environment.reset(answer="unknown")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"question": "q"}\n', r"row 1: `answer` is missing"),
        ('{"question": "q", "answer": "#### 1"}\n{"question": "r", "answer": "none"}\n', r"row 2: .*names no number"),
        ('{"problem": "q", "answer": "1"}\n', r"no column 'question'"),
        ("", r"holds no rows"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(ValueError, match=words):
        Gsm8k.tasks(Split.TRAIN, 5, 1, file=str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs its problems: env_args.file=.*or env_args.hub=true"),
        ({"file": "x.jsonl", "hub": True}, "one of the two"),
        ({"file": "/no/such.jsonl"}, "there is no file /no/such.jsonl"),
        ({"path": "x"}, "takes env_args file, test_file and hub; got path"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Gsm8k.tasks(Split.TRAIN, 5, 1, **arguments)


def test_without_a_network_the_hub_is_given_up_within_seconds(tmp_path: Path) -> None:
    code = (
        "import time; from trainer.envs.gsm8k import Gsm8k\n"
        "began = time.perf_counter()\n"
        "try: Gsm8k.tasks('test', 5, 1, hub=True)\n"
        "except ValueError as error: print(error, round(time.perf_counter() - began, 1), sep='|')\n"
    )
    nobody_listens = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=os.environ | nobody_listens, capture_output=True, text=True, timeout=60
    )
    message, _, seconds = done.stdout.strip().rpartition("|")
    assert "openai/gsm8k could not be fetched" in message, done.stderr
    assert "env_args.file=PATH" in message
    assert float(seconds) < 10
