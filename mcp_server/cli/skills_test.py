"""`mcp-evo skills test`: whether what skills name exists, and whether their examples work."""

from typing import Annotated

import typer

from mcp_server.cli.optimizing import JsonOption, console_for, print_json
from mcp_server.cli.skills_common import Bank, Target, bank_of, print_problems, problem_rows


def run_command(
    context: typer.Context,
    target: Target = "all",
    lint_only: Annotated[bool, typer.Option("--lint", help="Only look at names; run no example.")] = False,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Look up every name that skills use, and run their examples on the real tools in a workspace that is thrown away.

    Exit code 1 if a name does not exist or an example fails.
    """
    from mcp_server.skills.lint import lint_bank
    from mcp_server.skills.testing import Outcome, collect, run_examples

    source = bank_of(context, bank)
    console = console_for(as_json)
    problems = lint_bank(source, target)
    print_problems(console, problems)
    broken = source.check(target)
    examples = [] if lint_only or broken else collect(source, target)[0]

    def told(one: Outcome) -> None:
        if one.passed:
            console.print(f"ok      {one.skill}: {one.title} ({one.seconds:.1f} s)", style="green", markup=False)
        else:
            where = f"{one.file}:{one.line}"
            console.print(f"failed  {one.skill}: {one.title}, {where}: {one.problem}", style="red", markup=False)

    outcomes = run_examples(source, examples, told) if examples else []
    failed = sum(not one.passed for one in outcomes)
    if as_json:
        document = {
            "ok": not problems and not failed,
            "problems": problem_rows(problems),
            "examples": [one.as_dict() for one in outcomes],
            "passed": len(outcomes) - failed,
            "failed": failed,
        }
        print_json(document)
    else:
        words = f"{len(outcomes) - failed} examples passed, {failed} failed, {len(problems)} names are wrong"
        console.print(words, markup=False)
    if problems or failed:
        raise typer.Exit(1)
