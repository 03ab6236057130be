"""`mcp-evo doctor`: says what is wrong, and fails when a package is not ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli import doctor
from mcp_server.cli.context import CliState
from mcp_server.cli.doctor import Mark
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
