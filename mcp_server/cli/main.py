"""The `mcp-evo` command: finds the command module, imports only that one, turns our errors into one clear line.

A command group is added with one line in `COMMANDS`; its module offers `register(app)`, which adds the command to a
typer app. Exit codes: 0 the command did its work whatever the verdict, 1 it failed or was refused, 2 usage,
130 interrupted.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """Where a command lives."""

    module: str
    """Module with `register(app: typer.Typer) -> None`."""
    starts_fast: bool = False
    """The module also offers `start(arguments) -> int | None`: without the command line's own imports. None: it does
    not know these arguments, and the command line takes them."""


COMMANDS: dict[str, Command] = {
    "init": Command("mcp_server.cli.init"),
    "train": Command("mcp_server.cli.train"),
    "evaluate": Command("mcp_server.cli.evaluate"),
    "chat": Command("mcp_server.cli.chat"),
    "runs": Command("mcp_server.cli.runs"),
    "campaigns": Command("mcp_server.cli.campaigns"),
    "evolve": Command("mcp_server.cli.evolve"),
    "explain": Command("mcp_server.cli.explain"),
    "approve": Command("mcp_server.cli.approve"),
    "reject": Command("mcp_server.cli.approve"),
    "patches": Command("mcp_server.cli.patches"),
    "rounds": Command("mcp_server.cli.rounds"),
    "skills": Command("mcp_server.cli.skills"),
    "trajectories": Command("mcp_server.cli.trajectories"),
    "experience": Command("mcp_server.cli.experience"),
    "tasks": Command("mcp_server.cli.tasks"),
    "audit": Command("mcp_server.cli.audit"),
    "doctor": Command("mcp_server.cli.doctor"),
    "setup": Command("mcp_server.cli.setup"),
    "serve": Command("mcp_server.cli.serve", starts_fast=True),
    "dashboard": Command("mcp_server.cli.dashboard"),
    "tokens": Command("mcp_server.cli.tokens"),
}
"""Command → module, in the order of the help page."""

_OPTIONS_WITH_VALUE = ("--workspace",)
_COMPLETION = "_MCP_EVO_COMPLETE"


def build_app(command: str | None) -> "typer.Typer":
    """The app with one command, or with all of them where the command is not known (help, typing errors)."""
    import typer

    from mcp_server.cli.context import CliState

    app = typer.Typer(
        name="mcp-evo",
        help="Train small tool-using language agents and let them improve the skills they train with.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def overview(
        context: typer.Context,
        workspace: Annotated[
            str | None, typer.Option(help="Workspace folder; before or after the command.", metavar="DIR")
        ] = None,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Without a command: the overview as JSON.")] = False,
    ) -> None:
        context.obj = CliState(workspace)
        if version:
            from importlib.metadata import version as version_of

            typer.echo(f"mcp-evo {version_of('mcp-evo')}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            from mcp_server.cli.overview import show_overview

            show_overview(context.obj, as_json=as_json)

    chosen = [COMMANDS[command]] if command in COMMANDS else list(COMMANDS.values())
    for module in dict.fromkeys(one.module for one in chosen):
        import_module(module).register(app)
    return app


def find_command(arguments: Sequence[str]) -> str | None:
    """The first word that is no option and no option's value."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _OPTIONS_WITH_VALUE:
            skip = True
        elif not argument.startswith("-"):
            return argument
    return None


def global_options_first(arguments: Sequence[str]) -> list[str]:
    """Moves `--workspace DIR` to the front, so that it may stand anywhere; after `--` nothing is touched."""
    front: list[str] = []
    rest: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            rest += arguments[position:]
            break
        if argument in _OPTIONS_WITH_VALUE and position + 1 < len(arguments):
            front += [argument, arguments[position + 1]]
            position += 1
        elif argument.startswith(tuple(f"{name}=" for name in _OPTIONS_WITH_VALUE)):
            front.append(argument)
        else:
            rest.append(argument)
        position += 1
    return front + rest


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    ordered = global_options_first(arguments)
    command = None if _COMPLETION in os.environ else find_command(ordered)
    if command is not None and command in COMMANDS and COMMANDS[command].starts_fast:
        code: int | None = import_module(COMMANDS[command].module).start(ordered)
        if code is not None:
            return code
    from mcp_server.cli.context import clean_errors

    try:
        build_app(command)(args=ordered, prog_name="mcp-evo", standalone_mode=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else EXIT_FAILED if end.code else 0
        if code == EXIT_USAGE and "--json" in ordered:  # click has explained it on stderr
            print(json.dumps({"error": "the command line cannot be read; stderr says why", "kind": "UsageError"}))
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except clean_errors() as error:
        return report_error(error, as_json="--json" in ordered)
    return 0


def report_error(error: BaseException, *, as_json: bool) -> int:
    """One clear message on stderr; with --json also the one document on stdout."""
    if as_json:
        print(json.dumps({"error": str(error), "kind": type(error).__name__}, ensure_ascii=False))
    print(f"mcp-evo: {error}", file=sys.stderr)
    return EXIT_FAILED


def main() -> None:
    """Entry point of the `mcp-evo` script."""
    if os.name == "nt":
        print("mcp-evo runs on Linux and macOS; on Windows use it inside WSL (wsl --install).", file=sys.stderr)
        raise SystemExit(EXIT_FAILED)
    raise SystemExit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
