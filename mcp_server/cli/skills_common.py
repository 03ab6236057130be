"""Arguments that the commands over skills share, and the bank they mean."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import refuses_clearly
from skill_bank.bank import SkillBank
from skill_bank.types import Problem

P = ParamSpec("P")

Target = Annotated[str, typer.Argument(help="A skill, a group (rllm, traj, meta) or all.")]
Skill = Annotated[str, typer.Argument(help="Name of the skill.")]
Bank = Annotated[
    Path | None, typer.Option("--bank", metavar="DIR", help="Another bank than the workspace's own.", file_okay=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show only; write nothing.")]


def clearly(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose refusals, of the bank and of the disk (no permission, a full or read-only one, a file where a
    folder should be), are one clear line."""

    @wraps(command)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise CommandError(f"{where}{error.strerror or error}; nothing half written counts.") from error

    return refuses_clearly(wrapped)


def bank_of(context: typer.Context, bank: Path | None) -> SkillBank:
    """The bank asked for, else the workspace's own, which is made where it is missing."""
    if bank is not None:
        return SkillBank(bank)
    state: CliState = context.obj
    return SkillBank.seed(state.writable().root / "skills")


def print_problems(console: Console, problems: Iterable[Problem], style: str = "red") -> None:
    """One problem a line."""
    for problem in problems:
        console.print(f"  {problem}", style=style, markup=False)


def problem_rows(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Problems for a JSON document."""
    return [{"file": one.file, "line": one.line, "message": one.message, "fix": one.fix} for one in problems]
