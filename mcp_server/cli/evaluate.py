"""`mcp-evo evaluate`: how good a model is on problems nobody learned from."""

import json
from typing import Annotated

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr, to_stdout
from mcp_server.policy_in_force import policy_in_force
from trainer.evaluation.folder import EvaluationFolder, start_evaluation, stop_evaluation, wait_for
from trainer.evaluation.plan import SPLITS, Wishes, plan_evaluation
from trainer.evaluation.report import result_lines
from trainer.evaluation.types import SplitName, Standing


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="Run (its trained model and its base), alias, hub id, folder or file.")],
    env: Annotated[str | None, typer.Option(help="Environment; of a run: its own by default.")] = None,
    difficulty: Annotated[str | None, typer.Option(help="simple, mixed or hard.")] = None,
    n: Annotated[int, typer.Option("--n", help="Problems of each split and seed.")] = 128,
    samples: Annotated[int, typer.Option(help="Attempts at each problem; more than one gives pass@k.")] = 1,
    split: Annotated[
        list[str] | None, typer.Option(help="test (the default), validation, train or all; may be repeated.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of problems and sampling; may be repeated. Of a run: its own.")
    ] = None,
    pass_at: Annotated[str | None, typer.Option(metavar="K,K,…", help="k of pass@k; 1, 2, 4, … by default.")] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0,
    against: Annotated[
        list[str] | None, typer.Option(metavar="RUN|MODEL", help="Another one on the same problems; may be repeated.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field of the configuration.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout, the rest on stderr.")] = False,
) -> None:
    """Evaluate a model, or a run's model against its base, on held-out problems."""
    state: CliState = context.obj
    wishes = Wishes(
        env=env,
        difficulty=difficulty,
        n=n,
        samples=samples,
        splits=_splits(split),
        seeds=seed,
        ks=None if pass_at is None else _numbers(pass_at),
        temperature=temperature,
        overrides=overrides or (),
        against=against or (),
    )
    known = state.root.is_dir()
    if not known:  # refuse what is wrong before anything is written
        plan_evaluation(None, target, wishes)
    workspace = state.writable()
    plan = plan_evaluation(workspace, target, wishes, policy=policy_in_force(workspace).config)
    folder = start_evaluation(workspace, plan)
    standing = _follow(folder, to_stderr())
    if standing.failure is not None:
        tail = "".join(f"\n  {line}" for line in standing.failure.log_tail[-5:])
        raise CommandError(f"{plan.evaluation_id} failed ({standing.failure.kind}): {standing.failure.message}{tail}")
    assert standing.result is not None
    if as_json:
        print(json.dumps({**standing.result.model_dump(mode="json"), "folder": str(folder.path)}, ensure_ascii=False))
        return
    console = to_stdout()
    for line in result_lines(standing.result):
        console.print(line, markup=False)
    console.print(f"\nfiles: {folder.path}", markup=False)


def _splits(names: list[str] | None) -> tuple[SplitName, ...]:
    chosen = [part.strip() for name in names or ["test"] for part in name.split(",")]
    if "all" in chosen:
        return SPLITS
    unknown = [name for name in chosen if name not in SPLITS]
    if unknown:
        raise typer.BadParameter(
            f"unknown split {unknown[0]!r}; allowed: {', '.join(SPLITS)}, all", param_hint="--split"
        )
    return tuple(split for split in SPLITS if split in chosen)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 1,4,8", param_hint="--pass-at") from None


def _follow(folder: EvaluationFolder, console: Console) -> Standing:
    """Waits for the end, saying what is being done; Ctrl-C ends the process."""
    told = ""

    def tell(standing: Standing) -> None:
        nonlocal told
        if standing.progress is not None and standing.progress.doing != told:
            told = standing.progress.doing
            console.print(f"[{standing.progress.done + 1}/{standing.progress.parts}] {told}", markup=False)

    console.print(f"{folder.path.name}: loading", markup=False)
    try:
        return wait_for(folder, tell=tell)
    except KeyboardInterrupt:
        stop_evaluation(folder)
        raise
