"""A whole session of the real Claude Code, driven by an endpoint that follows a script: what is recorded of it.

No model takes part. The script calls one tool of ours and ends; Claude Code starts the server, runs the hooks and
leaves at once, as it does without a terminal.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from npm_clients import CLAUDE_CODE, installed_program, runner
from scripted_model import CALL, Script, scripted_model

from mcp_server.cli.setup import compiled_skills
from mcp_server.installs.plugin import plugin_files
from mcp_server.installs.writing import write_folder
from mcp_server.setup.types import Connection

pytestmark = [pytest.mark.npm, pytest.mark.timeout(600)]


@pytest.mark.parametrize("way", ["plugin", "setup"])
def test_a_session_is_recorded_from_its_start_to_its_end(way: str, tmp_path: Path) -> None:
    program = installed_program()
    claude = runner(CLAUDE_CODE, tmp_path / "home")
    project = tmp_path / "project"
    (project / ".mcp-evo").mkdir(parents=True)  # a hook makes no workspace
    words = []
    if way == "plugin":
        connection = Connection(str(program), str(program.with_name("mcp-evo-hook")), None)
        write_folder(tmp_path / "plugin", plugin_files(connection, compiled_skills(None)))
        words, tool = ["--plugin-dir", str(tmp_path / "plugin")], "mcp__plugin_mcp-evo_evo__load_skill"
    else:
        setup_for_the_user(program, tmp_path / "home", project)
        tool = "mcp__evo__load_skill"
    (project / "notes.txt").write_text("nothing to see\n")
    script = Script("evo__load_skill", {"skill": "rllm-train"}, meanwhile={"file_path": str(project / "notes.txt")})
    with scripted_model(script) as address:
        claude(
            *("-p", "train the tiny agent", "--allowedTools", tool, *words),
            folder=project,
            ANTHROPIC_BASE_URL=address,
            ANTHROPIC_API_KEY="of-nobody",
        )
    assert tool in script.offered
    assert "rllm-clarify" in script.results[CALL]
    recorded = {name: lines for name, lines in sessions(project).items() if not name.startswith("server-")}
    (events,) = recorded.values()
    events = [one for one in events if one.get("tool_name") != "Read"]
    kinds = [one["hook_event_name"] for one in events]
    assert sorted(kinds) == ["PostToolUse", "SessionEnd", "SessionStart", "Stop", "UserPromptSubmit"]
    assert [one["tool_name"] for one in events if "tool_name" in one] == [tool]
    segmented = subprocess.run(
        [str(program), "trajectories", "segment", "--json"],
        env={"HOME": str(tmp_path / "home"), "PATH": os.defpath},
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rllm-train" in segmented.stdout


def setup_for_the_user(program: Path, home: Path, project: Path) -> None:
    """By our own command, into the home that this Claude Code has."""
    subprocess.run(
        [str(program), "setup", "claude-code", "--user", "--yes"],
        env={"HOME": str(home), "PATH": os.defpath},
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


def sessions(project: Path) -> dict[str, list[dict[str, Any]]]:
    """Session → its raw events."""
    folder = project / ".mcp-evo" / "trajectories" / "raw"
    return {
        path.parent.name: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in folder.glob("*/events.jsonl")
    }
