"""Every tool on a workspace with much of everything: answers are short, whole, and say what comes next."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from filled import filled_workspace
from mcp_types import CallToolResult, TextContent
from server_helpers import in_memory, text_of

from mcp_server.answers import MAX_ANSWER_BYTES
from mcp_server.tools import all_specs
from trainer.runs.errors import RunError

pytestmark = pytest.mark.anyio

MAX_TEXT_BYTES = 2600
"""Of the line of text; of it at most a half is the next call with its arguments."""

WORDS_OF_NO_USE = " ".join(f"blah{number} und 不知道{number}" for number in range(900))

CALLS: dict[str, list[dict[str, Any]]] = {
    "start_training": [
        {"request": "train tiny on 64 mixed problems, 1 step", "key": "k"},
        {"request": f"tiny on 64 mixed problems, 1 step, ask me first, {WORDS_OF_NO_USE}"},
    ],
    "stop_run": [{"run_id": "run-003"}],
    "list_runs": [{}, {"state": "finished"}],
    "monitor_run": [{"wait_s": 0, "run_id": "run-003"}],
    "analyze_run": [{"run_id": "run-003"}],
    "compare_runs": [
        {"runs": ["run-001", "run-002", "run-003"]},
        {"runs": [f"run-{number:03d}" for number in range(12)]},
    ],
    "segment_trajectories": [{}],
    "search_trajectories": [{}, {"text": "make", "outcome": "failed"}],
    "analyze_trajectories": [{"layer": "rllm"}, {"session": "all", "layer": "any"}],
    "load_skill": [{"skill": "rllm-run"}],
    "skill_status": [{}, {"skill": "rllm-config"}, {"group": "traj"}],
    "propose_patch": [
        {"skill": "rllm-run", "section": "procedure", "body": "看两次。" * 300, "description": "looks twice"},
        {"skill": "rllm-run", "section": "procedure", "body": "再看一次。" * 1000, "description": "looks again"},
    ],
    "review_patch": [{}, {"patch_id": "patch-001"}],
    "compile_skills": [{"dry_run": True}, {}],
    "rollback_skill": [{"skill": "rllm-run", "version": 1, "reason": "test"}],
    "round_status": [{}],
    "add_experience": [{"when_to_use": "x and y are added", "content": "call the calculator with x + y"}],
    "search_experience": [{"query": "situation advice 长文本", "k": 3}],
}

REFUSED: dict[str, list[dict[str, Any]]] = {
    "evaluate_model": [{"evaluation_id": "none"}],
    "try_model": [{"target": "no-such-run", "prompt": "x"}],
    "try_patch": [{"patch_id": "no-such-patch"}, {"patch_id": "patch-002"}],
    "distill_experience": [{"run_id": "no-such-run"}],
    "evolve": [{}, {"resume": "no-such-evolution"}],
    "stop_run": [{"run_id": "no-such-run"}],
    "monitor_run": [{"run_id": "run-0"}],
    "compare_runs": [{"runs": ["no-such-run"]}],
    "analyze_run": [{"run_id": "no-such-run"}],
    "list_runs": [{"cursor": "nothing"}],
    "search_trajectories": [{"cursor": "nothing"}, {"since": "yesterday-ish"}, {"session": "no-such-session"}],
    "analyze_trajectories": [{"session": "no-such-session"}],
    "load_skill": [{"skill": "no-such-skill"}],
    "skill_status": [{"group": "no-such-group"}],
    "review_patch": [{"patch_id": "no-such-patch"}],
    "compile_skills": [{"target": "no-such-skill"}],
    "rollback_skill": [{"skill": "rllm-run", "version": 99, "reason": "test"}],
    "round_status": [{"evolution": "no-such-evolution"}],
    "segment_trajectories": [{"session": "no-such-session"}, {"cursor": "nothing"}],
    "propose_patch": [{"finding": "finding-none"}],
}

NO_MATTER_HOW_LONG = frozenset({"load_skill"})
"""The text of a skill is the answer, and is kept short by the bank's own limits."""


def size_of(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def problems_of(result: CallToolResult, names: set[str], *, bounded: bool) -> list[str]:
    """What is wrong with an answer."""
    if result.is_error:
        return [f"refused: {text_of(result)}"]
    data = result.structured_content or {}
    step = data.get("next", {})
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    found = {
        "no next step": not step.get("say"),
        f"next is no tool: {step.get('tool')}": step.get("tool") is not None and step["tool"] not in names,
        f"{len(texts)} texts": len(texts) != 1,
        f"{size_of(data)} bytes of data": size_of(data) > MAX_ANSWER_BYTES,
    }
    if bounded:
        size = len(texts[0].encode())
        found |= {
            "several lines of text": "\n" in texts[0],
            f"{size} bytes of text": size > MAX_TEXT_BYTES,
            "the data is repeated as text": json.dumps(data, ensure_ascii=False) in texts[0],
        }
    return [problem for problem, is_there in found.items() if is_there]


async def test_answers_of_every_tool_are_short_and_say_what_comes_next(root: Path) -> None:
    filled_workspace(root)
    names = {spec.function.__name__ for spec in all_specs()}
    assert names == CALLS.keys() | REFUSED.keys(), "every tool is called here"
    problems = []
    async with in_memory(root, "auto") as caller:
        for tool, calls in CALLS.items():
            for arguments in calls:
                result = await caller.raw(tool, **arguments)
                found = problems_of(result, names, bounded=tool not in NO_MATTER_HOW_LONG)
                problems += [f"{tool} {arguments}: {one}" for one in found]
    assert problems == []


async def test_refusals_of_every_tool_name_what_there_is_and_the_next_call(root: Path) -> None:
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        for tool, calls in REFUSED.items():
            for arguments in calls:
                text = await caller.refused(tool, **arguments)
                assert "Next: " in text or f"Call {tool} again" in text, f"{tool} {arguments}: {text}"
                assert len(text.encode()) <= MAX_ANSWER_BYTES


async def test_lists_are_read_page_by_page(root: Path) -> None:
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        lists = (
            ("list_runs", "runs", "run_id"),
            ("search_trajectories", "hits", "line"),
            ("segment_trajectories", "segments", "first_line"),
        )
        for tool, key, name in lists:
            seen: list[Any] = []
            more: dict[str, Any] = {"session": "session-03"} if tool.endswith("trajectories") else {}
            while True:
                page = await caller.ok(tool, limit=7, **more)
                seen += [one[name] for one in page[key]]
                if page.get("cursor") is None:
                    break
                more["cursor"] = page["cursor"]
            assert len(seen) == len(set(seen)) == page["total"], tool


async def test_a_model_that_takes_long_reports_progress_every_second(
    root: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*arguments: object) -> None:
        time.sleep(3.5)
        raise RunError("that model never answers")

    monkeypatch.setattr("mcp_server.jobs.evaluating.ask_model", slow)
    told: list[float] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append(value)

    async with in_memory(root, era) as caller:
        result = await caller.client.call_tool("try_model", {"prompt": "x"}, progress_callback=progress)
        assert isinstance(result, CallToolResult)
        assert "that model never answers" in text_of(result)
    assert len(told) >= 3
    assert told == sorted(set(told)), "it only grows"
    assert all(later - earlier < 2.0 for earlier, later in itertools.pairwise(told))
