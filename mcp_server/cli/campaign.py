"""`mcp-evo train --auto`: a campaign in the terminal, started or taken up again, with its report."""

import sys
from collections.abc import Callable
from dataclasses import replace

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr
from mcp_server.cli.live import TrainingView
from mcp_server.cli.optimizing import (
    console_for,
    launcher,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
    terminated_like_interrupted,
)
from mcp_server.cli.train_options import CampaignOptions, TrainArguments, settings_lines
from optimizer.approvals import ApprovalError, Channel, check_terminal
from optimizer.campaign.machine import carry_on
from optimizer.campaign.report import campaign_document, change_text, note_lines, proposal_lines, success_text
from optimizer.campaign.start import create, new_request, resolved_of
from optimizer.campaign.store import CampaignStore
from optimizer.campaign.types import DEFAULT_MAX_RUNS, Campaign, CampaignProgress, CampaignState
from optimizer.home import Home
from optimizer.round_types import Answer
from trainer.runs.rundir import RunDirectory
from trainer.settings import parse_override, resolve


@refuses_clearly
def campaign_command(state: CliState, arguments: TrainArguments, options: CampaignOptions) -> None:
    """Starts a campaign or takes one up again, carries it on and reports."""
    console = console_for(arguments.as_json)
    home, campaign = _taken_up(state, arguments, options) if options.resume else _begun(state, arguments, options)
    if arguments.detach and campaign.state is not CampaignState.CLOSED:
        _detach(state, home, campaign, as_json=arguments.as_json)
        return
    view = CampaignView(console, home)
    try:
        with terminated_like_interrupted():
            campaign = carry_on(
                home, campaign.campaign_id, _approver(console, arguments.yes), view.show, launcher=launcher()
            )
    except KeyboardInterrupt:
        view.close()
        to_stderr().print(
            f"interrupted; go on with: {state.command('train', '--auto', '--resume', campaign.campaign_id)}",
            style="yellow",
            markup=False,
        )
        if arguments.as_json:
            print_json(campaign_document(CampaignStore(home.root).read(campaign.campaign_id)))
        raise typer.Exit(130) from None
    finally:
        view.close()
    show_campaign(console, campaign, state)
    if arguments.as_json:
        print_json(campaign_document(campaign))


def _begun(state: CliState, arguments: TrainArguments, options: CampaignOptions) -> tuple[Home, Campaign]:
    resolve(arguments.request, arguments.overrides, arguments.config)  # refuse what is wrong before anything is written
    home = Home.create(state.root)
    request = new_request(
        arguments.request,
        campaign=arguments.name,
        overrides=dict(parse_override(text) for text in arguments.overrides),
        config_file=None if arguments.config is None else str(arguments.config.absolute()),
        profile=arguments.profile,
        target=options.target,
        max_runs=DEFAULT_MAX_RUNS if options.max_runs is None else options.max_runs,
        max_episodes=options.max_episodes,
        max_seconds=None if options.max_minutes is None else options.max_minutes * 60,
        ask=options.ask,
        confirm=options.confirm,
    )
    resolved = resolved_of(home, request)
    for warning in resolved.warnings:
        to_stderr().print(f"warning: {warning}", style="yellow", markup=False)
    campaign = create(home, request, resolved)
    first = replace(resolved, config=campaign.basis.training({}), provenance=campaign.basis.provenance)
    for line in settings_lines(first):
        console_for(arguments.as_json).print(line, markup=False)
    return home, campaign


def _taken_up(state: CliState, arguments: TrainArguments, options: CampaignOptions) -> tuple[Home, Campaign]:
    """The campaign to go on with; only how long it may go on can be changed."""
    if arguments.request or arguments.overrides or arguments.config or arguments.profile or arguments.name:
        raise CommandError("a campaign that is taken up again keeps its request and settings: give --resume alone.")
    home = Home.open(state.root)
    store = CampaignStore(home.root)
    assert options.resume is not None
    campaign = store.read(options.resume)
    if options.target is not None:
        raise CommandError("the target of a campaign cannot be changed: its runs aim at it. Start another one.")
    wishes = {
        "max_runs": options.max_runs,
        "max_episodes": options.max_episodes,
        "max_seconds": None if options.max_minutes is None else options.max_minutes * 60,
        "ask": options.ask or None,
        "confirm": None if options.confirm else False,
    }
    changed = {name: value for name, value in wishes.items() if value is not None}
    if not changed:
        return home, campaign
    if campaign.state is CampaignState.CLOSED or (
        campaign.state is CampaignState.ENDED and set(changed) != {"confirm"}
    ):
        raise CommandError(f"campaign {campaign.campaign_id} has ended: its budget can no longer be changed.")
    with store.carrying_on(campaign.campaign_id):
        campaign = store.read(campaign.campaign_id)
        request = campaign.request.model_copy(update=changed)
        return home, store.move(campaign, campaign.state, request=request)


def _detach(state: CliState, home: Home, campaign: Campaign, *, as_json: bool) -> None:
    from mcp_server.jobs.campaigning import start_process
    from mcp_server.state import ServerState

    start_process(ServerState(state.root), campaign.campaign_id)
    if as_json:
        print_json(campaign_document(campaign, running=True))
        return
    console = console_for(False)
    console.print(f"{campaign.campaign_id}: goes on in the background", markup=False)
    console.print(f"look at it with: {state.command('campaigns', 'show', campaign.campaign_id)}", markup=False)


def _approver(console: Console, yes: bool) -> Callable[[Campaign], Answer]:
    """Asks in the terminal; `later` where no person is at one."""

    def ask(campaign: Campaign) -> Answer:
        if yes:
            return Answer("approve", Channel.UNATTENDED)
        try:
            check_terminal(sys.stdin.isatty())
        except ApprovalError as error:
            console.print(f"{error}", markup=False)
            return Answer("later", Channel.TERMINAL)
        return ask_about(campaign, console)

    return ask


def ask_about(campaign: Campaign, console: Console) -> Answer:
    """Shows the next run and asks the person at the terminal. The caller has checked that there can be one."""
    for line in proposal_lines(campaign):
        console.print(line, markup=False)
    question = "Train it? yes, no (ends the campaign), or nothing to decide later"
    said = typer.prompt(question, default="", show_default=False, err=True).strip().lower()
    if said in ("y", "yes"):
        return Answer("approve", Channel.TERMINAL)
    if said in ("n", "no"):
        reason = typer.prompt("Why", default="no reason given", err=True)
        return Answer("reject", Channel.TERMINAL, reason)
    return Answer("later", Channel.TERMINAL)


class CampaignView:
    """Shows a campaign while it goes on."""

    def __init__(self, console: Console, home: Home) -> None:
        self.console = console
        self.home = home
        self._training: TrainingView | None = None
        self._run: str | None = None

    def close(self) -> None:
        """Ends a live table."""
        if self._training is not None:
            self._training.__exit__(None, None, None)
            self._training = None

    def show(self, step: CampaignProgress) -> None:
        """Prints one step."""
        if step.update is not None:
            self._follow(step)
            return
        self.close()
        if step.kind == "trained":
            run = step.campaign.runs[-1]
            self._line(f"test success before {success_text(run.eval.get('before'))}")
            self._line(f"test success after  {success_text(run.success)}")
            for finding in run.findings:
                self._line(
                    f"found {finding.kind.replace('_', ' ')} (confidence {finding.confidence:.2f}): {finding.what}"
                )
        elif step.kind == "decided":
            self._decided(step)
        elif step.kind == "resumed":
            self._line(step.text)
        elif step.kind == "confirming":
            self._line(f"evaluating the best run {step.campaign.best_run} on fresh problems")

    def _line(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False)

    def _decided(self, step: CampaignProgress) -> None:
        choice, runs = step.campaign.choices[-1], step.campaign.runs
        if choice.action == "change" and step.campaign.next is None and runs[-1].change is not None:
            change = runs[-1].change
            self._line(f"next: {change_text(runs[-1])} ({change.table}, {change.kind})")
        if choice.action == "end":
            return  # the report says it
        for one in choice.considered:
            self._line(f"  passed over: {one}")

    def _follow(self, step: CampaignProgress) -> None:
        assert step.update is not None
        run = step.campaign.runs[-1]
        if self._training is None or self._run != run.run_id:
            self.close()
            directory = RunDirectory(self.home.workspace.runs / run.run_id)
            limit = step.campaign.request.max_runs
            self._line(f"── run {run.number} of at most {limit}: {change_text(run)} ──", "bold")
            self._training = TrainingView(self.console, directory.read_config())
            self._training.__enter__()
            self._run = run.run_id
        self._training.show(step.update)
        if step.update.document.state.is_final:
            self.close()


def show_campaign(console: Console, campaign: Campaign, state: CliState) -> None:
    """The report: a row a run, the reasons, how it ended, what to do next."""
    console.print()
    table = plain_table("run", "change", "success before", "success after", "steps", "ended")
    for one in campaign.runs:
        table.add_row(
            one.run_id,
            change_text(one),
            success_text(one.eval.get("before")),
            success_text(one.success),
            str(one.steps),
            one.state or "–",
        )
    if campaign.runs:
        print_table(console, table)
        console.print()
    for line in note_lines(campaign):
        console.print(line, markup=False)
    name = campaign.campaign_id
    if campaign.state is CampaignState.AWAITING_APPROVAL:
        for line in proposal_lines(campaign):
            console.print(line, markup=False)
        console.print("decide and go on with:", markup=False)
        console.print(f"  {state.command('approve', name)}", markup=False)
        console.print(f"  {state.command('train', '--auto', '--resume', name)}", markup=False)
    elif campaign.state is not CampaignState.CLOSED:
        console.print(f"go on with: {state.command('train', '--auto', '--resume', name)}", markup=False)
