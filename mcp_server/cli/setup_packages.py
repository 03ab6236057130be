"""`mcp-evo setup plugin` and `mcp-evo setup bundle`: packages that a client installs by itself.

By default they run this installation, by its absolute path; `--portable` makes one for other machines.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from mcp_server.cli.context import CliState, CommandError, to_stdout
from mcp_server.installs.product import PRODUCT
from mcp_server.installs.writing import WriteError, write_bundle, write_folder
from mcp_server.setup.types import Connection
from trainer.runs.workspace import FOLDER_NAME

Portable = Annotated[
    bool, typer.Option("--portable", help="For other machines: finds mcp-evo there, no path of this one.")
]
Json = Annotated[bool, typer.Option("--json", help="What was written, as one JSON document on stdout.")]

Executables = Callable[[], tuple[Path, Path]]
Skills = Callable[[Path | None], Mapping[str, Mapping[str, bytes]]]


def register(group: typer.Typer, executables: Executables, compiled_skills: Skills) -> None:
    """Adds both commands to the group `setup`, which knows where the programs are and what skills there are."""

    @group.command("plugin")
    def plugin(
        context: typer.Context,
        out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; new, or written before.")],
        portable: Portable = False,
        as_json: Json = False,
    ) -> None:
        """Write a Claude Code plugin: server, hooks and skills in one folder, which is also a marketplace."""
        from mcp_server.installs.formats import FormatError
        from mcp_server.installs.plugin import plugin_files

        state: CliState = context.obj
        target = out.expanduser().absolute()
        named = state.root if state.workspace_option and not portable else None
        server, hook = (PRODUCT, f"{PRODUCT}-hook") if portable else map(str, executables())
        connection = Connection(server, hook, named, hook_needs_workspace=named is not None)
        try:
            files = plugin_files(connection, compiled_skills(None if portable else state.root))
            written = write_folder(target, files)
        except (FormatError, WriteError) as error:
            raise CommandError(str(error)) from error
        following = [
            f"claude --plugin-dir {target}",
            f"claude plugin marketplace add {target}",
            f"claude plugin install {PRODUCT}@{PRODUCT}",
        ]
        notes = ["do not use it together with `mcp-evo setup claude-code`: everything would be recorded twice"]
        _report(target, written, sorted(files), notes, following, as_json=as_json)

    @group.command("bundle")
    def bundle(
        context: typer.Context,
        out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The bundle, for instance mcp-evo.mcpb.")],
        portable: Portable = False,
        as_json: Json = False,
    ) -> None:
        """Write an MCP bundle (.mcpb) for Claude Desktop; it starts an installed mcp-evo named in its settings."""
        from mcp_server.installs.bundle import archive, bundle_files
        from mcp_server.installs.formats import FormatError

        state: CliState = context.obj
        target = out.expanduser().absolute()
        if target.suffix != ".mcpb":
            raise CommandError(f"{target.name} does not end in .mcpb, by which a client knows a bundle.")
        root = state.root if state.workspace_option or state.root.exists() else Path.home() / FOLDER_NAME
        try:
            files = bundle_files(None, None) if portable else bundle_files(executables()[0], root)
            written = write_bundle(target, archive(files), PRODUCT)
        except (FormatError, WriteError) as error:
            raise CommandError(str(error)) from error
        notes = ["mcp-evo itself is not in it: it has to be installed on the machine that the bundle is used on"]
        following = [f"open {target} with Claude Desktop (Settings, Extensions) and look at its two settings"]
        _report(target, written, sorted(files), notes, following, as_json=as_json)


def _report(
    target: Path, written: bool, files: list[str], notes: list[str], following: list[str], *, as_json: bool
) -> None:
    if as_json:
        document = {"to": str(target), "written": written, "files": files, "notes": notes, "next": following}
        print(json.dumps(document, ensure_ascii=False))
        return
    console = to_stdout()
    said = f"{len(files)} files in {target}" if written else f"{target} is as it should be"
    console.print(said, markup=False)
    for note in notes:
        console.print(f"note: {note}", markup=False)
    for line in following:
        console.print(f"next: {line}", markup=False)
