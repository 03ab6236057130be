"""`mcp-evo doctor`: says what is wrong, and fails when a package is not ours."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli import doctor
from mcp_server.cli.context import CliState
from mcp_server.cli.doctor import Mark
from mcp_server.installs.plugin import plugin_files
from mcp_server.installs.writing import write_folder
from mcp_server.setup.entries import hook_command, with_hooks, with_server
from mcp_server.setup.types import Connection
from optimizer.capture.hooks import note_error


def test_the_checks_of_a_good_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor.python_check().mark is Mark.OK
    assert {check.mark for check in doctor.package_checks()} == {Mark.OK}
    assert doctor.model_check().mark is Mark.OK
    (check,) = doctor.workspace_checks(CliState(str(tmp_path / "none")))
    assert check.mark is Mark.OK
    assert not (tmp_path / "none").exists()


def test_a_package_that_resolves_elsewhere_fails() -> None:
    ours = Path(doctor.processes.__file__).parents[2]
    good = {"origins": {name: str(ours / name / "__init__.py") for name in doctor.OUR_PACKAGES}}
    assert [check.mark for check in doctor.resolution_checks(good)] == [Mark.OK]
    bad = {"origins": good["origins"] | {"trainer": "/site-packages/trainer/__init__.py", "optimizer": None}}
    (check,) = doctor.resolution_checks(bad)
    assert check.mark is Mark.FAILED
    assert "trainer resolves to /site-packages/trainer/__init__.py" in check.detail
    assert "optimizer resolves to nothing" in check.detail


def test_workspace_problems_are_named(tmp_path: Path) -> None:
    root = tmp_path / "w"
    (root / "runs" / "No Run").mkdir(parents=True)
    root.chmod(0o755)
    checks = {check.name + check.mark: check.detail for check in doctor.workspace_checks(CliState(str(root)))}
    assert "chmod 700" in checks["workspacewarning"]
    assert "No Run" in checks["runswarning"]
    (root / "config.yaml").write_text("max_concurrent_runs: many")
    (check,) = doctor.workspace_checks(CliState(str(root)))
    assert check.mark is Mark.FAILED


def test_a_child_that_does_not_start_is_reported() -> None:
    probe, check = doctor.probe_child(("/no/such/python",))
    assert probe == {}
    assert check.mark is Mark.FAILED


@pytest.mark.parametrize(
    ("script", "mark", "part"),
    [
        ("import json; print(json.dumps({'ok': True, 'seconds': 1.5}))", Mark.OK, "seconds 1.5"),
        ("import json; print(json.dumps({'ok': False, 'difference': 0.3}))", Mark.FAILED, "difference 0.3"),
        ("import sys; sys.exit('no such device')", Mark.FAILED, "no such device"),
    ],
)
def test_one_step_on_a_device(monkeypatch: pytest.MonkeyPatch, script: str, mark: Mark, part: str) -> None:
    monkeypatch.setenv("MCP_EVO_WORKER", json.dumps([sys.executable, "-P", "-c", script]))
    check = doctor.train_check("cpu")
    assert check.mark is mark
    assert part in check.detail


def test_the_whole_command(real_cli: Any) -> None:
    done = real_cli.run("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, document
    assert document["ok"] is True
    assert {"python", "torch", "packages", "devices", "tiny"} <= {check["name"] for check in document["checks"]}
    assert "PATH" in document["environment"]
    assert not real_cli.workspace.exists()


def test_what_was_not_recorded_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    assert doctor.capture_checks(CliState(str(root))) == []
    for text in ("first", "second"):
        note_error(str(root), ValueError(text))
    (check,) = doctor.capture_checks(CliState(str(root)))
    assert check.mark is Mark.WARNING
    assert check.detail.startswith("2 events were not recorded, the last one: 20")
    assert "ValueError: second" in check.detail
    (root / "config.yaml").write_text("redaction: {patterns: ['[']}\n", encoding="utf-8")
    first = doctor.capture_checks(CliState(str(root)))[0]
    assert (first.mark, "no regular expression" in first.detail) == (Mark.FAILED, True)


def test_connected_clients_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (none,) = doctor.connection_checks(project)
    assert "none is connected" in none.detail
    programs = [tmp_path / name for name in ("mcp-evo", "mcp-evo-hook")]
    for program in programs:
        program.write_text("", encoding="utf-8")
    connection = Connection(str(programs[0]), str(programs[1]), None)
    (project / ".claude" / "settings.json").write_text(with_hooks("{}", hook_command(connection)), encoding="utf-8")
    (project / ".mcp.json").write_text(with_server("{}", connection), encoding="utf-8")
    (good,) = doctor.connection_checks(project)
    assert (good.name, good.mark, good.detail) == ("Claude Code here", Mark.OK, "hooks for 8 events, server evo")
    programs[1].unlink()
    (gone,) = doctor.connection_checks(project)
    assert (gone.mark, str(programs[1]) in gone.detail) == (Mark.FAILED, True)
    (project / ".mcp.json").write_text("{", encoding="utf-8")
    (broken,) = doctor.connection_checks(project)
    assert (broken.mark, str(project / ".mcp.json") in broken.detail) == (Mark.WARNING, True)


class Installed:
    """What a plugin leaves in a home, as Claude Code 2.1 writes it."""

    def __init__(self, place: Path) -> None:
        self.claude, self.project = place / "home" / ".claude", place / "project"
        self.folder = self.claude / "plugins" / "cache" / "mcp-evo" / "mcp-evo" / "1.0"
        self.programs = [place / name for name in ("mcp-evo", "mcp-evo-hook")]
        for program in self.programs:
            program.write_text("", encoding="utf-8")
        (self.project / ".claude").mkdir(parents=True)
        self.folder.parent.mkdir(parents=True)
        self.connection = Connection(str(self.programs[0]), str(self.programs[1]), None)
        write_folder(self.folder, plugin_files(self.connection, {}))
        self.enter(scope="user")

    def enter(self, **more: str) -> None:
        entry = {"installPath": str(self.folder), "version": "1.0", "installedAt": "2026-01-31T15:00:00.000Z", **more}
        other = {"scope": "user", "installPath": str(self.claude / "nothing"), "version": "7"}
        document = {"version": 2, "plugins": {"mcp-evo@mcp-evo": [entry], "other@elsewhere": [other]}}
        self.write(self.claude / "plugins" / "installed_plugins.json", document)

    def write(self, path: Path, document: object) -> None:
        path.write_text(json.dumps(document), encoding="utf-8")

    def check(self) -> doctor.Check:
        (found,) = [one for one in doctor.connection_checks(self.project) if one.name == "Claude Code plugin"]
        return found

    def shown(self) -> bool:
        return any(one.name == "Claude Code plugin" for one in doctor.connection_checks(self.project))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """A home in which Claude Code has our plugin."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Installed(tmp_path)


def test_a_plugin_is_shown_with_what_it_brings(installed: Installed) -> None:
    check = installed.check()
    assert (check.mark, check.detail) == (Mark.OK, "mcp-evo@mcp-evo 1.0 (user): hooks for 8 events, server evo")
    installed.programs[1].unlink()
    gone = installed.check()
    assert (gone.mark, str(installed.programs[1]) in gone.detail) == (Mark.FAILED, True)


def test_a_plugin_counts_where_it_works(installed: Installed) -> None:
    installed.enter(scope="project", projectPath=str(installed.project))
    assert installed.check().mark is Mark.OK
    installed.enter(scope="local", projectPath=str(installed.project.parent / "elsewhere"))
    assert not installed.shown()
    installed.enter(scope="user")
    installed.write(installed.claude / "settings.json", {"enabledPlugins": {"mcp-evo@mcp-evo": False}})
    assert installed.check().detail == "mcp-evo@mcp-evo 1.0 is switched off"
    installed.write(
        installed.project / ".claude" / "settings.local.json", {"enabledPlugins": {"mcp-evo@mcp-evo": True}}
    )
    assert "hooks for 8 events" in installed.check().detail


def test_a_plugin_beside_a_setup_records_twice(installed: Installed) -> None:
    text = with_hooks("{}", hook_command(installed.connection))
    (installed.project / ".claude" / "settings.json").write_text(text, encoding="utf-8")
    check = installed.check()
    assert (check.mark, "recorded twice" in check.detail) == (Mark.WARNING, True)


def test_a_plugin_whose_folder_is_gone_is_a_failure(installed: Installed) -> None:
    shutil.rmtree(installed.folder)
    check = installed.check()
    assert (check.mark, str(installed.folder) in check.detail) == (Mark.FAILED, True)


@pytest.mark.parametrize("text", ["{", "[]", '{"plugins": 3}', "[" * 100_000])
def test_a_list_of_plugins_that_cannot_be_read_is_told(installed: Installed, text: str) -> None:
    (installed.claude / "plugins" / "installed_plugins.json").write_text(text, encoding="utf-8")
    check = installed.check()
    assert (check.mark, "installed_plugins.json" in check.detail) == (Mark.WARNING, True)


@pytest.mark.parametrize("document", [{}, {"plugins": {"mcp-evo@x": ["no entry"]}}, {"plugins": {"a@b": {"scope": 3}}}])
def test_other_entries_are_none_of_ours(installed: Installed, document: object) -> None:
    installed.write(installed.claude / "plugins" / "installed_plugins.json", document)
    assert not installed.shown()
