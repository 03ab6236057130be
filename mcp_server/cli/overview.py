"""`mcp-evo` without a command: workspace, last run, last verdict, next command."""

import json
from typing import Any

from mcp_server.cli.context import CliState, to_stdout
from trainer.runs import supervise
from trainer.runs.registry import list_runs
from trainer.runs.report import headline
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace

FIRST_COMMAND = ("train", "train the tiny calculator agent, reward >= 0.9")


def show_overview(state: CliState, *, as_json: bool) -> None:
    """Prints where things stand."""
    overview = collect(state)
    if as_json:
        print(json.dumps(overview, ensure_ascii=False))
        return
    console = to_stdout()
    console.print(
        f"workspace  {overview['workspace']}{'' if overview['exists'] else '  (not created yet)'}", markup=False
    )
    if overview["last_run"] is not None:
        console.print(f"last run   {overview['last_run']['text']}", markup=False)
        console.print(f"verdict    {overview['last_run']['verdict'] or 'none yet'}", markup=False)
    console.print(f"next       {overview['next']}", markup=False)
    console.print("help       mcp-evo --help", markup=False)


def collect(state: CliState) -> dict[str, Any]:
    """The overview as a value."""
    root = state.root
    last: dict[str, Any] | None = None
    next_command = state.command(*FIRST_COMMAND)
    if root.is_dir():
        runs = list_runs(Workspace(root))
        if runs:
            document = runs[0].document
            if not document.state.is_final:
                document = supervise.reconcile(runs[0].directory)
            last = {
                "run_id": document.run_id,
                "state": document.state.value,
                "verdict": None if document.verdict is None else document.verdict.value,
                "text": headline(document),
            }
            next_command = _next(state, document)
    return {"workspace": str(root), "exists": root.is_dir(), "last_run": last, "next": next_command}


def _next(state: CliState, document: RunDocument) -> str:
    if document.state in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.FAILED, RunState.LOST):
        return state.command("runs", "show", document.run_id)
    return state.command(*FIRST_COMMAND) if document.verdict is None else state.command("runs", "show", "latest")
