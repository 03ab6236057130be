"""`mcp-evo experience`: pools of lessons: init, list, show, search, add, distill, prune, import, export, stats."""

import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.experience_upkeep import (
    export_command,
    import_command,
    prune_command,
    show_notices,
    stats_command,
)
from mcp_server.cli.optimizing import JsonOption, console_for, plain_table, print_json, print_table, signed
from mcp_server.experience import (
    MAX_NOTICES,
    Lessons,
    add_record,
    distilled_by_endpoint,
    distilled_by_rules,
    guarded,
    hit_document,
    opened,
    pairs_for,
    record_document,
    run_of,
    statuses_of,
)
from trainer.experience.pool import Added, Outcome, pool_path
from trainer.experience.problems import ExperienceError, PoolError
from trainer.experience.records import DEFAULT_POOL, ExperienceRecord, Status
from trainer.experience.validation import FORM, record_of_form

P = ParamSpec("P")

Pool = Annotated[str, typer.Option("--pool", help="Name of the pool.")]
Json = Annotated[bool, JsonOption]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Pools of lessons that training may put into prompts.", no_args_is_help=True)
    for name, command in (
        ("init", init_command),
        ("list", list_command),
        ("show", show_command),
        ("search", search_command),
        ("add", add_command),
        ("distill", distill_command),
        ("prune", prune_command),
        ("import", import_command),
        ("export", export_command),
        ("stats", stats_command),
    ):
        group.command(name)(refuses_clearly(command))
    app.add_typer(group, name="experience")


def refuses_clearly(command: Callable[P, None]) -> Callable[P, None]:
    """Errors of pools become one clear line and exit code 1."""

    @wraps(command)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (ExperienceError, PoolError) as error:
            raise CommandError(str(error)) from error

    return wrapped


def init_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name: a-z, 0-9, _ and -.")] = DEFAULT_POOL,
    as_json: Json = False,
) -> None:
    """Make a pool, or bring one up to date: its vectors, and what its runs evaluate with."""
    state: CliState = context.obj
    workspace = state.writable()
    existed = pool_path(workspace.root, name).exists()
    with opened(workspace, name, create=True) as pool:
        notices = guarded(pool, workspace)
        document = {
            "pool": name,
            "path": str(pool.store.path),
            "created": not existed,
            "records": pool.store.size(),
            "embedder": pool.embedder.id,
            "embedded": pool.embedded,
            "guarded": pool.store.guard_count(),
            "notices": notices,
        }
    if as_json:
        print_json(document)
        return
    console = console_for(False)
    console.print(f"{'made' if document['created'] else 'up to date'}: {document['path']}", markup=False)
    console.print(f"{document['records']} records, {document['guarded']} evaluation problems guarded", markup=False)
    show_notices(notices)


def list_command(
    context: typer.Context,
    pool: Annotated[str | None, typer.Option("--pool", help="Its records; left out: all pools.")] = None,
    status: Annotated[str, typer.Option(help="active, quarantined, retired or all.")] = "all",
    limit: Annotated[int, typer.Option(min=1, help="Records at most, the newest.")] = 50,
    as_json: Json = False,
) -> None:
    """List pools, or the records of one."""
    state: CliState = context.obj
    workspace = state.existing()
    if pool is None:
        _list_pools(workspace.root, as_json=as_json)
        return
    with opened(workspace, pool) as one:
        found = list(one.store.iterate(statuses_of(status)))
    shown = found[-limit:][::-1]
    if as_json:
        print_json({"pool": pool, "records": [record_document(record) for record in shown], "total": len(found)})
        return
    table = plain_table("id", "status", "polarity", "used", "won", "lost", "uplift", "lesson")
    for record in shown:
        table.add_row(*_cells(record))
    console = console_for(False)
    print_table(console, table)
    if len(shown) < len(found):
        console.print(f"{len(shown)} of {len(found)} records; --limit shows more", markup=False)


def _list_pools(root: Path, *, as_json: bool) -> None:
    pools: list[dict[str, Any]] = []
    for path in sorted((root / "experience").glob("*.db")):
        row: dict[str, Any] = {"pool": path.stem, "size_bytes": path.stat().st_size, "problem": None}
        try:
            from trainer.experience.store import PoolStore

            store = PoolStore(path)
            counts = dict(store.rows("SELECT status, count(*) FROM records GROUP BY status"))
            store.close()
            row |= {"records": sum(counts.values()), "by_status": counts}
        except PoolError as error:
            row["problem"] = str(error)
        pools.append(row)
    if as_json:
        print_json({"pools": pools, "total": len(pools)})
        return
    table = plain_table("pool", "records", "active", "quarantined", "retired", "problem")
    for one in pools:
        counts = one.get("by_status", {})
        numbers = [str(one.get("records", "–")), *(str(counts.get(status.value, 0)) for status in Status)]
        table.add_row(one["pool"], *numbers, one["problem"] or "")
    print_table(console_for(False), table)


def _cells(record: ExperienceRecord) -> list[str]:
    from trainer.experience.counters import uplift

    measured, counters = uplift(record.counters), record.counters
    return [
        record.id,
        record.status.value,
        record.polarity.value,
        str(counters.used),
        str(counters.won),
        str(counters.lost),
        signed(None if measured is None else measured.value, 2),
        record.rendered()[:160],
    ]


def show_command(
    context: typer.Context,
    record: Annotated[str, typer.Argument(help="Id of a record, or its beginning.")],
    pool: Pool = DEFAULT_POOL,
    as_json: Json = False,
) -> None:
    """Show everything that is known about a record."""
    state: CliState = context.obj
    with opened(state.existing(), pool) as one:
        document = record_document(one.find(record), whole=True)
    if as_json:
        print_json(document)
        return
    console = console_for(False)
    for name, value in document.items():
        if value not in (None, "", [], {}):
            console.print(f"{name:14} {value}", markup=False)


def search_command(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="A task or a few words, English or Chinese.")],
    pool: Pool = DEFAULT_POOL,
    k: Annotated[int, typer.Option("-k", "--limit", min=1, max=100, help="Records at most.")] = 5,
    status: Annotated[str, typer.Option(help="active, quarantined, retired or all.")] = "all",
    as_json: Json = False,
) -> None:
    """Find the records that a task would be told."""
    state: CliState = context.obj
    with opened(state.existing(), pool) as one:
        started = time.perf_counter()
        hits = one.search(query, k, statuses=statuses_of(status))
        seconds = time.perf_counter() - started
    if as_json:
        document = {"pool": pool, "query": query, "hits": [hit_document(hit) for hit in hits], "seconds": seconds}
        print_json(document)
        return
    table = plain_table("id", "status", "score", "similarity", "lesson")
    for hit in hits:
        similarity = "–" if hit.similarity != hit.similarity else f"{hit.similarity:.2f}"
        table.add_row(
            hit.record.id, hit.record.status.value, f"{hit.score:.4f}", similarity, hit.record.rendered()[:200]
        )
    print_table(console_for(False), table)


def add_command(
    context: typer.Context,
    when_to_use: Annotated[str, typer.Option("--when", help=FORM["when_to_use"])],
    content: Annotated[str, typer.Option("--do", help=FORM["content"])],
    polarity: Annotated[str, typer.Option(help=FORM["polarity"])] = "success",
    family: Annotated[str, typer.Option(help="Environment that it is for.")] = "",
    active: Annotated[bool, typer.Option("--active", help="Offer it at once, without trials.")] = False,
    pool: Pool = DEFAULT_POOL,
    as_json: Json = False,
) -> None:
    """Add a lesson; it waits in quarantine until trials show that it helps."""
    state: CliState = context.obj
    form = {"when_to_use": when_to_use, "content": content, "polarity": polarity}
    status = Status.ACTIVE if active else Status.QUARANTINED
    added = add_record(state.writable(), pool, record_of_form(form, family=family, author="user", status=status))
    if as_json:
        print_json({"pool": pool, **_added(added)})
        return
    told = f" ({added.reason})" if added.reason else ""
    line = f"{added.outcome.value}: {added.record.id}, {added.record.status.value}{told}"
    console_for(False).print(line, markup=False)


def _added(one: Added) -> dict[str, Any]:
    return {
        "outcome": one.outcome.value,
        "reason": one.reason,
        "other": one.other,
        "record": record_document(one.record),
    }


def distill_command(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(help="Run, or the beginning of its id; left out: the latest.")] = None,
    by: Annotated[
        str, typer.Option(help="rules, endpoint (a configured service) or pairs (only show them).")
    ] = "rules",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Lessons, or pairs, at most.")] = 200,
    pool: Pool = DEFAULT_POOL,
    as_json: Json = False,
) -> None:
    """Make lessons of a run's training episodes; they wait in quarantine until they are tried."""
    state: CliState = context.obj
    workspace = state.existing()
    directory = run_of(workspace, run)
    if by == "pairs":
        attempts, pairs = pairs_for(workspace, pool, directory, limit)
        document = {
            "run_id": directory.run_id,
            "attempts": len(attempts.trajectories),
            "pairs": [{"question": one.question, "won": one.won, "lost": one.lost} for one in pairs],
            "form": FORM,
        }
        if as_json:
            print_json(document)
        else:
            for one in pairs:
                console_for(False).print(f"{one.question}\n  won  {one.won}\n  lost {one.lost}", markup=False)
        return
    if by not in ("rules", "endpoint"):
        raise CommandError(f"--by {by!r} is not allowed; allowed: rules, endpoint, pairs")
    made = distilled_by_rules if by == "rules" else distilled_by_endpoint
    found = made(workspace, pool, directory, limit)
    if as_json:
        print_json(_lessons(found))
        return
    _show_lessons(found)


def _lessons(found: Lessons) -> dict[str, Any]:
    return {
        "pool": found.pool,
        "run_id": found.run_id,
        "by": found.by,
        "attempts": found.attempts,
        "outcomes": dict(Counter(one.outcome.value for one in found.added)),
        "dropped": found.dropped,
        "guarded": found.guarded,
        "refused": [one.reason for one in found.added if one.outcome is Outcome.REFUSED],
        "records": [record_document(one.record) for one in found.added if one.outcome is not Outcome.REFUSED],
        "notices": found.notices,
    }


def _show_lessons(found: Lessons) -> None:
    console = console_for(False)
    table = plain_table("outcome", "id", "polarity", "lesson")
    for one in found.added:
        table.add_row(one.outcome.value, one.record.id, one.record.polarity.value, one.record.rendered()[:200])
    print_table(console, table)
    counts = Counter(one.outcome.value for one in found.added)
    told = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no lessons"
    console.print(f"{told} of {found.attempts} attempts of run {found.run_id}", markup=False)
    for reason, count in found.dropped.items():
        console.print(f"  left out: {reason.replace('_', ' ')} {count}", markup=False)
    for one in [one for one in found.added if one.outcome is Outcome.REFUSED][:MAX_NOTICES]:
        console.print(f"  refused: {one.reason}", markup=False)
    show_notices(found.notices)
