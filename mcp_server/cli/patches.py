"""`mcp-evo patches`: list, show, propose, try, take-back."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import (
    PATCH_COLUMNS,
    JsonOption,
    console_for,
    home_of,
    patch_row,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
    show_patch,
    terminated_like_interrupted,
    trial_workers,
)
from mcp_server.cli.trial_view import TrialLines
from mcp_server.findings.proposing import Draft, propose_from_finding, propose_text
from mcp_server.jobs.trying import own_scenario_of
from mcp_server.state import ServerState
from optimizer.approvals import Channel
from optimizer.patch_store import PatchRecord, Stage
from optimizer.promote import take_back
from optimizer.trial.plan import plan_named
from optimizer.trial.run import Budget, finish_trial
from optimizer.tryout import prepare_trial, try_patch
from trainer.models.catalog import resolve_model

PatchId = Annotated[str, typer.Argument(help="Id of the patch.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Patches of skills: list, show, propose, try, take back.", no_args_is_help=True)
    group.command("list")(refuses_clearly(list_command))
    group.command("show")(refuses_clearly(show_command))
    group.command("propose")(refuses_clearly(propose_command))
    group.command("try")(refuses_clearly(try_command))
    group.command("take-back")(refuses_clearly(take_back_command))
    app.add_typer(group, name="patches")


def list_command(
    context: typer.Context,
    stage: Annotated[Stage | None, typer.Option(help="Only patches in this stage.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """List the patches of the workspace, oldest first."""
    home = home_of(context)
    records = [one for one in home.patches.all() if stage is None or one.stage is stage]
    if as_json:
        print_json({"patches": [one.model_dump(mode="json") for one in records], "total": len(records)})
        return
    console = console_for(False)
    if not records:
        console.print("no patches yet; `mcp-evo evolve` or `mcp-evo patches propose` make some", markup=False)
        return
    table = plain_table(*PATCH_COLUMNS, "what")
    for record in records:
        table.add_row(*patch_row(record.model_dump(mode="json")), record.description)
    print_table(console, table)


def show_command(context: typer.Context, patch_id: PatchId, as_json: Annotated[bool, JsonOption] = False) -> None:
    """Show a patch: what it changes, why, how it was tried, who decided."""
    home = home_of(context)
    record = home.patches.read(patch_id)
    if as_json:
        approval = home.ledger.read(patch_id)
        folder = home.patches.folder(patch_id)
        document = {
            **record.model_dump(mode="json"),
            "text": (folder / "patch.md").read_text(encoding="utf-8"),
            "diff": (folder / "patch.diff").read_text(encoding="utf-8"),
            "approval": None if approval is None else approval.model_dump(mode="json"),
        }
        print_json(document)
        return
    console = console_for(False)
    show_patch(console, home, record)
    for entry in record.history:
        console.print(f"  {entry['stage']:<9}  {entry['why']}", markup=False)


def propose_command(
    context: typer.Context,
    finding: Annotated[str | None, typer.Option(help="Id of a finding: value and scope come from it.")] = None,
    skill: Annotated[str | None, typer.Option(help="Without --finding: the skill to change.")] = None,
    section: Annotated[str | None, typer.Option(help="Its section.")] = None,
    body: Annotated[Path | None, typer.Option(help="File with the patch's text.", exists=True, dir_okay=False)] = None,
    action: Annotated[str, typer.Option(help="append, prepend, replace or insert_after.")] = "append",
    scope: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Where it holds: params='<10M', env=calculator.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="One line.")] = None,
    run: Annotated[str | None, typer.Option(help="Run it is made for; the latest by default.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Stage a patch, from a finding or from a text of your own; it is checked and not in force."""
    cli: CliState = context.obj
    home = home_of(context)
    state = ServerState(cli.root)
    if finding is not None:
        record = propose_from_finding(state, finding)
    elif skill is not None and section is not None and body is not None:
        text = body.read_text(encoding="utf-8")
        record = propose_text(state, Draft(skill, section, text, action, _scope(scope), description, run))
    else:
        raise CommandError("a patch needs --finding, or --skill, --section and --body FILE.")
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    console = console_for(False)
    show_patch(console, home, record)
    console.print(f"try it with: {cli.command('patches', 'try', record.patch_id)}", markup=False)


def _scope(parts: list[str] | None) -> dict[str, Any] | None:
    if not parts:
        return None
    found: dict[str, Any] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not sign or not key or not value:
            raise CommandError(f"--scope {part!r} is not KEY=VALUE, for instance params='<10M'.")
        found[key] = {"true": True, "false": False}.get(value, value)
    return found


def try_command(
    context: typer.Context,
    patch_id: PatchId,
    plan: Annotated[str | None, typer.Option(help="default (24 pairs at most) or quick (16).")] = None,
    more: Annotated[bool, typer.Option("--more", help="Go on with a trial that its budget ended.")] = False,
    pairs: Annotated[int | None, typer.Option(min=4, help="Pairs at most, down to a look of the plan.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Minutes at most, to a look.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the trial; drawn afresh by default.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Try a patch: paired runs with and without it on equal seeds, until the plan decides."""
    home = home_of(context)
    console = console_for(as_json)
    name = plan or home.policy_of("traj-optimize").require("trial_plan.default")
    try:
        chosen = plan_named(name)
    except ValueError as error:
        raise CommandError(f"{error}.") from error
    record = home.patches.read(patch_id)
    folder = prepare_trial(home, patch_id, chosen, own=own_scenario_of(home, record), seed=seed, more=more)
    lines = TrialLines(console)
    budget = Budget(pairs, None if minutes is None else minutes * 60)
    tokens = any(resolve_model(one.model).needs_network for one in folder.spec().scenarios)
    keep_free = home.workspace.config().keep_free_mb
    workers = trial_workers(home.trials / "workers", tokens, keep_free_mb=keep_free)
    with terminated_like_interrupted(), workers as arms:
        finish_trial(try_patch(home, folder, arms, budget=budget), lines.show)
    if as_json:
        print_json(trial_document(home.patches.read(patch_id), folder.path.name))


def trial_document(record: PatchRecord, trial_id: str) -> dict[str, Any]:
    """The JSON document of `patches try`."""
    extra = record.model_extra or {}
    return {
        "patch_id": record.patch_id,
        "trial_id": trial_id,
        "stage": str(record.stage),
        "verdict": record.verdict,
        "reason": extra.get("reason"),
        "effect": record.effect,
        "ci95": None if record.ci95 is None else list(record.ci95),
        "pairs": record.pairs,
    }


def take_back_command(
    context: typer.Context,
    patch_id: PatchId,
    reason: Annotated[str, typer.Option(help="Why; stays in the audit log and the skill's history.")],
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Take a promoted patch out of force; the skill gets a new version without it."""
    home = home_of(context)
    channel = Channel.TERMINAL if sys.stdin.isatty() else Channel.UNATTENDED
    version = take_back(home, patch_id, channel=channel, reason=reason)
    if as_json:
        print_json({"patch_id": patch_id, "version": version, "stage": str(Stage.ARCHIVED)})
    else:
        console_for(False).print(f"took {patch_id} back: now {version}", markup=False)
