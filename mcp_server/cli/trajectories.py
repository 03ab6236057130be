"""`mcp-evo trajectories`: segment, analyze, show."""

from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState
from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    home_of,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
)
from mcp_server.cli.trajectories_analyze import analyze_command
from mcp_server.evidence import segment as segment_sessions
from mcp_server.state import ServerState

SHOWN_EVENTS = 40

Session = Annotated[str | None, typer.Argument(help="Session, or the beginning of one; left out: the latest.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Recorded sessions: segment, analyze, show.", no_args_is_help=True)
    group.command("segment")(refuses_clearly(segment_command))
    group.command("analyze")(refuses_clearly(analyze_command))
    group.command("show")(refuses_clearly(show_command))
    app.add_typer(group, name="trajectories")


def segment_command(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="Session; left out: all of them.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Bring segments up to date; only new events are read."""
    cli: CliState = context.obj
    home_of(context)
    found = segment_sessions(ServerState(cli.root), session)
    if as_json:
        sessions = [
            {
                "session": one.session,
                "events": one.events,
                "bad_lines": one.bad_lines,
                "segments": [each.document() for each in one.segments],
            }
            for one in found
        ]
        print_json({"sessions": sessions, "total": len(sessions)})
        return
    table = plain_table("session", "lines", "kind", "skill", "layer", "calls", "failed", "outcome")
    for one in found:
        for each in one.segments:
            lines = f"{each.first_line}–{each.last_line}"
            calls, failed = str(each.tool_calls), str(len(each.failed))
            table.add_row(one.session, lines, each.kind, each.skill or "–", each.layer, calls, failed, each.outcome)
    print_table(console_for(False), table)


def show_command(
    context: typer.Context,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, help="Events at most, the last ones.")] = SHOWN_EVENTS,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show the events of a session with their line numbers."""
    home = home_of(context)
    name = home.trajectories.resolve(session)
    batch = home.trajectories.read(name)
    shown = batch.events[-limit:]
    rows: list[dict[str, Any]] = [
        {
            "line": event.line,
            "kind": str(event.kind),
            "agent": event.agent,
            "tool": event.tool,
            "outcome": str(event.outcome),
            "reason": event.reason,
            "time": event.time,
            "run_id": event.run_id,
        }
        for event in shown
    ]
    if as_json:
        document = {"session": name, "events": rows, "total": len(batch.events), "bad_lines": batch.bad_lines}
        print_json(document)
        return
    table = plain_table("line", "kind", "agent", "tool", "outcome", "run")
    for row in rows:
        table.add_row(*("–" if row[key] is None else str(row[key]) for key in ("line", "kind", "agent", "tool")),
                      row["outcome"], row["run_id"] or "–")  # fmt: skip
    console = console_for(False)
    print_table(console, table)
    if len(shown) < len(batch.events):
        console.print(f"{len(shown)} of {len(batch.events)} events; --limit shows more", markup=False)
