"""`mcp-evo runs`: list, show, stop, resume, compare, plot, prune, export."""

import json
import time
from typing import Annotated

import typer
from rich.table import Table

from mcp_server.cli.context import CliState, to_stderr, to_stdout
from mcp_server.cli.live import duration, number
from mcp_server.cli.resume import resume_command
from mcp_server.cli.runs_compare import compare_command
from mcp_server.cli.runs_export import export_command
from mcp_server.cli.runs_plot import plot_command
from mcp_server.cli.runs_prune import prune_command
from mcp_server.cli.terminal import SafeConsole
from mcp_server.findings.advising import findings_and_advice
from mcp_server.policy_in_force import policy_in_force
from trainer.runs import supervise
from trainer.runs.diagnose import DEFAULT_THRESHOLDS
from trainer.runs.launch import LocalLauncher
from trainer.runs.processes import STOP_GRACE_S
from trainer.runs.registry import LATEST, find_run, list_runs
from trainer.runs.report import build_report, headline, report_lines, run_json
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace

DEFAULT_LIMIT = 20

UNLIMITED = 400
"""Columns of a table that goes into a pipe or a file."""

RunId = Annotated[str, typer.Argument(help="Id of the run, the beginning of one, or latest.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="List, show, stop, resume, compare, plot, prune and export runs.", no_args_is_help=True)
    group.command("list")(list_command)
    group.command("show")(show_command)
    group.command("stop")(stop_command)
    group.command("resume")(resume_command)
    group.command("compare")(compare_command)
    group.command("plot")(plot_command)
    group.command("prune")(prune_command)
    group.command("export")(export_command)
    app.add_typer(group, name="runs")


def _supervise(workspace: Workspace) -> None:
    """What a look at the runs costs nothing to do: settle those that have died, start those that wait."""
    from mcp_server.workers import worker_override

    LocalLauncher(worker_override()).tick(workspace)


def list_command(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = DEFAULT_LIMIT,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="{runs: […], total} on stdout.")] = False,
) -> None:
    """List the runs of the workspace, the newest first."""
    cli: CliState = context.obj
    workspace = cli.existing()
    _supervise(workspace)
    runs = [run.document for run in list_runs(workspace) if state is None or run.document.state is state]
    if as_json:
        shown = [document.model_dump(mode="json") for document in runs[:limit]]
        print(json.dumps({"runs": shown, "total": len(runs)}, ensure_ascii=False))
        return
    console = to_stdout()
    if not runs:
        console.print(f"no runs in {workspace.root}; start one with: {cli.command('train', '…')}", markup=False)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "verdict", "before", "after", "steps", "time", "request"):
        table.add_column(name, overflow="fold", no_wrap=name != "request")
    for document in runs[:limit]:
        table.add_row(*_row(document))
    # where no terminal limits the width, wide enough not to break a request into syllables
    (console if console.is_terminal else SafeConsole(width=UNLIMITED, highlight=False)).print(table)
    if len(runs) > limit:
        console.print(f"{limit} of {len(runs)} runs; --limit {len(runs)} shows all", markup=False)


def _row(document: RunDocument) -> list[str]:
    before, after = document.eval.get("before"), document.eval.get("after")
    seconds = document.seconds
    if seconds is None and document.started_at is not None:
        seconds = max(0.0, time.time() - document.started_at)
    verdict = document.verdict.value if document.verdict is not None else ""
    if document.failure is not None:
        verdict = document.failure.kind
    return [
        document.run_id,
        document.state.value,
        verdict,
        number(before.mean if before else None),
        number(after.mean if after else None),
        f"{document.step}/{document.planned_steps or '?'}",
        duration(seconds) if seconds is not None else "–",
        (document.request or "")[:60].replace("[", r"\["),
    ]


def show_command(
    context: typer.Context,
    run_id: RunId = LATEST,
    as_json: Annotated[bool, typer.Option("--json", help="The run document on stdout.")] = False,
) -> None:
    """Show one run: state, results, what the numbers say, samples, files."""
    cli: CliState = context.obj
    workspace = cli.existing()
    found = find_run(workspace, run_id)
    _supervise(workspace)
    if as_json:
        print(json.dumps(run_json(found.directory), ensure_ascii=False))
        return
    console = to_stdout()
    thresholds, advice = DEFAULT_THRESHOLDS, []
    if (workspace.root / "skills" / "bank.yaml").exists():
        from optimizer.home import Home

        thresholds = policy_in_force(workspace).thresholds
        advice = findings_and_advice(Home.open(workspace.root), found.directory)[1]
    for line in report_lines(build_report(found.directory, thresholds), width=console.width):
        console.print(line, markup=False)
    if advice:
        console.print("\nWhat to try")
    for one in advice:
        console.print(f"  {one.sentence}", markup=False)


def stop_command(
    context: typer.Context,
    run_id: RunId = LATEST,
    grace: Annotated[
        float, typer.Option(min=0.0, help="Seconds for the step in progress to end before it is killed.")
    ] = STOP_GRACE_S,
    as_json: Annotated[bool, typer.Option("--json", help="The run document on stdout.")] = False,
) -> None:
    """Stop a run at the end of its step (or kill it after the grace)."""
    cli: CliState = context.obj
    workspace = cli.existing()
    found = find_run(workspace, run_id)
    if found.document.state.is_final:
        to_stderr().print(f"{found.document.run_id} had ended already", markup=False)
    document = supervise.stop_run(found.directory, reason="user", stop_grace_s=grace)
    _supervise(workspace)
    if as_json:
        print(json.dumps(document.model_dump(mode="json"), ensure_ascii=False))
    else:
        to_stdout().print(headline(document), markup=False)
    if not document.state.is_final:
        raise typer.Exit(1)
