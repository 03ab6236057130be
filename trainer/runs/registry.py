"""Runs of a workspace: create, list, find.

Listing reads only the documents that changed. A document is known again by its file's inode, size and time of the last
change; that clock ticks every few milliseconds, so one that is younger than `SETTLED_NS` when it is read, and could
change again within the same tick, is read again next time. A run that has ended never changes again: its file is looked
at every `ENDED_EVERY_S`, for the case that somebody damaged it.
"""

import difflib
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunDocument, RunState
from trainer.runs.workspace import ID_PATTERN, Workspace, check_id

LATEST = "latest"
"""Stands for the run created last, in every command and tool."""

UNREADABLE = "unreadable"
"""Kind of failure of a run whose document cannot be read."""

SETTLED_NS = 50_000_000
"""Age of a file's last change beyond which its next change has another time: ten ticks of the coarsest usual clock."""

ENDED_EVERY_S = 0.5
"""How often the file of a run that has ended is looked at."""

MAX_WORKSPACES = 8
"""Workspaces whose runs stay known to a process."""

_PACKAGES = ("mcp-evo", "torch", "transformers", "trl", "mcp")


@dataclass(frozen=True)
class Run:
    """A run directory with its document as it was read."""

    directory: RunDirectory
    document: RunDocument


@dataclass(frozen=True)
class _Known:
    """A run as it was read last."""

    mark: tuple[int, int, int]
    """Inode, size and time of the last change (ns) of its document."""
    run: Run
    looked_at: float
    """When its file was looked at last, on the monotonic clock."""


_known: dict[Path, dict[str, _Known]] = {}
"""Runs folder → name → run; the folder that was listed last stands last."""

_known_lock = threading.Lock()


def new_run_id(now: float | None = None) -> str:
    """`20260131-154500-k3f9a0c2`: sorts by time, cannot collide in practice."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{stamp}-{secrets.token_hex(4)}"


def config_hash(config: TrainingConfig) -> str:
    """First 16 hex digits of the SHA-256 of the canonical JSON of a configuration."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide what a run computes, from their metadata (nothing is imported)."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def create_run(
    workspace: Workspace,
    config: TrainingConfig,
    *,
    run_id: str | None = None,
    request: str | None = None,
    provenance: dict[str, dict[str, Any]] | None = None,
    fill: Callable[[Path], None] | None = None,
    **fields: Any,
) -> RunDirectory:
    """A new run in state `queued`. `fields` are further fields of the run document, `fill(folder)` writes further files
    before anybody can see it. Raises RunError, WorkspaceError."""
    name = check_id(run_id) if run_id is not None else new_run_id()
    if name == LATEST:
        raise RunError(f"{LATEST!r} means the run created last and cannot be the id of one.")
    document = RunDocument(
        run_id=name,
        created_at=time.time(),
        request=request,
        config_hash=config_hash(config),
        provenance=provenance or {},
        packages=package_versions(),
        planned_steps=config.planned_steps,
        **fields,
    )
    directory = RunDirectory(workspace.runs / name)
    directory.create(document, config, fill)
    return directory


def list_runs(workspace: Workspace) -> list[Run]:
    """All runs, the newest first. A run whose document cannot be read is listed as lost, with the reason."""
    folder = workspace.runs
    before = _known.get(folder, {})
    after: dict[str, _Known] = {}
    runs: list[Run] = []
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    for name in names:
        if ID_PATTERN.match(name) is None:
            continue
        found, settled = _look(folder, name, before.get(name))
        if found is not None:
            runs.append(found.run)
            if settled:
                after[name] = found
    _remember(folder, after)
    return sorted(runs, key=lambda run: (run.document.created_at, run.document.run_id), reverse=True)


def _look(folder: Path, name: str, known: _Known | None) -> tuple[_Known | None, bool]:
    """(the run as it is now, None where there is none; whether its mark tells the next change)."""
    clock, now = time.monotonic(), time.time_ns()
    if known is not None and known.run.document.state.is_final and clock - known.looked_at < ENDED_EVERY_S:
        return known, True
    try:
        seen = os.stat(f"{folder}/{name}/run.json")
    except (FileNotFoundError, NotADirectoryError):
        return None, False
    mark = (seen.st_ino, seen.st_size, seen.st_ctime_ns)
    run = known.run if known is not None and known.mark == mark else _read(RunDirectory(folder / name))
    settled = seen.st_ctime_ns < now - SETTLED_NS and not _is_unreadable(run.document)
    return _Known(mark, run, clock), settled


def _remember(folder: Path, runs: dict[str, _Known]) -> None:
    with _known_lock:
        _known.pop(folder, None)
        _known[folder] = runs
        while len(_known) > MAX_WORKSPACES:
            del _known[next(iter(_known))]


def _read(directory: RunDirectory) -> Run:
    try:
        return Run(directory, directory.read_document())
    except RunError as error:
        try:
            created = directory.path.stat().st_mtime
        except OSError:
            created = 0.0
        failure = Failure(kind=UNREADABLE, message=str(error))
        document = RunDocument(run_id=directory.run_id, state=RunState.LOST, created_at=created, failure=failure)
        return Run(directory, document)


def _is_unreadable(document: RunDocument) -> bool:
    return document.failure is not None and document.failure.kind == UNREADABLE


def latest_run(workspace: Workspace) -> Run:
    """The run created last. Raises RunError where there is none."""
    runs = list_runs(workspace)
    if not runs:
        raise RunError(f'there are no runs in {workspace.root} yet. Start one with: mcp-evo train "…"')
    return runs[0]


def find_run(workspace: Workspace, run_id: str | None = None) -> Run:
    """A run by id, by a beginning of an id that only one has, or the latest one. Raises RunError, WorkspaceError."""
    if run_id is None or run_id == LATEST:
        return latest_run(workspace)
    check_id(run_id)
    directory = RunDirectory(workspace.runs / run_id)
    if directory.document_path.exists():
        return _read(directory)
    runs = list_runs(workspace)
    names = [run.document.run_id for run in runs]
    starting = [run for run in runs if run.directory.run_id.startswith(run_id)]
    if len(starting) == 1:
        return starting[0]
    if len(starting) > 1:
        raise RunError(f"{run_id!r} begins the ids of {len(starting)} runs: {', '.join(_names(starting))}. Name one.")
    near = difflib.get_close_matches(run_id, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    known = f"The newest are: {', '.join(names[:5])}." if names else "There are none yet."
    raise RunError(f"there is no run {run_id!r} in {workspace.root}.{hint} {known} See: mcp-evo runs list")


def _names(runs: list[Run]) -> list[str]:
    return [run.directory.run_id for run in runs[:5]]
