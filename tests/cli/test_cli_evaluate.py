"""`mcp-evo evaluate` and `mcp-evo chat` with the bundled model, and what they refuse without starting anything."""

import json
import subprocess

import pytest
from conftest import CommandLine


def test_evaluate_prints_one_document_and_progress_elsewhere(real_cli: CommandLine) -> None:
    done = real_cli.run(
        "evaluate", "tiny", "--n", "8", "--samples", "2", "--split", "test,train", "--seed", "3", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (subject,) = document["subjects"]
    assert set(subject["splits"]) == {"train", "test"}
    test = subject["splits"]["test"]
    assert {"metric", "split", "n", "mean", "ci95"} <= test.keys()
    assert (test["n"], test["problems"], test["samples"]) == (16, 8, 2)
    assert test["pass_at"].keys() == {"1", "2"}
    assert test["pass_at"]["1"]["mean"] == test["mean"] <= test["pass_at"]["2"]["mean"]
    assert sum(one["n"] for one in test["categories"]) == 8
    assert (document["env"], document["seeds"], document["comparisons"]) == ("calculator", [3], [])
    assert "tiny on test" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "tinyy"), "Did you mean tiny"),
        (("evaluate", "tiny", "--env", "calculatr"), "Did you mean calculator"),
        (("evaluate", "tiny", "--n", "0"), "1 to 100,000"),
        (("evaluate", "tiny", "--pass-at", "4"), "at least 4 attempts"),
        (("evaluate", "tiny", "--set", "max_turns=0"), "max_turns 0 is not allowed"),
        (("evaluate", "../somewhere/else"), "does not exist"),
        (("chat", "tiny", "--json"), "give a prompt"),
        (("chat", "tiny", "hello", "--problem", "1"), "Keep one of them"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    quick_cli: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    done = quick_cli.run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (quick_cli.workspace / "evaluations").exists()


def test_usage_errors_name_what_is_allowed(quick_cli: CommandLine) -> None:
    assert quick_cli.run("evaluate", "tiny", "--split", "tset").returncode == 2
    assert quick_cli.run("evaluate", "tiny", "--pass-at", "a,b").returncode == 2


def test_a_conversation_over_a_pipe(real_cli: CommandLine) -> None:
    done = subprocess.run(
        real_cli.command("chat", "tiny", "--seed", "2"),
        cwd=real_cli.folder,
        env=real_cli.environment,
        input="What is 3 + 4?\n/problem 2\n/problem x\n/new\n/quit\nnever asked\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "call   calculate(" in done.stdout
    assert "user   " in done.stdout  # the problem is shown, the typed question is not repeated
    assert done.stdout.count("reward") == 1
    assert "write /problem and its number" in done.stdout
    assert "never asked" not in done.stdout
    assert not list((real_cli.workspace / "evaluations").glob(".chat-*"))


def test_one_question_as_json_is_repeatable(real_cli: CommandLine) -> None:
    answers = [real_cli.json("chat", "tiny", "--env", "lookup", "--problem", "5", "--json") for _ in range(2)]
    for one in answers:
        del one["seconds"]
    assert answers[0] == answers[1]
    assert answers[0]["prompt"][-1]["content"].startswith("What is the")
    assert answers[0]["reward"] in (0.0, 1.0)
