"""`mcp-evo tasks`: more tasks for an environment, made of those it has: generate, list, show."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr
from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    plain_table,
    print_json,
    print_table,
    terminated_like_interrupted,
)
from mcp_server.policy_in_force import policy_in_force
from trainer.config import TrainingConfig
from trainer.generation.folder import (
    LATEST,
    SetFolder,
    Standing,
    find_set,
    known_sets,
    resume_set,
    start_set,
    stop_set,
    wait_for,
)
from trainer.generation.plan import Wishes, plan_generation
from trainer.generation.types import Explorer, GenerationError, Manifest
from trainer.runs.wording import counted
from trainer.settings import parse_override

OF_THE_PROBLEMS = ("difficulty", "env_args", "data", "columns", "reward", "folder", "problems", "seed")
"""Fields that say which problems a run has."""

Json = Annotated[bool, JsonOption]
SetId = Annotated[str, typer.Argument(help="Id of a set, or latest.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Generate tasks for an environment from those it has.", no_args_is_help=True)
    group.command("generate")(generate_command)
    group.command("list")(list_command)
    group.command("show")(show_command)
    app.add_typer(group, name="tasks")


def generate_command(
    context: typer.Context,
    env: Annotated[str | None, typer.Option(help="Environment: a name, or python:module:Class.")] = None,
    run: Annotated[str | None, typer.Option(help="A run: its environment, data and seed, and its model.")] = None,
    explorer: Annotated[
        str, typer.Option(help="scripted (tries calls, or the class's solution) or policy (a model plays).")
    ] = Explorer.SCRIPTED.value,
    model: Annotated[str | None, typer.Option(help="Policy; left out: the run's trained model.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Tasks wanted.")] = 64,
    originals: Annotated[
        int | None, typer.Option(min=2, help="Training problems to explore; left out: those of the configuration.")
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Episodes of the policy at each of them.")] = 4,
    calls: Annotated[int, typer.Option(min=10, help="Calls of the scripted explorer at each of them, at most.")] = 400,
    support: Annotated[
        int, typer.Option(min=2, help="Originals that a template must solve, where the class has no solution.")
    ] = 2,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; left out: the configuration's.")] = None,
    name: Annotated[str | None, typer.Option(help="Id of the set: a-z, 0-9, _ and -.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Go on with a set that was interrupted.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field of the configuration.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML or JSON file with a configuration.")] = None,
    as_json: Json = False,
) -> None:
    """Make tasks that are verified by executing them, and a file that `mcp-evo train` takes."""
    state: CliState = context.obj
    if resume is not None:
        workspace = state.existing()
        folder = resume_set(workspace, find_set(workspace, resume))
    else:
        wishes = Wishes(
            overrides=_overrides(overrides, env),
            config_file=config,
            run=run,
            explorer=explorer,
            model=model,
            count=count,
            originals=originals,
            attempts=attempts,
            calls=calls,
            support=support,
            seed=seed,
            name=name,
        )
        if not state.root.is_dir():
            plan_generation(None, wishes)  # refuse what is wrong before anything is written
        workspace = state.writable()
        plan = plan_generation(workspace, wishes, policy=policy_in_force(workspace).config)
        folder = start_set(workspace, plan)
    standing = _follow(state, folder, to_stderr())
    if standing.failure is not None:
        raise CommandError(f"{standing.set_id} failed ({standing.failure.kind}): {standing.failure.message}")
    if standing.manifest is None:
        raise CommandError(
            f"{standing.set_id}: its process is gone. Go on: "
            f"{state.command('tasks', 'generate', '--resume', standing.set_id)}"
        )
    if as_json:
        print_json(_finished(folder, standing.manifest))
        return
    _show_manifest(state, folder, standing.manifest)


def _overrides(pairs: list[str] | None, env: str | None) -> dict[str, Any]:
    given = dict(parse_override(text) for text in pairs or ())
    if env is not None:
        if given.get("env", env) != env:
            raise CommandError(f"--env {env} and --set env={given['env']} contradict each other. Keep one of them.")
        given["env"] = env
    return given


def _follow(state: CliState, folder: SetFolder, console: Console) -> Standing:
    """Waits for the end, saying what is being done; Ctrl-C ends the process and keeps what it did."""
    told = ""

    def tell(standing: Standing) -> None:
        nonlocal told
        if standing.progress is not None and standing.progress.doing != told:
            told = standing.progress.doing
            console.print(f"{standing.set_id}: {told}", markup=False)

    with terminated_like_interrupted():
        try:
            return wait_for(folder, tell)
        except KeyboardInterrupt:
            stop_set(folder)
            again = state.command("tasks", "generate", "--resume", folder.path.name)
            console.print(f"stopped; what was done is kept. Go on: {again}", markup=False)
            raise


def _finished(folder: SetFolder, manifest: Manifest) -> dict[str, Any]:
    files = {"tasks": folder.tasks_path, "provenance": folder.provenance_path, "plan": folder.plan_path}
    return {"state": "finished", **manifest.model_dump(mode="json"), "files": {k: str(v) for k, v in files.items()}}


def _show_manifest(state: CliState, folder: SetFolder, manifest: Manifest) -> None:
    console = console_for(False)
    short = f" of {manifest.asked} wanted" if manifest.kept < manifest.asked else ""
    console.print(f"{manifest.set_id}: {manifest.kept} tasks{short} for {manifest.env}", markup=False)
    by = ", ".join(f"{counted(count, 'way')} by {name}" for name, count in manifest.found_by.items())
    console.print(
        f"explored    {manifest.solved} of {counted(manifest.originals, 'original')} solved ({by}), "
        f"{counted(manifest.templates, 'template')} learned",
        markup=False,
    )
    confirmed = f", {manifest.confirmed} confirmed by the class's own solution" if manifest.confirmed else ""
    console.print(f"verified    {manifest.kept} of {manifest.draws} fillings{confirmed}", markup=False)
    for name, reasons in manifest.dropped.items():
        if reasons:
            told = ", ".join(f"{reason.replace('_', ' ')} {count}" for reason, count in reasons.items())
            console.print(f"left out    {name}: {told}", markup=False)
    console.print(f"guarded     {manifest.guarded} validation and test problems", markup=False)
    console.print(f"file        {folder.tasks_path}", markup=False)
    console.print(f"train       {state.command('train', *_settings_for(folder))}", markup=False)


def _settings_for(folder: SetFolder) -> list[str]:
    """`--set` for a run on the set's own environment and problems, with the tasks mixed in."""
    config = folder.read_plan().config
    settings = {"env": config.env}
    for name in OF_THE_PROBLEMS:
        value = config.model_dump(mode="json")[name]
        if value != TrainingConfig.model_fields[name].get_default(call_default_factory=True):
            settings[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    settings["generated_tasks"] = str(folder.tasks_path)
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def list_command(context: typer.Context, as_json: Json = False) -> None:
    """List the sets of generated tasks."""
    state: CliState = context.obj
    rows: list[dict[str, Any]] = []
    for folder in known_sets(state.existing()):
        try:
            plan, standing = folder.read_plan(), folder.standing()
        except GenerationError as error:
            rows.append({"set_id": folder.path.name, "state": "unreadable", "problem": str(error)})
            continue
        kept = standing.manifest.kept if standing.manifest is not None else None
        rows.append(
            {
                "set_id": standing.set_id,
                "state": standing.state,
                "env": plan.config.env,
                "explorer": plan.explorer.value,
                "asked": plan.count,
                "kept": kept,
                "seed": plan.seed,
                "problem": None if standing.failure is None else standing.failure.message,
            }
        )
    if as_json:
        print_json({"sets": rows, "total": len(rows)})
        return
    table = plain_table("set", "state", "environment", "explorer", "tasks", "problem")
    for row in rows:
        tasks = "–" if row.get("kept") is None else f"{row['kept']} of {row['asked']}"
        cells = (row["set_id"], row["state"], row.get("env", "–"), row.get("explorer", "–"), tasks)
        table.add_row(*cells, row["problem"] or "")
    print_table(console_for(False), table)


def show_command(
    context: typer.Context,
    set_id: SetId = LATEST,
    limit: Annotated[int, typer.Option(min=0, help="Tasks to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Show a set: counts, and its tasks with their reference calls."""
    state: CliState = context.obj
    folder = find_set(state.existing(), set_id)
    standing = folder.standing()
    if standing.manifest is None:
        if as_json:
            print_json(standing.model_dump(mode="json"))
            return
        why = f": {standing.failure.message}" if standing.failure is not None else ""
        console_for(False).print(f"{standing.set_id}: {standing.state}{why}", markup=False)
        if standing.state == "interrupted":
            again = state.command("tasks", "generate", "--resume", standing.set_id)
            console_for(False).print(f"go on: {again}", markup=False)
        return
    tasks = folder.read_tasks()
    if as_json:
        shown = [{"row": row, **provenance} for row, provenance in tasks[:limit]]
        print_json({**_finished(folder, standing.manifest), "tasks": shown})
        return
    _show_manifest(state, folder, standing.manifest)
    for row, provenance in tasks[:limit]:
        console = console_for(False)
        console.print(f"\n{provenance['task']}  {row['prompt']}", markup=False)
        for call in provenance["reference"]:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call["arguments"].items())
            console.print(f"   {call['tool']}({arguments}) → {call['result'][:80]}", markup=False)
        console.print(
            f"   template {provenance['template']!r}, solves {counted(provenance['support'], 'original')}"
            f"{', confirmed by the class' if provenance['confirmed'] else ''}",
            markup=False,
        )
