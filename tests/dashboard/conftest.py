"""A workspace with a run, a patch whose trial said better, a prose patch and a pool of lessons, made once by hand."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_helpers import Made, dashboard_of, make_workspace


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_workspace(tmp_path_factory.mktemp("dashboard") / "project" / ".mcp-evo")


@pytest.fixture
def made(made_once: Made, tmp_path: Path) -> Made:
    """A copy of that workspace for one test."""
    root = tmp_path / "project" / ".mcp-evo"
    shutil.copytree(made_once.root, root)
    return made_once.at(root)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; tests that need one are skipped where there is none."""
    from browser import find_chromium

    found = find_chromium()
    if found is None:
        pytest.skip("needs a Chromium: install the package chromium, or name one in $MCP_EVO_CHROMIUM")
    return found


@pytest.fixture
def dashboard(made: Made, tmp_path: Path) -> Iterator[object]:
    """An open dashboard on which a person may decide."""
    with dashboard_of(made.root, tmp_path / "log") as found:
        yield found
