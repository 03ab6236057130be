"""`mcp-evo skills`: compile, preview, status, validate, install; versions and policy are in their own modules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli import skill_install, skills_import, skills_package
from mcp_server.cli.context import CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, plain_table, print_json, print_table
from mcp_server.cli.skills_common import (
    Bank,
    DryRun,
    Skill,
    Target,
    bank_of,
    clearly,
    print_problems,
    problem_rows,
)
from mcp_server.cli.skills_policy import policy_command
from mcp_server.cli.skills_test import run_command
from mcp_server.cli.skills_versions import (
    diff_command,
    history_command,
    pin_command,
    print_difference,
    rollback_command,
    show_command,
    squash_command,
)
from skill_bank.bank import CompileReport, SkillBank
from skill_bank.difference import compare
from skill_bank.types import BankError, SkillInfo

Profile = Annotated[str | None, typer.Option(help="Under this profile.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="The skills that agents work by, and their policy.", no_args_is_help=True)
    group.command("compile")(clearly(compile_command))
    group.command("status")(clearly(status_command))
    group.command("preview")(clearly(preview_command))
    group.command("validate")(clearly(validate_command))
    group.command("test")(clearly(run_command))
    group.command("policy")(clearly(policy_command))
    group.command("history")(clearly(history_command))
    group.command("show")(clearly(show_command))
    group.command("diff")(clearly(diff_command))
    group.command("rollback")(clearly(rollback_command))
    group.command("squash")(clearly(squash_command))
    group.command("pin")(clearly(pin_command))
    skill_install.register(group)
    skills_import.register(group)
    skills_package.register(group)
    app.add_typer(group, name="skills")


def compile_command(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="A skill, a group (rllm, traj, meta) or all.")] = None,
    group: Annotated[str | None, typer.Option(help="Every skill of this group.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every skill; the default.")] = False,
    bank: Bank = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write DIR/<skill>/ instead.")] = None,
    profile: Annotated[str | None, typer.Option(help="With --out or --dry-run: under this profile.")] = None,
    dry_run: DryRun = False,
    as_is: Annotated[bool, typer.Option("--as-is", help="A bank of the original's format, by its rules.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Compile base and active patches into SKILL.md and policy.json; on any error nothing is written."""
    chosen = _one_target(target, group, every)
    if as_is:
        root = bank if bank is not None else bank_of(context, None).root
        skills_import.compile_as_is(root, chosen, profile, out, dry_run, as_json)
        return
    if profile is not None and out is None and not dry_run:
        raise CommandError("a profile is compiled with --out DIR (or --dry-run): what is in force has no profile.")
    source = bank_of(context, bank)
    if group is not None:
        _check_group(source, group)
    try:
        report = source.compile(chosen, out=out, profile=profile, dry_run=dry_run)
    except BankError as error:
        if not as_json:
            raise
        print_problems(console_for(True), error.problems)
        told = {"error": str(error), "kind": type(error).__name__, "problems": problem_rows(error.problems)}
        print_json(_document(None) | told)
        raise typer.Exit(1) from error
    if as_json:
        warnings = problem_rows((*source.undeclared(), *report.warnings))
        print_json(_document(report) | {"warnings": warnings, "problems": []})
        return
    console = console_for(False)
    print_problems(console, (*source.undeclared(), *report.warnings), "yellow")
    if dry_run:
        for name in report.would_write:
            console.print(f"would write {name}", markup=False)
        console.print(f"{len(report.skills)} skills compile; nothing was written", markup=False)
        return
    for name in report.written:
        label = report.versions[name].label if name in report.versions else name
        console.print(f"written {label}", style="green", markup=False)
    for name, number in report.pinned.items():
        console.print(f"{name} is pinned to version {number} and left as it is", style="yellow", markup=False)
    console.print(f"{len(report.written)} written, {len(report.unchanged)} unchanged, in {report.out}", markup=False)


def _check_group(source: SkillBank, group: str) -> None:
    try:
        groups = source.groups()
    except BankError:  # compiling says what is wrong with bank.yaml, and with everything else
        return
    if group not in groups:
        raise CommandError(f"there is no group {group!r}. There are: {', '.join(groups)}.")


def _one_target(target: str | None, group: str | None, every: bool) -> str:
    given = [one for one in (target, group, "all" if every else None) if one is not None]
    if len(given) > 1:
        raise typer.BadParameter("name a skill, --group or --all: one of them.")
    return given[0] if given else "all"


def _document(report: CompileReport | None) -> dict[str, Any]:
    if report is None:
        return {
            "written": [],
            "unchanged": [],
            "would_write": [],
            "versions": {},
            "digests": {},
            "out": None,
            "warnings": [],
            "pinned": {},
        }
    return {
        "written": list(report.written),
        "unchanged": list(report.unchanged),
        "would_write": list(report.would_write),
        "versions": {name: one.label for name, one in report.versions.items()},
        "digests": {name: one.digest for name, one in report.skills.items()},
        "out": None if report.out is None else str(report.out),
        "warnings": problem_rows(report.warnings),
        "pinned": dict(report.pinned),
    }


def preview_command(
    context: typer.Context,
    skill: Skill,
    patches: Annotated[
        list[str] | None, typer.Option("--with", metavar="PATCH", help="As if this patch were active; repeatable.")
    ] = None,
    profile: Profile = None,
    diff: Annotated[bool, typer.Option("--diff", help="Only what differs from what is in force.")] = False,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show what a skill would compile to, with patches that are not in force or under a profile; writes nothing."""
    source = bank_of(context, bank)
    source.group_of(skill)
    built = source.compile(skill, profile=profile, extra_patches=patches or (), dry_run=True).skills[skill]
    change = compare(_in_force(source, skill), built.files, "in force", "preview")
    if as_json:
        document = {
            "skill": skill,
            "profile": profile,
            "patches": list(built.patches),
            "digest": built.digest,
            "tokens": built.tokens,
            "text": built.files["SKILL.md"].decode("utf-8"),
            "diff": change.text,
            "policy": [one.as_dict() for one in change.policy],
            "warnings": problem_rows(built.warnings),
        }
        print_json(document)
        return
    print_problems(console_for(True), built.warnings, "yellow")
    if not diff:
        print(built.files["SKILL.md"].decode("utf-8"), end="")
    elif change:
        print_difference(console_for(False), change)
    else:
        console_for(False).print(f"{skill} would stay as it is", markup=False)


def _in_force(source: SkillBank, skill: str) -> Mapping[str, bytes]:
    folder = source.compiled_folder(skill)
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def status_command(
    context: typer.Context,
    skill: Annotated[str | None, typer.Argument(help="One skill; all by default.")] = None,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show every skill: version, patches in force and waiting, what is stale, pinned or broken."""
    source = bank_of(context, bank)
    if skill is not None:
        source.group_of(skill)
    infos = [one for one in source.status() if skill in (None, one.name)]
    if as_json:
        print_json({"skills": [_status_row(one) for one in infos], "total": len(infos)})
        return
    table = plain_table("skill", "group", "version", "in force", "waiting", "state")
    for one in infos:
        waiting = [f"{name} ({status})" for name, status in one.patches.items() if status in ("draft", "staged")]
        state = "broken" if one.problems else "stale: compile it" if one.stale else "compiled"
        state += f", pinned to {one.pinned}" if one.pinned is not None else ""
        version = "–" if one.version is None else f"v{one.version}"
        table.add_row(one.name, one.group, version, ", ".join(one.active) or "–", ", ".join(waiting) or "–", state)
    console = console_for(False)
    print_table(console, table)
    print_problems(console, [problem for one in infos for problem in one.problems])


def _status_row(one: SkillInfo) -> dict[str, Any]:
    return {
        "name": one.name,
        "group": one.group,
        "version": one.version,
        "digest": one.digest,
        "active": list(one.active),
        "patches": dict(one.patches),
        "profiles": list(one.profiles),
        "stale": one.stale,
        "pinned": one.pinned,
        "problems": [str(problem) for problem in one.problems],
    }


def validate_command(
    context: typer.Context,
    target: Target = "all",
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 for warnings, too.")] = False,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Check skills under the manifest and every profile: all problems, with file and line; exit code 1 if there are."""
    source = bank_of(context, bank)
    problems = source.check(target)
    warnings = () if problems else (*source.undeclared(), *source.compile(target, dry_run=True).warnings)
    if as_json:
        print_json({"ok": not problems, "problems": problem_rows(problems), "warnings": problem_rows(warnings)})
    else:
        console = console_for(False)
        console.print("no problems" if not problems else f"{len(problems)} problem(s)", markup=False)
        print_problems(console, problems)
        print_problems(console, warnings, "yellow")
    if problems or (strict and warnings):
        raise typer.Exit(1)
