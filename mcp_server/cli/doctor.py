"""`mcp-evo doctor`: is everything in place, and does one real training step agree with the CPU on every device."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_server.cli.context import CliState, to_stderr, to_stdout
from mcp_server.setup.plugins import our_plugins
from mcp_server.setup.state import Connected, connection_of
from mcp_server.setup.targets import claude_code, claude_desktop
from mcp_server.setup.types import Scope, SetupError
from mcp_server.workers import worker_override
from optimizer.capture.hooks import ERRORS as HOOK_ERRORS
from optimizer.redact import RedactionConfigError, checked_rules
from optimizer.sizes import sizes_of, sizes_text
from trainer.models.catalog import BUNDLED_TINY
from trainer.runs import processes
from trainer.runs.errors import WorkspaceError
from trainer.runs.processes import child_environment
from trainer.runs.workspace import ID_PATTERN, Workspace, create_workspace

PACKAGES = ("mcp-evo", "mcp", "torch", "transformers", "trl", "pydantic", "typer", "rich", "numpy", "scipy", "psutil")

OUR_PACKAGES = ("skill_bank", "trainer", "optimizer", "mcp_server")

PROBE_TIMEOUT_S = 120.0
"""A child that imports torch for the first time on a cold disk."""

TRAIN_TIMEOUT_S = 600.0
"""One real step, with loading the model and, on a GPU, compiling kernels."""


class Mark(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: Mark
    detail: str


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(doctor)


def doctor(
    context: typer.Context,
    train: Annotated[
        bool, typer.Option("--train", help="One real training step on each device, compared with the CPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="{ok, checks, environment} on stdout.")] = False,
) -> None:
    """Check the installation: packages, workspace, devices, what workers see."""
    state: CliState = context.obj
    checks = [python_check(), *package_checks(), *workspace_checks(state)]
    probe, probe_check = probe_child(worker_override() or None)
    checks.append(probe_check)
    checks += resolution_checks(probe)
    checks.append(model_check())
    checks += [*capture_checks(state), *connection_checks(Path.cwd())]
    devices = [str(name) for name in probe.get("devices", [])]
    checks.append(
        Check(
            "devices",
            Mark.OK if devices else Mark.FAILED,
            ", ".join(devices) or "torch did not say which devices exist",
        )
    )
    if train:
        checks += [train_check(device) for device in devices or ["cpu"]]
    environment = child_environment(more=_more_environment(state))
    ok = all(check.mark is not Mark.FAILED for check in checks)
    if as_json:
        document = {"ok": ok, "checks": [asdict(check) for check in checks], "environment": sorted(environment)}
        print(json.dumps(document, ensure_ascii=False))
    else:
        _print(checks, environment)
    if not ok:
        raise typer.Exit(1)


def _print(checks: Sequence[Check], environment: dict[str, str]) -> None:
    console = to_stdout()
    colours = {Mark.OK: "green", Mark.WARNING: "yellow", Mark.FAILED: "red"}
    for check in checks:
        console.print(f"[{colours[check.mark]}]{check.mark.value:8}[/] {check.name:14} ", end="")
        console.print(check.detail, markup=False)
    console.print("\nenvironment of workers (names; extend with child_environment in the workspace's config.yaml)")
    console.print("  " + " ".join(sorted(environment)), markup=False)


def python_check() -> Check:
    """Version and platform of the interpreter."""
    good = sys.version_info >= (3, 11)
    text = f"{sys.version.split()[0]} on {sys.platform}, {os.cpu_count()} cores"
    return Check("python", Mark.OK if good else Mark.FAILED, text if good else f"{text}; 3.11 or later is needed")


def package_checks() -> list[Check]:
    """Versions as they are installed."""
    checks = []
    for name in PACKAGES:
        try:
            checks.append(Check(name, Mark.OK, version(name)))
        except PackageNotFoundError:
            checks.append(Check(name, Mark.FAILED, "not installed; install mcp-evo again: pip install mcp-evo"))
    return checks


def workspace_checks(state: CliState) -> list[Check]:
    """Can it be written, is it private, is there room."""
    root = state.root
    if not root.exists():
        return [Check("workspace", Mark.OK, f"{root} (not created yet)")]
    try:
        workspace = create_workspace(root)
        workspace.config()
    except WorkspaceError as error:
        return [Check("workspace", Mark.FAILED, str(error))]
    checks = [Check("workspace", Mark.OK, str(root))]
    if root.stat().st_mode & 0o077:
        checks.append(Check("workspace", Mark.WARNING, f"others may read it; make it private: chmod 700 {root}"))
    free_mb = shutil.disk_usage(root).free // 2**20
    low = free_mb < workspace.config().keep_free_mb
    checks.append(Check("disk", Mark.WARNING if low else Mark.OK, f"{free_mb:,} MB free"))
    checks.append(Check("size", Mark.OK, sizes_text(sizes_of(root))))
    strange = [path.name for path in workspace.runs.iterdir() if path.is_dir() and ID_PATTERN.match(path.name) is None]
    if strange:
        checks.append(Check("runs", Mark.WARNING, f"folders that are no runs: {', '.join(sorted(strange)[:5])}"))
    return checks


def capture_checks(state: CliState) -> list[Check]:
    """What went wrong while events were recorded, and rules of redaction that cannot be used."""
    root = state.root
    checks = []
    try:
        checked_rules(root / "config.yaml")
    except RedactionConfigError as error:
        checks.append(Check("redaction", Mark.FAILED, f"{error}; until then only the standard rules hold"))
    except OSError:  # no configuration, or told by the check of the workspace
        pass
    lines = [line for path in hook_error_files(root) for line in _lines(path)]
    if lines:
        detail = f"{len(lines)} events were not recorded, the last one: {lines[-1]}; {hook_error_files(root)[-1]}"
        checks.append(Check("hook errors", Mark.WARNING, detail))
    return checks


def hook_error_files(root: Path) -> list[Path]:
    """Side files of the hook's errors, older first."""
    newest = root / "trajectories" / HOOK_ERRORS
    return [path for path in (newest.with_name(newest.name + ".1"), newest) if path.is_file()]


def _lines(path: Path) -> list[str]:
    """Lines, with the time of each as a date."""
    found = []
    for line in path.read_bytes().decode("utf-8", errors="replace").splitlines():
        seconds, _, text = line.partition(" ")
        try:
            found.append(f"{datetime.fromtimestamp(float(seconds)).isoformat(' ', 'seconds')} {text}")
        except (ValueError, OverflowError, OSError):
            found.append(line)
    return found


def connection_checks(folder: Path) -> list[Check]:
    """Which clients are connected, whether what their configuration runs is still there, and only once."""
    checks = []
    by_setup = 0
    for name, targets in (
        ("Claude Code here", claude_code(Scope.PROJECT, folder)),
        ("Claude Code", claude_code(Scope.USER, folder)),
        ("Claude Desktop", claude_desktop()),
    ):
        try:
            connected = connection_of(targets)
        except SetupError as error:
            checks.append(Check(name, Mark.WARNING, str(error)))
            continue
        if not connected.parts:
            continue
        by_setup += name.startswith("Claude Code") and any(part.startswith("hooks") for part in connected.parts)
        checks.append(_connection_check(name, connected, "run `mcp-evo setup` again"))
    checks += plugin_checks(folder, by_setup=by_setup > 0)
    return checks or [Check("clients", Mark.OK, "none is connected: mcp-evo setup claude-code, claude-desktop")]


def plugin_checks(folder: Path, *, by_setup: bool) -> list[Check]:
    """Plugins of Claude Code that run ours. `by_setup`: its own files name our hook, too."""
    name = "Claude Code plugin"
    try:
        plugins = our_plugins(claude_code(Scope.USER, folder).record.parent, folder)
    except SetupError as error:
        return [Check(name, Mark.WARNING, str(error))]
    checks = []
    for one in plugins:
        again = f"run `mcp-evo setup plugin` and `claude plugin install {one.name}` again"
        if not one.enabled:
            checks.append(Check(name, Mark.OK, f"{one.name} {one.version} is switched off"))
        elif not one.connected.parts:
            checks.append(Check(name, Mark.FAILED, f"{one.folder} of {one.name} does not exist any more: {again}"))
        elif by_setup:
            twice = "is on, and so are the hooks of `mcp-evo setup claude-code`: everything is recorded twice"
            checks.append(Check(name, Mark.WARNING, f"{one.name} {twice}. Take one out (that one with --remove)"))
        else:
            found = _connection_check(name, one.connected, again)
            checks.append(replace(found, detail=f"{one.name} {one.version} ({one.scope}): {found.detail}"))
    return checks


def _connection_check(name: str, connected: Connected, again: str) -> Check:
    gone = [program for program in connected.programs if not Path(program).is_file()]
    if gone:
        return Check(name, Mark.FAILED, f"{', '.join(gone)} does not exist any more: {again}")
    return Check(name, Mark.OK, ", ".join(connected.parts))


def _more_environment(state: CliState) -> list[str]:
    root = state.root
    if not root.is_dir():
        return []
    try:
        return Workspace(root).config().child_environment
    except WorkspaceError:  # reported by its own check
        return []


_PROBE = """
import importlib.util, json, sys
found = {name: (importlib.util.find_spec(name).origin if importlib.util.find_spec(name) else None) for name in %r}
devices, error = [], None
try:
    import torch
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices.append("cuda")
    if torch.backends.mps.is_available():
        devices.append("mps")
except Exception as failure:
    error = f"{type(failure).__name__}: {failure}"
print(json.dumps({"origins": found, "devices": devices, "error": error, "path": sys.path}))
"""


def probe_child(command: tuple[str, ...] | None = None) -> tuple[dict[str, Any], Check]:
    """What a worker would see: started the way workers are, in an empty folder."""
    interpreter = command[0] if command else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [interpreter, "-P", "-c", _PROBE % (OUR_PACKAGES,)],
                cwd=folder,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {}, Check("worker", Mark.FAILED, f"a child process could not be started: {error}")
    try:
        probe = json.loads(done.stdout)
    except ValueError:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return {}, Check("worker", Mark.FAILED, f"a child process ended with {done.returncode}: {' '.join(tail)}")
    if probe.get("error"):
        return probe, Check("worker", Mark.FAILED, f"torch cannot be imported: {probe['error']}")
    return probe, Check("worker", Mark.OK, f"{interpreter} -P -m trainer.worker")


def resolution_checks(probe: dict[str, Any]) -> list[Check]:
    """Our four package names are common words: in a worker they must be ours."""
    ours = Path(processes.__file__).resolve().parents[2]
    wrong = []
    for name, origin in probe.get("origins", {}).items():
        if origin is None or Path(origin).resolve().parent.parent != ours:
            wrong.append(f"{name} resolves to {origin or 'nothing'}")
    if wrong:
        return [
            Check(
                "packages", Mark.FAILED, f"{'; '.join(wrong)}; expected below {ours}. Look at PYTHONPATH and .pth files"
            )
        ]
    return [Check("packages", Mark.OK, f"{', '.join(OUR_PACKAGES)} are ours ({ours})")] if probe else []


def model_check() -> Check:
    """The bundled model is there."""
    if (BUNDLED_TINY / "config.json").is_file() and list(BUNDLED_TINY.glob("*.safetensors")):
        return Check("tiny", Mark.OK, str(BUNDLED_TINY))
    return Check("tiny", Mark.FAILED, f"the bundled model is missing in {BUNDLED_TINY}; install mcp-evo again")


def train_check(device: str) -> Check:
    """One real GRPO step in a child, compared with the CPU there."""
    to_stderr().print(f"training one step on {device} …", markup=False)
    command = [*(worker_override() or processes.worker_command()), "--doctor", device, "--json"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRAIN_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check(f"train {device}", Mark.FAILED, str(error))
    try:
        result = json.loads(done.stdout)
    except ValueError:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Check(f"train {device}", Mark.FAILED, f"ended with {done.returncode}: {' '.join(tail)}")
    good = done.returncode == 0 and bool(result.get("ok", True))
    detail = ", ".join(f"{key} {value}" for key, value in result.items() if not isinstance(value, (dict, list)))
    return Check(f"train {device}", Mark.OK if good else Mark.FAILED, detail)
