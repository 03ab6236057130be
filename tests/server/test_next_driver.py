"""A driver that only follows `next` and the schemas finishes the loop, in both eras; wrong calls are mended by text."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestParams, ElicitResult
from next_driver import Call, Driver, bound_of, mended
from server_helpers import REQUEST, events_of, in_memory, over_stdio

pytestmark = pytest.mark.anyio

WISHES = {"request": REQUEST, "profile": "original"}


async def person(context: Any, params: ElicitRequestParams) -> ElicitResult:
    """Says yes to whatever is asked; what is typed is what the question asks to be typed."""
    asked = getattr(params, "requested_schema", None) or {}
    content = {name: _typed(one, params.message) for name, one in asked.get("properties", {}).items()}
    return ElicitResult(action="accept", content=content)


def _typed(schema: dict[str, Any], message: str) -> Any:
    options = schema.get("enum") or [one["const"] for one in schema.get("oneOf", [])]
    if options:
        return next(one for one in options if "approve" in str(one).lower())
    return True if schema.get("type") == "boolean" else schema.get("default", "")


def unknown_argument(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    return {**arguments, "qqq": 1}


def misspelt(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    name = next(iter(arguments), None)
    return None if name is None else {(f"{name}s" if key == name else key): one for key, one in arguments.items()}


def wrong_type(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    name = next(iter(schema.get("properties", {})), None)
    return None if name is None else {**arguments, name: {"not": ["this"]}}


def out_of_range(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    known = schema.get("properties", {})
    name = next((one for one, each in known.items() if "maximum" in each), None)
    return None if name is None else {**arguments, name: known[name]["maximum"] + 1}


def unknown_id(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    name = next((one for one in arguments if one in ("run_id", "patch_id", "finding", "session", "skill")), None)
    return None if name is None else {**arguments, name: "nothing-of-this-name"}


SPOILERS = [unknown_argument, misspelt, wrong_type, out_of_range, unknown_id]

WANTED = (
    "start_training",
    "monitor_run",
    "segment_trajectories",
    "analyze_trajectories",
    "propose_patch",
    "try_patch",
    "review_patch",
    "compile_skills",
)


def two_runs_over(calls: list[Call]) -> bool:
    """What is waited for: a second run that is finished."""
    over = {one.answer["run_id"] for one in calls if one.answer.get("state") == "finished" and "run_id" in one.answer}
    return len(over) >= 2


def check(calls: list[Call], root: Path) -> None:
    went = [one.tool for one in calls if one.refused is None]
    places = [went.index(tool) for tool in WANTED]
    assert places == sorted(places), went
    assert went.count("start_training") >= 2
    audit = [json.loads(line) for line in (root / "audit.jsonl").read_text().splitlines()]
    assert [one["kind"] for one in audit] == ["approved", "promoted"]
    done = [one.answer for one in calls if one.tool == "monitor_run" and one.answer.get("state") == "finished"]
    assert done[-1]["after"]["mean"] > done[0]["after"]["mean"] + 0.2
    assert {one.get("tool") for one in events_of(root)} >= set(WANTED)


@pytest.mark.slow
async def test_following_next_finishes_the_loop(root: Path, era: str) -> None:
    async with over_stdio(root, era, elicitation_callback=person) as caller:
        driver = Driver(caller.client, WISHES)
        await driver.follow("round_status", {}, two_runs_over, 200)
    check(driver.calls, root)
    assert all(one.refused is None for one in driver.calls)


async def test_wrong_calls_are_mended_by_what_the_refusals_say(root: Path, era: str) -> None:
    async with in_memory(root, era, elicitation_callback=person) as caller:
        driver = Driver(caller.client, WISHES, spoil=SPOILERS)
        await driver.follow("round_status", {}, two_runs_over, 400)
    check(driver.calls, root)
    refused = [one for one in driver.calls if one.refused is not None]
    assert {one.tool for one in refused} >= set(WANTED)
    assert len(refused) >= 3 * len(WANTED)


def test_a_refusal_is_read_by_its_text_alone() -> None:
    text = (
        "monitor_run: there is no argument 'wait' (did you mean wait_s?). since_step -1 is not allowed (input should "
        "be greater than or equal to 0); allowed: since_step (integer 0 … ). It takes: run_id (string); since_step "
        "(integer 0 … ); wait_s (number 0 … 45). Call monitor_run again."
    )
    assert mended({"wait": 3, "since_step": -1}, text, {}) == {"wait_s": 3, "since_step": 0}
    assert bound_of("integer 1 … 20", 21) == 20
    assert bound_of('"a" | "b"', 21) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_following_next_on_real_training(root: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EVO_WORKER")
    async with in_memory(root, era, elicitation_callback=person) as caller:
        driver = Driver(caller.client, WISHES)
        await driver.follow("round_status", {}, two_runs_over, 2000)
    check(driver.calls, root)
