"""The reference pages are what the code says, in the same bytes each time, and leave nothing out."""

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest
from doc_pages import ROOT

from mcp_server.tools import all_specs
from trainer.config import TrainingConfig

FOLDER = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script, which is no package."""
    spec = importlib.util.spec_from_file_location("reference_build", FOLDER / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["tools.md", "config.md", "policy.md", "cli.md"])
def test_the_page_is_fresh(build: ModuleType, name: str) -> None:
    if name == "cli.md":
        pinned = re.search(r"^typer==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        assert pinned is not None
        if version("typer") != pinned[1]:
            pytest.skip(f"the page is made with typer {pinned[1]}, this is {version('typer')}")
    made = build.PAGES[name]()
    assert made == build.PAGES[name]()
    there = (FOLDER / name).read_text(encoding="utf-8")
    assert made == there, f"run: python docs/reference/build.py ({name} says something else than the code)"


def test_nothing_is_left_out(build: ModuleType) -> None:
    text = {name: (FOLDER / name).read_text(encoding="utf-8") for name in build.PAGES}
    for spec in all_specs():
        assert f"## `{spec.function.__name__}`" in text["tools.md"]
    for key, field in TrainingConfig.model_fields.items():
        assert f"| `{key}` |" in text["config.md"]
        assert field.description, f"{key} has no description"
    for name, command in build.commands():
        assert f"# `{name}`\n" in text["cli.md"]
        assert command.help, f"{name} has no help"
    for path in build.BANK.glob("*/*/policy_schema.yaml"):
        assert f"## `{path.parent.name}`" in text["policy.md"]


def test_the_readme_names_every_tool() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in readme if line.startswith("Tools: "))
    named = re.findall(r"`(\w+)`", line.partition("(")[0])
    assert sorted(named) == sorted(spec.function.__name__ for spec in all_specs())


def test_no_page_knows_this_machine(build: ModuleType) -> None:
    for name in build.PAGES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert str(ROOT) not in text
        assert "0x" not in text  # the address of an object in place of its name
        assert "<class" not in text
        assert "<enum" not in text


@pytest.mark.slow
def test_the_command_tells_whether_pages_are_fresh() -> None:
    done = subprocess.run([sys.executable, str(FOLDER / "build.py"), "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0
