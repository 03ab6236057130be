"""`mcp-evo setup claude-code` and `mcp-evo setup claude-desktop`: connect a client in one step, and undo it exactly.

What would change is shown first, then asked about (`--yes` answers beforehand, `--dry-run` only shows). `--remove`
takes out what was put in. The work is done by `mcp_server.setup`.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli import setup_packages
from mcp_server.cli.context import CliState, CommandError, to_stderr, to_stdout
from mcp_server.setup.entries import hook_command, our_hook_events
from mcp_server.setup.files import carry_out, read_bytes, remove_empty
from mcp_server.setup.json_edit import JsonTextError, parse
from mcp_server.setup.plan import Plan, difference, plan_install, plan_remove, record_change
from mcp_server.setup.record import backup_of
from mcp_server.setup.targets import Targets, targets_of
from mcp_server.setup.types import Client, Connection, FileChange, Scope, SetupError
from optimizer.redact import redact_text
from skill_bank.bank import SkillBank
from skill_bank.install import MANIFEST, InstallError, Removed, install, plan_uninstall, uninstall
from skill_bank.install import Plan as SkillPlan
from skill_bank.install import plan_install as plan_skills
from trainer.runs.workspace import FOLDER_NAME, create_workspace

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")]
Remove = Annotated[bool, typer.Option("--remove", help="Take out what a setup put in.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Json = Annotated[bool, typer.Option("--json", help="The changes as one JSON document on stdout.")]
Name = Annotated[str, typer.Option("--name", help="Name of the server in the client.")]


@dataclass(frozen=True)
class Request:
    """What a command line asks for."""

    client: Client
    scope: Scope
    folder: Path
    connection: Connection
    targets: Targets
    bank: Path | None
    """Workspace whose compiled skills are installed; None: no skills."""
    remove: bool
    yes: bool
    dry_run: bool
    as_json: bool


@dataclass(frozen=True)
class Skills:
    """What becomes of the skills."""

    to_install: SkillPlan | None = None
    to_remove: Removed | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """Installed or brought up to date."""
        return () if self.to_install is None else self.to_install.written

    @property
    def unchanged(self) -> tuple[str, ...]:
        return () if self.to_install is None else self.to_install.unchanged

    @property
    def removed(self) -> tuple[str, ...]:
        return () if self.to_remove is None else self.to_remove.removed

    @property
    def kept(self) -> tuple[str, ...]:
        """Files edited by hand, which a removal leaves."""
        return () if self.to_remove is None else self.to_remove.kept


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Connect a client: hooks, MCP server, skills. Shows the changes first; --remove undoes.")
    group.command("claude-code")(claude_code)
    group.command("claude-desktop")(claude_desktop)
    setup_packages.register(group, executables, compiled_skills)
    app.add_typer(group, name="setup")


def claude_code(
    context: typer.Context,
    project: Annotated[bool, typer.Option("--project", help="This folder only (default).")] = False,
    user: Annotated[bool, typer.Option("--user", help="All your projects.")] = False,
    remove: Remove = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    hooks: Annotated[bool, typer.Option(help="Capture what the agent does.")] = True,
    server: Annotated[bool, typer.Option(help="The MCP server.")] = True,
    skills: Annotated[bool, typer.Option(help="The compiled skills.")] = True,
    name: Name = "evo",
    as_json: Json = False,
) -> None:
    """Hooks in settings.json, the server in .mcp.json, skills in .claude/skills; of this folder or of the user."""
    if project and user:
        raise CommandError("--project and --user exclude each other: one is this folder, the other all your projects.")
    state: CliState = context.obj
    scope = Scope.USER if user else Scope.PROJECT
    folder = Path.cwd()
    if scope is Scope.PROJECT:
        workspace: Path | None = state.root
        bank = state.root
    else:  # without a workspace that was named, the nearest one above a project holds, in the end that of the home
        workspace = state.root if state.workspace_option else None
        bank = workspace or Path.home() / FOLDER_NAME
    needs = workspace is not None and (scope is Scope.USER or not _found_from(folder, workspace))
    targets = targets_of(Client.CLAUDE_CODE, scope, folder).only(hooks=hooks, servers=server, skills=skills)
    connection = _connection(workspace, name, needs)
    run(
        Request(
            *(Client.CLAUDE_CODE, scope, folder, connection, targets, bank if skills else None),
            *(remove, yes, dry_run, as_json),
        )
    )


def claude_desktop(
    context: typer.Context,
    remove: Remove = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    name: Name = "evo",
    as_json: Json = False,
) -> None:
    """The server in claude_desktop_config.json, with absolute paths: Desktop knows neither your PATH nor a folder."""
    state: CliState = context.obj
    root = state.root
    if not state.workspace_option and not root.exists():
        root = Path.home() / FOLDER_NAME
    targets = targets_of(Client.CLAUDE_DESKTOP, Scope.USER, Path.cwd())
    connection = _connection(root, name, False)
    run(
        Request(Client.CLAUDE_DESKTOP, Scope.USER, Path.cwd(), connection, targets, None, remove, yes, dry_run, as_json)
    )


def _connection(workspace: Path | None, name: str, hook_needs_workspace: bool) -> Connection:
    server, hook = executables()
    return Connection(str(server), str(hook), workspace, hook_needs_workspace, name)


def executables() -> tuple[Path, Path]:
    """Absolute paths of `mcp-evo` and `mcp-evo-hook`. Raises CommandError where they are not installed."""
    own = Path(sys.argv[0])
    candidates = [own.absolute()] if own.name == "mcp-evo" else []
    candidates.append(Path(sys.executable).absolute().with_name("mcp-evo"))
    found = shutil.which("mcp-evo")
    candidates += [Path(found).absolute()] if found else []
    for server in candidates:
        if server.is_file() and server.with_name("mcp-evo-hook").is_file():
            return server, server.with_name("mcp-evo-hook")
    raise CommandError(
        f"mcp-evo and mcp-evo-hook are not installed beside {sys.executable}: install the package "
        f"(pip install mcp-evo), and run its own `mcp-evo setup`."
    )


def _found_from(folder: Path, workspace: Path) -> bool:
    """Whether a hook in `folder` finds the workspace by itself."""
    for one in (folder, *folder.parents):
        if one / FOLDER_NAME == workspace:
            return True
        if (one / FOLDER_NAME).is_dir():
            return False
    return False


def run(request: Request) -> None:
    """Works out, shows, asks, writes, reports. Raises CommandError with nothing written."""
    try:
        plan, skills = _plan(request)
        _show(request, plan, skills)
        written = bool(plan.changed or skills.written or skills.removed) and not request.dry_run
        if written:
            _ask(request)
            (_remove if request.remove else _install)(request, plan, skills)
    except (SetupError, InstallError) as error:
        raise CommandError(str(error)) from error
    _report(request, plan, skills, written=written)


def _plan(request: Request) -> tuple[Plan, Skills]:
    targets = request.targets
    if request.remove:
        there = targets.skills is not None and (targets.skills / MANIFEST).exists()
        return plan_remove(targets), Skills(
            to_remove=plan_uninstall(targets.skills) if there and targets.skills else None
        )
    plan = plan_install(targets, request.connection)
    if targets.skills is None or request.bank is None:
        return plan, Skills()
    skills = plan_skills(compiled_skills(request.bank), targets.skills)
    if skills.objections:
        raise SetupError(
            "\n".join(map(str, skills.objections)) + "\nNothing was written. Leave the skills out with --no-skills, or "
            "settle these with `mcp-evo skills install` (--adopt, --force) first."
        )
    return plan, Skills(to_install=skills)


def compiled_skills(workspace: Path | None) -> dict[str, dict[str, bytes]]:
    """Skill → file → content, of the workspace's bank, or of the shipped one where there is no workspace yet."""
    with ExitStack() as stack:
        folder = None if workspace is None else workspace / "skills"
        if folder is None or not any(folder.glob("*")):  # nothing is made before it is asked for
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "skills"
        bank = SkillBank.seed(folder)
        found: dict[str, dict[str, bytes]] = {}
        for name, built in bank.compile("all", dry_run=True).skills.items():
            place = bank.compiled_folder(name)
            files = [path for path in sorted(place.rglob("*")) if path.is_file()] if place.is_dir() else []
            found[name] = {path.relative_to(place).as_posix(): path.read_bytes() for path in files} or dict(built.files)
        return found


def _ask(request: Request) -> None:
    if request.yes:
        return
    if request.as_json or not sys.stdin.isatty():
        raise CommandError("nothing was written: there is nobody to ask. Add --yes to write, --dry-run to only see.")
    if not typer.confirm("Write these changes?", err=True):
        raise CommandError("nothing was written.")


def _install(request: Request, plan: Plan, skills: Skills) -> None:
    made = [folder for folder in request.targets.folders() if not folder.exists()]
    if request.connection.workspace is not None:
        create_workspace(request.connection.workspace)
    if request.bank is not None:
        SkillBank.seed(create_workspace(request.bank).root / "skills")
    changes = (*plan.bookkeeping, *plan.changes, record_change(plan, made))
    carry_out(changes)
    if skills.to_install is not None:
        try:
            install(skills.to_install)
        except InstallError:
            carry_out(_back(changes))
            remove_empty(made)
            raise


def _back(changes: Sequence[FileChange]) -> list[FileChange]:
    """The changes that undo these."""
    return [replace(change, before=change.after, after=change.before) for change in reversed(changes)]


def _remove(request: Request, plan: Plan, skills: Skills) -> None:
    carry_out((*plan.changes, *plan.bookkeeping))
    if skills.to_remove is not None:
        uninstall(skills.to_remove, keep_edited=True)
    remove_empty(plan.folders)


def _show(request: Request, plan: Plan, skills: Skills) -> None:
    if request.as_json:
        return
    console = to_stderr()
    for change in plan.changed:
        console.print(f"{change.action.value} {change.path}", markup=False, style="bold")
        console.print(redact_text(difference(change)), markup=False)
    for what, names in (("install", skills.written), ("remove", skills.removed)):
        if names:
            console.print(f"{what} {len(names)} skills in {request.targets.skills}: {', '.join(names)}", markup=False)
    for file in skills.kept:
        console.print(f"keep {request.targets.skills}/{file}: it was edited by hand", markup=False)


def _report(request: Request, plan: Plan, skills: Skills, *, written: bool) -> None:
    backups = [str(backup_of(one.path)) for one in plan.changes if written and backup_of(one.path).exists()]
    notes, following = _notes(request), _next(request)
    document = {
        "client": request.client.value,
        "scope": request.scope.value,
        "action": "remove" if request.remove else "install",
        "written": written,
        "changes": [
            {"path": str(change.path), "action": change.action.value, "diff": redact_text(difference(change))}
            for change in plan.changes
        ],
        "backups": backups,
        "skills": {
            "to": None if request.targets.skills is None else str(request.targets.skills),
            "written": list(skills.written),
            "unchanged": list(skills.unchanged),
            "removed": list(skills.removed),
            "kept": list(skills.kept),
        },
        "server": request.connection.server,
        "hook": None if request.targets.hooks is None else request.connection.hook,
        "workspace": None if request.connection.workspace is None else str(request.connection.workspace),
        "notes": notes,
        "next": following,
    }
    if request.as_json:
        print(json.dumps(document, ensure_ascii=False))
        return
    console = to_stdout()
    if not written:
        shown = plan.changed or skills.written or skills.removed
        console.print("nothing was written" if shown else "nothing to change: everything is as it should be")
    else:
        console.print("removed" if request.remove else "connected", markup=False)
        for backup in backups:
            console.print(f"backup: {backup}", markup=False)
    for note in notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"next: {following}", markup=False)


def _notes(request: Request) -> list[str]:
    """What a person should know."""
    if request.remove:
        return [] if request.connection.workspace is None else [f"the workspace stays: {request.connection.workspace}"]
    notes = []
    if request.targets.hooks is not None:
        if _settings(request.targets.hooks).get("disableAllHooks") is True:
            notes.append(f"disableAllHooks in {request.targets.hooks} keeps every hook from running")
        if request.scope is Scope.PROJECT:
            notes.append("settings.json and .mcp.json hold paths of this machine: think before you commit them")
        else:
            notes.append(f"sessions are recorded where a project, or a folder above it, holds {FOLDER_NAME}")
        other = targets_of(
            request.client, Scope.USER if request.scope is Scope.PROJECT else Scope.PROJECT, request.folder
        )
        if other.hooks is not None and _differs(other.hooks, hook_command(request.connection)):
            notes.append(f"{other.hooks} runs another mcp-evo-hook, too: events here are recorded twice")
    return notes


def _differs(path: Path, command: str) -> bool:
    """Whether a file has hooks of ours with another command; a client runs equal ones once."""
    try:
        data = read_bytes(path)
        found = {} if data is None else our_hook_events(data.decode("utf-8"))
    except (SetupError, JsonTextError, UnicodeDecodeError):  # not the file that is asked about
        return False
    return bool(set(found.values()) - {command})


def _settings(path: Path) -> dict[str, Any]:
    try:
        data = read_bytes(path)
        value = {} if data is None else parse(data.decode("utf-8")).value
    except (SetupError, JsonTextError, UnicodeDecodeError):  # told already, where it matters
        return {}
    return value if isinstance(value, dict) else {}


def _next(request: Request) -> str:
    if request.client is Client.CLAUDE_DESKTOP:
        return "quit Claude Desktop completely and start it again; it reads its configuration when it starts"
    if request.remove:
        return "start Claude Code anew; running sessions keep the hooks they started with"
    where = f"in {request.folder}" if request.scope is Scope.PROJECT else "in a project"
    return f"start Claude Code {where} and allow the server {request.connection.name} when it asks"
