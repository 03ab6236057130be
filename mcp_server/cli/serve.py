"""`mcp-evo serve`: the MCP server on standard input and output, for the client that started it.

The protocol owns standard output. A client waits for its first answer, so nothing is imported that the first answer
does not need, and the garbage collector rests while the protocol's thousands of lasting objects are made.
"""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcp_server.cli.context import CliState

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from mcp_server.state import ServerState


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve")(serve)


def serve(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Session that the calls are recorded in; a new one by default.")
    ] = None,
) -> None:
    """Serve the tools to an MCP client over stdio (started by the client, not by hand)."""
    state: CliState = context.obj
    make_server(state.root, session).run("stdio")


def make_server(root: Path, session: str | None = None) -> "MCPServer[ServerState]":
    """The server, built without collecting garbage on the way: a quarter of the time to the first answer."""
    gc.disable()
    try:
        from mcp_server.server import build_server

        return build_server(root, session=session)
    finally:
        gc.enable()
        gc.freeze()  # what was made so far stays: later collections need not look at it
