"""Everything that a client installs by itself is in its documented format and says what the product does."""

import json
import re
import shutil
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from mcp_server.cli import main
from mcp_server.cli import setup as setup_command
from mcp_server.cli.setup import compiled_skills
from mcp_server.installs.bundle import archive, bundle_files
from mcp_server.installs.formats import (
    BundleManifest,
    FormatError,
    HooksFile,
    Marketplace,
    PluginManifest,
    RegistryServer,
    ServersFile,
    checked,
)
from mcp_server.installs.plugin import plugin_files
from mcp_server.installs.registry import NAME, registry_document
from mcp_server.installs.writing import RECORD, WriteError, write_folder
from mcp_server.server import SERVER_NAME, build_server
from mcp_server.setup.entries import EVENTS, WAITED_FOR
from mcp_server.setup.types import Connection

ROOT = Path(__file__).parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

POSITIONAL = {"type": "positional"}
"""Without a value and without a hint for one."""

PORTABLE = Connection("mcp-evo", "mcp-evo-hook", None)


@pytest.fixture(scope="module")
def plugin() -> dict[str, bytes]:
    return plugin_files(PORTABLE, compiled_skills(None))


@pytest.fixture(scope="module")
def bundle() -> dict[str, bytes]:
    return bundle_files(None, None)


def json_of(files: dict[str, bytes], name: str) -> Any:
    return json.loads(files[name])


# ---- the plugin


def test_the_plugin_lies_where_claude_code_looks(plugin: dict[str, bytes]) -> None:
    outside = {name.split("/")[0] for name in plugin}
    assert outside == {".claude-plugin", ".mcp.json", "hooks", "skills", "README.md"}
    assert {name for name in plugin if name.startswith(".claude-plugin/")} == {
        ".claude-plugin/plugin.json",
        ".claude-plugin/marketplace.json",
    }
    assert PluginManifest.model_validate(json_of(plugin, ".claude-plugin/plugin.json")).version == PROJECT["version"]
    market = Marketplace.model_validate(json_of(plugin, ".claude-plugin/marketplace.json"))
    assert [one.name for one in market.plugins] == [json_of(plugin, ".claude-plugin/plugin.json")["name"]]
    assert len(plugin["README.md"].decode().split()) >= 40  # what the plugin directory asks for


def test_the_plugin_runs_the_commands_that_the_package_installs(plugin: dict[str, bytes]) -> None:
    installed = set(PROJECT["scripts"])
    hooks = HooksFile.model_validate(json_of(plugin, "hooks/hooks.json"))
    assert set(hooks.hooks) == set(EVENTS)
    commands = {one.command for groups in hooks.hooks.values() for group in groups for one in group.hooks}
    assert commands == {"mcp-evo-hook"}
    for event, groups in hooks.hooks.items():
        assert all(one.run_async is (None if event in WAITED_FOR else True) for group in groups for one in group.hooks)
    servers = ServersFile.model_validate(json_of(plugin, ".mcp.json")).mcpServers
    assert {name: (one.command, one.args) for name, one in servers.items()} == {SERVER_NAME: ("mcp-evo", ["serve"])}
    assert {"mcp-evo", "mcp-evo-hook"} <= installed


def test_the_plugin_holds_the_compiled_skills(plugin: dict[str, bytes]) -> None:
    compiled = ROOT / "skill_bank" / "bank" / "compiled"
    expected = {
        f"skills/{path.relative_to(compiled).as_posix()}": path.read_bytes()
        for path in compiled.rglob("*")
        if path.is_file()
    }
    assert {name: data for name, data in plugin.items() if name.startswith("skills/")} == expected
    assert len(expected) >= 15


def test_a_portable_package_knows_nothing_of_this_machine(plugin: dict[str, bytes], bundle: dict[str, bytes]) -> None:
    for files in (plugin, bundle):
        for name, data in files.items():
            for path in (str(Path.home()), str(ROOT), sysconfig_bin()):
                assert path.encode() not in data, f"{name} names {path}"


def sysconfig_bin() -> str:
    import sys

    return str(Path(sys.executable).parent)


# ---- the bundle


def test_the_bundle_tells_the_tools_of_the_server(bundle: dict[str, bytes], tmp_path: Path) -> None:
    manifest = BundleManifest.model_validate(json_of(bundle, "manifest.json"))
    live = {tool.name: tool.description or "" for tool in build_server(tmp_path)._tool_manager.list_tools()}
    assert [tool.name for tool in manifest.tools] == list(live)
    assert all(live[tool.name].startswith((tool.description or "?").rstrip(".")) for tool in manifest.tools)
    assert manifest.version == PROJECT["version"]
    assert (manifest.license, manifest.keywords) == (PROJECT["license"], PROJECT["keywords"])
    assert manifest.server.entry_point in bundle
    assert manifest.compatibility is not None
    assert "win32" not in manifest.compatibility.platforms


def test_the_same_bundle_is_the_same_bytes(bundle: dict[str, bytes], tmp_path: Path) -> None:
    assert archive(bundle) == archive(dict(reversed(bundle.items())))
    (tmp_path / "x.mcpb").write_bytes(archive(bundle))
    with zipfile.ZipFile(tmp_path / "x.mcpb") as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == bundle


# ---- the registry, the example


def test_the_registry_entry_is_what_the_code_says() -> None:
    document = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    assert document == registry_document(), "write it anew: python -m mcp_server.installs.registry > server.json"
    entry = RegistryServer.model_validate(document)
    (package,) = entry.packages
    assert (package.identifier, package.version, entry.version) == (
        PROJECT["name"],
        PROJECT["version"],
        PROJECT["version"],
    )
    assert [one.value for one in package.packageArguments] == ["serve"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^<!-- mcp-name: {re.escape(NAME)} -->$", readme, re.MULTILINE)  # how ownership is shown


def test_the_example_configuration_is_in_the_format_of_both_clients() -> None:
    document = json.loads((ROOT / "claude_config.example.json").read_text(encoding="utf-8"))
    (server,) = ServersFile.model_validate(document).mcpServers.values()
    assert Path(server.command).name in PROJECT["scripts"]
    assert Path(server.command).is_absolute()


# ---- the models refuse what the formats refuse


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (RegistryServer, lambda d: d | {"description": "x" * 101}),
        (RegistryServer, lambda d: d | {"name": "no-namespace"}),
        (RegistryServer, lambda d: d | {"version": "latest"}),
        (RegistryServer, lambda d: d | {"packages": [d["packages"][0] | {"version": "latest"}]}),
        (
            RegistryServer,
            lambda d: d | {"packages": [d["packages"][0] | {"packageArguments": [{"type": "positional"}]}]},
        ),
        (RegistryServer, lambda d: _without(d, "name")),
        (BundleManifest, lambda d: d | {"icon_url": "x"}),
        (BundleManifest, lambda d: d | {"user_config": _without(d["user_config"], "workspace")}),
        (BundleManifest, lambda d: d | {"server": d["server"] | {"type": "shell"}}),
        (BundleManifest, lambda d: d | {"server": d["server"] | {"mcp_config": {"args": []}}}),
        (BundleManifest, lambda d: d | {"author": {}}),
        (HooksFile, lambda d: {"hooks": d["hooks"] | {"AfterEverything": []}}),
        (HooksFile, lambda d: {"hooks": {"Stop": [{"hooks": []}]}}),
        (HooksFile, lambda d: {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": "30"}]}]}}),
        (HooksFile, lambda d: {"hooks": {"Stop": [{"hooks": [{"type": "command", "commnd": "x"}]}]}}),
        (ServersFile, lambda d: {"mcpServers": {"evo": {"args": ["serve"]}}}),
        (ServersFile, lambda d: {"mcpServers": {"evo": {"command": "mcp-evo", "arguments": ["serve"]}}}),
        (PluginManifest, lambda d: d | {"name": "MCP Evo"}),
        (PluginManifest, lambda d: d | {"skill": "./skills"}),
        (Marketplace, lambda d: d | {"plugins": [{"name": "mcp-evo", "source": "./../elsewhere"}]}),
    ],
)
def test_what_a_format_does_not_allow_is_refused(
    model: type[BaseModel], change: Callable[[Any], Any], plugin: dict[str, bytes], bundle: dict[str, bytes]
) -> None:
    good = {
        RegistryServer: registry_document(),
        BundleManifest: json_of(bundle, "manifest.json"),
        HooksFile: json_of(plugin, "hooks/hooks.json"),
        ServersFile: json_of(plugin, ".mcp.json"),
        PluginManifest: json_of(plugin, ".claude-plugin/plugin.json"),
        Marketplace: json_of(plugin, ".claude-plugin/marketplace.json"),
    }[model]
    model.model_validate(good)
    with pytest.raises(ValidationError):
        model.model_validate(change(good))


def test_what_is_wrong_is_said_with_its_place() -> None:
    with pytest.raises(FormatError, match=r"^x\.json: packages\.0\.transport: Field required$"):
        checked(
            RegistryServer,
            registry_document() | {"packages": [_without(registry_document()["packages"][0], "transport")]},
            "x.json",
        )


# ---- the commands


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `mcp-evo setup …` in an empty folder with programs of its own: (exit code, stdout, stderr)."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MCP_EVO_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    binaries = tmp_path / "my programs"
    binaries.mkdir()
    for name in ("mcp-evo", "mcp-evo-hook"):
        (binaries / name).write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.setattr(
        setup_command.sys, "argv", [str(binaries / "mcp-evo")]
    )  # how this program was called decides what is written

    def run_it(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(["setup", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def test_a_plugin_for_this_machine_names_its_programs(run: Callable[..., Any], tmp_path: Path) -> None:
    code, out, _ = run("plugin", "--out", "plug in", "--json", "--workspace", str(tmp_path / "ws"))
    document = json.loads(out)
    assert (code, document["written"]) == (0, True)
    folder = tmp_path / "plug in"
    entry = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["evo"]
    assert entry["command"] == str(tmp_path / "my programs" / "mcp-evo")
    assert entry["env"] == {"MCP_EVO_HOME": str(tmp_path / "ws")}
    hook = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert hook == f"MCP_EVO_HOME={tmp_path / 'ws'} '{tmp_path / 'my programs' / 'mcp-evo-hook'}'"
    assert sorted(document["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != RECORD
    )
    assert not (tmp_path / "ws").exists()  # nothing but the plugin is made
    assert (
        json.loads(run("plugin", "--out", "plug in", "--json", "--workspace", str(tmp_path / "ws"))[1])["written"]
        is False
    )


def test_a_newer_plugin_takes_the_place_of_ours_and_of_nobody_elses(run: Callable[..., Any], tmp_path: Path) -> None:
    target = tmp_path / "p"
    assert run("plugin", "--out", "p", "--portable")[0] == 0
    before = sorted(target.rglob("*"))
    assert run("plugin", "--out", "p")[0] == 0  # another content, every file ours
    assert sorted(target.rglob("*")) == before
    (target / "skills" / "rllm-run" / "SKILL.md").write_text("mine")
    code, _, err = run("plugin", "--out", "p", "--portable")
    assert (code, "SKILL.md was edited" in err) == (1, True)
    assert (target / "skills" / "rllm-run" / "SKILL.md").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("x")
    code, _, err = run("plugin", "--out", "other")
    assert (code, "notes.txt was not written by mcp-evo" in err) == (1, True)
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kind", ["link", "file", "link inside"])
def test_links_and_files_are_no_folder(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "t"
    (tmp_path / "elsewhere").mkdir()
    if kind == "link":
        target.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        target.write_text("x")
    else:
        target.mkdir()
        (target / "in").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError):
        write_folder(target, {"a": b"x"})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_cannot_be_swapped_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_server.installs import writing

    target = tmp_path / "t"
    write_folder(target, {"a": b"old"})
    real = writing.os.replace

    def refuses(source: Any, to: Any) -> None:
        if Path(source).name == "fresh":
            raise OSError(28, "No space left on device")
        real(source, to)

    monkeypatch.setattr(writing.os, "replace", refuses)
    with pytest.raises(WriteError, match="No space left"):
        write_folder(target, {"a": b"new"})
    assert (target / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_bundle_is_written_over_bundles_of_ours_only(run: Callable[..., Any], tmp_path: Path) -> None:
    code, out, _ = run("bundle", "--out", "e.mcpb", "--json")
    assert (code, json.loads(out)["written"]) == (0, True)
    with zipfile.ZipFile(tmp_path / "e.mcpb") as packed:
        settings = json.loads(packed.read("manifest.json"))["user_config"]
    assert settings["executable"]["default"] == str(tmp_path / "my programs" / "mcp-evo")
    assert settings["workspace"]["default"] == str(tmp_path / "home" / ".mcp-evo")
    assert json.loads(run("bundle", "--out", "e.mcpb", "--json")[1])["written"] is False
    assert json.loads(run("bundle", "--out", "e.mcpb", "--portable", "--json")[1])["written"] is True
    (tmp_path / "f.mcpb").write_text("mine")
    code, _, err = run("bundle", "--out", "f.mcpb")
    assert (code, "no bundle of mcp-evo" in err) == (1, True)
    assert (tmp_path / "f.mcpb").read_text() == "mine"
    code, _, err = run("bundle", "--out", "f.zip")
    assert (code, ".mcpb" in err) == (1, True)


def test_the_launcher_is_part_of_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    assert "*.sh" in patterns
    assert shutil.which("sh")
