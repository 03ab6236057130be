"""The clients' own programs judge what is written for them: the bundle's validator, and Claude Code itself.

They come from npm (`pytest -m npm`), into a cache folder outside of the tree, and run in a home of their own, without
an account: nothing of this is a conversation with a model.
"""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from npm_clients import CLAUDE_CODE, MCPB, Run, installed_program, runner

from mcp_server.cli.setup import compiled_skills
from mcp_server.installs.bundle import archive, bundle_files
from mcp_server.installs.plugin import plugin_files
from mcp_server.installs.writing import write_folder
from mcp_server.setup.entries import EVENTS
from mcp_server.setup.plugins import our_plugins
from mcp_server.setup.types import Connection
from skill_bank.files import write_bytes_atomic

pytestmark = [pytest.mark.npm, pytest.mark.timeout(600)]


@pytest.fixture
def mcpb(tmp_path: Path) -> Run:
    return runner(MCPB, tmp_path / "home")


@pytest.fixture
def claude(tmp_path: Path) -> Run:
    return runner(CLAUDE_CODE, tmp_path / "home")


@pytest.fixture
def program() -> Path:
    return installed_program()


@pytest.mark.parametrize("portable", [True, False])
def test_the_bundle_is_valid_and_packs(mcpb: Run, portable: bool, tmp_path: Path) -> None:
    files = bundle_files(None, None) if portable else bundle_files(Path("/x/mcp-evo"), Path("/x/.mcp-evo"))
    for name, data in files.items():
        place = tmp_path / "content" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(place, data)
    assert "validation passes" in mcpb("validate", str(tmp_path / "content" / "manifest.json")).stdout
    mcpb("pack", str(tmp_path / "content"), str(tmp_path / "theirs.mcpb"))
    write_bytes_atomic(tmp_path / "ours.mcpb", archive(files))
    mcpb("unpack", str(tmp_path / "ours.mcpb"), str(tmp_path / "unpacked"))
    with zipfile.ZipFile(tmp_path / "theirs.mcpb") as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == files
    for name, data in files.items():
        assert (tmp_path / "unpacked" / name).read_bytes() == data


def test_the_validator_notices_a_wrong_bundle(mcpb: Run, tmp_path: Path) -> None:
    """So that passing it says something."""
    manifest = json.loads(bundle_files(None, None)["manifest.json"])
    del manifest["server"]["mcp_config"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert "server.mcp_config" in mcpb("validate", str(tmp_path / "manifest.json"), code=1).stdout


def test_claude_code_accepts_installs_and_runs_the_plugin(claude: Run, program: Path, tmp_path: Path) -> None:
    connection = Connection(str(program), str(program.with_name("mcp-evo-hook")), None)
    skills = compiled_skills(None)
    folder, project = tmp_path / "plugin", tmp_path / "project"
    write_folder(folder, plugin_files(connection, skills))
    project.mkdir()
    judged = claude("plugin", "validate", str(folder), "--strict").stdout
    assert "Validation passed" in judged
    assert judged.count("hooks: ") == len(EVENTS)
    assert judged.count("skills: mcp-evo:") == len(skills)
    assert "refuses a submission" not in judged
    claude("plugin", "marketplace", "add", str(folder))
    claude("plugin", "install", "mcp-evo@mcp-evo")
    listed = claude("mcp", "list", folder=project).stdout
    assert "plugin:mcp-evo:evo" in listed
    assert "Connected" in listed
    assert not (project / ".mcp-evo").exists()  # being asked for tools makes no workspace
    (seen,) = our_plugins(tmp_path / "home" / ".claude", project)
    assert (seen.name, seen.scope, seen.enabled) == ("mcp-evo@mcp-evo", "user", True)
    assert seen.connected.parts == (f"hooks for {len(EVENTS)} events", "server evo")
    claude("plugin", "disable", "mcp-evo@mcp-evo")
    assert [one.enabled for one in our_plugins(tmp_path / "home" / ".claude", project)] == [False]
    claude("plugin", "uninstall", "mcp-evo@mcp-evo")
    assert our_plugins(tmp_path / "home" / ".claude", project) == []


def test_claude_code_notices_a_wrong_plugin(claude: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "p", plugin_files(Connection("mcp-evo", "mcp-evo-hook", None), {}))
    hooks = tmp_path / "p" / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text().replace('"PostToolUse"', '"AfterEverything"'))
    claude("plugin", "validate", str(tmp_path / "p"), "--strict", code=1)


def test_claude_code_connects_to_what_setup_writes(claude: Run, program: Path, tmp_path: Path) -> None:
    """User scope, by our own command, into the home that this Claude Code has."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    subprocess.run(
        [str(program), "setup", "claude-code", "--user", "--yes"],
        env={"HOME": str(home), "PATH": os.defpath},
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    listed = claude("mcp", "list", folder=project).stdout
    assert f"evo: {program} serve" in listed
    assert "Connected" in listed
    assert "type: stdio" in claude("mcp", "get", "evo", folder=project).stdout.lower()


def test_claude_code_connects_over_http_with_the_line_that_the_server_prints(
    claude: Run, program: Path, tmp_path: Path
) -> None:
    """The line is given to a shell, which reads the token from its file; without the token there is no connection."""
    project = tmp_path / "project"
    project.mkdir()
    server = subprocess.Popen(
        [str(program), "--workspace", str(tmp_path / "a workspace"), "serve", "--http", "--port", "0", "--json"],
        env={"HOME": str(tmp_path), "PATH": os.defpath},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        words = subprocess.run(
            ["/bin/sh", "-c", f"printf '%s\\n' {ready['command'].removeprefix('claude ')}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        claude(*words, folder=project)
        listed = claude("mcp", "list", folder=project).stdout
        assert f"evo: {ready['url']} (HTTP)" in listed
        assert "Connected" in listed
        claude("mcp", "remove", "evo", folder=project)
        claude("mcp", "add", "--transport", "http", "evo", ready["url"], folder=project)
        assert "Connected" not in claude("mcp", "list", folder=project).stdout
    finally:
        server.terminate()
        server.wait(20)
        if server.stdout is not None:
            server.stdout.close()
