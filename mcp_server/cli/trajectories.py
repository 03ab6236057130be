"""`mcp-evo trajectories`: import, segment, facts, show; analysis and the index have modules of their own."""

import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from mcp_server.cli.context import CliState, CommandError
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
from mcp_server.cli.trajectories_index import prune_command, search_command, watch_command
from optimizer.facts import FactsError, Format, arrivals_of, facts_of
from optimizer.home import Home

if TYPE_CHECKING:
    from optimizer.segment.store import SegmentedSession, SegmentStore

SHOWN_EVENTS = 40
SHOWN_SEGMENTS = 60

Session = Annotated[str | None, typer.Argument(help="Session, or the beginning of one; left out: the latest.")]
FormatOption = Annotated[Format, typer.Option("--format", help="What the file holds.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Recorded sessions: import, segment, facts, show, analyze.", no_args_is_help=True)
    group.command("import")(refuses_clearly(import_command))
    group.command("segment")(refuses_clearly(segment_command))
    group.command("facts")(refuses_clearly(facts_command))
    group.command("show")(refuses_clearly(show_command))
    group.command("analyze")(refuses_clearly(analyze_command))
    group.command("search")(refuses_clearly(search_command))
    group.command("prune")(refuses_clearly(prune_command))
    group.command("watch")(refuses_clearly(watch_command))
    app.add_typer(group, name="trajectories")


def import_command(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="File of events, or a folder with such files.")],
    format: FormatOption = Format.HOOKS,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Take events from files into the workspace, without secrets; what is there already is not added again."""
    from optimizer.capture.importing import import_transcript
    from optimizer.line_import import event_files, import_lines
    from optimizer.redact import rules_of

    cli: CliState = context.obj
    if not path.exists():
        raise CommandError(f"{path} is not there: give a file of events or a folder that holds some")
    home = Home.create(cli.writable().root)
    files = event_files(path)
    if not files and not path.is_dir():
        raise CommandError(f"{path} is neither a file nor a folder: give a file of events or a folder that holds some")
    if not files:
        raise CommandError(f"{path} holds no *.jsonl file to import")
    done: list[dict[str, Any]] = []
    for file in files:
        _check_readable(file, len(done), len(files))
        if format is Format.TRANSCRIPT:
            one = asdict(import_transcript(file, home.trajectories))
            sessions = [] if one["session"] is None else [one["session"]]
            done.append({**one, "path": str(file), "sessions": sessions, "bad_lines": len(one["bad_lines"])})
        else:
            arrivals = _arrivals(file) if format is Format.HOOKS else None
            done.append(asdict(import_lines(file, home.trajectories, rules_of(home.root), arrivals)))
    added = sum(one["added"] for one in done)
    if as_json:
        print_json({"files": done, "added": added, "known": sum(one["known"] for one in done)})
        return
    table = plain_table("file", "session", "lines", "added", "known", "bad")
    for one in done:
        counts = (str(one[key]) for key in ("lines", "added", "known", "bad_lines"))
        table.add_row(Path(one["path"]).name, ", ".join(one["sessions"]) or "–", *counts)
    print_table(console_for(False), table)


def _check_readable(file: Path, taken: int, of: int) -> None:
    """Raises CommandError for a file that cannot be opened, before anything of it is taken."""
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise CommandError(
            f"{file} cannot be read ({error.strerror or error}); {taken} of {of} file(s) were taken in before it. "
            "Mend or move it and import again: what was taken in is not added twice"
        ) from error


def _arrivals(file: Path) -> list[Any] | None:
    try:
        return arrivals_of(file)
    except FactsError as error:
        raise CommandError(str(error)) from error


def segment_command(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="Session; left out: all of them.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Bring segments up to date; only new events are read."""
    home = home_of(context)
    names = None if session is None else [home.trajectories.resolve(session)]
    store = home.segments
    found = store.refresh(names, processes=os.cpu_count() or 1)
    if as_json:
        for part in _segment_document(store, found):
            sys.stdout.write(part)
        sys.stdout.write("\n")
        return
    table = plain_table("session", "lines", "kind", "skill", "layer", "calls", "failed", "intents", "outcome")
    total = 0
    shown: deque[tuple[str, ...]] = deque(maxlen=SHOWN_SEGMENTS)
    for one in found:
        for each in store.segments(one.session):
            total += 1
            calls = str(each.tool_calls)
            if each.tool_calls != each.span_tool_calls:
                calls = f"{each.tool_calls} ({each.span_tool_calls} in the first span)"
            skill = ("↳ " if each.parent is not None else "") + (each.skill or "–")
            shown.append(
                (one.session, f"{each.first_line}–{each.last_line}", each.kind, skill, each.layer, calls,
                 str(len(each.failed)), ", ".join(intent.kind for intent in each.intents) or "–", each.outcome)
            )  # fmt: skip
    for row in shown:
        table.add_row(*row)
    console = console_for(False)
    print_table(console, table)
    if total > len(shown):
        console.print(f"the last {len(shown)} of {total} segments; name a session to see its own, or use --json")


def _segment_document(store: "SegmentStore", found: "list[SegmentedSession]") -> Iterator[str]:
    """The JSON document part by part, so that many sessions need no more memory than one."""
    yield '{"sessions": ['
    for number, one in enumerate(found):
        head = msgspec.json.encode(
            {"session": one.session, "events": one.events, "bad_lines": one.bad_lines, "changed": one.changed}
        )
        segments = b",".join(msgspec.json.encode(each.document()) for each in store.segments(one.session))
        yield (b", " if number else b"").decode() + (head[:-1] + b',"segments":[' + segments + b"]}").decode("utf-8")
    yield f'], "total": {len(found)}}}'


def facts_command(
    path: Annotated[Path, typer.Argument(help="Events file of one session, or a transcript.")],
    format: FormatOption = Format.HOOKS,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Tell what can be counted of a session: calls, turns, skills, failures, files."""
    try:
        facts = facts_of(path, format)
    except FactsError as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json(facts)
        return
    table = plain_table("fact", "value")
    for key in ("session", "lines", "events", "tool_calls", "turn_ends", "conversation_ends", "free_tool_calls"):
        table.add_row(key.replace("_", " "), str(facts[key]))
    table.add_row("malformed lines", str(len(facts["malformed_lines"])))
    table.add_row("failed", str(len(facts["failed"])))
    table.add_row("masked candidates", str(len(facts["masked_candidates"])))
    table.add_row("files", str(facts["files_touched"]))
    if facts["time"] is not None:
        table.add_row("time", f"{facts['time']['first']} – {facts['time']['last']}")
    console = console_for(False)
    print_table(console, table)
    if facts["skill_segments"]:
        skills = plain_table("line", "skill", "calls", "failed", "ended by")
        for one in facts["skill_segments"]:
            row = (one["line"], one["name"], one["tool_calls"], one["failed"], one["ended_by"])
            skills.add_row(*(str(value) for value in row))
        print_table(console, skills)


def show_command(
    context: typer.Context,
    session: Session = None,
    limit: Annotated[int, typer.Option(min=1, help="Events at most, the last ones.")] = SHOWN_EVENTS,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show the events of a session with their line numbers."""
    from optimizer.events import BadEvent, glance
    from skill_bank.files import iterate_lines

    home = home_of(context)
    name = home.trajectories.resolve(session)
    rows: deque[dict[str, Any]] = deque(maxlen=limit)
    bad: list[int] = []
    total = 0
    for number, (_, line) in enumerate(iterate_lines(home.trajectories.file(name))):
        try:
            event = glance(line, number)
        except BadEvent:
            if line.strip():
                bad.append(number)
            continue
        total += 1
        rows.append(
            {
                "line": event.line,
                "kind": str(event.kind),
                "agent": event.agent,
                "tool": event.tool,
                "outcome": str(event.outcome),
                "reason": event.reason,
                "evidence": None if event.evidence is None else str(event.evidence),
                "time": event.time,
                "run_id": event.run_id,
            }
        )
    if as_json:
        print_json({"session": name, "events": list(rows), "total": total, "bad_lines": bad})
        return
    table = plain_table("line", "kind", "agent", "tool", "outcome", "evidence", "run")
    for row in rows:
        shown = ("line", "kind", "agent", "tool", "outcome", "reason", "run_id")
        table.add_row(*("–" if row[key] is None else " ".join(str(row[key]).split()) for key in shown))
    console = console_for(False)
    print_table(console, table)
    if len(rows) < total:
        console.print(f"{len(rows)} of {total} events; --limit shows more", markup=False)
