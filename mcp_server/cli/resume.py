"""`mcp-evo runs resume`: a run that ended early goes on from its newest checkpoint, as a new run."""

from typing import Annotated

import typer

from mcp_server.cli.context import CliState, to_stderr, to_stdout
from mcp_server.cli.train import see_through
from mcp_server.policy_in_force import policy_in_force
from mcp_server.workers import worker_override
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import LATEST, find_run
from trainer.runs.resume import resume_run


def resume_command(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(help="Id of the run, the beginning of one, or latest.")] = LATEST,
    detach: Annotated[bool, typer.Option("--detach", help="Start the run and return at once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, the rest on stderr.")] = False,
) -> None:
    """Go on with a run that was stopped, killed or lost, from its newest checkpoint."""
    state: CliState = context.obj
    workspace = state.existing()
    launcher = LocalLauncher(worker_override())
    launcher.tick(workspace)  # a killed run has its final state before it is looked at
    resumed = resume_run(workspace, find_run(workspace, run_id))
    console = to_stderr() if as_json else to_stdout()
    where = f"from step {resumed.step}" if resumed.step else "from the beginning: it left no complete checkpoint"
    console.print(f"{resumed.directory.run_id} goes on with {resumed.parent} {where}", markup=False)
    launcher.tick(workspace, lock_timeout_s=10.0)
    profile = resumed.directory.read_document().profile
    policy = policy_in_force(workspace, profile)
    see_through(state, workspace, resumed.directory, launcher, policy, detach=detach, as_json=as_json)
