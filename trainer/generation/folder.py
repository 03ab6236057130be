"""A set of tasks on disk, `tasks/<id>/` of a workspace, and the process that makes it.

`plan.json` is written before the process starts; `journal.jsonl` grows while it works; `tasks.jsonl` (a data file),
`provenance.jsonl` (line by line where each task comes from) and at last `manifest.json` are the finished set, or
`failure.json` says why there is none. A process that is gone without either was interrupted: `resume` goes on with it.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from skill_bank.files import read_json, read_json_lines, write_json_atomic
from trainer.generation.types import GenerationError, GenerationPlan, Manifest
from trainer.models.catalog import resolve_model
from trainer.runs import processes
from trainer.runs.process_folder import ProcessFolder
from trainer.runs.types import Failure
from trainer.runs.workspace import ID_PATTERN, Workspace, check_id

LATEST = "latest"
POLL_S = 0.1
PROGRESS_S = 0.5
"""How often progress is written at most."""


class Progress(BaseModel):
    """How far a set is."""

    doing: str
    done: int
    of: int


class Standing(BaseModel):
    """How a set stands."""

    set_id: str
    state: Literal["running", "finished", "failed", "interrupted"]
    progress: Progress | None = None
    manifest: Manifest | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class SetFolder(ProcessFolder):
    """The files of one set."""

    @property
    def journal_path(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def tasks_path(self) -> Path:
        return self.path / "tasks.jsonl"

    @property
    def provenance_path(self) -> Path:
        return self.path / "provenance.jsonl"

    @property
    def manifest_path(self) -> Path:
        return self.path / "manifest.json"

    def read_plan(self) -> GenerationPlan:
        """Raises GenerationError."""
        try:
            return GenerationPlan.model_validate(read_json(self.plan_path))
        except FileNotFoundError:
            raise GenerationError(f"{self.path} holds no plan.json: it is no set of tasks.") from None
        except (ValueError, OSError) as error:
            raise GenerationError(f"{self.plan_path} cannot be read: {' '.join(str(error).split())}") from error

    def read_tasks(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(row, provenance) of each task of a finished set. Raises OSError."""
        rows, told = read_json_lines(self.tasks_path).rows, read_json_lines(self.provenance_path).rows
        return [(row, one) for (_, row), (_, one) in zip(rows, told, strict=True)]

    def standing(self) -> Standing:
        """How it stands. Raises GenerationError where it cannot be read."""
        identity, name = self.identity(), self.path.name
        alive = identity is not None and processes.is_alive(identity)  # before its files: it writes, then ends
        try:
            if self.manifest_path.exists():
                manifest = Manifest.model_validate(read_json(self.manifest_path))
                return Standing(set_id=name, state="finished", manifest=manifest)
            if self.failure_path.exists():
                failure = Failure.model_validate(read_json(self.failure_path))
                return Standing(set_id=name, state="failed", failure=failure)
            progress = Progress.model_validate(read_json(self.progress_path)) if self.progress_path.exists() else None
        except (ValueError, OSError) as error:
            raise GenerationError(f"{self.path} cannot be read: {' '.join(str(error).split())}") from error
        working = alive or (identity is None and self.is_young)
        state: Literal["running", "interrupted"] = "running" if working else "interrupted"
        return Standing(set_id=name, state=state, progress=progress)


class ProgressFile:
    """Writes how far a set is, not too often."""

    def __init__(self, folder: SetFolder) -> None:
        self._path = folder.progress_path
        self._told: tuple[str, float] = ("", 0.0)

    def __call__(self, doing: str, done: int, of: int) -> None:
        now = time.monotonic()
        if doing == self._told[0] and now - self._told[1] < PROGRESS_S:
            return
        self._told = (doing, now)
        write_json_atomic(self._path, Progress(doing=doing, done=done, of=of).model_dump())


def sets_of(workspace: Workspace) -> Path:
    """Where the sets of a workspace are."""
    return workspace.root / "tasks"


def known_sets(workspace: Workspace) -> list[SetFolder]:
    """All sets, the oldest first."""
    folder = sets_of(workspace)
    names = sorted(path.name for path in folder.iterdir() if ID_PATTERN.match(path.name)) if folder.is_dir() else []
    return [SetFolder(folder / name) for name in names if (folder / name / "plan.json").is_file()]


def find_set(workspace: Workspace, set_id: str = LATEST) -> SetFolder:
    """A set by its id or `latest`. Raises GenerationError, WorkspaceError."""
    known = known_sets(workspace)
    if not known:
        raise GenerationError("there are no generated tasks yet. Make some with: mcp-evo tasks generate --env NAME")
    if set_id == LATEST:
        return known[-1]
    check_id(set_id, "id of a set of tasks")
    for one in known:
        if one.path.name == set_id:
            return one
    newest = ", ".join(one.path.name for one in known[-3:])
    raise GenerationError(f"there is no set of tasks {set_id!r}. The newest: {newest}.")


def start_set(workspace: Workspace, plan: GenerationPlan) -> SetFolder:
    """Writes the plan and starts the process. Raises GenerationError, RunError, OSError."""
    folder = SetFolder(sets_of(workspace) / check_id(plan.set_id, "id of a set of tasks"))
    folder.path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        folder.path.mkdir(mode=0o700)
    except FileExistsError:
        raise GenerationError(
            f"there is a set {plan.set_id!r} already. Go on with it: mcp-evo tasks generate --resume {plan.set_id}; or "
            "give another --name."
        ) from None
    write_json_atomic(folder.plan_path, plan.model_dump(mode="json"))
    _spawn(workspace, folder, plan)
    return folder


def resume_set(workspace: Workspace, folder: SetFolder) -> SetFolder:
    """Goes on with a set whose process is gone; nothing happens to one that is finished or still worked on.

    A set that failed is tried again. Raises GenerationError, RunError, OSError.
    """
    standing = folder.standing()
    if standing.state in ("interrupted", "failed"):
        folder.failure_path.unlink(missing_ok=True)
        _spawn(workspace, folder, folder.read_plan())
    return folder


def _spawn(workspace: Workspace, folder: SetFolder, plan: GenerationPlan) -> None:
    processes.require_posix()
    environment = processes.child_environment(
        more=workspace.config().child_environment,
        tokens=plan.model is not None and resolve_model(plan.model).needs_network,
        threads=plan.config.threads,
    )
    identity, _ = processes.spawn(
        (sys.executable, "-P", "-m", "trainer.generate_main", str(folder.path)),
        directory=folder.path,
        log_path=folder.log_path,
        environment=environment,
    )
    write_json_atomic(folder.process_path, identity.note())


def wait_for(folder: SetFolder, tell: Callable[[Standing], None] | None = None) -> Standing:
    """How it stands at its end; `tell` hears of every look."""
    while True:
        standing = folder.standing()
        if tell is not None:
            tell(standing)
        if standing.state != "running":
            return standing
        time.sleep(POLL_S)


def stop_set(folder: SetFolder) -> bool:
    """Ends its process; what it noted stays. Returns whether it is gone."""
    return folder.stop()
