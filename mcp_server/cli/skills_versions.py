"""`mcp-evo skills` over versions: history, show, diff, rollback, squash, pin."""

import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli.context import CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, home_of, plain_table, print_json, print_table
from mcp_server.cli.skills_common import Bank, DryRun, Skill, bank_of
from optimizer.approvals import Channel
from optimizer.promote import roll_back
from skill_bank.bank import SkillBank
from skill_bank.difference import Difference, changelog, compare
from skill_bank.versions import VersionRecord

Reason = Annotated[str | None, typer.Option(help="Stays in the skill's history.")]


def history_command(
    context: typer.Context,
    skill: Skill,
    markdown: Annotated[bool, typer.Option("--markdown", help="A change log as Markdown, newest first.")] = False,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """List the versions of a skill, the oldest first."""
    source = bank_of(context, bank)
    if markdown:
        text = changelog(source, skill)
        if as_json:
            print_json({"skill": skill, "markdown": text})
        else:
            print(text)
        return
    records = source.history(skill)
    if as_json:
        pinned = source.pins().get(skill)
        print_json({"versions": [version_row(one) for one in records], "total": len(records), "pinned": pinned})
        return
    table = plain_table("version", "digest", "patches", "why")
    for one in records:
        table.add_row(one.label, one.digest[:12], ", ".join(one.patches) or "–", one.reason)
    print_table(console_for(False), table)


def version_row(record: VersionRecord) -> dict[str, Any]:
    """A version for a JSON document."""
    return {
        "version": record.number,
        "label": record.label,
        "digest": record.digest,
        "patches": list(record.patches),
        "profiles": dict(record.profiles),
        "created_at": record.created_at,
        "reason": record.reason,
        "restored": record.restored,
    }


def show_command(
    context: typer.Context,
    skill: Skill,
    version: Annotated[int | None, typer.Argument(help="The newest by default.")] = None,
    sources: Annotated[bool, typer.Option("--sources", help="Base, manifest and patches instead.")] = False,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show what a skill was in a version: the compiled files, or the sources it was made of."""
    source = bank_of(context, bank)
    record = source.version_record(skill, version if version is not None else _newest(source, skill))
    files = (source.version_sources if sources else source.version_files)(skill, record.number)
    if as_json:
        texts = {name: data.decode("utf-8") for name, data in files.items()}
        print_json(version_row(record) | {"skill": skill, "files": texts})
        return
    for name in sorted(files):
        print(f"==> {name} ({record.label}) <==")
        print(files[name].decode("utf-8"))


def _newest(source: SkillBank, skill: str) -> int:
    latest = source.version(skill)
    if latest is None:
        raise CommandError(f"{skill} has no version yet: compile it first.")
    return latest.number


def diff_command(
    context: typer.Context,
    skill: Skill,
    first: Annotated[int | None, typer.Argument(metavar="A", help="Version; the one before B by default.")] = None,
    second: Annotated[int | None, typer.Argument(metavar="B", help="Version; the newest by default.")] = None,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show what changed in a skill between two versions: its text line by line, its policy value by value."""
    source = bank_of(context, bank)
    newer = second if second is not None else _newest(source, skill)
    older = first if first is not None else max(1, newer - 1)
    change = compare(
        source.version_files(skill, older), source.version_files(skill, newer), f"version {older}", f"version {newer}"
    )
    if as_json:
        policy = [one.as_dict() for one in change.policy]
        print_json({"skill": skill, "from": older, "to": newer, "diff": change.text, "policy": policy})
        return
    if not change:
        console_for(False).print(f"versions {older} and {newer} of {skill} are the same", markup=False)
    print_difference(console_for(False), change)


def print_difference(console: Console, change: Difference) -> None:
    """A difference, added lines green, removed ones red."""
    for line in change.text.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else None
        console.print(line, style=style, markup=False)
    if change.policy:
        console.print("policy", style="bold", markup=False)
    for one in change.policy:
        console.print(f"  {one}", markup=False)


def rollback_command(
    context: typer.Context,
    skill: Skill,
    version: Annotated[int, typer.Argument(help="Version to go back to.")],
    reason: Annotated[str, typer.Option(help="Stays in the audit log.")] = "no reason given",
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Make a skill what it was in a version; the result is a new version, patches no longer in force are archived."""
    source = bank_of(context, bank)
    if dry_run:
        source.rollback(skill, version, dry_run=True)
        newest = _newest(source, skill)
        change = compare(
            source.version_files(skill, newest), source.version_files(skill, version), "now", f"version {version}"
        )
        if as_json:
            policy = [one.as_dict() for one in change.policy]
            row = {"skill": skill, "restored": version, "version": None, "dry_run": True}
            print_json(row | {"diff": change.text, "policy": policy})
            return
        console_for(False).print(f"{skill} would be as in version {version} again; nothing was written", markup=False)
        print_difference(console_for(False), change)
        return
    if bank is None:
        label = roll_back(home_of(context), skill, version, channel=_channel(), reason=reason)
    else:
        label = source.rollback(skill, version, reason=reason).label
    if as_json:
        print_json({"skill": skill, "restored": version, "version": label})
    else:
        console_for(False).print(f"{skill} is as in version {version} again: now {label}", style="green", markup=False)


def _channel() -> Channel:
    return Channel.TERMINAL if sys.stdin.isatty() else Channel.UNATTENDED


def squash_command(
    context: typer.Context,
    skill: Skill,
    reason: Reason = None,
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Make the active patches part of the base: anchors, policy and output stay byte for byte; files are archived."""
    done = bank_of(context, bank).squash(skill, reason=reason, dry_run=dry_run)
    label = None if done.version is None else done.version.label
    if label is not None and bank is None:
        folded = list(done.folding.folded)
        home_of(context).audit.append("squashed", channel=_channel(), skill=skill, version=label, patches=folded)
    if as_json:
        kept = None if done.folding.kept is None else done.folding.kept[0]
        row = {"skill": skill, "folded": list(done.folding.folded), "archived": list(done.folding.archived)}
        print_json(row | {"kept_base": kept, "version": label, "dry_run": dry_run})
        return
    verb = "would become" if dry_run else "are now"
    console_for(False).print(f"{', '.join(done.folding.folded)} {verb} part of the base of {skill}", markup=False)
    if label is not None:
        console_for(False).print(f"the output is the same; recorded as {label}", style="green", markup=False)


def pin_command(
    context: typer.Context,
    skill: Skill,
    version: Annotated[int | None, typer.Argument(help="The newest by default.")] = None,
    off: Annotated[bool, typer.Option("--off", help="Let the skill go again.")] = False,
    bank: Bank = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Hold a skill at a version: until it is let go, nothing compiles, promotes, squashes or rolls it back."""
    source = bank_of(context, bank)
    if off and version is not None:
        raise CommandError("--off lets a skill go, whatever its version: name no version with it.")
    held = source.pins().get(skill)
    if dry_run:
        now = None if off else source.check_pin(skill, version)
    elif off:
        source.unpin(skill)
        now = None
    else:
        now = source.pin(skill, version)
    if bank is None and not dry_run:
        home_of(context).audit.append("unpinned" if off else "pinned", channel=_channel(), skill=skill, version=now)
    if as_json:
        print_json({"skill": skill, "pinned": now, "before": held, "dry_run": dry_run})
    elif dry_run:
        free = f"{skill} would be free" if held is not None else f"{skill} is not pinned"
        told = free if now is None else f"{skill} would be as in version {now} and pinned"
        console_for(False).print(f"{told}; nothing was written", markup=False)
    elif now is None:
        console_for(False).print(f"{skill} is free" if held is not None else f"{skill} was not pinned", markup=False)
    else:
        console_for(False).print(f"{skill} is pinned to version {now}", style="green", markup=False)
