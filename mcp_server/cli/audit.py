"""`mcp-evo audit`: verify and list the log of approvals, promotions and rollbacks."""

from typing import Annotated

import typer

from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    home_of,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
)


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="The log of approvals, promotions and rollbacks.", no_args_is_help=True)
    group.command("verify")(refuses_clearly(verify_command))
    group.command("list")(refuses_clearly(list_command))
    app.add_typer(group, name="audit")


def verify_command(context: typer.Context, as_json: Annotated[bool, JsonOption] = False) -> None:
    """Check the hash chain of the audit log; exit code 1 where it is broken."""
    home = home_of(context)
    check = home.audit.verify()
    if as_json:
        print_json({"ok": check.ok, "entries": check.entries, "problems": check.problems})
    else:
        console = console_for(False)
        console.print(
            f"{check.entries} entries, {'the chain holds' if check.ok else 'the chain is broken'}", markup=False
        )
        for problem in check.problems:
            console.print(f"  {problem}", style="red", markup=False)
    if not check.ok:
        raise typer.Exit(1)


def list_command(context: typer.Context, as_json: Annotated[bool, JsonOption] = False) -> None:
    """List the entries of the audit log."""
    entries = home_of(context).audit.entries()
    if as_json:
        print_json({"entries": entries, "total": len(entries)})
        return
    table = plain_table("entry", "kind", "channel", "user", "patch", "reason")
    for entry in entries:
        cells = (entry.get(name) for name in ("seq", "kind", "channel", "user", "patch_id", "reason"))
        table.add_row(*("–" if cell is None else str(cell) for cell in cells))
    print_table(console_for(False), table)
