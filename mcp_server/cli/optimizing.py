"""What the commands around patches and rounds share: refusals, tables, the terminal as a channel of approval."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec

import typer
from rich.console import Console
from rich.table import Table

from mcp_server.cli.context import CliState, CommandError, to_stderr, to_stdout
from mcp_server.cli.terminal import SafeConsole
from mcp_server.workers import worker_override
from optimizer.analyze.claims import ClaimError
from optimizer.analyze.report import ReportError
from optimizer.approvals import TYPED_CHARACTERS, ApprovalError, Channel, check_terminal, digest_typed
from optimizer.explain import ExplainError
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.index.query import SearchError
from optimizer.index.schema import IndexUnavailable
from optimizer.layers import LayerError
from optimizer.patch_store import PatchError, PatchRecord
from optimizer.promote import proposed
from optimizer.round_types import Answer, Approver, RoundError
from optimizer.trial.arms import TrialCancelled, TrialError
from optimizer.trial.pooled import PooledArms
from optimizer.trial.scenarios import ScenarioError
from trainer.runs.launch import LocalLauncher

REFUSALS = (
    ApprovalError,
    BadId,
    ClaimError,
    ExplainError,
    IndexUnavailable,
    LayerError,
    PatchError,
    ReportError,
    RoundError,
    ScenarioError,
    SearchError,
    TrialError,
)
"""Errors of the optimiser whose message is for the user."""

JsonOption = typer.Option("--json", help="One JSON document on stdout, the rest on stderr.")

P = ParamSpec("P")


def refuses_clearly(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose optimiser errors, and refusals of the system, become one clear line and exit code 1; a cancelled
    trial ends as interrupted."""

    @wraps(command)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except REFUSALS as error:
            raise CommandError(str(error)) from error
        except TrialCancelled as error:
            raise KeyboardInterrupt from error
        except BrokenPipeError:
            raise  # whoever read the output is gone: nobody is left to tell
        except OSError as error:  # a full disk, no permission: nothing is half written, so trying again is right
            raise CommandError(
                f"the system refused: {error}. Nothing is half written: make room or mend permissions, and give the "
                "same command again"
            ) from error

    return wrapped


def home_of(context: typer.Context) -> Home:
    """The existing workspace. Raises WorkspaceError where there is none."""
    state: CliState = context.obj
    return Home.open(state.root)


def launcher() -> LocalLauncher:
    """Starts workers, or what `MCP_EVO_WORKER` puts in their place."""
    return LocalLauncher(worker_override())


@contextmanager
def trial_workers(folder: Path, tokens: bool, *, keep_free_mb: int | None = None) -> Iterator[PooledArms]:
    """Warm workers for the arms of trials, two side by side; hub tokens only for a model that needs them."""
    with PooledArms(folder, command=worker_override(), tokens=tokens, keep_free_mb=keep_free_mb) as arms:
        yield arms


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: runs are stopped, workers ended, what is complete is kept."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def console_for(as_json: bool) -> Console:
    """Where everything but the JSON document goes."""
    return to_stderr() if as_json else to_stdout()


def print_json(document: Any) -> None:
    """The one document on stdout."""
    print(json.dumps(document, ensure_ascii=False))


def signed(value: float | None, digits: int = 3) -> str:
    """`+0.123`, or a dash."""
    return "–" if value is None else f"{value:+.{digits}f}"


def interval_text(interval: Any, digits: int = 3) -> str:
    """`[+0.10, +0.30]`, or a dash."""
    return "–" if not interval else f"[{interval[0]:+.{digits}f}, {interval[1]:+.{digits}f}]"


def patch_row(patch: dict[str, Any]) -> list[str]:
    """Cells of a patch in a table: id, stage, verdict, effect, interval, pairs."""
    verdict = patch.get("verdict") or "–"
    reason = patch.get("reason")
    return [
        patch["patch_id"],
        str(patch["stage"]),
        f"{verdict} ({reason.replace('_', ' ')})" if reason else verdict,
        signed(patch.get("effect")),
        interval_text(patch.get("ci95")),
        "–" if patch.get("pairs") is None else str(patch["pairs"]),
    ]


WIDE = 200
"""Characters of a table's line in a file or a pipe."""

PATCH_COLUMNS = ("patch", "stage", "verdict", "effect", "interval", "pairs")


def plain_table(*columns: str) -> Table:
    """A table without lines."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def print_table(console: Console, table: Table) -> None:
    """Prints a table; where no terminal limits the width, wide enough not to break ids."""
    if console.is_terminal:
        console.print(table)
    else:
        SafeConsole(file=console.file, width=WIDE, highlight=False).print(table)


def show_patch(console: Console, home: Home, record: PatchRecord, diff: str | None = None) -> None:
    """What a person has to see before deciding: what changes, why, how it was tried.

    `diff`: what would change now; by default what was staged.
    """
    console.print(f"patch {record.patch_id} of {record.skill} ({record.stage}): {record.description}", markup=False)
    if record.finding is not None:
        console.print(f"  finding    {record.finding['what']}", markup=False)
    if record.scope is not None:
        scope = ", ".join(f"{key} {value}" for key, value in record.scope.items())
        console.print(f"  scope      {scope}; nothing else changes", markup=False)
    profile = "" if record.profile is None else f" (profile {record.profile})"
    console.print(f"  section    {record.section}{profile}", markup=False)
    if record.verdict is None:
        measured = "not measured" if record.kind == "prose" else "not tried yet"
        console.print(f"  trial      {measured}", markup=False)
    else:
        numbers = f"effect {signed(record.effect)} {interval_text(record.ci95)} over {record.pairs} pairs"
        console.print(f"  trial      {record.verdict}: {numbers} ({', '.join(record.trials)})", markup=False)
    staged = home.patches.folder(record.patch_id) / "patch.diff"
    if diff is None:
        diff = staged.read_text(encoding="utf-8") if staged.exists() else ""
    for line in diff.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        console.print(f"    {line}", style=style, markup=False)


def ask_in_terminal(home: Home, record: PatchRecord, console: Console) -> Answer:
    """Shows the patch and lets the person at the terminal decide by typing the beginning of its digest.

    Raises ApprovalError where no person can be at this terminal, PatchError where the patch is not what was staged.
    """
    check_terminal(sys.stdin.isatty())
    seen = proposed(home, record)
    show_patch(console, home, record, seen.diff)
    digest = seen.digests.result
    console.print(f"  digest     {digest}", markup=False)
    question = f"Type its first {TYPED_CHARACTERS} characters to approve, 'reject', or nothing to decide later"
    typed = typer.prompt(question, default="", show_default=False, err=True)
    if digest_typed(typed, digest):
        return Answer("approve", Channel.TERMINAL, shown=seen.digests)
    if typed.strip().lower() == "reject":
        reason = typer.prompt("Why", default="no reason given", err=True)
        return Answer("reject", Channel.TERMINAL, reason)
    return Answer("later", Channel.TERMINAL)


def approver_for(home: Home, console: Console, yes: bool) -> Approver:
    """Who decides in a command: `--yes`, recorded as unattended, else the person at the terminal; where none can be
    there, nothing is decided and the round waits."""

    def approver(record: PatchRecord, folder: Path) -> Answer:
        if yes:
            return Answer("approve", Channel.UNATTENDED)
        try:
            return ask_in_terminal(home, record, console)
        except (ApprovalError, PatchError) as error:
            console.print(f"{error}", markup=False)
            return Answer("later", Channel.TERMINAL)

    return approver
