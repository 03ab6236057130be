"""The dashboard inside an MCP client (MCP Apps): the same page, for reading only.

The client shows `ui://evo/dashboard.html` in a frame without an address of its own; the page asks for its documents
with `resources/read` of `evo://dashboard/…`, which the client passes on. Parameters stand in a last part that begins
with `~`, because a resource's address has no question mark. Nothing is imported before somebody reads.
"""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import anyio.to_thread
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.server.extension import Extension, ResourceBinding
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.server.mcpserver.resources import Resource

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from mcp_server.dashboard.source import Source

DASHBOARD_URI = "ui://evo/dashboard.html"

SHOWN_ON_DASHBOARD: dict[str, Any] = {"ui": {"resourceUri": DASHBOARD_URI}}
"""`_meta` of a tool whose answer clients may show with the page."""

DOCUMENTS = "evo://dashboard/{+path}"


class PageResource(Resource):
    """The page, made when it is read for the first time."""

    async def read(self) -> str:
        from mcp_server.dashboard.page import page_for

        return page_for("app").html


class DashboardApp(Extension):
    """MCP Apps with one page."""

    identifier = EXTENSION_ID

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._source: Source | None = None

    def resources(self) -> list[ResourceBinding]:
        """The page."""
        page = PageResource(
            uri=DASHBOARD_URI,
            name="dashboard",
            title="Dashboard",
            description="Runs with their curves, rounds, patches, experience and skills.",
            mime_type=APP_MIME_TYPE,
            meta={"ui": {"prefersBorder": False}},
        )
        return [ResourceBinding(resource=page)]

    def add_template(self, server: MCPServer[Any]) -> None:
        """Registers the documents that the page asks for."""

        @server.resource(DOCUMENTS, name="dashboard-data", title="Data of the dashboard", mime_type="application/json")
        async def documents(path: str) -> str:
            """What the dashboard shows: `overview`, `runs`, `rounds`, `patches`, `experience`, `skills`, by id."""
            return await anyio.to_thread.run_sync(self._read, path)

    def _read(self, path: str) -> str:
        from mcp_server.dashboard.documents import answer
        from mcp_server.dashboard.shaping import BadQuestion, NotThere
        from mcp_server.dashboard.source import Source

        if self._source is None:
            self._source = Source(self._state)
        where, _, asked = path.partition("/~")
        try:
            return json.dumps(answer(self._source, where, dict(parse_qsl(asked))), ensure_ascii=False)
        except NotThere as error:
            raise ResourceNotFoundError(str(error)) from error
        except (BadQuestion, ValueError) as error:
            raise ResourceError(str(error)) from error
