"""`mcp-evo trajectories search`, `prune` and `watch`."""

import json
import os
import time
from typing import Annotated, Any

import anyio
import typer
from rich.console import Console

from mcp_server.answers import clip
from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, home_of, plain_table, print_json, print_table
from mcp_server.state import LAYER_VARIABLE
from mcp_server.views.recorded import UNTRUSTED, time_text
from optimizer.index.feed import Changes
from optimizer.index.query import MAX_LIMIT, Query, moment
from optimizer.index.search import Hit, search
from optimizer.lease import Lease
from optimizer.retention import PrunedSessions, SessionPlan, SessionRetention, carry_out, plan_sessions
from optimizer.sizes import size_text, sizes_of, sizes_text
from skill_bank.visible import visible

SHOWN = 15
"""Rows of sessions; --json has all."""

SNIPPET = 160


def search_command(
    context: typer.Context,
    text: Annotated[list[str] | None, typer.Argument(help="Words that must all occur, taken literally.")] = None,
    tool: Annotated[str | None, typer.Option(help="With or without the prefix of its server.")] = None,
    outcome: Annotated[str | None, typer.Option(help="ok, failed or unknown.")] = None,
    skill: Annotated[str | None, typer.Option(help="Skill in force.")] = None,
    file: Annotated[str | None, typer.Option(help="Part of the path of a file that a call names.")] = None,
    since: Annotated[str | None, typer.Option(help="2026-01-31, 2026-01-31T15:45, or 2h, 3d ago.")] = None,
    until: Annotated[str | None, typer.Option(help="As --since.")] = None,
    layer: Annotated[str | None, typer.Option(help="rllm, traj, meta or other.")] = None,
    session: Annotated[str | None, typer.Option(help="Session, or the beginning of one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="Hits on a page.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Search recorded tool calls and prompts, newest first; every filter must hold."""
    home = home_of(context)
    named = None if session is None else home.trajectories.resolve(session)
    words = " ".join(text) if text else None
    query = Query(words, tool, outcome, skill, file, moment(since), moment(until), layer, named)
    reader = os.environ.get(LAYER_VARIABLE) or None
    page = search(home.index, query, limit=limit, cursor=cursor, reader=reader, snippet=SNIPPET)
    console = console_for(as_json)
    for notice in page.notices:
        console_for(True).print(clip(notice, 300), markup=False)
    if as_json:
        document = {
            "hits": [_hit_document(one) for one in page.hits],
            "total": page.total,
            "merged": page.merged,
            "cursor": page.cursor,
            "inside_words": page.inside_words,
            "untrusted": UNTRUSTED,
            "notices": page.notices,
        }
        print_json(visible(document))
        return
    table = plain_table("event", "time", "tool", "outcome", "skill", "recorded text")
    for hit in page.hits:
        what = clip(hit.tool or hit.kind, 40)
        also = "".join(f" (also {clip(one.source, 12)} {one.session}:{one.line})" for one in hit.also)
        table.add_row(
            *(f"{hit.session}:{hit.line}", "–" if hit.time is None else time_text(hit.time) or "–", _plain(what)),
            *(
                _plain(clip(hit.outcome, 10)),
                _plain(clip(hit.skill or "–", 40)),
                _plain(clip(hit.snippet, SNIPPET) + also),
            ),
        )
    if page.hits:
        print_table(console, table)
    same = f", {page.merged} more records of the same calls" if page.merged else ""
    where = ", inside of words" if page.inside_words else ""
    console.print(f"{len(page.hits)} of {page.total} events{same}{where}", markup=False)
    if page.cursor is not None:
        console.print(f"more: the same command with --cursor {page.cursor}", markup=False)


def _plain(text: str) -> str:
    """Text that the table takes as it is."""
    return text.replace("[", r"\[")


def _hit_document(hit: Hit) -> dict[str, Any]:
    return {
        "session": hit.session,
        "line": hit.line,
        "time": None if hit.time is None else time_text(hit.time),
        "kind": hit.kind,
        "agent": hit.agent,
        "tool": hit.tool,
        "outcome": hit.outcome,
        "source": hit.source,
        "skill": hit.skill,
        "layer": hit.layer,
        "run_id": hit.run_id,
        "recorded": hit.snippet,
        "also": [{"session": one.session, "line": one.line, "source": one.source} for one in hit.also],
    }


def prune_command(
    context: typer.Context,
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION …]", help="Only these, whatever their age.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="So many of the newest stay (config: keep_sessions).")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0.0, metavar="DAYS", help="Younger ones stay (config: keep_sessions_days).")
    ] = None,
    max_mb: Annotated[
        float | None,
        typer.Option(min=0.0, help="Beyond this the oldest go, too (config: keep_sessions_mb; 0: no limit)."),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Delete nothing: clip oversized fields, keep their length and hash.")
    ] = False,
    clip_kb: Annotated[int, typer.Option(min=1, help="With --compact: texts up to so many KB stay whole.")] = 64,
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="SESSION", help="Delete this one although something rests on it; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what the workspace takes; ask nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Delete old sessions, or clip what is oversized in them; the plan comes first. What something rests on stays."""
    if compact and force:
        raise CommandError("--compact deletes nothing, so there is nothing to --force. Leave one of them out.")
    if dry_run and yes:
        raise CommandError("--dry-run and --yes exclude each other. Leave one of them out.")
    cli: CliState = context.obj
    home = home_of(context)
    config = home.workspace.config()
    limit = config.keep_sessions_mb if max_mb is None else max_mb
    retention = SessionRetention(
        keep_last=config.keep_sessions if keep is None else keep,
        older_than_days=config.keep_sessions_days if older_than is None else older_than,
        max_mb=limit or None,
        compact=compact,
        field_bytes=clip_kb * 1024,
    )
    plan = plan_sessions(home, retention, sessions or (), force or ())
    parts = sizes_of(home.root)
    console = console_for(as_json)
    has_work = bool(plan.go or plan.trash)
    if not as_json:
        console.print(f"the workspace takes {sizes_text(parts)}", markup=False)
        _show_plan(plan, console)
        if has_work and not yes and not dry_run:
            yes = console.is_terminal and typer.confirm("Carry this out?", default=False, err=True)
    outcome = carry_out(home, plan, force or ()) if yes and not dry_run else None
    if as_json:
        print_json(
            {
                "plan": {**plan.model_dump(mode="json"), "freed_bytes": plan.freed_bytes},
                "executed": outcome is not None,
                "outcome": None if outcome is None else outcome.model_dump(mode="json"),
                "sizes": {one.part: one.size_bytes for one in parts},
                "total_bytes": sum(one.size_bytes for one in parts),
            }
        )
    elif outcome is not None:
        _show_outcome(outcome, plan, console)
    elif has_work:
        console.print(f"\nnothing was changed; to carry it out: {_again(cli, context)}", markup=False)


def _again(cli: CliState, context: typer.Context) -> str:
    """The same command with --yes."""
    given = context.params
    arguments = [*(given["sessions"] or ())]
    for name in ("keep", "older_than", "max_mb"):
        if given[name] is not None:
            arguments += [f"--{name.replace('_', '-')}", f"{given[name]:g}"]
    if given["compact"]:
        arguments += ["--compact", "--clip-kb", str(given["clip_kb"])]
    for one in given["force"] or ():
        arguments += ["--force", one]
    return cli.command("trajectories", "prune", *arguments, "--yes")


def _show_plan(plan: SessionPlan, console: Console) -> None:
    verb = "to clip" if plan.compact else "to delete"
    gone = [*plan.go, *plan.trash]
    console.print(f"\n{verb}: {len(gone)} session(s), {size_text(plan.freed_bytes)}" if gone else f"\nnothing {verb}")
    for title, rows in (("", gone), (f"\nto stay: {len(plan.keep)} session(s)", plan.keep)):
        if title:
            console.print(title, markup=False)
        table = plain_table("session", "size", "why")
        for one in rows[:SHOWN]:
            table.add_row(one.session, size_text(one.size_bytes), _plain(one.reason))
        if rows:
            print_table(console, table)
        if len(rows) > SHOWN:
            console.print(f"… and {len(rows) - SHOWN} more", markup=False)


def _show_outcome(outcome: PrunedSessions, plan: SessionPlan, console: Console) -> None:
    verb = "clipped" if plan.compact else "deleted"
    console.print(f"\n{verb} {len(outcome.done)} session(s), {size_text(outcome.freed_bytes)} freed", markup=False)
    for one in outcome.skipped:
        console.print(f"left alone: {one.session} {one.reason}", markup=False)


def watch_command(
    context: typer.Context,
    seconds: Annotated[float | None, typer.Option("--for", min=0.0, metavar="SECONDS", help="End by itself.")] = None,
    polling: Annotated[
        bool, typer.Option("--polling", help="Look twice a second; for drives without notices.")
    ] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Keep segments and index fresh and say what changes, until Ctrl-C. A server does the same while it runs."""
    from optimizer.watcher import Watcher

    home = home_of(context)
    console = console_for(as_json)
    began = time.monotonic()
    sessions: dict[str, int] = {}
    runs: dict[str, int] = {}

    async def tell(changes: Changes) -> None:
        for name in changes.sessions:
            sessions[name] = sessions.get(name, 0) + 1
        for name in changes.runs:
            runs[name] = runs.get(name, 0) + 1
        said = [*(f"session {one}" for one in changes.sessions), *(f"run {one}" for one in changes.runs)]
        console.print(f"{time.strftime('%H:%M:%S')} {', '.join(said)}", markup=False)

    watcher = Watcher(home, tell, polling=polling)

    async def watch() -> None:
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watcher.run)
                await watcher.started.wait()
                holder = Lease(home.root).holder()
                by = "" if watcher.lease.held or holder is None else f"; process {holder.pid} does the work"
                console.print(f"watching {home.root}{by}", markup=False)

    try:
        anyio.run(watch)
    except KeyboardInterrupt:
        pass
    finally:
        if as_json:
            print(json.dumps({"seconds": round(time.monotonic() - began, 3), "sessions": sessions, "runs": runs}))
