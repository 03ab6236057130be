"""`mcp-evo serve`: the MCP server on standard input and output, for the client that started it.

The protocol owns standard output. A client waits for its first answer, so nothing is imported that the first answer
does not need, and the garbage collector rests while the protocol's thousands of lasting objects are made.
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    import typer
    from mcp.server.mcpserver import MCPServer

    from mcp_server.state import ServerState

OPTIONS = ("--workspace", "--session")


def register(app: "typer.Typer") -> None:
    """Adds the command."""
    import typer

    from mcp_server.cli.context import CliState, CommandError

    @app.command("serve")
    def serve(
        context: typer.Context,
        session: Annotated[
            str | None, typer.Option(metavar="ID", help="Session that the calls are recorded in; a new one by default.")
        ] = None,
    ) -> None:
        """Serve the tools to an MCP client over stdio (started by the client, not by hand)."""
        state: CliState = context.obj
        try:
            server = make_server(state.root, session)
        except ValueError as error:
            raise CommandError(str(error)) from error
        server.run("stdio")


def start(arguments: Sequence[str]) -> int | None:
    """Serves at once, for a command line of the plain form; None for any other (help, a typing error)."""
    options: dict[str, str] = {}
    rest = list(arguments)
    seen = False
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if word == "serve" and not seen:
            seen = True
            continue
        if name not in OPTIONS or name in options or not (sign or rest):
            return None
        options[name] = value if sign else rest.pop(0)
    gc.disable()
    from trainer.runs.workspace import find_workspace

    try:
        server = make_server(find_workspace(options.get("--workspace")), options.get("--session"))
    except ValueError as error:
        print(f"mcp-evo: {error}", file=sys.stderr)
        return 1
    server.run("stdio")
    return 0


def make_server(root: Path, session: str | None = None) -> "MCPServer[ServerState]":
    """The server, built without collecting garbage on the way: a quarter of the time to the first answer.

    Raises ValueError for a session that is no id.
    """
    gc.disable()
    try:
        _import_protocol()
        from mcp_server.server import build_server

        return build_server(root, session=session)
    finally:
        gc.enable()
        gc.freeze()  # what was made so far stays: later collections need not look at it


def _import_protocol() -> None:
    """Imports the SDK so that each of its message types is built when it is first used, not all of them at once.

    The SDK defines the messages of two protocol revisions, a session uses a few of them, and building them all takes a
    third of the time to the first answer. `defer_build` is pydantic's setting for this; models inherit it.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import mcp.server.mcpserver  # noqa: F401 - imported for its effect
    finally:
        del BaseModel.model_config["defer_build"]
