"""Claude Desktop starts servers in `/`, with hardly any environment, knows no hooks and asks its user nothing.

Real processes throughout, with nothing of this process's environment. The programs that are started are the installed
ones where this Python has them beside it, as a client's configuration names them.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from raw_wire import Wire

from mcp_server.installs.bundle import ENTRY_POINT, archive, bundle_files
from mcp_server.tools import all_specs
from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import find_workspace

ROOT = Path(__file__).parents[2]

FAKE_WORKER = [sys.executable, "-P", str(ROOT / "tests" / "support" / "fake_worker.py")]

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"


@pytest.fixture(scope="module")
def program() -> str:
    """The installed `mcp-evo`, by its absolute path."""
    installed = Path(sys.executable).with_name("mcp-evo")
    if not installed.is_file():
        pytest.skip(f"mcp-evo is not installed beside {sys.executable}")
    return str(installed)


def unpacked(folder: Path, executable: str, workspace: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of the bundle as a client takes them from its manifest, with the settings as chosen."""
    (folder / "x.mcpb").write_bytes(archive(bundle_files(None, None)))
    place = folder / "ext ension"
    with zipfile.ZipFile(folder / "x.mcpb") as packed:
        packed.extractall(place)
    config = json.loads((place / "manifest.json").read_text())["server"]["mcp_config"]
    text = json.dumps(config).replace("${__dirname}", str(place))
    text = text.replace("${user_config.executable}", executable).replace("${user_config.workspace}", str(workspace))
    chosen = json.loads(text)
    return [chosen["command"], *chosen["args"]], chosen["env"]


# ---- without a working folder, PATH and home


def test_a_server_that_knows_nothing_but_its_workspace(program: str, tmp_path: Path) -> None:
    """A run is started, watched and segmented: children need no PATH, and no hook has recorded anything."""
    root = tmp_path / "my work" / ".mcp-evo"
    wire = Wire([program, "serve"], environment={"MCP_EVO_HOME": str(root), "MCP_EVO_WORKER": json.dumps(FAKE_WORKER)})
    assert wire.shake_hands()["result"]["serverInfo"]["name"] == "evo"
    tools = wire.ask("tools/list")["result"]["tools"]
    assert len(tools) == len(all_specs())
    started = wire.ok("start_training", request=REQUEST)
    for _ in range(30):
        seen = wire.ok("monitor_run", run_id=started["run_id"], wait_s=5)
        if seen["state"] not in ("queued", "starting", "running"):
            break
    assert seen["state"] == "finished", seen
    segments = wire.ok("segment_trajectories")
    assert segments["sessions"], "the server's own record stands in for hooks that the client does not have"
    assert wire.close() == 0
    assert list((root / "trajectories" / "raw").glob("server-*/events.jsonl"))


def test_a_server_without_a_workspace_uses_the_home_folder_and_says_so(program: str, tmp_path: Path) -> None:
    wire = Wire([program, "serve"], environment={"HOME": str(tmp_path)})
    wire.shake_hands()
    assert str(tmp_path / ".mcp-evo") in wire.call("list_runs")["content"][0]["text"]
    assert wire.close() == 0
    assert (tmp_path / ".mcp-evo" / "runs").is_dir()


def test_a_server_with_an_empty_environment_answers(program: str) -> None:
    """Not even HOME; nothing is made before the first call of a tool."""
    wire = Wire([program, "serve"])
    assert wire.shake_hands()["result"]["serverInfo"]["name"] == "evo"
    assert wire.ask("tools/list")["result"]["tools"]
    assert wire.close() == 0


def test_a_workspace_that_cannot_be_made_is_named(program: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    place = tmp_path / "file" / ".mcp-evo"
    wire = Wire([program, "serve"], environment={"MCP_EVO_HOME": str(place)})
    wire.shake_hands()
    refused = wire.call("start_training", request=REQUEST)
    assert refused["isError"] is True
    assert str(place) in refused["content"][0]["text"]
    assert "MCP_EVO_HOME" in refused["content"][0]["text"]
    assert wire.close() == 0


def test_a_working_directory_that_is_gone_is_one_clear_line(program: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd '{gone}' && rmdir '{gone}' && exec '{program}' serve"
    done = subprocess.run(["/bin/sh", "-c", line], env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("mcp-evo: the working directory is gone")
    assert "MCP_EVO_HOME" in done.stderr.decode()


def test_a_user_without_a_home_is_told_to_name_a_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(unknown))
    with pytest.raises(WorkspaceError, match=r"no home.*--workspace DIR or \$MCP_EVO_HOME"):
        find_workspace(environment={}, directory=Path("/"))


# ---- a client that cannot ask its user


def test_a_patch_waits_for_a_terminal_and_the_answer_holds_the_whole_command(program: str, tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    wire = Wire([program, "serve"], environment={"MCP_EVO_HOME": str(root)})
    wire.shake_hands()
    staged = wire.ok("propose_patch", skill="rllm-monitor", section="loop", body="Name the run id first.")
    reviewed = wire.ok("review_patch", patch_id=staged["patch_id"])
    assert reviewed["applied"] is False
    command = reviewed["approve_command"]
    assert command == f"{program} --workspace {root} approve {staged['patch_id']}"
    assert wire.close() == 0
    there = subprocess.run(  # the command is whole: it works from anywhere, and refuses where nobody types
        ["/bin/sh", "-c", command], cwd="/", env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert there.returncode == 1
    assert b"terminal" in there.stderr
    assert not (root / "audit.jsonl").exists()


# ---- the bundle's launcher


def test_the_bundle_starts_the_program_that_its_settings_name(program: str, tmp_path: Path) -> None:
    root = tmp_path / "a workspace"
    command, environment = unpacked(tmp_path, program, root)
    wire = Wire(command, environment=environment)
    assert wire.shake_hands()["result"]["serverInfo"]["name"] == "evo"
    assert str(root) in wire.call("list_runs")["content"][0]["text"]
    assert wire.close() == 0
    assert (root / "runs").is_dir()


@pytest.mark.parametrize(
    ("executable", "expected"),
    [
        ("", "no mcp-evo is chosen"),
        ("${user_config.executable}", "no mcp-evo is chosen"),
        ("/nowhere/mcp-evo", "there is no program at /nowhere/mcp-evo"),
        ("/", "there is no program at /"),
        ("${HOME}/.local/bin/mcp-evo", "/.local/bin/mcp-evo: install mcp-evo"),
        ('/a"b', "holds a quotation mark"),
    ],
)
def test_a_program_that_is_not_there_is_told_to_the_client(executable: str, expected: str, tmp_path: Path) -> None:
    command, environment = unpacked(tmp_path, "EXECUTABLE", tmp_path)
    environment["MCP_EVO_EXECUTABLE"] = executable
    wire = Wire(command, environment=environment | {"HOME": str(tmp_path)})
    answered = wire.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert answered["error"]["code"] == -32000
    assert expected in answered["error"]["message"]
    assert "settings of this extension" in answered["error"]["message"]
    assert wire.close() == 1


@pytest.mark.parametrize("first", ['{"id": "a-1", "method": "x"}', '{"method":"x","id":7}', '{ "id" : 7 }'])
def test_ids_of_any_kind_are_answered(first: str, tmp_path: Path) -> None:
    command, environment = unpacked(tmp_path, "/nowhere", tmp_path)
    done = subprocess.run(command, env=environment, input=first + "\n", capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["id"] == json.loads(first)["id"]


def test_settings_as_the_manifest_has_them_are_paths_of_the_home(tmp_path: Path) -> None:
    """A client that leaves `${HOME}` in a default alone is understood; the program sees no other variable of ours."""
    bin_folder = tmp_path / ".local" / "bin"
    bin_folder.mkdir(parents=True)
    stub = bin_folder / "mcp-evo"
    stub.write_text('#!/bin/sh\nprintf "%s|%s|%s\\n" "$*" "$MCP_EVO_HOME" "${MCP_EVO_EXECUTABLE-unset}"\n')
    stub.chmod(0o755)
    command, _ = unpacked(tmp_path, "", tmp_path)
    manifest = json.loads((tmp_path / "ext ension" / "manifest.json").read_text())
    defaults = {name: one["default"] for name, one in manifest["user_config"].items()}
    assert command[-1].endswith(ENTRY_POINT)

    def said(workspace: str) -> str:
        environment = {"MCP_EVO_EXECUTABLE": defaults["executable"], "MCP_EVO_HOME": workspace, "HOME": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert said(defaults["workspace"]) == f"serve|{tmp_path}/.mcp-evo|unset\n"
    assert said("/a b/c") == "serve|/a b/c|unset\n"
    assert said("${user_config.workspace}") == "serve||unset\n"


def test_the_launcher_needs_no_more_than_a_posix_shell() -> None:
    shells = [path for path in ("/bin/dash", "/bin/bash", "/bin/busybox") if os.access(path, os.X_OK)]
    assert shells
    text = bundle_files(None, None)[ENTRY_POINT]
    for shell in shells:
        words = [shell, "sh"] if shell.endswith("busybox") else [shell]
        assert subprocess.run([*words, "-n"], input=text, check=False).returncode == 0
