"""Retention of runs: which may go, why the others stay, and letting them go.

1. A plan is made first and shows every run with its size and its reason; nothing is deleted while planning.
2. Never deleted: a run that has not ended or whose process lives, one that cannot be read, one that a patch, a trial, a
   round, a running evaluation or another run's configuration refers to, and one that a run in progress goes on from.
3. A plan may be old when it is carried out: each run is judged again under the supervisors' lock, moved out of sight
   there in one step, and only then deleted. A crash in between leaves a `.trash-…` folder that the next plan lists.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import BaseModel

from skill_bank.files import read_json_lines
from trainer.runs import processes, supervise
from trainer.runs.errors import RunError
from trainer.runs.registry import Run, find_run, list_runs
from trainer.runs.workspace import Workspace

TRASH = ".trash-"

REFERRING = ("patches", "trials", "rounds", "campaigns", "evaluations")
"""Folders of the workspace whose documents may name runs."""

REFERRING_DEPTH = 2
"""Documents lie at most so deep in them; below are a trial's own arms, which name nothing outside."""

BULK = ("episodes", "checkpoints", "model", "model.tmp", "eval-before.jsonl", "eval-after.jsonl")
"""What makes a run large; what it measured is elsewhere."""

LOCK_TIMEOUT_S = 10.0
"""How long a supervisor that is at it is waited for."""

DAY_S = 86_400.0

LAST_WORDS_S = 60.0
"""After its final state a worker may still write; later a living one is a warm worker at its next run."""


@dataclass(frozen=True)
class Retention:
    """What to keep."""

    keep_last: int = 20
    """So many of the newest runs stay."""
    older_than_days: float = 30.0
    """Runs that ended later stay."""
    results_only: bool = False
    """Delete episodes, checkpoints and weights only; the run with its measures stays."""


class RunSize(BaseModel):
    """One run in a plan."""

    run_id: str
    state: str
    size_bytes: int
    """What would be freed, or what it takes."""
    reason: str


class PrunePlan(BaseModel):
    """What would be deleted and what not."""

    delete: list[RunSize]
    keep: list[RunSize]
    trash: list[RunSize]
    """Folders that an interrupted prune left behind."""
    results_only: bool

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in (*self.delete, *self.trash))


class Pruned(BaseModel):
    """What became of a plan."""

    deleted: list[RunSize]
    skipped: list[RunSize]
    """No longer deletable when it came to it; the reason says why."""
    size_bytes: int


def plan_pruning(
    workspace: Workspace, retention: Retention, run_ids: Sequence[str] = (), now: float | None = None
) -> PrunePlan:
    """The plan. `run_ids`: only these, whatever their age and number; what refers to them protects them all the same.

    Raises RunError for an unknown run, WorkspaceError.
    """
    runs = list_runs(workspace)
    chosen = {find_run(workspace, one).document.run_id for one in run_ids}
    protected = protections(workspace, runs)
    moment = time.time() if now is None else now
    delete: list[RunSize] = []
    keep: list[RunSize] = []
    for number, run in enumerate(runs):
        run_id = run.directory.run_id
        why_not = protected.get(run_id)
        if why_not is None and chosen and run_id not in chosen:
            why_not = "not named"
        elif why_not is None and not chosen:
            why_not = _too_new(run, number, retention, moment)
        freed = size_of(run, results_only=retention.results_only)
        if why_not is None and retention.results_only and freed == 0:
            why_not = "holds results only"
        size = freed if why_not is None else size_of(run, results_only=False)
        entry = RunSize(
            run_id=run_id,
            state=str(run.document.state),
            size_bytes=size,
            reason=why_not or ("named" if chosen else f"ended {_age_days(run, moment):.0f} days ago"),
        )
        (delete if why_not is None else keep).append(entry)
    return PrunePlan(delete=delete, keep=keep, trash=_trash(workspace), results_only=retention.results_only)


def _age_days(run: Run, now: float) -> float:
    return max(0.0, now - (run.document.ended_at or run.document.created_at)) / DAY_S


def _too_new(run: Run, number: int, retention: Retention, now: float) -> str | None:
    if number < retention.keep_last:
        return f"one of the newest {retention.keep_last}"
    age = _age_days(run, now)
    return f"ended {age:.0f} days ago" if age < retention.older_than_days else None


def protections(workspace: Workspace, runs: Sequence[Run]) -> dict[str, str]:
    """Run → why it may not be deleted, of those that may not."""
    ids = {run.directory.run_id for run in runs}
    reasons: dict[str, str] = {}
    for where, run_id in references(workspace, ids):
        reasons.setdefault(run_id, f"{where} refers to it")
    for run in runs:
        document = run.document
        for named in _named_in(_config_of(run), ids) - {document.run_id}:
            reasons.setdefault(named, f"run {document.run_id} was trained from it")
        if not document.state.is_final and document.parent_run in ids:
            reasons[document.parent_run] = f"run {document.run_id} goes on from it"
    for run in runs:
        own = _own_reason(run)
        if own is not None:
            reasons[run.directory.run_id] = own
    return reasons


def _own_reason(run: Run) -> str | None:
    if run.directory.path.is_symlink():
        return "is a link to another place"
    if run.document.failure is not None and run.document.failure.kind == "unreadable":
        return "its document cannot be read"
    if not run.document.state.is_final:
        return f"is {run.document.state}"
    identity = supervise.identity_of(run.document)
    just_ended = time.time() - (run.document.ended_at or 0.0) < LAST_WORDS_S
    if just_ended and identity is not None and processes.is_alive(identity):
        return f"has just ended and its process {identity.pid} lives"
    return None


def _config_of(run: Run) -> Any:
    try:
        return {"model": run.directory.read_config().model}
    except RunError:
        return None


def references(workspace: Workspace, ids: set[str]) -> Iterator[tuple[str, str]]:
    """(document, run) for each run that a document of patches, trials, rounds or unfinished evaluations names."""
    for name in REFERRING:
        folder = workspace.root / name
        for path in _documents(folder, REFERRING_DEPTH):
            if name == "evaluations" and (path.name != "plan.json" or _is_over(path.parent)):
                continue
            for run_id in sorted(_named_in(_load(path), ids)):
                yield str(path.relative_to(workspace.root)), run_id


def _is_over(evaluation: Path) -> bool:
    return any((evaluation / name).exists() for name in ("result.json", "failure.json"))


def _documents(folder: Path, depth: int) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and depth > 1:
            yield from _documents(path, depth - 1)
        elif path.is_file() and path.suffix in (".json", ".jsonl"):
            yield path


def _load(path: Path) -> Any:
    """The JSON of a document; its plain text where it cannot be parsed, so that what it names stays protected."""
    if path.suffix == ".jsonl":
        return [row for _, row in read_json_lines(path).rows]
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text.replace('"', "\n").splitlines()


def _named_in(value: Any, ids: set[str]) -> set[str]:
    """Runs that a JSON value names: a text that is an id, or a path into a run's folder."""
    if isinstance(value, str):
        if value in ids:
            return {value}
        parts = Path(value).parts if "/" in value else ()
        return {after for before, after in pairwise(parts) if before == "runs" and after in ids}
    if isinstance(value, dict):
        return {found for one in (*value.keys(), *value.values()) for found in _named_in(one, ids)}
    if isinstance(value, list):
        return {found for one in value for found in _named_in(one, ids)}
    return set()


def size_of(run: Run, *, results_only: bool) -> int:
    """Bytes of a run's folder, or of its bulk only."""
    path = run.directory.path
    return sum(_bytes(path / name) for name in BULK) if results_only else _bytes(path)


def _bytes(path: Path) -> int:
    """Bytes of the files below, links not followed; what vanishes meanwhile counts nothing."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        return sum(_bytes(Path(entry.path)) for entry in os.scandir(path))
    except FileNotFoundError:
        return 0


def _trash(workspace: Workspace) -> list[RunSize]:
    if not workspace.runs.is_dir():
        return []
    return [
        RunSize(run_id=path.name, state="trash", size_bytes=_bytes(path), reason="left by an interrupted prune")
        for path in sorted(workspace.runs.glob(f"{TRASH}*"))
    ]


def carry_out(workspace: Workspace, plan: PrunePlan) -> Pruned:
    """Deletes what the plan says, each run judged again. Raises RunError where another process holds the lock."""
    deleted: list[RunSize] = []
    skipped: list[RunSize] = []
    trash = [workspace.runs / one.run_id for one in plan.trash]
    lock = FileLock(str(workspace.runs / ".supervise.lock"), timeout=LOCK_TIMEOUT_S, mode=0o600)
    try:
        with lock:
            known = {run.directory.run_id: run for run in list_runs(workspace)}
            protected = protections(workspace, list(known.values()))
            for one in plan.delete:
                run = known.get(one.run_id)
                reason = "is gone already" if run is None else protected.get(one.run_id)
                if run is None or reason is not None:
                    skipped.append(one.model_copy(update={"reason": reason}))
                    continue
                moved = _move_bulk(run) if plan.results_only else _move(run)
                trash.append(moved)
                deleted.append(one)
    except Timeout as error:
        raise RunError("another process supervises the runs at this moment. Nothing was deleted; try again.") from error
    for path in trash:
        shutil.rmtree(path, ignore_errors=True)
    freed = sum(one.size_bytes for one in (*deleted, *plan.trash))
    return Pruned(deleted=[*deleted, *plan.trash], skipped=skipped, size_bytes=freed)


def _trash_path(run: Run) -> Path:
    return run.directory.path.parent / f"{TRASH}{run.directory.run_id}-{os.getpid()}-{time.time_ns()}"


def _move(run: Run) -> Path:
    target = _trash_path(run)
    os.rename(run.directory.path, target)
    return target


def _move_bulk(run: Run) -> Path:
    target = _trash_path(run)
    target.mkdir(mode=0o700)
    for name in BULK:
        part = run.directory.path / name
        if part.exists() or part.is_symlink():
            os.rename(part, target / name)
    run.directory.append_event("pruned", parts=list(BULK))
    return target
