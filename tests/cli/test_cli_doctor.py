"""`mcp-evo doctor`: says what is wrong, and fails when a package is not ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli import doctor
from mcp_server.cli.context import CliState
from mcp_server.cli.doctor import Mark


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
