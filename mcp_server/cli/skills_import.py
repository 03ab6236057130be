"""`mcp-evo skills import` and `skills compile --as-is`: banks and skills that were written for other systems."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr
from mcp_server.cli.optimizing import JsonOption, console_for, print_json
from mcp_server.cli.skills_common import clearly
from skill_bank.importing.as_is import AsIsReport, compile_bank, write_texts
from skill_bank.importing.migrate import Migration, migrate_bank, write_migration
from skill_bank.importing.single import import_single
from skill_bank.importing.types import Oddity, Severity

_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def register(group: typer.Typer) -> None:
    """Adds the command to the group `skills`."""
    group.command("import")(clearly(import_command))


def compile_as_is(bank: Path, target: str, profile: str | None, out: Path | None, dry_run: bool, as_json: bool) -> None:
    """Compiles a bank of the original's format by the original's rules into `out/<skill>/SKILL.md`."""
    if out is None and not dry_run:
        raise CommandError("--as-is compiles into a folder of its own: add --out DIR (or --dry-run).")
    report = compile_bank(bank, target, profile)
    written: tuple[str, ...] = ()
    if not report.errors and out is not None and not dry_run:
        written = _write(report, out)
    _show(
        {
            "written": list(written),
            "unchanged": [name for name in report.texts if name not in written] if not report.errors else [],
            "skills": list(report.texts),
            "out": None if out is None else str(out),
        },
        report.oddities,
        f"{len(report.texts)} skills compile, {len(written)} written" + (f", in {out}" if written else ""),
        as_json,
    )


def _write(report: AsIsReport, out: Path) -> tuple[str, ...]:
    try:
        return write_texts(report.texts, out)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}; nothing half written is left there.") from error


def import_command(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A bank (bank.yaml), a skill's folder or a SKILL.md.")],
    as_is: Annotated[bool, typer.Option("--as-is", help="Compile by the original's rules, into --out.")] = False,
    migrate: Annotated[bool, typer.Option("--migrate", help="Write a bank of our format with the same text.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "--to", metavar="DIR", help="Where to write.")] = None,
    group: Annotated[str, typer.Option(help="Group of a single SKILL.md.")] = "imported",
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out what cannot be migrated.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only; write nothing.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Read a bank or skill written for another system, say everything that is odd, and take it over if asked."""
    if as_is and migrate:
        raise CommandError("--as-is and --migrate exclude each other: the first gives texts, the second a bank.")
    if not source.exists():
        raise CommandError(f"there is no {source}. Name a bank's folder, a skill's folder or a SKILL.md.")
    if source.name == "bank.yaml" and source.is_file():
        source = source.parent
    if as_is and (source / "bank.yaml").is_file():
        compile_as_is(source, "all", None, out, dry_run, as_json)
        return
    if as_is:
        raise CommandError(f"{source} has no bank.yaml: --as-is is for banks. A single skill is imported by --migrate.")
    if (source / "bank.yaml").is_file() or (source.is_dir() and not (source / "SKILL.md").is_file()):
        result = migrate_bank(source, skip_broken=skip_broken)
    else:
        result = import_single(source, group)
    target: Path | None = None
    if migrate:
        state: CliState = context.obj
        name = source.resolve().name if source.is_dir() else source.resolve().parent.name
        target = out if out is not None else state.root / "imported" / name
    wrote = migrate and not dry_run and not result.errors
    if wrote and target is not None:
        if out is None:
            context.obj.writable()
        try:
            write_migration(result, target)
        except OSError as error:
            raise CommandError(f"{target}: {error.strerror or error}; nothing was written.") from error
    _show(_document(result, target, wrote), result.oddities, _sentence(result, target, wrote), as_json,
          failing=migrate or not result.texts)  # fmt: skip


def _document(result: Migration, target: Path | None, wrote: bool) -> dict[str, Any]:
    return {
        "skills": {name: str(form) for name, form in result.forms.items()},
        "left_out": list(result.left_out),
        "files": sorted(result.files),
        "out": str(target) if wrote else None,
    }


def _sentence(result: Migration, target: Path | None, wrote: bool) -> str:
    if wrote:
        return f"{len(result.texts)} skills written to {target}; compile them: mcp-evo skills compile --bank {target}"
    return f"{len(result.texts)} skills can be taken over with the same text; nothing was written"


def _show(
    document: dict[str, Any], oddities: tuple[Oddity, ...], sentence: str, as_json: bool, *, failing: bool = True
) -> None:
    """The result and every oddity; exit code 1 where an error stood in the way."""
    counts = {str(one): sum(odd.severity is one for odd in oddities) for one in Severity}
    refused = failing and counts["error"] > 0
    if as_json:
        errors = [str(one) for one in oddities if one.severity is Severity.ERROR]
        problem = {"error": "\n".join(errors)} if refused else {}
        rows = [one.as_dict() for one in oddities]
        print_json({**document, **problem, "ok": not refused, "counts": counts, "oddities": rows})
    console: Console = to_stderr() if refused else console_for(as_json)
    for severity in (Severity.NOTE, Severity.WARNING, Severity.ERROR):
        for one in oddities:
            if one.severity is severity:
                console.print(f"{severity} {one}", style=_STYLES[severity], markup=False)
    summary = ", ".join(f"{count} {name}(s)" for name, count in counts.items() if count)
    console.print(f"{'nothing was written' if refused else sentence}{'; ' + summary if summary else ''}", markup=False)
    if refused:
        raise typer.Exit(1)
