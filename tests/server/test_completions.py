"""Completions: every variable of every template and every argument of every prompt, by what the workspace holds."""

import re
from pathlib import Path

import pytest
from filled import EVOLUTION, PATCHES, ROUNDS, RUNS, SESSIONS, filled_workspace
from mcp_types import PromptReference, ResourceTemplateReference
from server_helpers import Caller, in_memory

from mcp_server.resources.completing import MAX_VALUES
from mcp_server.resources.prompts import DEFAULT_REQUEST
from skill_bank.bank import SkillBank

pytestmark = pytest.mark.anyio

RUN = "evo://runs/{run_id}"


async def complete(
    caller: Caller, where: str, name: str, begun: str = "", known: dict[str, str] | None = None
) -> list[str]:
    """`where`: a template or a prompt."""
    ref = ResourceTemplateReference(uri=where) if "://" in where else PromptReference(name=where)
    found = (await caller.client.complete(ref, {"name": name, "value": begun}, known)).completion
    assert found.total is not None
    assert found.has_more is (found.total > len(found.values))
    assert len(found.values) <= MAX_VALUES
    return found.values


async def test_everything_that_can_be_filled_in_is_completed(root: Path, era: str) -> None:
    filled_workspace(root)
    async with in_memory(root, era) as caller:
        templates = [one.uri_template for one in (await caller.client.list_resource_templates()).resource_templates]
        prompts = (await caller.client.list_prompts()).prompts
        places = [(uri, name) for uri in templates for name in re.findall(r"\{\+?(\w+)\}", uri)]
        places += [(one.name, argument.name) for one in prompts for argument in one.arguments or []]
        assert len(places) >= 15
        for where, name in places:
            assert await complete(caller, where, name), (where, name)


async def test_values_are_those_of_the_workspace_the_newest_first(root: Path) -> None:
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        runs = await complete(caller, RUN, "run_id")
        assert runs == [f"run-{number:03d}" for number in reversed(range(RUNS))]
        assert await complete(caller, f"{RUN}/metrics", "run_id", "RUN-01") == [
            f"run-01{digit}" for digit in reversed(range(10))
        ]
        assert await complete(caller, RUN, "run_id", "x") == []
        rounds = await complete(caller, "evo://rounds/{number}", "number")
        assert rounds == [str(number) for number in range(ROUNDS, 0, -1)], "numbers, not names"
        assert await complete(caller, "evo://rounds/{number}", "number", "1") == ["12", "11", "10", "1"]
        patches = await complete(caller, "evo://patches/{patch_id}", "patch_id")
        assert patches == [f"patch-{number:03d}" for number in reversed(range(PATCHES))]
        sessions = await complete(caller, "evo://trajectories/{layer}/{session}", "session", "session-")
        assert len(sessions) == SESSIONS
        layers = await complete(caller, "evo://trajectories/{layer}/{session}", "layer", "r")
        assert layers == ["rllm"]
        assert await complete(caller, "skill://{skill}/{+path}", "skill") == list(SkillBank.shipped().skills())
        files = await complete(caller, "skill://{skill}/{+path}", "path", "", {"skill": "rllm-config"})
        assert files == ["SKILL.md", "policy.json", "references/versions.md"]
        assert await complete(caller, "skill://{skill}/{+path}", "path", "", {"skill": "nobody"}) == []


async def test_arguments_of_prompts(root: Path) -> None:
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        requests = await complete(caller, "rllm-train", "request")
        assert requests[-1] == DEFAULT_REQUEST
        assert len(requests) == len(set(requests)) == RUNS + 1, "each request once"
        assert await complete(caller, "traj-loop", "rounds") == ["2", "1", "3", "5", "10"]
        assert await complete(caller, "traj-status", "evolution") == [EVOLUTION]
        assert "all" in await complete(caller, "traj-train-optimize", "session")
        assert await complete(caller, "traj-train-optimize", "session", "al") == ["all"]
        assert await complete(caller, "rllm-train", "nothing") == []


async def test_without_a_workspace_there_is_nothing_to_offer_and_nothing_is_made(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        assert await complete(caller, RUN, "run_id") == []
        assert await complete(caller, "evo://rounds/{number}", "number") == []
        assert await complete(caller, "evo://patches/{patch_id}", "patch_id") == []
        assert await complete(caller, "evo://trajectories/{session}", "session") == []
        assert await complete(caller, "traj-status", "evolution") == []
        assert await complete(caller, "rllm-train", "request") == [DEFAULT_REQUEST]
    assert not root.exists()


async def test_more_than_fit_are_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_server.resources.completing.MAX_VALUES", 7)
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        ref = ResourceTemplateReference(uri=RUN)
        found = (await caller.client.complete(ref, {"name": "run_id", "value": ""})).completion
    assert (len(found.values), found.total, found.has_more) == (7, RUNS, True)


async def test_a_damaged_document_is_offered_like_any_other(root: Path) -> None:
    filled_workspace(root)
    (root / "patches" / "patch-001" / "patch.json").write_text("{")
    (root / "runs" / "run-001" / "run.json").write_text("{")
    async with in_memory(root, "auto") as caller:
        assert (await complete(caller, "evo://patches/{patch_id}", "patch_id"))[0] == "patch-001", "changed last"
        assert "run-001" in await complete(caller, RUN, "run_id")
