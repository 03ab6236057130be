"""`mcp-evo skills`: compile, status, history, diff, rollback, policy, validate, install."""

import difflib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mcp_server.cli import skills_import
from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import JsonOption, console_for, plain_table, print_json, print_table, refuses_clearly
from mcp_server.cli.skill_install import install_skills
from optimizer.approvals import Channel
from optimizer.home import Home
from optimizer.promote import roll_back
from skill_bank.bank import SkillBank
from skill_bank.policy import describe_condition
from skill_bank.types import Problem
from skill_bank.versions import VersionRecord

Target = Annotated[str, typer.Argument(help="A skill, a group (rllm, traj, meta) or all.")]
Skill = Annotated[str, typer.Argument(help="Name of the skill.")]
Bank = Annotated[
    Path | None, typer.Option("--bank", metavar="DIR", help="Another bank than the workspace's own.", file_okay=False)
]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="The skills that agents work by, and their policy.", no_args_is_help=True)
    group.command("compile")(refuses_clearly(compile_command))
    group.command("status")(refuses_clearly(status_command))
    group.command("history")(refuses_clearly(history_command))
    group.command("diff")(refuses_clearly(diff_command))
    group.command("rollback")(refuses_clearly(rollback_command))
    group.command("policy")(refuses_clearly(policy_command))
    group.command("validate")(refuses_clearly(validate_command))
    group.command("install")(refuses_clearly(install_command))
    skills_import.register(group)
    app.add_typer(group, name="skills")


def bank_of(context: typer.Context, bank: Path | None) -> SkillBank:
    """The bank asked for, else the workspace's own, which is made where it is missing."""
    if bank is not None:
        return SkillBank(bank)
    state: CliState = context.obj
    return SkillBank.seed(state.writable().root / "skills")


def compile_command(
    context: typer.Context,
    target: Target = "all",
    bank: Bank = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write DIR/<skill>/ instead.")] = None,
    profile: Annotated[str | None, typer.Option(help="With --out or --dry-run: under this profile.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; write nothing.")] = False,
    as_is: Annotated[bool, typer.Option("--as-is", help="A bank of the original's format, by its rules.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Compile base and active patches into SKILL.md and policy.json; on any error nothing is written."""
    if as_is:
        root = bank if bank is not None else bank_of(context, None).root
        skills_import.compile_as_is(root, target, profile, out, dry_run, as_json)
        return
    if profile is not None and out is None and not dry_run:
        raise CommandError("a profile is compiled with --out DIR (or --dry-run): what is in force has no profile.")
    report = bank_of(context, bank).compile(target, out=out, profile=profile, dry_run=dry_run)
    versions = {name: one.label for name, one in report.versions.items()}
    if as_json:
        document = {
            "written": list(report.written),
            "unchanged": list(report.unchanged),
            "versions": versions,
            "digests": {name: one.digest for name, one in report.skills.items()},
            "out": None if report.out is None else str(report.out),
        }
        print_json(document)
        return
    console = console_for(False)
    if dry_run:
        console.print(f"{len(report.skills)} skills compile; nothing was written", markup=False)
        return
    for name in report.written:
        console.print(f"written {versions.get(name, name)}", style="green", markup=False)
    console.print(f"{len(report.written)} written, {len(report.unchanged)} unchanged, in {report.out}", markup=False)


def status_command(context: typer.Context, bank: Bank = None, as_json: Annotated[bool, JsonOption] = False) -> None:
    """Show every skill: version, patches in force and waiting, what is stale or broken."""
    infos = bank_of(context, bank).status()
    if as_json:
        skills = [
            {
                "name": one.name,
                "group": one.group,
                "version": one.version,
                "digest": one.digest,
                "active": list(one.active),
                "patches": dict(one.patches),
                "profiles": list(one.profiles),
                "stale": one.stale,
                "problems": [str(problem) for problem in one.problems],
            }
            for one in infos
        ]
        print_json({"skills": skills, "total": len(skills)})
        return
    table = plain_table("skill", "group", "version", "in force", "waiting", "state")
    for one in infos:
        waiting = [f"{name} ({status})" for name, status in one.patches.items() if status in ("draft", "staged")]
        state = "broken" if one.problems else "stale: compile it" if one.stale else "compiled"
        version = "–" if one.version is None else f"v{one.version}"
        table.add_row(one.name, one.group, version, ", ".join(one.active) or "–", ", ".join(waiting) or "–", state)
    console = console_for(False)
    print_table(console, table)
    _print_problems(console, [problem for one in infos for problem in one.problems])


def _print_problems(console: Console, problems: list[Problem]) -> None:
    for problem in problems:
        console.print(f"  {problem}", style="red", markup=False)


def history_command(
    context: typer.Context, skill: Skill, bank: Bank = None, as_json: Annotated[bool, JsonOption] = False
) -> None:
    """List the versions of a skill, the oldest first."""
    records = bank_of(context, bank).history(skill)
    if as_json:
        print_json({"versions": [_version(one) for one in records], "total": len(records)})
        return
    table = plain_table("version", "digest", "patches", "why")
    for one in records:
        table.add_row(one.label, one.digest[:12], ", ".join(one.patches) or "–", one.reason)
    print_table(console_for(False), table)


def _version(record: VersionRecord) -> dict[str, Any]:
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


def diff_command(
    context: typer.Context,
    skill: Skill,
    first: Annotated[int | None, typer.Argument(metavar="A", help="Version; the one before B by default.")] = None,
    second: Annotated[int | None, typer.Argument(metavar="B", help="Version; the newest by default.")] = None,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show what changed in a skill between two versions."""
    source = bank_of(context, bank)
    latest = source.version(skill)
    if latest is None:
        raise CommandError(f"{skill} has no version yet: compile it first.")
    newer = second if second is not None else latest.number
    older = first if first is not None else max(1, newer - 1)
    lines = _diff(source.version_files(skill, older), source.version_files(skill, newer), older, newer)
    if as_json:
        print_json({"skill": skill, "from": older, "to": newer, "diff": "".join(lines)})
        return
    console = console_for(False)
    if not lines:
        console.print(f"versions {older} and {newer} of {skill} are the same", markup=False)
    for line in lines:
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else None
        console.print(line.rstrip("\n"), style=style, markup=False)


def _diff(before: dict[str, bytes], after: dict[str, bytes], older: int, newer: int) -> list[str]:
    lines: list[str] = []
    for name in sorted({*before, *after}):
        old = before.get(name, b"").decode("utf-8").splitlines(keepends=True)
        new = after.get(name, b"").decode("utf-8").splitlines(keepends=True)
        lines += difflib.unified_diff(old, new, f"{name} (version {older})", f"{name} (version {newer})", n=2)
    return lines


def rollback_command(
    context: typer.Context,
    skill: Skill,
    version: Annotated[int, typer.Argument(help="Version to go back to.")],
    reason: Annotated[str, typer.Option(help="Stays in the audit log.")] = "no reason given",
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Make a skill what it was in a version; the result is a new version, patches no longer in force are archived."""
    state: CliState = context.obj
    home = Home.open(state.root)
    channel = Channel.TERMINAL if sys.stdin.isatty() else Channel.UNATTENDED
    label = roll_back(home, skill, version, channel=channel, reason=reason)
    if as_json:
        print_json({"skill": skill, "restored": version, "version": label})
    else:
        console_for(False).print(f"{skill} is as in version {version} again: now {label}", style="green", markup=False)


def policy_command(
    context: typer.Context,
    skill: Skill,
    model: Annotated[str | None, typer.Option(help="For this model, for instance tiny.")] = None,
    env: Annotated[str | None, typer.Option(help="For this environment, for instance calculator.")] = None,
    difficulty: Annotated[str | None, typer.Option(help="For this difficulty.")] = None,
    key: Annotated[str | None, typer.Option("--explain", metavar="KEY", help="Every rule about a key.")] = None,
    profile: Annotated[str | None, typer.Option(help="Under this profile.")] = None,
    bank: Bank = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show the values that a skill's policy sets in a situation, and which patch set each."""
    policy = bank_of(context, bank).policy(skill, profile)
    console = console_for(as_json)
    if key is not None:
        rules = policy.explain(key)
        if not rules:
            raise CommandError(f"the policy of {skill} has no key {key!r}. It has: {', '.join(policy.keys)}.")
        if as_json:
            print_json({"skill": skill, "key": key, "rules": [one.as_dict() for one in rules]})
            return
        table = plain_table("key", "value", "when", "patch", "where")
        for one in rules:
            where = f"{one.origin.file}:{one.origin.line}"
            table.add_row(one.key, str(one.value), describe_condition(one.when), one.origin.patch, where)
        print_table(console, table)
        return
    context_known = _policy_context(model, env, difficulty)
    resolved = policy.resolve(context_known)
    if as_json:
        print_json(
            {"skill": skill, "context": context_known, "values": resolved.values, "provenance": resolved.provenance}
        )
        return
    table = plain_table("key", "value", "patch", "when")
    for name, value in resolved.flat.items():
        origin = resolved.provenance[name]
        table.add_row(name, str(value), str(origin["patch"]), describe_condition(origin["when"]))
    print_table(console, table)


def _policy_context(model: str | None, env: str | None, difficulty: str | None) -> dict[str, Any]:
    from trainer.models.catalog import default_lora, resolve_model

    known: dict[str, Any] = {}
    if model is not None:
        info = resolve_model(model)
        known = {"model": info.name, "lora": default_lora(info.params)}
        known |= {} if info.params is None else {"params": info.params}
    known |= {} if env is None else {"env": env}
    return known | ({} if difficulty is None else {"difficulty": difficulty})


def validate_command(
    context: typer.Context, target: Target = "all", bank: Bank = None, as_json: Annotated[bool, JsonOption] = False
) -> None:
    """Check skills under the manifest and every profile: all problems, with file and line; exit code 1 if there are."""
    problems = bank_of(context, bank).check(target)
    if as_json:
        rows = [{"file": one.file, "line": one.line, "message": one.message, "fix": one.fix} for one in problems]
        print_json({"ok": not problems, "problems": rows})
    else:
        console = console_for(False)
        console.print("no problems" if not problems else f"{len(problems)} problem(s)", markup=False)
        _print_problems(console, list(problems))
    if problems:
        raise typer.Exit(1)


def install_command(
    context: typer.Context,
    target: Target = "all",
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Skills folder of the client.")] = Path(
        ".claude/skills"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that were edited by hand.")] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Copy the compiled skills to where a client looks for them; a file edited by hand is not overwritten."""
    bank = bank_of(context, None)
    names = bank.compile(target, dry_run=True).skills
    done = install_skills({name: bank.compiled_folder(name) for name in names}, to, force=force)
    if as_json:
        print_json({"to": str(to.absolute()), "written": list(done.written), "unchanged": list(done.unchanged)})
        return
    console = console_for(False)
    console.print(f"{len(done.written)} installed, {len(done.unchanged)} unchanged, in {to.absolute()}", markup=False)
