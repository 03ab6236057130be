"""`mcp-evo skills install` and `uninstall`: compiled skills in and out of a client's skills folder."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mcp_server.cli.context import CliState, CommandError, to_stderr
from mcp_server.cli.optimizing import JsonOption, console_for, print_json
from mcp_server.cli.skills_common import clearly
from skill_bank.bank import SkillBank
from skill_bank.edits import Edited, patches_of_edit
from skill_bank.install import InstallError, Objection, Plan, install, plan_install, plan_uninstall, uninstall
from skill_bank.types import BuiltSkill

SHOWN_LINES = 40
"""Lines of a difference shown on the screen; --json gives all of them."""

To = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Skills folder; .claude/skills by default.")]
User = Annotated[bool, typer.Option("--user", help="The user's own folder, ~/.claude/skills.")]
Force = Annotated[bool, typer.Option("--force", help="Also overwrite or remove files that were edited by hand.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


def register(group: typer.Typer) -> None:
    """Adds the commands to the group `skills`."""
    group.command("install")(clearly(install_command))
    group.command("uninstall")(clearly(uninstall_command))


def _target(to: Path | None, user: bool) -> Path:
    if to is not None and user:
        raise CommandError("--to and --user exclude each other.")
    if user:
        return Path("~/.claude/skills")
    return to if to is not None else Path(".claude/skills")


def install_command(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="A skill, a group (rllm, traj, meta) or all.")] = "all",
    to: To = None,
    user: User = False,
    force: Force = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Put edits made by hand into the bank as staged patches, then install.")
    ] = False,
    bank: Annotated[Path | None, typer.Option("--bank", metavar="DIR", help="Another bank.", file_okay=False)] = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Copy the compiled skills to where a client looks for them; a file edited by hand is not overwritten."""
    state: CliState = context.obj
    chosen = SkillBank(bank) if bank is not None else SkillBank.seed(state.writable().root / "skills")
    built = chosen.compile(target, dry_run=True).skills
    files = {name: _in_force(chosen, one) for name, one in built.items()}
    try:
        plan = plan_install(files, _target(to, user))
        edits = {
            one.skill: patches_of_edit(chosen, built[one.skill], _text(one.path), time.strftime("%Y-%m-%d"))
            for one in plan.objections
            if one.edited and one.file == "SKILL.md" and files[one.skill] == built[one.skill].files
        }
        adopted = _adopt(chosen, plan, edits) if adopt and not dry_run else []
        refused = bool(plan.objections) and not (force or (adopt and not dry_run))
        if not refused and not dry_run:
            install(plan, force=force or adopt)
    except InstallError as error:
        raise CommandError(str(error)) from error
    if as_json:
        document = {
            "to": str(plan.target),
            "written": [] if refused else list(plan.written),
            "unchanged": list(plan.unchanged),
            "objections": [_row(one, edits) for one in plan.objections],
            "adopted": adopted,
            "dry_run": dry_run,
        }
        told = f"nothing was installed: {'; '.join(map(str, plan.objections))}"
        print_json({**document, **({"error": told} if refused and not dry_run else {})})
    console = to_stderr() if refused else console_for(as_json)
    _show(console, plan, edits)
    if refused and not dry_run:
        console.print(
            "nothing was installed. --adopt makes the edits staged patches and installs; --force overwrites them.",
            markup=False,
        )  # fmt: skip
        raise typer.Exit(1)
    for one in adopted:
        console.print(f"staged {one}: review it with mcp-evo skills status", markup=False)
    verb = "would be installed" if dry_run else "installed"
    console.print(f"{len(plan.written)} {verb}, {len(plan.unchanged)} unchanged, in {plan.target}", markup=False)


def _in_force(bank: SkillBank, built: BuiltSkill) -> dict[str, bytes]:
    """The compiled files in force; those just compiled in a bank that has no compiled folder."""
    folder = bank.compiled_folder(built.name)
    if not folder.is_dir():
        return dict(built.files)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _adopt(bank: SkillBank, plan: Plan, edits: dict[str, Edited]) -> list[str]:
    """Puts edits into the bank as staged patches. Raises InstallError where one of them cannot be one."""
    foreign = [one for one in plan.objections if one.skill not in edits or one.file != "SKILL.md"]
    if foreign:
        raise InstallError(f"{foreign[0]}, and only an edited SKILL.md can become a patch. --force overwrites it.")
    for skill, edited in edits.items():
        if edited.outside:
            lines = ", ".join(map(str, edited.outside[:8]))
            raise InstallError(f"{skill}: lines {lines} were edited outside of every section, where no patch may go. "
                               "Undo those, or use --force.")  # fmt: skip
        for patch in edited.patches:
            problems = bank.check_patch(patch)
            if problems:
                raise InstallError(f"{skill}: the edit cannot be a patch: {problems[0]}")
    return [
        f"{patch.skill}:{bank.add_patch(patch).id}" for edited in edits.values() for patch in edited.patches
    ]  # fmt: skip


def _row(one: Objection, edits: dict[str, Edited]) -> dict[str, object]:
    patches = edits[one.skill].patches if one.skill in edits and one.file == "SKILL.md" else ()
    return {
        "skill": one.skill,
        "path": str(one.path),
        "edited": one.edited,
        "difference": list(one.difference),
        "patches": [{"id": patch.id, "text": patch.text} for patch in patches],
    }


def _show(console: Console, plan: Plan, edits: dict[str, Edited]) -> None:
    for one in plan.objections:
        console.print(f"{one}:", style="yellow", markup=False)
        for line in one.difference[:SHOWN_LINES]:
            console.print(f"  {line}", markup=False)
        if len(one.difference) > SHOWN_LINES:
            console.print(f"  … {len(one.difference) - SHOWN_LINES} more lines", markup=False)
        for patch in edits[one.skill].patches if one.skill in edits and one.file == "SKILL.md" else ():
            console.print(f"  as a patch: {patch.id}", style="dim", markup=False)


def uninstall_command(
    context: typer.Context,
    skills: Annotated[list[str] | None, typer.Argument(metavar="SKILL…", help="Skills; all by default.")] = None,
    to: To = None,
    user: User = False,
    force: Force = False,
    keep_edited: Annotated[
        bool, typer.Option("--keep-edited", help="Leave files that were edited by hand where they are.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Remove what `install` wrote and nothing else; a file edited by hand stays unless --force."""
    try:
        plan = plan_uninstall(_target(to, user), skills or None)
        done = plan if dry_run else uninstall(plan, force=force, keep_edited=keep_edited)
    except InstallError as error:
        raise CommandError(str(error)) from error
    if as_json:
        document = {"from": str(done.target), "removed": list(done.removed), "kept": list(done.kept)}
        print_json({**document, "dry_run": dry_run})
        return
    console = console_for(False)
    verb = "would be removed" if dry_run else "removed"
    console.print(f"{len(done.removed)} {verb} from {done.target}", markup=False)
    for one in done.kept:
        console.print(f"edited by hand{', stays' if not force else ''}: {one}", style="yellow", markup=False)
