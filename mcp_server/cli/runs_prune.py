"""`mcp-evo runs prune`: shows which runs may go and what they take; deletes them when asked."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mcp_server.cli.context import CliState, to_stdout
from mcp_server.workers import worker_override
from trainer.runs.launch import LocalLauncher
from trainer.runs.retention import Pruned, PrunePlan, Retention, RunSize, carry_out, plan_pruning
from trainer.runs.wording import counted

KEPT_SHOWN = 15
"""Rows of runs that stay; --json has all."""


def prune_command(
    context: typer.Context,
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID …]", help="Only these runs, whatever their age.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="So many of the newest stay (config: keep_runs).")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0.0, metavar="DAYS", help="Younger ones stay (config: keep_runs_days).")
    ] = None,
    results_only: Annotated[
        bool, typer.Option("--results-only", help="Delete episodes, checkpoints and weights; keep what was measured.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plan and outcome as one JSON document.")] = False,
) -> None:
    """Delete old runs; without --yes only the plan is shown. What is running or referred to always stays."""
    cli: CliState = context.obj
    workspace = cli.existing()
    LocalLauncher(worker_override()).tick(workspace)  # a run whose process died has its final state then
    config = workspace.config()
    retention = Retention(
        keep_last=config.keep_runs if keep is None else keep,
        older_than_days=config.keep_runs_days if older_than is None else older_than,
        results_only=results_only,
    )
    plan = plan_pruning(workspace, retention, run_ids or ())
    pruned = carry_out(workspace, plan) if yes else None
    if as_json:
        document = {
            "plan": {**plan.model_dump(mode="json"), "size_bytes": plan.size_bytes},
            "executed": pruned is not None,
            "outcome": None if pruned is None else pruned.model_dump(mode="json"),
        }
        print(json.dumps(document, ensure_ascii=False))
        return
    console = to_stdout()
    _show_plan(plan, console)
    if pruned is not None:
        _show_outcome(pruned, console)
    elif plan.delete or plan.trash:
        options = [*(run_ids or ())]
        options += [] if keep is None else ["--keep", str(keep)]
        options += [] if older_than is None else ["--older-than", f"{older_than:g}"]
        options += ["--results-only"] if results_only else []
        command = cli.command("runs", "prune", *options, "--yes")
        console.print(f"\nnothing was deleted; to carry it out: {command}", markup=False)


def size_text(size_bytes: int) -> str:
    """`12.3 MB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit has no limit")


def _show_plan(plan: PrunePlan, console: Console) -> None:
    what = "episodes, checkpoints and weights of " if plan.results_only else ""
    gone = [*plan.delete, *plan.trash]
    if gone:
        console.print(f"to delete: {what}{counted(len(gone), 'folder')}, {size_text(plan.size_bytes)}", markup=False)
        console.print(_table(gone))
    else:
        console.print("nothing to delete", markup=False)
    if plan.keep:
        taken = size_text(sum(one.size_bytes for one in plan.keep))
        console.print(f"\nto stay: {counted(len(plan.keep), 'run')}, {taken}", markup=False)
        console.print(_table(plan.keep[:KEPT_SHOWN]))
        if len(plan.keep) > KEPT_SHOWN:
            console.print(f"… and {len(plan.keep) - KEPT_SHOWN} more", markup=False)


def _table(rows: list[RunSize]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "size", "why"):
        table.add_column(name, overflow="fold", justify="right" if name == "size" else "left")
    for one in rows:
        table.add_row(one.run_id, one.state, size_text(one.size_bytes), one.reason.replace("[", r"\["))
    return table


def _show_outcome(pruned: Pruned, console: Console) -> None:
    console.print(f"\ndeleted {counted(len(pruned.deleted), 'folder')}, {size_text(pruned.size_bytes)}", markup=False)
    for one in pruned.skipped:
        console.print(f"left alone: {one.run_id} {one.reason}", markup=False)
