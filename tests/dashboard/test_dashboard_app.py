"""The dashboard as an MCP App: page and documents through the protocol, in both eras."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dashboard_helpers import Made
from mcp import Client
from mcp_types import ReadResourceResult

from mcp_server.dashboard.page import page_for
from mcp_server.server import build_server

pytestmark = pytest.mark.anyio

ERAS = ("auto", "legacy")

URI = "ui://evo/dashboard.html"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def document(result: ReadResourceResult) -> Any:
    (content,) = result.contents
    return json.loads(content.text)  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ERAS)
async def test_page_and_documents_through_the_protocol(made: Made, era: str) -> None:
    async with Client(build_server(made.root), mode=era) as client:
        listed = {str(one.uri): one for one in (await client.list_resources()).resources}
        assert listed[URI].mime_type == "text/html;profile=mcp-app"
        (page,) = (await client.read_resource(URI)).contents
        assert page.mime_type == "text/html;profile=mcp-app"
        assert page.text == page_for("app").html  # type: ignore[union-attr]
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert tools["round_status"].meta == {"ui": {"resourceUri": URI}}
        found = document(await client.read_resource("evo://dashboard/overview"))
        assert set(found["waiting"]) == {made.patch_id, made.prose_id}
        steps = document(await client.read_resource("evo://dashboard/runs/run-one/steps/~since=28"))
        assert steps["steps"] == [29, 30]
        patch = document(await client.read_resource(f"evo://dashboard/patches/{made.patch_id}"))
        assert patch["verdict"] == "better"
    assert made.audit() == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "path", ["nothing", "runs/nothing", "runs/../patches", "runs/%2e%2e/config.yaml", "runs/~limit=0", "", "decide/x"]
)
async def test_what_is_not_there_is_an_error(made_once: Made, era: str, path: str) -> None:
    async with Client(build_server(made_once.root), mode=era) as client:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the SDK's error of the protocol
            await client.read_resource(f"evo://dashboard/{path}")
    assert "Traceback" not in str(caught.value)
    assert str(made_once.root) not in str(caught.value)


async def test_reading_without_a_workspace_makes_none(tmp_path: Path) -> None:
    async with Client(build_server(tmp_path / ".mcp-evo"), mode="auto") as client:
        await client.read_resource(URI)
        with pytest.raises(Exception, match="no workspace yet"):
            await client.read_resource("evo://dashboard/overview")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["browser", "app"])
def test_the_page_loads_nothing_and_makes_no_markup_of_text(place: Any) -> None:
    page = page_for(place)
    addresses = {one for one in re.findall(r"[a-z]+://[^\s\"'`<>)]+", page.html) if not one.startswith("evo://")}
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which nothing fetches
    script = page.html.partition("<script>")[2]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc",
                 "DOMParser", "createContextualFragment", "setTimeout(\"", "javascript:"):  # fmt: skip
        assert word not in script, word
    assert not re.search(r"<[a-z]+[^>]* (on[a-z]+|style)=", page.html.partition("<style>")[0])
    assert "{{" not in page.html.partition("<script>")[0]
    assert len(page.html.encode()) < 120_000


def test_the_apps_page_carries_its_policy() -> None:
    page = page_for("app")
    assert f'<meta http-equiv="Content-Security-Policy" content="{page.policy}">' in page.html
    assert "connect-src 'none'" in page.policy
    assert 'data-place="app"' in page.html
    assert "http-equiv" not in page_for("browser").html
