"""Ids and names that try to leave the workspace: in every text argument of every tool, in resources, on the command
line. Each is refused, nothing outside is read or written, and an error is one of ours.

The arguments are found in the schemas, so a tool that is added is tried as well.
"""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp.shared.exceptions import MCPError
from server_helpers import Caller, in_memory, text_of

from mcp_server.cli.main import run
from optimizer.ids import BadId, check_id
from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import check_id as check_run_id

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a9c-of-another-project"

IDS = [
    "..",
    "../canary",
    "../../canary",
    "..\\..\\canary",
    "%2e%2e%2fcanary",
    "..%2f..%2fcanary",
    "%252e%252e%252fcanary",
    "/etc/passwd",
    "//etc/passwd",
    "C:\\canary",
    "file:///etc/passwd",
    "~/canary",
    "x/../../canary",
    "canary\x00.json",
    "\uff0e\uff0e/canary",
    "\u2024\u2024/canary",
    "./x",
    ".",
    "",
    " ",
    "x" * 300,
    "x" * 100_000,
    "-o",
    "--config=x",
    "--",
    "$(touch canary-made)",
    "`touch canary-made`",
    ";touch canary-made",
    "|touch canary-made",
    "a\nb",
    "{}",
    "{0.__class__}",
    "%s%n",
    "' OR 1=1 --",
    '"; DROP TABLE events; --',
    "*",
    "[",
    "nul",
    "𝒳",
    "ＡＢＣ",
]

FREE_TEXT = frozenset(
    {
        *("request", "body", "description", "reason", "args", "content", "when_to_use"),
        *("family", "text", "query", "prompt", "key"),
    }
)
"""Arguments that are no names. What they hold is tried elsewhere."""

SLOW = {("evolve", "plan")}

REQUIRED: dict[str, dict[str, Any]] = {
    "start_training": {"request": "tiny, 1 step"},
    "rollback_skill": {"skill": "rllm-monitor", "version": 1, "reason": "x"},
    "add_experience": {"when_to_use": "always, in tests", "content": "Write down what was tried."},
    "search_experience": {"query": "x"},
    "evolve": {"request": "tiny, 1 step", "rounds": 1},
    "try_model": {"prompt": "1+1"},
    "try_patch": {"patch_id": "none"},
    "compare_runs": {"runs": ["a", "b"]},
}


def tree_of(folder: Path, without: Path) -> dict[str, str]:
    """Every file outside of the workspace, with its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_relative_to(without)
    }


@pytest.fixture
def project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside and above the workspace with things that are nobody's business."""
    project = root.parent
    project.mkdir(parents=True)
    for folder in (project, project.parent):
        for name in ("canary", "canary.json", "canary.md", "canary.txt"):
            (folder / name).write_text(f'{{"secret": "{CANARY}"}}\n')
        (folder / "canary-run").mkdir()
        (folder / "canary-run" / "run.json").write_text(f'{{"run_id": "{CANARY}"}}')
    monkeypatch.chdir(project)
    return project


def wrong_with(result: Any, *where: str) -> list[str]:
    """What is wrong with the answer to something hostile; empty: nothing."""
    found, place = [], " ".join(repr(one[:60]) for one in where)
    if CANARY in result.model_dump_json():
        found.append(f"{place}: read what is outside")
    text = text_of(result)
    if result.is_error and (text.startswith("Error executing tool") or "Traceback" in text):
        found.append(f"{place}: a crash")
    if len(text) > 8000:
        found.append(f"{place}: {len(text)} characters")
    return found


async def test_every_text_argument_of_every_tool(project: Path, root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        await caller.ok("skill_status")
        before = tree_of(project.parent, root)
        tried, wrong = 0, []
        for tool in (await caller.client.list_tools()).tools:
            properties: dict[str, Any] = tool.input_schema.get("properties", {})
            for name, schema in properties.items():
                if schema.get("type") != "string" or "enum" in schema or name in FREE_TEXT or (tool.name, name) in SLOW:
                    continue
                for hostile in IDS:
                    arguments = {**REQUIRED.get(tool.name, {}), name: hostile}
                    if hostile in ("", " ") and tool.name in (
                        "start_training",
                        "evolve",
                        "try_model",
                        "evaluate_model",
                    ):
                        continue  # nothing is named: the call does what it always does
                    wrong += wrong_with(await caller.raw(tool.name, **arguments), tool.name, name, hostile)
                    tried += 1
        assert wrong == []
        assert tried > 500
        assert tree_of(project.parent, root) == before
    assert not list(project.parent.rglob("canary-made"))
    inside = [path.relative_to(root) for path in root.rglob("*")]
    assert not [path for path in inside if any(part in ("..", "~", "-o", "--config=x") for part in path.parts)]


async def test_lists_and_mappings_of_names(project: Path, root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        before, wrong = tree_of(project.parent, root), []
        for hostile in IDS:
            for tool, arguments in (
                ("compare_runs", {"runs": [hostile, hostile]}),
                ("evaluate_model", {"target": "none", "against": [hostile]}),
                ("start_training", {"request": "tiny", "campaign": {"resume": hostile}}),
                ("start_training", {"request": "tiny", "overrides": {"env": hostile or "x"}}),
                ("start_training", {"request": "tiny", "overrides": {"folder": hostile}}),
                ("propose_patch", {"skill": "rllm-monitor", "section": hostile, "body": "x", "description": "x"}),
            ):
                result = await caller.raw(tool, **arguments)
                assert result.is_error, (tool, hostile, result.structured_content)
                wrong += wrong_with(result, tool, str(arguments))
        assert wrong == []
        assert tree_of(project.parent, root) == before


async def test_resources(project: Path, root: Path, era: str) -> None:
    forms = (
        "evo://runs/{}",
        "evo://runs/{}/metrics",
        "evo://runs/{}/report",
        "evo://trajectories/{}",
        "evo://trajectories/rllm/{}",
        "evo://rounds/{}",
        "evo://patches/{}",
        "skill://{}/SKILL.md",
        "skill://rllm-train/{}",
        "skill://rllm-train/references/{}",
    )
    async with in_memory(root, era) as caller:
        await caller.ok("skill_status")
        for form in forms:
            for hostile in IDS:
                if hostile in ("", "."):
                    continue
                for name in (hostile, quote(hostile, safe="")):
                    if len(name) > 2000 or "\n" in name or "\x00" in name:
                        continue
                    await refused_resource(caller, form.format(name))


async def refused_resource(caller: Caller, uri: str) -> None:
    with pytest.raises((MCPError, ValueError)) as refused:  # ValueError: the client itself takes it for no address
        await caller.client.read_resource(uri)
    assert CANARY not in str(refused.value), uri
    assert "Internal server error" not in str(refused.value), uri


def test_the_command_line(project: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forms = (
        ("runs", "show"),
        ("runs", "stop"),
        ("patches", "show"),
        ("rounds", "show"),
        ("trajectories", "show"),
        ("skills", "preview"),
        ("explain",),
        ("campaigns", "show"),
        ("tokens", "remove"),
        ("reject", "--reason", "x"),
    )
    assert run(["--workspace", str(root), "init"]) in (0, 1, 2)
    capsys.readouterr()
    before = tree_of(project.parent, root)
    for form in forms:
        for hostile in IDS:
            if hostile == "" or len(hostile) > 1000:
                continue
            code = run(["--workspace", str(root), *form, "--json", "--", hostile])
            out, err = capsys.readouterr()
            assert code in (1, 2), (form, hostile, out, err)
            assert CANARY not in out + err
            assert "Traceback" not in err
    assert tree_of(project.parent, root) == before
    assert not list(project.parent.rglob("canary-made"))


@pytest.mark.parametrize("text", [one for one in IDS if one not in ("nul",)])
def test_an_id_is_plain(text: str) -> None:
    with pytest.raises(BadId):
        check_id(text, "patch")
    with pytest.raises(WorkspaceError):
        check_run_id(text)
    assert check_id("a" * 64, "patch")
    with pytest.raises(BadId):
        check_id("a" * 65, "patch")
    assert json.dumps(text)
