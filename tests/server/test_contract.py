"""What a client sees before it calls anything: names, hints, schemas, sizes, and that refusals name what is allowed."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server_helpers import PROTOCOL, in_memory

from mcp_server.server import INSTRUCTIONS, MAX_INSTRUCTIONS_BYTES, build_server
from mcp_server.tooling import DOMAIN_ERRORS
from mcp_server.tools import all_specs

pytestmark = pytest.mark.anyio

READ_ONLY = {
    "search_trajectories",
    "search_experience",
    "monitor_run",
    "list_runs",
    "compare_runs",
    "load_skill",
    "skill_status",
    "round_status",
}
DESTRUCTIVE = {"stop_run", "rollback_skill"}
IDEMPOTENT = READ_ONLY | {
    "stop_run",
    "analyze_run",
    "segment_trajectories",
    "analyze_trajectories",
    "compile_skills",
}
OPEN_WORLD = {"start_training", "evolve", "evaluate_model", "try_model", "try_patch", "distill_experience"}
MAX_LIST_BYTES = 20 * 1024
"""Of tools/list with every tool."""

MEAN_TOOL_BYTES = 880
"""What a tool may cost on average: a list of 23 tools then stays within the limit."""

TOOLS = (
    READ_ONLY
    | IDEMPOTENT
    | OPEN_WORLD
    | {"propose_patch", "try_patch", "review_patch", "rollback_skill", "add_experience"}
)


async def test_the_tools_and_their_hints(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        assert caller.client.protocol_version == PROTOCOL[era]
        tools = {tool.name: tool for tool in (await caller.client.list_tools()).tools}
    assert set(tools) == TOOLS
    for name, tool in tools.items():
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint is (name in READ_ONLY)
        assert hints.destructive_hint is (name in DESTRUCTIVE)
        assert hints.idempotent_hint is (name in IDEMPOTENT)
        assert hints.open_world_hint is (name in OPEN_WORLD)
        assert tool.title
        assert tool.title != name


async def test_descriptions_schemas_and_sizes(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        listed = (await caller.client.list_tools()).model_dump(mode="json", by_alias=True, exclude_none=True)
        instructions = caller.client.instructions
    assert instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS.encode()) <= MAX_INSTRUCTIONS_BYTES
    size = len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode())
    assert size <= MAX_LIST_BYTES
    assert size <= MEAN_TOOL_BYTES * len(listed["tools"])
    for tool in listed["tools"]:
        assert tool["description"].startswith("Use ")
        assert "\n" not in tool["description"]
        assert len(tool["description"].encode()) <= 2048
        schema = tool["inputSchema"]
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema)
        assert "next" in tool["outputSchema"]["required"]
        assert '"title"' not in json.dumps(schema)


async def test_no_argument_approves(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        tools = (await caller.client.list_tools()).tools
    names = {argument for tool in tools for argument in tool.input_schema.get("properties", {})}
    assert not {
        name for name in names if any(word in name for word in ("approv", "decision", "decided", "accept", "yes"))
    }
    review = next(tool for tool in tools if tool.name == "review_patch")
    assert (review.meta or {})["anthropic/requiresUserInteraction"] is True


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("monitor_run", {"run": "x"}, ["no argument 'run'", "did you mean run_id"]),
    ("monitor_run", {"wait_s": 46}, ["wait_s 46", "0 … 45"]),
    ("monitor_run", {"since_step": -1}, ["since_step -1", "0 …"]),
    ("monitor_run", {"since_step": "many"}, ['since_step "many"', "integer"]),
    ("list_runs", {"state": "dead"}, ['state "dead"', '"finished"']),
    ("list_runs", {"limit": 1000}, ["limit 1000", "1 … 100"]),
    ("start_training", {"request": "x", "overrides": 3}, ["overrides 3", "object"]),
    ("load_skill", {"name": "rllm-train"}, ["no argument 'name'", "skill is missing"]),
    ("analyze_trajectories", {"layer": "meta"}, ['layer "meta"', '"rllm" | "traj"']),
    ("try_patch", {"patch_id": "p", "plan": "huge"}, ['plan "huge"', '"quick" | "default"']),
    ("propose_patch", {"action": "delete"}, ['action "delete"', '"append"']),
    ("evolve", {"rounds": 0}, ["rounds 0", "1 … 100"]),
    ("review_patch", {"decided": "approve"}, ["no argument 'decided'"]),
    ("review_patch", {"shown": {}}, ["no argument 'shown'"]),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), WRONG, ids=[f"{one[0]}-{list(one[1])}" for one in WRONG])
async def test_wrong_arguments_are_refused_with_what_is_allowed(
    root: Path, era: str, tool: str, arguments: dict[str, Any], words: list[str]
) -> None:
    async with in_memory(root, era) as caller:
        text = await caller.refused(tool, **arguments)
    for word in words:
        assert word in text
    assert f"Call {tool} again" in text
    assert "pydantic" not in text


async def test_a_tool_that_there_is_not_is_refused_with_those_there_are(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        text = await caller.refused("start_trainings")
        assert "there is no tool 'start_trainings'" in text
        assert all(name in text for name in TOOLS)
        assert text.endswith("→ start_training {}")
        text = await caller.refused("\u202e" * 1000)
        assert text.endswith("→ round_status {}")
        assert "\u202e" not in text


async def test_what_is_allowed_is_told_however_long_the_wrong_value(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        text = await caller.refused("load_skill", skill="x" * 100_000)
    assert len(text) < 4200
    assert "there is no skill 'xxx" in text
    assert "rllm-train" in text


async def test_an_unexpected_error_says_nothing_of_the_inside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*arguments: object) -> None:
        raise KeyError("/secret/path")

    monkeypatch.setattr("mcp_server.findings.watching.look", burst)
    async with in_memory(root, "auto") as caller:
        assert await caller.refused("monitor_run") == "Error executing tool monitor_run"


def test_every_domain_error_exists() -> None:
    for name in DOMAIN_ERRORS:
        module, _, attribute = name.rpartition(".")
        assert issubclass(vars(importlib.import_module(module))[attribute], Exception)


def test_tool_names_are_unique_and_every_tool_says_what_helps() -> None:
    names = [spec.function.__name__ for spec in all_specs()]
    assert len(names) == len(set(names))
    for spec in all_specs():
        assert spec.help_with.tool in names


def test_building_a_server_touches_no_disk(root: Path) -> None:
    build_server(root)
    assert not root.exists()
    assert not root.parent.exists()


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, mcp_server, optimizer, skill_bank, mcp_server.server;"
        "mcp_server.server.build_server('/nowhere');"
        "heavy = ('torch', 'transformers', 'trl', 'datasets', 'scipy', 'numpy', 'trainer.settings');"
        "print([one for one in heavy if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_server_logs_is_plain_text() -> None:
    code = (
        "import logging; from pathlib import Path; from mcp_server.cli.serve import make_server;"
        "make_server(Path('/nowhere'));"
        "logging.getLogger('x').error('broken', exc_info=KeyError('key'))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    first, *_, last = done.stderr.strip().splitlines()
    assert first.endswith("ERROR x: broken")
    assert last == "KeyError: 'key'"
