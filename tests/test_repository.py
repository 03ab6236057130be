"""Files that people copy, and the sentences of the README that a program can check."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_example_configuration_is_valid_for_desktop_and_code() -> None:
    document = json.loads((ROOT / "claude_config.example.json").read_text())
    (server,) = document["mcpServers"].values()
    assert set(server) == {"command", "args", "env"}  # what both clients read
    assert server["args"] == ["serve"]
    assert Path(server["env"]["MCP_EVO_HOME"]).is_absolute()


def test_every_direct_dependency_is_pinned_where_a_tested_set_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    wanted = {re.split(r"[<>=\[]", one)[0].lower() for one in project["dependencies"]}
    assert wanted <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().split()  # no local suffix: it must exist on a Mac


def test_the_bundled_model_is_small_and_whole() -> None:
    folder = ROOT / "trainer" / "models" / "tiny"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        p.name for p in folder.iterdir()
    }
    assert (folder / "model.safetensors").stat().st_size < 2 * 1_500_000 + 10_000  # half precision, 1.5 M parameters


def test_every_command_the_readme_names_exists() -> None:
    from mcp_server.cli.main import COMMANDS

    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"(?<![./])mcp-evo (?:--\S+ \S+ )?([a-z]+)", text)) - {"is", "lets", "does"}
    assert named
    known = set(COMMANDS)
    assert named <= known, named - known


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
