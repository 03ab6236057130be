"""Going on with a run that ended early: a new run that begins where the newest checkpoint of the old one lies.

The old run stays as it ended. The new one names it as `parent_run` and takes over its configuration, its test before
training, and metrics, events and episodes up to the checkpoint, so that its curves are whole.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skill_bank.files import write_text_atomic
from trainer.runs.checkpoints import checkpoint_step, complete_checkpoints
from trainer.runs.detectors.policy import FILE_NAME as MONITOR_FILE
from trainer.runs.errors import RunError
from trainer.runs.registry import Run, create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace

_TAKEN_OVER = ("profile", "parameters", "round", "session", "skill_versions")


@dataclass(frozen=True)
class Resumed:
    """A run that goes on."""

    directory: RunDirectory
    parent: str
    step: int
    """Steps that are done already; 0: there was no complete checkpoint."""


def resume_run(workspace: Workspace, run: Run, *, run_id: str | None = None, **fields: Any) -> Resumed:
    """A queued run that goes on where `run` left off. `fields` are further fields of its document.

    Raises RunError where the run still runs or has finished its work, and what create_run raises.
    """
    document, old = run.document, run.directory
    if not document.state.is_final:
        raise RunError(
            f"run {old.run_id} is {document.state.value}; only a run that has ended can be resumed. Stop it first: "
            f"mcp-evo runs stop {old.run_id}"
        )
    if document.state is RunState.FINISHED:
        raise RunError(
            f"run {old.run_id} is finished: its budget is spent or its target met. To train its model further start "
            f"a new run with model={old.model_folder}."
        )
    config = old.read_config()
    found = complete_checkpoints(old.path / "checkpoints")
    checkpoint = found[0] if found else None
    step = (checkpoint_step(checkpoint) or 0) if checkpoint is not None else 0
    evals = {name: value for name, value in document.eval.items() if name == "before"}
    taken = {name: getattr(document, name) for name in _TAKEN_OVER} | {"step": step, "eval": evals} | fields
    directory = create_run(
        workspace,
        config,
        run_id=run_id,
        request=document.request,
        provenance=document.provenance,
        parent_run=old.run_id,
        fill=lambda folder: _take_over(old, RunDirectory(folder), checkpoint, step),
        **taken,
    )
    return Resumed(directory, old.run_id, step)


def _take_over(old: RunDirectory, new: RunDirectory, checkpoint: Path | None, step: int) -> None:
    if checkpoint is not None:
        shutil.copytree(checkpoint, new.path / "checkpoints" / checkpoint.name, copy_function=_link)
    _write_lines(new.metrics_path, [row for row in old.metrics() if row["step"] <= step])
    kept = [event for event in old.events() if _still_true(event, step)]
    _write_lines(new.events_path, kept)
    new.append_event("resumed", parent=old.run_id, step=step)
    for name in ("eval-before.jsonl", MONITOR_FILE):
        if (old.path / name).exists():
            _link(str(old.path / name), str(new.path / name))
    for number in old.episode_steps():
        if number <= step:
            new.episodes_folder.mkdir(exist_ok=True)
            _link(str(old.episode_path(number)), str(new.episode_path(number)))


def _still_true(event: dict[str, Any], step: int) -> bool:
    """Whether what an event says happened also in the resumed run's past."""
    if event.get("kind") == "eval":
        return event.get("name") == "before"
    at = event.get("step")
    return isinstance(at, int) and at <= step and event.get("kind") not in ("restored", "resumed")


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    if rows:
        write_text_atomic(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def _link(source: str, target: str) -> None:
    """The same file twice: checkpoints and episode files are never changed. A copy where the system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def can_resume(document: RunDocument) -> bool:
    """Whether a run has ended before its work was done."""
    return document.state.is_final and document.state is not RunState.FINISHED
