"""Standing approvals at the terminal: grant, list, revoke (options of `mcp-evo approve`)."""

import hashlib
import sys
import time

import typer

from mcp_server.cli.context import CommandError
from mcp_server.cli.optimizing import console_for, plain_table, print_json, print_table
from optimizer.approvals import TYPED_CHARACTERS, Channel, check_terminal, digest_typed
from optimizer.home import Home
from optimizer.standing import StandingApproval, describe_grant


def grant_standing(home: Home, draft: StandingApproval, as_json: bool) -> None:
    """Shows what would be granted and asks a person for it. Raises ApprovalError without a terminal."""
    check_terminal(sys.stdin.isatty())
    console = console_for(as_json)
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(draft.expires_at))
    digest = hashlib.sha256(draft.model_dump_json().encode()).hexdigest()
    for line in (
        f"standing approval {draft.grant_id}",
        f"  skills     of layer {draft.layer}",
        f"  patches    with the verdict {draft.verdict}, {draft.max_patches} at most, without asking again",
        f"  until      {until}",
        f"  digest     {digest[:12]}",
    ):
        console.print(line, markup=False)
    typed = typer.prompt(
        f"Type its first {TYPED_CHARACTERS} characters to grant it", default="", show_default=False, err=True
    )
    if not digest_typed(typed, digest):
        raise CommandError("that is not the beginning of the digest: nothing was granted.")
    home.standing.grant(draft, Channel.TERMINAL)
    if as_json:
        print_json(describe_grant(draft, time.time()))
    else:
        console.print(f"granted {draft.grant_id}; take it back with: mcp-evo approve --revoke {draft.grant_id}")


def show_standing(home: Home, revoke: str | None, as_json: bool) -> None:
    """Lists the grants, after revoking one where that is wanted (which needs no terminal: it only takes away)."""
    if revoke is not None:
        home.standing.revoke(revoke, Channel.TERMINAL if sys.stdin.isatty() else Channel.UNATTENDED)
    now = time.time()
    grants = [describe_grant(one, now) for one in home.standing.all()]
    if as_json:
        print_json({"standing": grants, "total": len(grants)})
        return
    console = console_for(False)
    if not grants:
        console.print("no standing approvals; grant one with: mcp-evo approve --standing --max 3 --expires 8h")
        return
    table = plain_table("grant", "layer", "verdict", "left", "until", "in force")
    for one in grants:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["expires_at"]))
        left = f"{one['left']} of {one['max_patches']}"
        table.add_row(one["grant_id"], one["layer"], one["verdict"], left, until, "yes" if one["in_force"] else "no")
    print_table(console, table)
