"""The tools evaluate_model and try_model, with the bundled model in a process of its own."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from server_helpers import Caller, in_memory

from trainer.evaluation.folder import EvaluationFolder, stop_evaluation

pytestmark = pytest.mark.anyio


async def until_finished(caller: Caller, **arguments: Any) -> dict[str, Any]:
    seen = await caller.ok("evaluate_model", wait_s=45, **arguments)
    for _ in range(5):
        if seen["state"] != "running":
            return seen
        assert seen["next"]["tool"] == "evaluate_model"
        seen = await caller.ok("evaluate_model", **{**seen["next"]["arguments"], "wait_s": 45})
    raise AssertionError(f"the evaluation is not over: {seen}")


async def test_an_evaluation_from_start_to_result(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        began = await caller.ok("evaluate_model", target="tiny", n=8, samples=2, split="all", seeds=[3], wait_s=0)
        assert began["state"] == "running"
        assert "scores" not in began
        busy = await caller.refused("evaluate_model", target="tiny", n=8)
        assert began["evaluation_id"] in busy
        found = await until_finished(caller, evaluation_id=began["evaluation_id"])
        again = await caller.ok("evaluate_model", evaluation_id=began["evaluation_id"], wait_s=45)
    assert found == again
    assert found["state"] == "finished"
    assert [one["split"] for one in found["scores"]] == ["train", "validation", "test"]
    for one in found["scores"]:
        assert (one["model"], one["n"], one["problems"]) == ("tiny", 16, 8)
        assert one["ci95"][0] <= one["mean"] <= one["ci95"][1]
        assert one["pass_at"].keys() == {"2"}
    assert {one["kind"] for one in found["kinds"]} == {"1 operator", "2 operators"}
    assert found["next"]["tool"] == "try_model"
    assert len(json.dumps(found)) < 8 * 1024


async def test_of_many_at_once_one_is_started(root: Path) -> None:
    answers: list[Any] = []
    async with in_memory(root, "auto") as caller, anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await caller.raw("evaluate_model", target="tiny", n=8, wait_s=0))

        for _ in range(8):
            tasks.start_soon(ask)
    assert [bool(one.is_error) for one in answers].count(False) == 1
    (folder,) = [one for one in (root / "evaluations").iterdir() if one.is_dir()]
    assert stop_evaluation(EvaluationFolder(folder))


async def test_one_problem_and_one_prompt(root: Path) -> None:
    async with in_memory(root, "legacy") as caller:
        solved = await caller.ok("try_model", target="tiny", problem=4, env="calculator", seed=1)
        asked = await caller.ok("try_model", target="tiny", prompt="What is 3 + 4?", seed=1)
    assert solved["reward"] in (0.0, 1.0)
    assert any(turn.get("calls") for turn in solved["turns"])
    assert any(turn["role"] == "tool" for turn in solved["turns"])
    assert "reward" not in asked
    assert asked["prompt"] == "What is 3 + 4?"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("evaluate_model", {}, "there are no runs"),
        ("evaluate_model", {"target": "tinyy"}, "Did you mean tiny"),
        ("evaluate_model", {"target": "tiny", "env": "python:evil:Env"}, "may not choose"),
        ("evaluate_model", {"target": "tiny", "n": 0}, "1 … 10000"),
        ("evaluate_model", {"evaluation_id": "eval-none"}, "no evaluation 'eval-none'"),
        ("evaluate_model", {"evaluation_id": "../x"}, "is not a valid id"),
        ("try_model", {"target": "tiny"}, "one of the two"),
        ("try_model", {"target": "tiny", "prompt": "x", "problem": 1}, "one of the two"),
        ("try_model", {"target": "tiny", "prompt": "x", "env": "python:evil:Env"}, "may not choose"),
        ("try_model", {"target": "/etc", "prompt": "x"}, "folder without config.json"),
    ],
)
async def test_what_cannot_be_evaluated_is_refused(
    root: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    async with in_memory(root, "auto") as caller:
        assert words in await caller.refused(tool, **arguments)
    assert not list((root / "evaluations").glob("*")) if (root / "evaluations").exists() else True
