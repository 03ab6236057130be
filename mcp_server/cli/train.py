"""`mcp-evo train`: from a request to a run, followed live, with a closing report."""

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState, CommandError, to_stderr, to_stdout
from mcp_server.cli.live import TrainingView
from mcp_server.cli.train_options import CampaignOptions, TrainArguments, settings_lines
from mcp_server.policy_in_force import PolicyInForce, policy_in_force
from mcp_server.state import named_session
from mcp_server.workers import worker_override
from optimizer.run_links import record_launch
from optimizer.store import TrajectoryStore
from trainer.runs import supervise
from trainer.runs.launch import LocalLauncher, follow, start_run
from trainer.runs.registry import Run, list_runs
from trainer.runs.report import build_report, report_lines
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace
from trainer.settings import resolve


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("train")(train)


def train(
    context: typer.Context,
    request: Annotated[
        str, typer.Argument(help='What to train, in English or Chinese: "tiny on 64 mixed problems, seed 1".')
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a field of the configuration; may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with fields of the configuration.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Base values: original (the published defaults of the original system).")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start the run and return at once.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also in approve mode.")] = False,
    name: Annotated[str | None, typer.Option("--id", help="Id of the run; made from the time by default.")] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="A campaign: analyse, change one setting by policy, train again.")
    ] = False,
    max_runs: Annotated[int | None, typer.Option(min=1, max=100, help="--auto: runs at most; 5 by default.")] = None,
    target: Annotated[
        float | None, typer.Option(min=0, max=1, help="--auto: test success to reach; by default the request's goal.")
    ] = None,
    max_episodes: Annotated[int | None, typer.Option(min=1, help="--auto: training episodes of all runs.")] = None,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="--auto: training time of all runs.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="--auto: ask before each run (approve mode).")] = False,
    no_confirm: Annotated[
        bool, typer.Option("--no-confirm", help="--auto: leave out the evaluation of the best run on fresh problems.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="--auto: take a campaign up again; latest: the last one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, the rest on stderr.")] = False,
) -> None:
    """Train a model and report what came out."""
    state: CliState = context.obj
    options = CampaignOptions(max_runs, target, max_episodes, max_minutes, ask, not no_confirm, resume)
    if auto:
        from mcp_server.cli.campaign import campaign_command

        wanted = TrainArguments(request, overrides or [], config, profile, name, yes, detach, as_json)
        campaign_command(state, wanted, options)
        return
    if options.given():
        given = options.given()
        raise typer.BadParameter(
            f"{', '.join(given)} {'belongs' if len(given) == 1 else 'belong'} to a campaign: add --auto"
            + ("; a single run goes on with `mcp-evo runs resume ID`" if options.resume is not None else "")
        )
    launcher = LocalLauncher(worker_override())
    resolve(request, overrides, config, profile=None)  # refuse what is wrong before anything is written
    workspace = state.writable()
    policy = policy_in_force(workspace, profile)
    resolved = resolve(request, overrides, config, policy.config, profile)
    console = to_stderr() if as_json else to_stdout()
    for warning in resolved.warnings:
        to_stderr().print(f"warning: {warning}", style="yellow", markup=False)
    for line in settings_lines(resolved):
        console.print(line, markup=False)
    if resolved.provenance["mode"]["source"] == "request" and resolved.config.mode == "auto":
        to_stderr().print("mode auto: one run without questions; --auto goes on until the target", markup=False)
    if resolved.config.mode == "approve" and not yes:
        _ask()
    try:
        session = named_session()
    except ValueError as error:
        raise CommandError(str(error)) from error
    directory = start_run(
        workspace, resolved, launcher=launcher, run_id=name, session=session, skill_versions=policy.versions
    )
    if session is not None:
        record_launch(TrajectoryStore(workspace.root / "trajectories"), session, directory.run_id, request, time.time())
    see_through(state, workspace, directory, launcher, policy, detach=detach, as_json=as_json)


def see_through(
    state: CliState,
    workspace: Workspace,
    directory: RunDirectory,
    launcher: LocalLauncher,
    policy: PolicyInForce,
    *,
    detach: bool,
    as_json: bool,
) -> None:
    """Follows a started run to its end and reports; with `detach` says where to look and returns at once."""
    if detach:
        _print_detached(state, directory, as_json=as_json)
        return
    document, interrupted = _follow(state, workspace, directory, launcher, as_json=as_json)
    _report(directory, policy, as_json=as_json)
    if as_json:
        print(json.dumps(summary(document), ensure_ascii=False))
    if interrupted:
        raise typer.Exit(130)
    if document.state in (RunState.FAILED, RunState.LOST):
        raise typer.Exit(1)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise CommandError(
            "the request asks for approval (approve mode) and there is no terminal to ask in. Add --yes."
        )
    if not typer.confirm("Start this run?", err=True):
        raise CommandError("not started.")


def _print_detached(state: CliState, directory: RunDirectory, *, as_json: bool) -> None:
    document = directory.read_document()
    if as_json:
        print(json.dumps(summary(document), ensure_ascii=False))
        return
    console = to_stdout()
    console.print(f"{document.run_id}: {document.state}", markup=False)
    if document.state is RunState.QUEUED:
        console.print("it starts when a slot is free and a server or a command looks after the workspace", markup=False)
    console.print(f"follow it with: {state.command('runs', 'show', document.run_id)}", markup=False)


def _follow(
    state: CliState, workspace: Workspace, directory: RunDirectory, launcher: LocalLauncher, *, as_json: bool
) -> tuple[RunDocument, bool]:
    """Follows a run to its end; Ctrl-C (or SIGTERM) stops it. Returns the final document and whether that happened."""
    previous = signal.signal(signal.SIGTERM, _raise_interrupt)
    console = to_stderr() if as_json else to_stdout()
    view = TrainingView(console, directory.read_config())
    try:
        with view:
            for update in follow(workspace, directory, launcher=launcher):
                view.show(update, _blockers(workspace, update.document))
        return directory.read_document(), False
    except KeyboardInterrupt:
        to_stderr().print(
            "stopping after the step in progress; press Ctrl-C again to end it at once", style="yellow", markup=False
        )
        return _stop(directory), True
    finally:
        signal.signal(signal.SIGTERM, previous)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(directory: RunDirectory) -> RunDocument:
    try:
        return supervise.stop_run(directory, reason="user")
    except KeyboardInterrupt:
        return supervise.stop_run(directory, reason="user", stop_grace_s=0.0, term_grace_s=3.0)


def _blockers(workspace: Workspace, document: RunDocument) -> list[str]:
    """Ids of the runs that a queued one waits for."""
    if document.state is not RunState.QUEUED:
        return []
    return [run.document.run_id for run in list_runs(workspace) if _is_active(run)]


def _is_active(run: Run) -> bool:
    return run.document.state in (RunState.STARTING, RunState.RUNNING)


def _report(directory: RunDirectory, policy: PolicyInForce, *, as_json: bool) -> None:
    console = to_stderr() if as_json else to_stdout()
    report = build_report(directory, policy.thresholds)
    console.print()
    for line in report_lines(report, width=console.width):
        console.print(line, markup=False)


def summary(document: RunDocument) -> dict[str, Any]:
    """The JSON document of `mcp-evo train --json`."""
    evals = {
        name: None if name not in document.eval else document.eval[name].model_dump(mode="json")
        for name in ("before", "after")
    }
    result: dict[str, Any] = {
        "run_id": document.run_id,
        "state": document.state.value,
        "verdict": None if document.verdict is None else document.verdict.value,
        "eval": evals,
        "steps": document.step,
        "seconds": document.seconds,
    }
    if document.failure is not None:
        result["failure"] = document.failure.model_dump(mode="json")
    if document.stop_reason is not None:
        result["stop_reason"] = document.stop_reason
    return result
