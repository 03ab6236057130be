"""`mcp-evo rounds start | optimize | launch`: rounds in halves, trained here or by an agent of its own."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli.agent_launch import opener, task_for
from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.evolve import EvolutionView, show_evolution
from mcp_server.cli.optimizing import (
    JsonOption,
    approver_for,
    console_for,
    home_of,
    launcher,
    print_json,
    refuses_clearly,
    terminated_like_interrupted,
    trial_workers,
)
from optimizer.evolve import begin_round, go_on, new_request, round_document
from optimizer.home import Home
from optimizer.round_store import RoundStore
from optimizer.round_types import EvolveRequest, Round, RoundError, RoundState
from trainer.request import parse_request
from trainer.settings import parse_override, resolve

Profile = Annotated[str | None, typer.Option(help="Base values: original (the plain base of demonstrations).")]
Evolution = Annotated[
    str | None, typer.Option(metavar="ID", help="Go on with this evolution; its request is kept.", show_default=False)
]


def register(group: typer.Typer) -> None:
    """Adds the commands to `rounds`."""
    group.command("start")(refuses_clearly(start_command))
    group.command("optimize")(refuses_clearly(optimize_command))
    group.command("launch")(refuses_clearly(launch_command))


def start_command(
    context: typer.Context,
    request: Annotated[str, typer.Argument(help="What to train; left out with --evolution.")] = "",
    profile: Profile = None,
    evolution: Evolution = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fix a field; it is no lever then.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with fields of the configuration.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the trials; drawn afresh by default.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Begin a round and train; what it found is optimised with `rounds optimize`."""
    state: CliState = context.obj
    home, wanted = _wanted(state, request, profile, evolution, overrides, config, seed)
    current = begin_round(home, wanted, evolution=evolution)
    current = _work(home, state, current.round, RoundState.CHECKED, as_json=as_json)
    _report(home, state, current, as_json)


def _wanted(
    state: CliState,
    request: str,
    profile: str | None,
    evolution: str | None,
    overrides: list[str] | None,
    config: Path | None,
    seed: int | None,
) -> tuple[Home, EvolveRequest]:
    """The workspace and the request of the round. What is wrong is refused before anything is written."""
    if evolution is not None:
        if request or profile or overrides or config:
            raise CommandError(
                "a further round keeps the request and settings of its evolution: give --evolution alone."
            )
        home = Home.open(state.root)
        return home, RoundStore(home.root).read_request(evolution)
    resolve(request, overrides, config)
    home = Home.create(state.root)
    wanted = new_request(
        home,
        request,
        1,
        profile,
        seed=seed,
        overrides=dict(parse_override(text) for text in overrides or []),
        config_file=None if config is None else str(config.absolute()),
        final_trial=True,
    )
    return home, wanted


def optimize_command(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(help="Round; left out: the last one that is not closed.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve what is better; recorded as unattended.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Analyse what a round trained, propose a patch, try it, and ask a person."""
    home = home_of(context)
    store = RoundStore(home.root)
    if number is None:
        number = next((one.round for one in reversed(store.all()) if one.state is not RoundState.CLOSED), None)
        if number is None:
            raise CommandError("no round is open: begin one with `mcp-evo rounds start`.")
    current = _work(home, context.obj, number, RoundState.CLOSED, yes=yes, as_json=as_json)
    _report(home, context.obj, current, as_json)


def _work(home: Home, state: CliState, number: int, until: RoundState, *, as_json: bool, yes: bool = False) -> Round:
    console = console_for(as_json)
    view = EvolutionView(console, home)

    approver = approver_for(home, console, yes)
    workers = partial(trial_workers, keep_free_mb=home.workspace.config().keep_free_mb)
    with terminated_like_interrupted():
        try:
            return go_on(home, number, until, approver, view.show, launcher=launcher(), runners=workers)
        finally:
            view.close()


def _report(home: Home, state: CliState, current: Round, as_json: bool) -> None:
    waiting = current.chosen if current.state is RoundState.AWAITING_APPROVAL else None
    whole: dict[str, Any] = {
        "evolution": current.evolution,
        "rounds": [round_document(home, current)],
        "stopped": None,
        "awaiting": waiting,
    }
    console = console_for(as_json)
    if as_json:
        print_json(whole)
        return
    show_evolution(console, whole, state)
    if current.state is RoundState.CLOSED:
        console.print(f"next round: {state.command('rounds', 'start', '--evolution', current.evolution)}", markup=False)
    elif waiting is None:
        console.print(f"next: {state.command('rounds', 'optimize', str(current.round))}", markup=False)


def launch_command(
    context: typer.Context,
    request: Annotated[str, typer.Argument(help='"round=N | what to train"; N is the next round.')],
    profile: Profile = None,
    evolution: Evolution = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="Run the agent here, without a window, to its end.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Only print the command.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Open a training agent in a terminal window of its own; `rounds optimize` goes on with what it trained."""
    state: CliState = context.obj
    number, text = _numbered(request)
    known = Home.open(state.root) if state.root.is_dir() else None
    current = None if known is None else _open_round(known, number)
    if current is None:
        if known is not None and evolution is not None:
            wanted = RoundStore(known.root).read_request(evolution)
            home = known
        else:
            home, wanted = _wanted(state, text, profile, None, None, None, None)
        _check_next(home, number)
        current = begin_round(home, wanted, evolution=evolution, agent=True)
    else:
        assert known is not None
        home = known
    settings = home.workspace.config()
    template = settings.training_agent_headless if headless else settings.training_agent
    task = task_for(current.round, text, template, home.root, Path.cwd(), current.profile)
    opened, code = None, None
    if headless:
        log = home.root / "rounds" / f"round-{current.round:06d}.agent.log"
        with log.open("ab") as stream:
            code = _run(list(task.command), {**os.environ, **task.environment}, stream)
        opened = str(log)
    elif not show:
        command = opener(task, os.environ, sys.platform, shutil.which)
        if command is not None and _run(command, dict(os.environ)) == 0:
            opened = command[0]
    _tell(state, current, task.shell_line(), opened, code, headless=headless, as_json=as_json)


def _numbered(request: str) -> tuple[int, str]:
    """Number and request of `round=N | request`."""
    head, sign, text = request.partition("|")
    number = parse_request(head).round if sign else None
    if number is None or not text.strip():
        raise CommandError(f'{request!r}: write "round=N | what to train", for instance "round=1 | 64 problems".')
    return number, text.strip()


def _open_round(home: Home, number: int) -> Round | None:
    """The round, where it was launched before and its agent has not trained yet."""
    store = RoundStore(home.root)
    if number not in store.numbers():
        return None
    current = store.read(number)
    if not current.agent or current.state is not RoundState.CREATED:
        raise RoundError(f"round {number} is {current.state} already: launch the next one")
    return current


def _check_next(home: Home, number: int) -> None:
    following = max(RoundStore(home.root).numbers(), default=0) + 1
    if number != following:
        raise RoundError(f"round {number} is not the next one: write round={following}")


def _run(command: list[str], environment: dict[str, str], stream: Any = None) -> int:
    """Runs the agent or the opener. Raises CommandError where the program is not there."""
    output = {"stdout": stream, "stderr": subprocess.STDOUT} if stream is not None else {}
    try:
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False, **output).returncode
    except OSError as error:
        raise CommandError(
            f"{command[0]} cannot be started ({error.strerror}): install it, or name another agent as training_agent "
            "in config.yaml of the workspace."
        ) from error


def _tell(
    state: CliState, current: Round, line: str, opened: str | None, code: int | None, *, headless: bool, as_json: bool
) -> None:
    following = state.command("rounds", "optimize", str(current.round))
    if as_json:
        document = {"round": current.round, "evolution": current.evolution, "command": line, "opened": opened}
        print_json({**document, "exit_code": code, "next": following})
    else:
        console = console_for(False)
        if opened is None:
            console.print("run this in a terminal of its own:", markup=False)
            console.print(f"  {line}", markup=False)
        elif headless:
            console.print(f"the training agent ended with status {code}; what it said: {opened}", markup=False)
        else:
            console.print(f"opened a window for round {current.round} ({opened})", markup=False)
        console.print(f"when it has trained: {following}", markup=False)
    if code:
        raise typer.Exit(1)
