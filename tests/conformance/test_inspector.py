"""The MCP Inspector's command line finds every tool, resource, prompt and skill in order, over both transports."""

from pathlib import Path

import pytest
from npm_tools import ToolsUnavailable
from run_inspector import TRANSPORTS, run

pytestmark = pytest.mark.npm


@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_everything_is_as_expected(tmp_path: Path, transport: str) -> None:
    try:
        (report,) = run(tmp_path, [transport])
    except ToolsUnavailable as error:
        pytest.skip(str(error))
    assert report.problems == []
    assert report.warnings == [], "no advice on the schemas of the tools either"
    assert report.calls > 50
