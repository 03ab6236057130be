"""`mcp-evo tokens`: named tokens of the HTTP server, made, listed and taken away."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from mcp_server.access.roles import Role
from mcp_server.access.tokens import DEFAULT_LIFE, NamedToken, TokenError, Tokens, seconds_of
from mcp_server.cli.context import CliState, CommandError
from optimizer.approvals import ApprovalError, check_terminal

JsonOption = typer.Option("--json", help="One JSON document on stdout, the rest on stderr.")


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        help="Named tokens for clients of `mcp-evo serve --http`: view reads, run also works, approve also decides.",
        no_args_is_help=True,
    )
    group.command("add")(add)
    group.command("list")(show)
    group.command("remove")(remove)
    app.add_typer(group, name="tokens")


@contextmanager
def _refusing_clearly() -> Iterator[None]:
    try:
        yield
    except (TokenError, ApprovalError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"the system refused: {error}") from error


def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who or what it is for: a-z, 0-9, '-' and '_'. Stands in the audit log.")],
    role: Annotated[Role, typer.Option(help="What it may do.")],
    expires: Annotated[str, typer.Option(help="How long it holds, for instance 12h or 90d; or never.")] = DEFAULT_LIFE,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Make a token and print it, once: it is kept as a hash. One for role approve needs a person at a terminal."""
    state: CliState = context.obj
    with _refusing_clearly():
        if role is Role.APPROVE:
            check_terminal(sys.stdin.isatty(), command="mcp-evo tokens add")
        secret = Tokens(state.writable().root).add(name, role, seconds_of(expires))
    if as_json:
        typer.echo(json.dumps({"name": name, "role": str(role), "token": secret}))
        return
    typer.echo(secret)
    typer.echo(
        f"This is the token of {name} ({role}); it cannot be shown again. A client sends it as\n"
        "Authorization: Bearer TOKEN. It holds at once, also for a server that runs.",
        err=True,
    )


def show(context: typer.Context, as_json: Annotated[bool, JsonOption] = False) -> None:
    """List the tokens: name, role, end. The tokens themselves are not kept."""
    state: CliState = context.obj
    with _refusing_clearly():
        known = Tokens(state.existing().root).read()
    now = time.time()
    if as_json:
        typer.echo(json.dumps({"tokens": [_document(one, now) for one in known], "total": len(known)}))
        return
    if not known:
        typer.echo("no named tokens; make one with: mcp-evo tokens add NAME --role view")
        return
    for one in known:
        typer.echo(f"{one.name:32} {one.role:8} until {_until(one, now)}, made by {one.user}")


def remove(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Take a token away: from the next request on it is refused."""
    state: CliState = context.obj
    with _refusing_clearly():
        gone = Tokens(state.existing().root).remove(name)
    if as_json:
        typer.echo(json.dumps({"removed": gone.name, "role": str(gone.role)}))
        return
    typer.echo(f"removed {gone.name} ({gone.role})")


def _document(token: NamedToken, now: float) -> dict[str, object]:
    kept = token.model_dump(mode="json", exclude={"sha256"})
    return {**kept, "expired": token.expired(now)}


def _until(token: NamedToken, now: float) -> str:
    if token.expires_at is None:
        return "it is removed"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.expires_at))
    return f"{when} (over)" if token.expired(now) else when
