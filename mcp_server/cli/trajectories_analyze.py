"""`mcp-evo trajectories analyze`: findings about recorded sessions, verdicts on claims, and the report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, home_of, print_json
from mcp_server.findings.evidence import ALL, analyse_layer
from mcp_server.state import ServerState


def analyze_command(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(help="Session, or the beginning of one; left out: the latest that trained.")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="rllm (training), traj (optimising), any (whole session). Alone: all sessions.")
    ] = None,
    number: Annotated[int | None, typer.Option("--round", min=1, help="The session of a round.")] = None,
    claims: Annotated[
        Path | None, typer.Option(help="JSON file with a list of claims to check.", exists=True, dir_okay=False)
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Find what held a session back, check claims against it, and write a report."""
    cli: CliState = context.obj
    home_of(context)
    if session is not None and number is not None:
        raise CommandError("name a session or a round, not both")
    if layer not in (None, "rllm", "traj", "any"):
        raise CommandError(f"there is no layer {layer!r} to analyse. There are: rllm, traj, any")
    wanted = ALL if layer is not None and session is None and number is None else session
    found = analyse_layer(
        ServerState(cli.root), wanted, layer, round_number=number, claims=_claims(claims) if claims is not None else ()
    )
    if as_json:
        print_json({**found.report.model_dump(mode="json"), "path": str(found.path)})
        return
    console = console_for(False)
    console.print(found.path.with_suffix(".md").read_text(encoding="utf-8"), markup=False)
    console.print(f"written to {found.path}", markup=False)


def _claims(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, list) or not all(isinstance(one, dict) for one in document):
        raise CommandError(f'{path} holds no list of claims: write [{{"metric": …, "lines": […]}}]')
    return document
