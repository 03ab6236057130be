"""The command line as a whole: fast start, lazy imports, options anywhere, completion, overview."""

import json
import subprocess
import sys
from typing import Any

import pytest

from mcp_server.cli.main import COMMANDS, build_app, find_command, global_options_first


def test_a_command_imports_only_its_own_module() -> None:
    code = (
        "import sys; from mcp_server.cli import main; main.build_app('runs');"
        "bad = [m for m in ('torch', 'transformers', 'trl', 'mcp', 'mcp_server.server') if m in sys.modules];"
        "other = [m for m in ('init', 'doctor', 'serve') if f'mcp_server.cli.{m}' in sys.modules];"
        "print(bad, other); sys.exit(bool(bad or other))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_command_imports_torch() -> None:
    code = (
        "import sys; from mcp_server.cli import main; main.build_app(None);"
        "bad = [m for m in ('torch', 'transformers', 'trl', 'datasets', 'accelerate') if m in sys.modules];"
        "print(bad); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "x"], "train"),
        (["--workspace", "w", "train"], "train"),
        (["--workspace=w", "runs", "list"], "runs"),
        (["--version"], None),
        ([], None),
    ],
)
def test_the_command_is_the_first_word(arguments: list[str], expected: str | None) -> None:
    assert find_command(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "--workspace", "w", "x"], ["--workspace", "w", "train", "x"]),
        (["runs", "list", "--workspace=w"], ["--workspace=w", "runs", "list"]),
        (["train", "--", "--workspace", "w"], ["train", "--", "--workspace", "w"]),
        (["train", "--workspace"], ["train", "--workspace"]),
    ],
)
def test_the_workspace_option_moves_to_the_front(arguments: list[str], expected: list[str]) -> None:
    assert global_options_first(arguments) == expected


def test_every_command_has_help(quick_cli: Any) -> None:
    done = quick_cli.run("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout
        assert build_app(name) is not None
    assert not quick_cli.workspace.exists()


def test_version(quick_cli: Any) -> None:
    done = quick_cli.run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("mcp-evo ")


def test_an_empty_folder_shows_where_to_begin(quick_cli: Any) -> None:
    overview = json.loads(quick_cli.run("--json").stdout)
    assert overview == {
        "workspace": str(quick_cli.workspace),
        "exists": False,
        "last_run": None,
        "next": overview["next"],
    }
    assert "train" in overview["next"]
    assert str(quick_cli.workspace) in overview["next"]


@pytest.mark.parametrize("arguments", [["evolve", "tiny", "--rounds", "x"], ["evolve", "tiny", "--plan", "nope"]])
def test_a_usage_error_with_json_is_one_document_too(quick_cli: Any, arguments: list[str]) -> None:
    done = quick_cli.run(*arguments, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["kind"] == "UsageError"
    assert done.stderr
