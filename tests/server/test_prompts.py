"""Prompts: usable whatever a client sends, nothing included; wrong arguments are refused with what is allowed."""

import json
from pathlib import Path

import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS
from server_helpers import Caller, in_memory

from mcp_server.resources.prompts import DEFAULT_REQUEST, MAX_REQUEST
from skill_bank.bank import SkillBank

pytestmark = pytest.mark.anyio

ARGUMENTS = {
    "rllm-train": ["request"],
    "traj-train-optimize": ["session"],
    "traj-loop": ["request", "rounds"],
    "meta-loop": ["rounds"],
    "traj-status": ["evolution"],
}


async def text_of(caller: Caller, name: str, **arguments: str) -> str:
    messages = (await caller.client.get_prompt(name, arguments or None)).messages
    assert [one.role for one in messages] == ["user"]
    assert messages[0].content.type == "text"
    return messages[0].content.text


def call_in(text: str) -> dict[str, str]:
    """The arguments of the one call that a prompt names."""
    (line,) = [line for line in text.splitlines() if line.startswith("First call load_skill ")]
    found, _ = json.JSONDecoder().raw_decode(line.removeprefix("First call load_skill "))
    assert isinstance(found, dict)
    return found


async def test_every_leading_skill_has_a_prompt_without_required_arguments(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        prompts = {one.name: one for one in (await caller.client.list_prompts()).prompts}
        assert {name: [one.name for one in prompt.arguments or []] for name, prompt in prompts.items()} == ARGUMENTS
        bank = SkillBank.shipped()
        leading = {name for name in bank.skills() if bank.children(name)} | {"meta-loop", "traj-status"}
        assert prompts.keys() == leading - {"traj-launch-training"}, "launching a training is what rllm-train is for"
        for prompt in prompts.values():
            assert prompt.title
            assert prompt.description
            assert all(not one.required and "Default: " in (one.description or "") for one in prompt.arguments or [])


async def test_a_client_that_sends_nothing_or_empty_text_gets_a_usable_prompt(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        for name, arguments in ARGUMENTS.items():
            bare = await text_of(caller, name)
            assert await text_of(caller, name, **dict.fromkeys(arguments, " ")) == bare
            assert call_in(bare)["skill"] == name
            assert call_in(bare)["args"]
            assert "{" not in bare.replace(json.dumps(call_in(bare)), ""), "nothing is left to fill in"
        assert DEFAULT_REQUEST in await text_of(caller, "rllm-train")
        assert "over 2 round(s)" in await text_of(caller, "traj-loop")
    assert not root.exists()


async def test_the_call_that_a_prompt_names_can_be_made(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        for name in ARGUMENTS:
            answer = await caller.ok("load_skill", **call_in(await text_of(caller, name)))
            assert answer["skill"] == name


async def test_arguments_stand_in_the_prompt(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        request = '训练 "tiny", 3 步\nand more'
        text = await text_of(caller, "traj-loop", request=request, rounds="7")
        assert call_in(text) == {"skill": "traj-loop", "args": '训练 "tiny", 3 步 and more; 7 round(s)'}
        assert "session abc" in await text_of(caller, "traj-train-optimize", session="abc")
        assert "every recorded session" in await text_of(caller, "traj-train-optimize", session="all")
        assert "evolution e-1" in await text_of(caller, "traj-status", evolution="e-1")
        long = call_in(await text_of(caller, "rllm-train", request="x" * 10_000))
        assert len(long["args"]) == MAX_REQUEST


@pytest.mark.parametrize("rounds", ["0", "101", "-1", "two", "²", "1.5", "9999999999"])
async def test_a_number_that_is_none_is_refused_with_what_is_allowed(root: Path, rounds: str) -> None:
    async with in_memory(root, "auto") as caller:
        with pytest.raises(MCPError, match="not a number from 1 to 100") as caught:
            await caller.client.get_prompt("traj-loop", {"rounds": rounds})
    assert caught.value.code == INVALID_PARAMS


async def test_an_unknown_prompt_is_refused_with_those_there_are(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        with pytest.raises(MCPError, match="rllm-train, traj-train-optimize") as caught:
            await caller.client.get_prompt("nobody")
    assert caught.value.code == INVALID_PARAMS


async def test_an_unknown_argument_is_refused_with_those_there_are(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        with pytest.raises(MCPError, match=r"no argument 'round'\. It takes: request, rounds") as caught:
            await caller.client.get_prompt("traj-loop", {"round": "3"})
    assert caught.value.code == INVALID_PARAMS
