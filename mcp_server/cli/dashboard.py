"""`mcp-evo dashboard`: the workspace as a page in the browser of this machine."""

import json
import os
import shutil
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from mcp_server.access.over_http import HttpError
from mcp_server.cli.context import CliState, CommandError
from mcp_server.dashboard.access import CODE_LIFE_S, Access
from mcp_server.dashboard.deciding import Deciding
from mcp_server.dashboard.running import address_of
from mcp_server.dashboard.source import Source
from mcp_server.dashboard.web import link_to, serve
from mcp_server.state import ServerState


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("dashboard")(dashboard)


def dashboard(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the link, open no browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Address and link as JSON; opens no browser.")] = False,
) -> None:
    """Show runs, rounds, patches, experience and skills in a browser on this machine, until Ctrl-C."""
    state: CliState = context.obj
    root = state.existing().root
    deciding = Deciding.here()
    pages = Opener()

    def tell(access: Access) -> None:
        link = link_to(access)
        if as_json:
            document = {"url": address_of(access.port), "link": link, "decides": deciding.allowed}
            print(json.dumps({**document, "why_not": deciding.why_not}), flush=True)
            return
        print(f"mcp-evo shows {root} at {address_of(access.port)}; Ctrl-C ends it, runs go on.", flush=True)
        print(f"This link opens it, once and within {CODE_LIFE_S / 60:.0f} minutes:\n{link}", flush=True)
        if deciding.why_not is not None:
            print(f"{deciding.why_not}.", flush=True)
        if sys.stdin.isatty():
            print("Enter gives a new link.", flush=True)
        if not no_open and deciding.allowed:
            pages.open(link)

    try:
        serve(Source(ServerState(root)), port, deciding, tell, sys.stdin.fileno() if sys.stdin.isatty() else None)
    except (HttpError, OSError) as error:
        raise CommandError(str(error)) from error
    finally:
        pages.close()


class Opener:
    """Opens links in the user's browser without putting them on a command line, where every user of the machine could
    read them: the browser is given a file that only its owner can read and that leads on."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def open(self, link: str) -> None:
        """Opens a link where there is a browser with a display; else the person opens the printed one."""
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"):
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="mcp-evo-"))  # mode 0700
        path = self._folder / "open.html"
        path.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={link}">', encoding="ascii")
        webbrowser.open(path.as_uri())

    def close(self) -> None:
        """Takes the file away."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
