"""`mcp-evo rounds`: list, show; start, optimize and launch are in rounds_step.py."""

from typing import Annotated

import typer

from mcp_server.cli import rounds_step
from mcp_server.cli.evolve import show_evolution
from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    home_of,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
)
from optimizer.evolve import document, round_document
from optimizer.round_store import RoundStore

EXPECTED_FALSE = 0.02
"""Chance that a round promotes a patch without effect (simulated): shown with the list, since over many rounds some
will be."""


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Rounds of evolution.", no_args_is_help=True)
    group.command("list")(refuses_clearly(list_command))
    group.command("show")(refuses_clearly(show_command))
    rounds_step.register(group)
    app.add_typer(group, name="rounds")


def list_command(context: typer.Context, as_json: Annotated[bool, JsonOption] = False) -> None:
    """List all rounds of the workspace."""
    home = home_of(context)
    found = [round_document(home, one) for one in RoundStore(home.root).all()]
    tried = sum(one["verdict"] is not None for one in found)
    expected = round(tried * EXPECTED_FALSE, 2)
    if as_json:
        print_json({"rounds": found, "total": len(found), "expected_false_promotions": expected})
        return
    console = console_for(False)
    if not found:
        console.print('no rounds yet; start with: mcp-evo evolve "…"', markup=False)
        return
    table = plain_table("round", "state", "skill version", "run", "after", "found", "verdict", "promoted")
    for one in found:
        after = one["eval"]["after"]
        table.add_row(
            str(one["round"]),
            one["state"],
            one["skill_version"] or "–",
            one["run_id"],
            "–" if after is None else f"{after['mean']:.3f}",
            one["findings"][0].replace("_", " ") if one["findings"] else "–",
            one["verdict"] or "–",
            one["patch_id"] or "–",
        )
    print_table(console, table)
    console.print(
        f"rounds that tried a patch: {tried}; false promotions to be expected among them: {expected}", markup=False
    )


def show_command(
    context: typer.Context,
    number: Annotated[
        int | None, typer.Argument(help="Round; left out: the last evolution with all its rounds.")
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show a round, or the last evolution."""
    home = home_of(context)
    store = RoundStore(home.root)
    if number is None:
        numbers = store.numbers()
        number = numbers[-1] if numbers else 1
        whole = document(home, store.read(number).evolution)
    else:
        one = store.read(number)
        waiting = one.chosen if one.state == "awaiting_approval" else None
        whole = {
            "evolution": one.evolution,
            "rounds": [round_document(home, one)],
            "stopped": None,
            "awaiting": waiting,
        }
    if as_json:
        print_json(whole)
        return
    console = console_for(False)
    for one_document in whole["rounds"]:
        console.print(
            f"round {one_document['round']}: {', '.join(one_document['findings']) or 'not analysed'}", markup=False
        )
        for label in ("lever", "note"):
            if one_document[label]:
                console.print(f"  {label}: {one_document[label]}", markup=False)
    show_evolution(console, whole, context.obj)
