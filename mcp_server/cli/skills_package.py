"""`mcp-evo skills package …` and `mcp-evo skills select`: building, reading, promoting and installing packages."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, plain_table, print_json, print_table
from mcp_server.cli.skills_common import clearly
from optimizer.home import Home
from optimizer.packaging import lineage_draft, redactor_of, task_draft, trial_evidence
from skill_bank.bank import SkillBank
from skill_bank.packages.archive import pack, unpack
from skill_bank.packages.installing import install_package, plan_install
from skill_bank.packages.lifecycle import build, draft_of_bank, draft_of_promotion, verify
from skill_bank.packages.selection import select_package
from skill_bank.packages.store import PackageStore
from skill_bank.packages.types import Draft, Evidence, Kind, Package, PackageError, RegistryEntry, check_names

P = ParamSpec("P")
Name = Annotated[str, typer.Argument(help="Name of the new package.")]
Label = Annotated[str, typer.Argument(metavar="PACKAGE", help="Id (stable:name), id@version, or an archive file.")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", metavar="NAME", help="Only for this agent; may be repeated.")
]
Bank = Annotated[Path | None, typer.Option("--bank", metavar="DIR", help="Another bank than the workspace's own.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; write nothing.")]


def _packages(command: Callable[P, None]) -> Callable[P, None]:
    """`clearly`, for what packages refuse, too."""

    @wraps(command)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except PackageError as error:
            raise CommandError(str(error)) from error

    return clearly(wrapped)


def register(group: typer.Typer) -> None:
    """Adds the commands to the group `skills`."""
    packages = typer.Typer(help="Skills, runs and rounds as files to hand on.", no_args_is_help=True)
    builds = typer.Typer(help="Make a package.", no_args_is_help=True)
    builds.command("stable")(_packages(build_stable))
    builds.command("task-package")(_packages(build_task))
    builds.command("lineage-archive")(_packages(build_lineage))
    packages.add_typer(builds, name="build")
    for name, command in (
        ("list", list_command),
        ("inspect", inspect_command),
        ("verify", verify_command),
        ("promote", promote_command),
        ("import", import_command),
        ("install", install_command),
    ):
        packages.command(name)(_packages(command))
    group.add_typer(packages, name="package")
    group.command("select")(_packages(select_command))


def store_of(context: typer.Context) -> PackageStore:
    """The packages of the workspace. Raises WorkspaceError where there is no workspace."""
    state: CliState = context.obj
    return PackageStore(state.existing().root / "packages")


def _home(context: typer.Context) -> Home:
    state: CliState = context.obj
    return Home.create(state.root)


def _bank(context: typer.Context, bank: Path | None) -> SkillBank:
    return SkillBank(bank) if bank is not None else _home(context).bank


def _row(entry: RegistryEntry) -> dict[str, Any]:
    return {**entry.model_dump(mode="json"), "label": entry.label}


def _told(context: typer.Context, entry: RegistryEntry, new: bool, as_json: bool) -> None:
    store = store_of(context)
    manifest = store.open(entry.label).manifest
    path = store.root / entry.archive
    missing = list(manifest.facts.get("missing", ()))
    redacted = sum(one.redacted for one in manifest.contents)
    if as_json:
        document = {**_row(entry), "new": new, "path": str(path), "files": len(manifest.contents)}
        print_json({**document, "redacted": redacted, "missing": missing, "facts": manifest.facts})
        return
    console = console_for(False)
    state = "built" if new else "unchanged"
    console.print(f"{state} {entry.label}: {len(manifest.contents)} files, {entry.size} bytes, {path}", markup=False)
    if redacted:
        console.print(f"{redacted} secret(s) were taken out", style="yellow", markup=False)
    for one in missing:
        console.print(f"not there, so not packed: {one}", style="yellow", markup=False)


def _would(draft: Draft, home: Home, as_json: bool) -> None:
    """What a build or a promotion would pack."""
    data, manifest = pack(draft, redactor_of(home.root))
    check_names(manifest)
    missing = list(manifest.facts.get("missing", ()))
    if as_json:
        print_json({"id": manifest.id, "dry_run": True, "size": len(data), "missing": missing,
                    "contents": [one.model_dump() for one in manifest.contents]})  # fmt: skip
        return
    console = console_for(False)
    for one in manifest.contents:
        redacted = f", {one.redacted} secret(s) taken out" if one.redacted else ""
        console.print(f"  {one.path} ({one.size} bytes{redacted})", markup=False)
    for name in missing:
        console.print(f"not there, so not packed: {name}", style="yellow", markup=False)
    console.print(
        f"{manifest.id}: {len(manifest.contents)} files, {len(data)} bytes; nothing was written", markup=False
    )


def _would_import(package: Package, as_json: bool) -> None:
    """What an archive would add to the list."""
    manifest = package.manifest
    check_names(manifest)
    if as_json:
        print_json({"id": manifest.id, "dry_run": True, "sha256": package.sha256,
                    "contents": [one.model_dump() for one in manifest.contents]})  # fmt: skip
        return
    console = console_for(False)
    console.print(f"{manifest.id}: {len(manifest.contents)} files; nothing was written", markup=False)


def build_stable(
    context: typer.Context,
    name: Name,
    target: Annotated[str, typer.Option(help="A skill, a group or all.")] = "all",
    agent: Agents = None,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Pack skills as they are now, sources and compiled."""
    home = _home(context)
    chosen = SkillBank(bank) if bank is not None else home.bank
    draft = draft_of_bank(chosen, name, agents=agent or (), description=description, target=target)
    if dry_run:
        _would(draft, home, as_json)
        return
    entry, new = build(store_of(context), draft, redactor_of(home.root))
    _told(context, entry, new, as_json)


def build_task(
    context: typer.Context,
    name: Name,
    run: Annotated[str, typer.Option("--run", metavar="ID", help="The run, which has ended.")],
    domain: Annotated[str | None, typer.Option(help="What the task was about.")] = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Pack a run: configuration, logs, analysis, performance, episodes, the skills it ran under."""
    home = _home(context)
    draft = task_draft(home, name, run, domain)
    if dry_run:
        _would(draft, home, as_json)
        return
    entry, new = store_of(context).add(draft, redactor_of(home.root))
    _told(context, entry, new, as_json)


def build_lineage(
    context: typer.Context,
    name: Name,
    domain: Annotated[str, typer.Option(help="What the rounds were about.")],
    rounds: Annotated[str, typer.Option("--rounds", metavar="A-B", help="Rounds, for instance 1-3 or 2.")],
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Pack rounds: reports, raw events, segments, patches, verdicts, skills."""
    first, dash, last = rounds.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise CommandError(f"--rounds is {rounds!r}: write A-B, for instance 1-3, or one number.")
    home = _home(context)
    draft = lineage_draft(home, name, domain, int(first), int(last or first))
    if dry_run:
        _would(draft, home, as_json)
        return
    entry, new = store_of(context).add(draft, redactor_of(home.root))
    _told(context, entry, new, as_json)


def list_command(
    context: typer.Context,
    kind: Annotated[Kind | None, typer.Option(help="Only this kind.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """List the packages of the workspace."""
    entries = store_of(context).entries(kind)
    if as_json:
        print_json({"packages": [_row(one) for one in entries], "total": len(entries)})
        return
    table = plain_table("package", "current", "domain", "agents", "skills", "from", "why", "size")
    for one in entries:
        why = ", ".join(proof.reference or proof.kind for proof in one.evidence) or "–"
        table.add_row(
            one.label, "yes" if one.current else "", one.domain or "any", ", ".join(one.agents) or "any",
            str(len(one.skills)), one.base or "–", why, str(one.size),
        )  # fmt: skip
    print_table(console_for(False), table)


def _read(context: typer.Context, label: str) -> Package:
    path = Path(label)
    return unpack(path.read_bytes()) if path.is_file() else store_of(context).open(label)


def inspect_command(context: typer.Context, package: Label, as_json: Annotated[bool, JsonOption] = False) -> None:
    """Show what a package is and every file in it; its checksums are checked on the way."""
    found = _read(context, package)
    manifest = found.manifest
    if as_json:
        print_json({**manifest.model_dump(mode="json"), "id": manifest.id, "sha256": found.sha256})
        return
    console = console_for(False)
    console.print(f"{manifest.id}: {manifest.description or manifest.kind}", markup=False)
    for proof in manifest.evidence:
        console.print(f"  {proof.kind} {proof.reference or proof.by}: {proof.note}", markup=False)
    table = plain_table("path", "bytes", "sha256", "redacted")
    for one in manifest.contents:
        table.add_row(one.path, str(one.size), one.sha256[:12], str(one.redacted) if one.redacted else "")
    print_table(console, table)


def verify_command(context: typer.Context, package: Label, as_json: Annotated[bool, JsonOption] = False) -> None:
    """Check a package: archive, checksums, and that its sources compile to the text it holds."""
    found = _read(context, package)
    verify(found)
    if as_json:
        print_json({"ok": True, "id": found.manifest.id, "sha256": found.sha256})
    else:
        console_for(False).print(f"{found.manifest.id} is whole ({found.sha256[:12]})", markup=False)


def promote_command(
    context: typer.Context,
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="Id or id@version.")],
    domain: Annotated[str | None, typer.Option(help="Domain; a stable package needs one.")] = None,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    trial: Annotated[str | None, typer.Option(metavar="ID", help="A trial that was better, about its skills.")] = None,
    review: Annotated[str | None, typer.Option(metavar="NOTE", help="Or a reviewer's note.")] = None,
    by: Annotated[str, typer.Option(help="With --review: who reviewed.")] = "",
    agent: Agents = None,
    from_bank: Annotated[
        bool, typer.Option("--from-bank", help="With the skills as they are in the bank now.")
    ] = False,
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Promote stable → experimental → vertical, for a recorded trial or a reviewer's note."""
    if (trial is None) == (review is None):
        raise CommandError("a promotion needs one reason: --trial ID, or --review NOTE --by NAME.")
    home = _home(context)
    store = store_of(context)
    if trial is not None:
        evidence = trial_evidence(home, trial, store.find(package).skills)
    else:
        try:
            evidence = Evidence(kind="review", note=review or "", by=by)
        except ValueError as error:
            raise CommandError("a review needs --by NAME and a note of at least ten characters.") from error
    chosen = (SkillBank(bank) if bank is not None else home.bank) if from_bank or bank is not None else None
    draft = draft_of_promotion(store, package, evidence, domain=domain, name=name, agents=agent, bank=chosen)
    if dry_run:
        _would(draft, home, as_json)
        return
    entry, new = build(store, draft, redactor_of(home.root))
    _told(context, entry, new, as_json)


def import_command(
    context: typer.Context,
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="An archive from elsewhere.")],
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Take an archive from another workspace into the list, after checking it."""
    if not archive.is_file():
        raise CommandError(f"there is no file {archive}.")
    if dry_run:
        _would_import(unpack(archive.read_bytes()), as_json)
        return
    _home(context)
    entry, new = store_of(context).add_archive(archive.read_bytes())
    _told(context, entry, new, as_json)


def install_command(
    context: typer.Context,
    package: Label,
    replace: Annotated[
        list[str] | None, typer.Option("--replace", metavar="SKILL", help="Overwrite this skill, or all.")
    ] = None,
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Install a package's skills into a bank; a skill that differs there is shown and left alone."""
    found = _read(context, package)
    target = _bank(context, bank)
    plan = plan_install(target, found, replace or ())
    done = not plan.conflicts and not dry_run
    if done:
        verify(found)
        plan = install_package(target, found, replace or ())
    document = {
        "id": found.manifest.id,
        "added": list(plan.added),
        "unchanged": list(plan.unchanged),
        "replaced": list(plan.replaced),
        "conflicts": {name: list(lines) for name, lines in plan.conflicts.items()},
        "executable": list(plan.executable),
        "installed": done,
        "bank": str(target.root),
    }
    failed = bool(plan.conflicts) and not dry_run
    if as_json:
        error = f"{', '.join(plan.conflicts)}: the bank has another version; --replace SKILL overwrites it."
        print_json({**document, **({"error": error} if failed else {})})
    console = console_for(as_json)
    for name, lines in plan.conflicts.items():
        console.print(f"conflict in {name}: the bank has another version", style="red", markup=False)
        for line in lines:
            console.print(f"  {line}", markup=False)
    for one in plan.executable:
        console.print(f"executable content: {one}", style="yellow", markup=False)
    what = "installed" if done else "nothing was installed;"
    console.print(
        f"{what} {len(plan.added)} added, {len(plan.replaced)} replaced, {len(plan.unchanged)} unchanged, "
        f"{len(plan.conflicts)} in conflict, in {target.root}", markup=False,
    )  # fmt: skip
    if failed:
        raise typer.Exit(1)


def select_command(
    context: typer.Context,
    domain: Annotated[str | None, typer.Option(help="What the task is about.")] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent will work by it.")] = None,
    experimental: Annotated[bool, typer.Option("--experimental", help="Experimental packages count, too.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Choose the package for a new task: vertical for its domain, else stable; and say why."""
    considered = select_package(store_of(context).entries(), domain, agent, experimental=experimental)
    chosen = next((one.entry for one in considered if one.chosen), None)
    if as_json:
        rows = [{"package": one.entry.label, "chosen": one.chosen, "why": one.why} for one in considered]
        print_json({"package": None if chosen is None else _row(chosen), "considered": rows})
    else:
        console = console_for(False)
        none = "no package fits: build one with `mcp-evo skills package build stable NAME`"
        console.print(none if chosen is None else chosen.label, markup=False)
        for one in considered:
            console.print(f"  {'→' if one.chosen else ' '} {one.entry.label}: {one.why}", style="dim", markup=False)
    if chosen is None:
        raise typer.Exit(1)
