"""`mcp-evo explain`: from a compiled value or line back to what it rests on, and from there to the skills."""

from typing import Annotated, Any

import typer

from mcp_server.cli.optimizing import JsonOption, console_for, home_of, print_json, refuses_clearly
from optimizer.explain import explain as explain_target


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain")(refuses_clearly(explain))


def explain(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="skill:policy.key or skill:line, e.g. rllm-config:learning_rate; or event:SESSION:LINE, run:ID, "
            "finding:ID, trial:ID, patch:ID for what rests on it."
        ),
    ],
    profile: Annotated[str | None, typer.Option(help="The profile to look under.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Walk from a compiled value or line to patch, approval, trial, finding and events, or the other way."""
    found = explain_target(home_of(context), target, profile)
    if as_json:
        print_json(found)
        return
    console = console_for(False)
    for depth, entry in enumerate(found["chain"]):
        console.print(f"{'  ' * min(depth, 6)}{entry['kind']:<9} {entry['id']}  {_detail(entry)}", markup=False)


def _detail(entry: dict[str, Any]) -> str:
    names = {
        "value": ("value", "when", "profile", "section"),
        "line": ("text",),
        "patch": ("description", "stage"),
        "approval": ("decision", "channel", "user", "reason"),
        "trial": ("verdict", "effect", "ci95", "pairs"),
        "finding": ("what",),
        "run": ("steps",),
        "event": ("tool", "outcome"),
    }.get(entry["kind"], ("file",))
    return ", ".join(f"{name} {entry[name]}" for name in names if entry.get(name) is not None)
