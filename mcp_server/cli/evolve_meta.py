"""`mcp-evo evolve --layer meta`: what the optimiser's own records suggest, tried on recorded trials."""

import typer
from rich.console import Console

from mcp_server.cli.context import CliState
from mcp_server.cli.optimizing import (
    PATCH_COLUMNS,
    approver_for,
    patch_row,
    plain_table,
    print_json,
    print_table,
    terminated_like_interrupted,
)
from mcp_server.dashboard.running import dashboard_hint
from optimizer.home import Home
from optimizer.meta.evolve import MetaProgress, evolve_meta


def evolve_layer(
    state: CliState,
    layer: str,
    console: Console,
    *,
    request: str,
    rounds: int | None,
    yes: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Runs meta rounds. A layer that is none, and a request, which only training has, are errors of usage."""
    if layer != "meta":
        raise typer.BadParameter(f"unknown layer {layer!r}; allowed: traj, meta", param_hint="--layer")
    if request:
        raise typer.BadParameter("the meta layer trains nothing: leave out the request", param_hint="--layer")
    home = Home.create(state.root)

    approver = approver_for(home, console, yes)
    with terminated_like_interrupted():
        document = evolve_meta(home, approver, lambda step: _show(console, step), rounds=rounds or 1, seed=seed)
    table = plain_table("round", *PATCH_COLUMNS)
    for one in document["rounds"]:
        for patch in one["patches"]:
            table.add_row(str(one["round"]), *patch_row(patch))
    if table.row_count:
        console.print()
        print_table(console, table)
    if document["awaiting"]:
        console.print(f"patch {document['awaiting']} waits for a person. Decide and go on with:", markup=False)
        console.print(f"  {state.command('approve', document['awaiting'])}", markup=False)
        console.print(f"  {dashboard_hint(state.root)}", markup=False)
        console.print(f"  {state.command('evolve', '--layer', 'meta')}", markup=False)
    if as_json:
        print_json(document)


def _show(console: Console, step: MetaProgress) -> None:
    """Prints one step."""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False)

    if step.kind == "round":
        line(f"── meta round {step.round.round} ({step.round.state}) ──", "bold")
    elif step.kind == "findings":
        current = step.round
        line(
            f"{current.recorded} recorded trials (needed: {current.needed}); analysed: "
            f"{', '.join(current.analysed) or 'none'}; in reserve: {', '.join(current.reserve) or 'none'}"
        )
        for finding in step.findings:
            line(f"found {finding.kind.replace('_', ' ')} (confidence {finding.confidence:.2f}): {finding.what}")
    elif step.kind == "proposed":
        for record in step.patches:
            line(f"proposed {record.patch_id}: {record.description}")
    elif step.decision is not None:
        style = {"better": "green", "worse": "red"}.get(str(step.decision.verdict))
        line(f"verdict: {step.decision.say}", style)
        line(f"  next: {step.decision.next_step}")
    elif step.kind == "promoted":
        line(f"promoted {step.patches[0].patch_id}: now {step.text}; rounds that are open keep what they had", "green")
    elif step.kind == "rejected":
        line(f"rejected {step.patches[0].patch_id}; it will not be proposed again")
    elif step.text:
        line(step.text)
