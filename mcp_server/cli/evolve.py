"""`mcp-evo evolve`: train, find what held it back, try a patch, ask, promote, train better; round after round."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli.context import CliState
from mcp_server.cli.evolve_meta import evolve_layer
from mcp_server.cli.live import TrainingView
from mcp_server.cli.optimizing import (
    PATCH_COLUMNS,
    JsonOption,
    approver_for,
    console_for,
    interval_text,
    launcher,
    patch_row,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
    terminated_like_interrupted,
    trial_workers,
)
from mcp_server.cli.trial_view import TrialLines
from mcp_server.dashboard.running import dashboard_hint
from optimizer.evolve import evolve as run_evolution
from optimizer.evolve import new_request
from optimizer.evolve import resume as resume_evolution
from optimizer.home import Home
from optimizer.recheck import PAIRS
from optimizer.round_types import Progress
from optimizer.trial.plan import PLANS
from trainer.request import rounds_wanted
from trainer.runs.rundir import RunDirectory
from trainer.settings import parse_override, resolve


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("evolve")(refuses_clearly(evolve))


def evolve(
    context: typer.Context,
    request: Annotated[str, typer.Argument(help="What to train, in English or Chinese.")] = "",
    rounds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Rounds at most; by default what the request says, else 2.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Base values: original (the plain base of demonstrations).")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve what is better; recorded as unattended.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix a field; it is no lever then.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with fields of the configuration.")] = None,
    plan: Annotated[str | None, typer.Option(help="Trial plan: default (24 pairs at most) or quick (16).")] = None,
    pairs: Annotated[
        int | None, typer.Option(min=4, help="Pairs of a trial at most, down to a look of the plan.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Minutes of a trial at most, to a look.")] = None,
    budget_episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes of the whole evolution; no round begins after them.")
    ] = None,
    budget_minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Minutes of the whole evolution; no round begins after them.")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidates a round; several are screened before one is tried.")
    ] = None,
    final_trial: Annotated[bool, typer.Option("--final-trial", help="Try a patch in the last round too.")] = False,
    fresh_check: Annotated[
        bool, typer.Option(help="Measure a promoted patch again on fresh pairs in the next round.")
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Seed of the trials; drawn afresh by default.")] = None,
    layer: Annotated[
        str, typer.Option(help="traj: improve the training skills. meta: improve the optimiser, from recorded trials.")
    ] = "traj",
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Take an evolution up again; latest: the last one.")
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Improve the training skills over rounds of real training, each change proven on paired trials."""
    state: CliState = context.obj
    console = console_for(as_json)
    if layer != "traj":
        evolve_layer(state, layer, console, request=request, rounds=rounds, yes=yes, seed=seed, as_json=as_json)
        return
    if resume is None:
        resolve(request, overrides, config)  # what is wrong is refused before a workspace is made
    home = Home.create(state.root) if resume is None else Home.open(state.root)
    view = EvolutionView(console, home)

    approver = approver_for(home, console, yes)
    workers = partial(trial_workers, keep_free_mb=home.workspace.config().keep_free_mb)
    more: dict[str, Any] = {"launcher": launcher(), "runners": workers}
    if resume is not None:
        chosen = None if resume == "latest" else resume
        with terminated_like_interrupted():
            document = resume_evolution(home, chosen, approver, view.show, **more)
    else:
        if plan is not None and plan not in PLANS:
            raise typer.BadParameter(f"unknown plan {plan!r}; allowed: {', '.join(PLANS)}", param_hint="--plan")
        wanted = new_request(
            home,
            request,
            rounds_wanted(request, rounds),
            profile,
            seed=seed,
            overrides=dict(parse_override(text) for text in overrides or []),
            config_file=None if config is None else str(config.absolute()),
            plan=plan,
            max_pairs=pairs,
            max_seconds=None if minutes is None else minutes * 60,
            budget_episodes=budget_episodes,
            budget_minutes=budget_minutes,
            candidates=candidates,
            fresh_check=fresh_check,
            final_trial=final_trial,
        )
        with terminated_like_interrupted():
            document = run_evolution(home, wanted, approver, view.show, **more)
    view.close()
    show_evolution(console, document, state)
    if as_json:
        print_json(document)


class EvolutionView:
    """Shows an evolution while it goes on."""

    def __init__(self, console: Console, home: Home) -> None:
        self.console = console
        self.home = home
        self.trial = TrialLines(console)
        self._training: TrainingView | None = None

    def _line(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False)

    def close(self) -> None:
        """Ends a live table."""
        if self._training is not None:
            self._training.__exit__(None, None, None)
            self._training = None

    def show(self, step: Progress) -> None:
        """Prints one step."""
        if step.update is not None:
            self._run(step)
            return
        self.close()
        if step.kind == "round":
            profile = "" if step.round.profile is None else f", profile {step.round.profile}"
            self._line(f"── round {step.round.round} ({step.round.state}){profile} ──", "bold")
        elif step.kind == "findings":
            self._findings(step)
        elif step.kind == "proposed":
            for record in step.patches:
                self._line(f"proposed {record.patch_id}: {record.description}")
        elif step.screening is not None:
            self.trial.show_screening(step.screening)
        elif step.trial is not None:
            self.trial.show(step.trial)
        elif step.kind == "checking":
            self._line(f"measuring {step.patches[0].patch_id} again on {PAIRS} fresh pairs")
        elif step.check is not None:
            self._line(step.check.say, "yellow" if step.check.demote else None)
            if step.check.demote:
                self._line(f"  mcp-evo patches take-back {step.check.patch_id} --reason …")
        elif step.kind == "promoted":
            self._line(f"promoted {step.patches[0].patch_id}: now {step.text}", "green")
        elif step.kind == "rejected":
            self._line(f"rejected {step.patches[0].patch_id}; it will not be proposed again")
        elif step.text:
            self._line(step.text)

    def _run(self, step: Progress) -> None:
        assert step.update is not None
        if self._training is None:
            directory = RunDirectory(self.home.workspace.runs / step.round.run_id)
            self._training = TrainingView(self.console, directory.read_config())
            self._training.__enter__()
        self._training.show(step.update)
        if step.update.document.state.is_final:
            self.close()

    def _findings(self, step: Progress) -> None:
        for when in ("before", "after"):
            evaluation = step.evals.get(when)
            if evaluation is not None:
                low, high = evaluation.ci95
                self._line(f"test success {when:<6} {evaluation.mean:.3f} [{low:.3f}, {high:.3f}] (n {evaluation.n})")
        for finding in step.findings:
            self._line(f"found {finding.kind.replace('_', ' ')} (confidence {finding.confidence:.2f}): {finding.what}")
            if finding.blocked is not None:
                self._line(f"  {finding.blocked}")


def show_evolution(console: Console, document: dict[str, Any], state: CliState) -> None:
    """The closing table: a row a round, a row a patch."""
    console.print()
    rounds = plain_table("round", "skill version", "run", "success before", "success after", "promoted")
    patches = plain_table("round", *PATCH_COLUMNS)
    for one in document["rounds"]:
        rounds.add_row(
            str(one["round"]),
            one["skill_version"] or "–",
            one["run_id"],
            _eval_text(one["eval"]["before"]),
            _eval_text(one["eval"]["after"]),
            one["patch_id"] or "–",
        )
        for patch in one["patches"]:
            patches.add_row(str(one["round"]), *patch_row(patch))
    print_table(console, rounds)
    if patches.row_count:
        console.print()
        print_table(console, patches)
    if document["stopped"]:
        console.print(f"ended early: {document['stopped']}", markup=False)
    if document["awaiting"]:
        evolution = document["evolution"]
        console.print(f"patch {document['awaiting']} waits for a person. Decide and go on with:", markup=False)
        console.print(f"  {state.command('approve', document['awaiting'])}", markup=False)
        console.print(f"  {dashboard_hint(state.root)}", markup=False)
        console.print(f"  {state.command('evolve', '--resume', evolution)}", markup=False)


def _eval_text(evaluation: dict[str, Any] | None) -> str:
    if evaluation is None:
        return "–"
    return f"{evaluation['mean']:.3f} {interval_text(evaluation['ci95']).replace('+', '')}"
