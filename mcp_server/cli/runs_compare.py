"""`mcp-evo runs compare`: configurations, measures and a tested verdict of several runs."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mcp_server.cli.context import CliState, to_stdout
from trainer.runs.compare import Measure, RunComparison, compare_runs
from trainer.runs.registry import find_run


def compare_command(
    context: typer.Context,
    run_ids: Annotated[list[str], typer.Argument(metavar="A B …", help="Runs; the first one is the base.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Compare runs: what differs, what they measured, which model is better by a test."""
    state: CliState = context.obj
    workspace = state.existing()
    found = compare_runs([find_run(workspace, one) for one in run_ids])
    if as_json:
        print(json.dumps(found.model_dump(mode="json"), ensure_ascii=False))
        return
    show(found, to_stdout())


def show(found: RunComparison, console: Console) -> None:
    """Two tables, the notes and the verdict."""
    console.print("Configuration, where it differs")
    if found.config:
        table = _table("field", *found.runs)
        for one in found.config:
            table.add_row(one.field, *(_plain(one.values[run_id]) for run_id in found.runs))
        console.print(table)
    else:
        console.print("  nowhere", markup=False)
    console.print("\nMeasures (95 % interval); only numbers of one row may be compared")
    table = _table("measure", *found.runs)
    names = dict.fromkeys((one.name, one.metric, one.split, str(one.origin)) for one in found.measures)
    for name, metric, split, origin in names:
        cells = [_measured(found, run_id, name) for run_id in found.runs]
        table.add_row(f"{name}: {metric}, {split} ({origin})", *cells)
    console.print(table)
    for difference in found.differences if len(found.runs) > 2 else ():  # of two runs the verdict says it
        console.print(f"\n{difference.sentence}", markup=False)
    for note in found.notes:
        console.print(f"\nnote: {note}", markup=False)
    console.print(f"\n{found.verdict}", markup=False, style="bold")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("[", r"\[")


def _measured(found: RunComparison, run_id: str, name: str) -> str:
    one = next((one for one in found.measures if one.run_id == run_id and one.name == name), None)
    return "–" if one is None else measure_text(one).replace("[", r"\[")


def measure_text(one: Measure) -> str:
    """`0.953 [0.901, 0.981] n=128`."""
    interval = "" if one.ci95 is None else f" [{one.ci95[0]:.3f}, {one.ci95[1]:.3f}]"
    return f"{one.mean:.3f}{interval} n={one.n}"
