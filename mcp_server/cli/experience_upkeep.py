"""`mcp-evo experience prune`, `import`, `export`, `stats`: the upkeep of a pool."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, print_json
from mcp_server.experience import MAX_NOTICES, guarded, opened, statuses_of
from trainer.experience.counters import decide, uplift
from trainer.experience.records import DEFAULT_POOL, Counters, Status
from trainer.experience.reme import Shape, export_file, import_file

Pool = Annotated[str, typer.Option("--pool", help="Name of the pool.")]
Json = Annotated[bool, JsonOption]


def prune_command(
    context: typer.Context,
    pool: Pool = DEFAULT_POOL,
    retire: Annotated[list[str] | None, typer.Option(help="Retire this record by hand; may be repeated.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Also take retired records out of the file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only the plan is shown.")] = False,
    as_json: Json = False,
) -> None:
    """Move records by their evidence (quarantine, retire, promote); --delete takes retired ones out for good."""
    state: CliState = context.obj
    with opened(state.existing(), pool) as one:
        by_hand = [one.find(record).id for record in retire or ()]
        plan: list[dict[str, Any]] = []
        for record in one.store.iterate():
            decision = decide(record, one.lifecycle)
            if decision is not None:
                plan.append({"id": record.id, "from": record.status.value, "to": decision.status.value,
                             "reason": decision.reason})  # fmt: skip
        plan += [{"id": record, "to": Status.RETIRED.value, "reason": "by hand"} for record in by_hand]
        gone = [record.id for record in one.store.iterate((Status.RETIRED,))] if delete else []
        if yes:
            for record_id in by_hand:
                one.set_status(record_id, Status.RETIRED, "by hand")
            one.settle()
            gone = [record.id for record in one.store.iterate((Status.RETIRED,))] if delete else []
            one.store.delete(gone)
    if as_json:
        print_json({"pool": pool, "done": yes, "moved": plan, "deleted": gone})
        return
    console = console_for(False)
    for row in plan:
        console.print(f"{row['id']}: {row['to']} ({row['reason']})", markup=False)
    if delete:
        console.print(f"{len(gone)} retired records {'were' if yes else 'would be'} taken out", markup=False)
    if not plan and not delete:
        console.print("no record's evidence asks for a change", markup=False)
    elif not yes:
        console.print("nothing was changed; --yes does it", markup=False)


def import_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSON lines: ours, or ReMe's flat dump or live store.")],
    pool: Pool = DEFAULT_POOL,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="Records from elsewhere wait for trials.")] = False,
    as_json: Json = False,
) -> None:
    """Read records from a file; a pool that is missing is made."""
    state: CliState = context.obj
    workspace = state.writable()
    try:
        file.open("rb").close()  # before a pool is made for nothing
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}") from None
    with opened(workspace, pool, create=True) as one:
        notices = guarded(one, workspace)
        found = import_file(one, file, status=Status.QUARANTINED if quarantine else None, redact=one.redact)
        total = one.store.size()
    nothing_taken = bool(found.refused or found.bad_lines) and not (found.added or found.existing)
    if as_json:
        print_json(
            {
                "pool": pool,
                "added": found.added,
                "existing": found.existing,
                "refused": [{"line": line, "reason": reason} for line, reason in found.refused],
                "bad_lines": found.bad_lines,
                "shapes": sorted(shape.value for shape in found.shapes),
                "records": total,
                "notices": notices,
            }
        )
        if nothing_taken:
            raise typer.Exit(1)
        return
    console = console_for(False)
    console.print(f"{found.added} added, {found.existing} were there, {total} records in pool {pool}", markup=False)
    for line, reason in found.refused[:MAX_NOTICES]:
        console.print(f"  line {line} refused: {reason}", markup=False)
    if found.bad_lines:
        console.print(f"  {len(found.bad_lines)} lines are no JSON: {found.bad_lines[:10]}", markup=False)
    show_notices(notices)
    if nothing_taken:
        raise typer.Exit(1)


def export_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write.")],
    pool: Pool = DEFAULT_POOL,
    shape: Annotated[str, typer.Option("--format", help="flat (ReMe's dump) or live (ReMe 0.2's store).")] = "flat",
    status: Annotated[str, typer.Option(help="active, quarantined, retired or all.")] = "all",
    as_json: Json = False,
) -> None:
    """Write a pool to JSON lines that ReMe reads, without loss."""
    if shape not in list(Shape):
        raise CommandError(f"--format {shape!r} is not allowed; allowed: {', '.join(Shape)}")
    state: CliState = context.obj
    with opened(state.existing(), pool) as one:
        count = export_file(one, file, Shape(shape), statuses_of(status))
    if as_json:
        print_json({"pool": pool, "path": str(file.absolute()), "records": count, "format": shape})
        return
    console_for(False).print(f"{count} records written to {file}", markup=False)


def stats_command(context: typer.Context, pool: Pool = DEFAULT_POOL, as_json: Json = False) -> None:
    """Counts, uplift of what was tried, and whether the file is whole."""
    state: CliState = context.obj
    with opened(state.existing(), pool) as one:
        records = list(one.store.iterate())
        check, guards, embedder = one.store.check(), one.store.guard_count(), one.embedder.id
    total = sum((record.counters for record in records), Counters())
    tried = [(record, measured) for record in records if (measured := uplift(record.counters)) is not None]
    overall = uplift(total)
    document: dict[str, Any] = {
        "pool": pool,
        "records": len(records),
        "by_status": dict(Counter(record.status.value for record in records)),
        "by_polarity": dict(Counter(record.polarity.value for record in records)),
        "by_family": dict(Counter(record.family or "–" for record in records)),
        "counters": asdict(total),
        "uplift": None if overall is None else {"value": overall.value, "ci95": [overall.low, overall.high],
                                                 "guided": overall.guided, "control": overall.control},
        "tried": len(tried),
        "helped": sum(measured.low > 0 for _, measured in tried),
        "harmed": sum(measured.high < 0 for _, measured in tried),
        "guarded": guards,
        "embedder": embedder,
        "file_check": check or "ok",
    }  # fmt: skip
    if as_json:
        print_json(document)
        return
    console = console_for(False)
    for name, value in document.items():
        console.print(f"{name:12} {value}", markup=False)


def show_notices(notices: list[str]) -> None:
    """What a person should know beside the result, on stderr."""
    for notice in notices:
        console_for(True).print(f"note: {notice}", style="yellow", markup=False)
