"""Skills over MCP: what is listed is what is read, byte for byte, and it changes when a patch is promoted."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import MCPError
from mcp.shared.extension import validate_extension_identifier
from mcp_types import INVALID_PARAMS, Request
from pydantic import BaseModel, ConfigDict
from server_helpers import Caller, in_memory

from mcp_server.skills import over_mcp, served
from mcp_server.skills.over_mcp import DIRECTORY, EXTENSION_ID
from mcp_server.skills.served import ServedSkills, UnservedSkill, versions_text
from mcp_server.state import ServerState
from skill_bank.bank import SkillBank
from skill_bank.seeding import SHIPPED
from skill_bank.types import PatchText

pytestmark = pytest.mark.anyio


class Whatever(BaseModel):
    """A result as it comes."""

    model_config = ConfigDict(extra="allow")


async def ask(caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    request: Request[dict[str, Any], str] = Request[dict[str, Any], str](method=method, params=params)
    result = await caller.client.session.send_request(request, Whatever)
    return result.model_dump(by_alias=True)


async def refused(caller: Caller, method: str, **params: Any) -> MCPError:
    with pytest.raises(MCPError) as caught:
        await ask(caller, method, **params)
    return caught.value


def sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


async def read(caller: Caller, uri: str) -> tuple[str, str | None]:
    contents = (await caller.client.read_resource(uri)).contents
    assert len(contents) == 1
    return contents[0].text, contents[0].mime_type  # type: ignore[union-attr]


def workspace(root: Path) -> SkillBank:
    (root / "runs").mkdir(parents=True)
    return SkillBank.seed(root / "skills")


def patch_of(bank: SkillBank, skill: str) -> PatchText:
    protected = bank.index().skills[skill].protected
    section = next(one.name for one in bank.source(skill).base.sections if one.name not in protected)
    return bank.render_patch(
        skill,
        id="look-twice",
        target_section=section,
        body="Look twice before you say that a run improves.",
        description="looks twice",
        source="test",
        created="2026-01-31",
    )


async def test_every_listed_file_is_read_as_listed_and_no_workspace_is_made(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        listed = await ask(caller, "skills/list")
        named = {str(one.uri): one for one in (await caller.client.list_resources()).resources}
        assert [one["frontmatter"]["name"] for one in listed["skills"]] == list(SkillBank.shipped().skills())
        for entry in listed["skills"]:
            name = entry["frontmatter"]["name"]
            assert entry["uri"] == f"skill://{name}/SKILL.md"
            assert entry["resources"][0]["uri"] == entry["uri"]
            for file in entry["resources"]:
                text, mime = await read(caller, file["uri"])
                assert sha256(text) == file["digest"]
                assert len(text.encode()) == file["size"]
                assert mime == ("application/json" if file["uri"].endswith(".json") else "text/markdown")
            text, _ = await read(caller, entry["uri"])
            assert text == (SHIPPED / "compiled" / name / "SKILL.md").read_text(encoding="utf-8")
            assert yaml.safe_load(text.split("---\n")[1]) == entry["frontmatter"]
            resource = named[entry["uri"]]
            assert (resource.name, resource.description) == (name, entry["frontmatter"]["description"])
            assert (await ask(caller, "skills/get", uri=entry["uri"]))["skill"] == entry
    assert not root.exists()


async def test_the_extension_is_declared_in_the_newer_era(root: Path) -> None:
    validate_extension_identifier(EXTENSION_ID, owner="test")
    async with in_memory(root, "auto") as caller:
        capabilities = caller.client.server_capabilities
        assert capabilities is not None
        assert (capabilities.extensions or {})[EXTENSION_ID] == {"directoryRead": True}
        assert capabilities.resources is not None
        listed = await ask(caller, "skills/list")
        assert listed["resultType"] == "complete"
        assert {"ttlMs", "cacheScope"} <= listed.keys()


async def test_folders_list_what_lies_directly_in_them(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        found = (await ask(caller, "resources/directory/read", uri="skill://rllm-config"))["resources"]
        assert {one["uri"]: one["mimeType"] for one in found} == {
            "skill://rllm-config/SKILL.md": "text/markdown",
            "skill://rllm-config/policy.json": "application/json",
            "skill://rllm-config/references": DIRECTORY,
        }
        below = (await ask(caller, "resources/directory/read", uri="skill://rllm-config/references"))["resources"]
        assert [(one["uri"], one["name"]) for one in below] == [
            ("skill://rllm-config/references/versions.md", "versions.md")
        ]


async def test_pages_hold_each_skill_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_mcp, "PAGE", 4)
    async with in_memory(root, "auto") as caller:
        seen: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(10):
            page = await ask(caller, "skills/list", **cursor)
            seen += [one["uri"] for one in page["skills"]]
            if page.get("nextCursor") is None:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert seen == [f"skill://{name}/SKILL.md" for name in SkillBank.shipped().skills()]
        wrong = await refused(caller, "skills/list", cursor="nothing")
        assert wrong.code == INVALID_PARAMS


NOT_SERVED = [
    ("skills/get", "skill://nobody/SKILL.md", "no skill is served at"),
    ("skills/get", "skill://rllm-train", "a skill is named by its SKILL.md"),
    ("skills/get", "skill://rllm-config/policy.json", "a skill is named by its SKILL.md"),
    ("skills/get", "evo://runs/x", "is not of the form skill://"),
    ("resources/directory/read", "skill://rllm-train/SKILL.md", "is a file, not a directory"),
    ("resources/directory/read", "skill://rllm-train/nothing", "is no folder"),
    ("resources/directory/read", "skill://nobody", "no skill is served at"),
    ("resources/directory/read", "skill://rllm-train/..", "is no folder"),
    ("resources/read", "skill://rllm-train/nothing.md", "there is no file"),
    ("resources/read", "skill://rllm-train", "there is no file"),
    ("resources/read", "skill://rllm-train/../rllm-config/SKILL.md", "there is no file"),
    ("resources/read", "skill://rllm-train/%2e%2e/bank.yaml", "there is no file"),
    ("resources/read", "skill://../../bank.yaml", "no skill is served at"),
    ("resources/read", "skill:///etc/passwd", "is not of the form"),
]


async def test_what_is_not_served_is_refused(root: Path, era: str) -> None:
    async with in_memory(root, era) as caller:
        for method, uri, says in NOT_SERVED:
            error = await refused(caller, method, uri=uri)
            assert error.code == INVALID_PARAMS, (method, uri)
            assert says in error.message, (method, uri)


async def test_a_promotion_changes_the_digests_and_is_told_in_the_versions(root: Path) -> None:
    bank = workspace(root)
    async with in_memory(root, "auto") as caller:
        uri = "skill://rllm-monitor/SKILL.md"
        before = (await ask(caller, "skills/get", uri=uri))["skill"]
        others = {one["uri"]: one for one in (await ask(caller, "skills/list"))["skills"]}
        bank.add_patch(patch_of(bank, "rllm-monitor"))
        bank.activate("rllm-monitor", "look-twice", reason="promote look-twice")
        after = (await ask(caller, "skills/get", uri=uri))["skill"]
        assert {one["digest"] for one in after["resources"]} != {one["digest"] for one in before["resources"]}
        text, _ = await read(caller, uri)
        assert "Look twice" in text
        assert sha256(text) == after["resources"][0]["digest"] != before["resources"][0]["digest"]
        versions, _ = await read(caller, "skill://rllm-monitor/references/versions.md")
        assert versions.splitlines()[2].startswith("- 2, ")
        assert "look-twice" in versions.splitlines()[2]
        now = {one["uri"]: one for one in (await ask(caller, "skills/list"))["skills"]}
        assert [name for name in now if now[name] != others[name]] == [uri], "the other skills are as they were"


async def test_links_and_other_things_are_not_followed(root: Path, tmp_path: Path) -> None:
    workspace(root)
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    compiled = root / "skills" / "compiled"
    (compiled / "rllm-run" / "more.md").symlink_to(secret)
    outside = tmp_path / "elsewhere"
    (compiled / "rllm-train").rename(outside)
    (compiled / "rllm-train").symlink_to(outside)
    os.mkfifo(compiled / "rllm-monitor" / "pipe")
    skills = ServedSkills(ServerState(root))
    served = {one.name: one for one in skills.all()}
    assert "rllm-run" not in served
    assert "rllm-train" not in served
    assert set(served["rllm-monitor"].files) == {"SKILL.md", "policy.json", "references/versions.md"}
    with pytest.raises(UnservedSkill, match="cannot be read"):
        skills.read("skill://rllm-run/more.md")


async def test_a_skill_beyond_the_limits_is_not_served(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace(root)
    folder = root / "skills" / "compiled" / "rllm-run"
    (folder / "big.md").write_bytes(b"x" * 300_000)
    assert "rllm-run" in [one.name for one in ServedSkills(ServerState(root)).all()]
    monkeypatch.setattr(served, "MAX_BYTES", 300_000)
    assert "rllm-run" not in [one.name for one in ServedSkills(ServerState(root)).all()]
    monkeypatch.setattr(served, "MAX_BYTES", 10_000_000)
    (folder / "big.md").unlink()
    for number in range(2):
        (folder / f"{number}.txt").write_text("x")
    monkeypatch.setattr(served, "MAX_FILES", 4)
    assert "rllm-run" in [one.name for one in ServedSkills(ServerState(root)).all()]
    (folder / "2.txt").write_text("x")
    with pytest.raises(UnservedSkill, match="5 files"):
        ServedSkills(ServerState(root)).get("skill://rllm-run/SKILL.md")


async def test_a_damaged_bank_is_an_error_that_says_so_and_hides_no_other_resource(root: Path) -> None:
    workspace(root)
    (root / "skills" / "bank.yaml").write_text("version: [\n")
    async with in_memory(root, "auto") as caller:
        error = await refused(caller, "skills/list")
        assert error.code != INVALID_PARAMS
        assert "bank.yaml" in error.message
        listed = (await caller.client.list_resources()).resources
        assert listed
        assert not [one for one in listed if str(one.uri).startswith("skill://")]


async def test_bytes_that_are_no_text_come_as_they_are(root: Path) -> None:
    workspace(root)
    (root / "skills" / "compiled" / "rllm-run" / "picture.bin").write_bytes(b"\xff\x00\xfe")
    async with in_memory(root, "auto") as caller:
        contents = (await caller.client.read_resource("skill://rllm-run/picture.bin")).contents[0]
        assert json.loads(contents.model_dump_json(by_alias=True))["blob"] == "/wD+"


def test_versions_of_a_skill_that_was_never_compiled() -> None:
    assert versions_text("x", []) == "# Versions of x\n\nAs shipped; no version is recorded yet.\n"
