"""`mcp-evo serve`: the MCP server on standard input and output, for the client that started it, or over HTTP.

On stdio the protocol owns standard output. A client waits for its first answer, so nothing is imported that the first
answer does not need, and the garbage collector rests while the protocol's thousands of lasting objects are made.
"""

import gc
import json
import logging
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
        http: Annotated[bool, typer.Option("--http", help="Serve over HTTP, with a token, until Ctrl-C.")] = False,
        host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="With --http; 127.0.0.1.")] = None,
        port: Annotated[int | None, typer.Option(min=0, max=65535, help="With --http; 8765. 0: any free one.")] = None,
        allow_host: Annotated[
            list[str] | None, typer.Option(metavar="NAME", help="Name under which clients come, besides localhost.")
        ] = None,
        allow_origin: Annotated[
            list[str] | None, typer.Option(metavar="URL", help="Web page that may call, besides our own.")
        ] = None,
        allow_remote: Annotated[
            bool, typer.Option("--allow-remote", help="Let other machines reach it; needs --allow-host.")
        ] = False,
        new_token: Annotated[bool, typer.Option("--new-token", help="Make a new token; the old one ends.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="With --http: where it listens, as JSON.")] = False,
    ) -> None:
        """Serve the tools to an MCP client: over stdio (started by the client, not by hand), or over HTTP."""
        state: CliState = context.obj
        given = {"--host": host, "--port": port, "--allow-host": allow_host, "--allow-origin": allow_origin}
        given |= {
            "--allow-remote": allow_remote or None,
            "--new-token": new_token or None,
            "--json": as_json or None,
        }
        for name in (name for name, value in given.items() if value is not None and not http):
            raise typer.BadParameter("it means something together with --http only", param_hint=name)
        try:
            server = make_server(state.root, session)
        except ValueError as error:
            raise CommandError(str(error)) from error
        if not http:
            server.run("stdio")
            return
        from mcp_server.access import over_http

        try:
            address = over_http.Address(
                host or "127.0.0.1",
                over_http.DEFAULT_PORT if port is None else port,
                tuple(allow_host or ()),
                tuple(allow_origin or ()),
                allow_remote,
            )
        except over_http.HttpError as error:
            raise typer.BadParameter(str(error)) from error

        def say(url: str) -> None:
            if as_json:
                print(json.dumps(over_http.ready_document(url, state.root)), flush=True)
                return
            print(f"mcp-evo serves {state.root} at {url}; Ctrl-C ends it, runs go on. For Claude Code:", flush=True)
            print(over_http.client_command(url, state.root), flush=True)
            if not over_http.is_loopback(address.host):
                print("HTTP is not encrypted: put a TLS proxy in front of it.", file=sys.stderr, flush=True)

        try:
            over_http.serve(server, state.writable().root, address, say, renew=new_token)
        except (over_http.HttpError, OSError) as error:
            raise CommandError(str(error)) from error


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
    from trainer.runs.errors import WorkspaceError
    from trainer.runs.workspace import find_workspace

    try:
        server = make_server(find_workspace(options.get("--workspace")), options.get("--session"))
    except (ValueError, WorkspaceError) as error:
        print(f"mcp-evo: {error}", file=sys.stderr)
        return 1
    server.run("stdio")
    return 0


def make_server(root: Path, session: str | None = None) -> "MCPServer[ServerState]":
    """The server, built without collecting garbage on the way: a quarter of the time to the first answer.

    Raises ValueError for a session that is no id.
    """
    gc.disable()
    # before the SDK, which would put a handler that draws boxes around tracebacks into a client's log
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _import_protocol()
        from mcp_server import tracing
        from mcp_server.server import build_server

        if tracing.wanted():
            tracing.start()
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
