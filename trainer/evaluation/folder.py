"""An evaluation on disk, `evaluations/<id>/`, and the process that fills it.

`plan.json` is written before the process starts, `result.json` or `failure.json` is its last word; a process that is
gone without either was killed. Nothing else is kept in memory, so whoever reads the folder knows how it stands.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skill_bank.files import read_json, write_json_atomic
from trainer.evaluation.types import EvaluationError, EvaluationPlan, EvaluationResult, Progress, Standing
from trainer.models.catalog import resolve_model
from trainer.runs import processes
from trainer.runs.process_folder import ProcessFolder
from trainer.runs.types import Failure
from trainer.runs.workspace import ID_PATTERN, Workspace, check_id

POLL_S = 0.1


@dataclass(frozen=True)
class EvaluationFolder(ProcessFolder):
    """The files of one evaluation."""

    @property
    def result_path(self) -> Path:
        return self.path / "result.json"

    @property
    def episodes_path(self) -> Path:
        """One line an episode: its score, its problem, its conversation."""
        return self.path / "episodes.jsonl"

    def read_plan(self) -> EvaluationPlan:
        """Raises EvaluationError."""
        try:
            return EvaluationPlan.model_validate(read_json(self.plan_path))
        except FileNotFoundError:
            raise EvaluationError(f"{self.path} holds no plan.json: it is no evaluation.") from None
        except (ValueError, OSError) as error:
            raise EvaluationError(f"{self.plan_path} cannot be read: {' '.join(str(error).split())}") from error

    def write_progress(self, done: int, parts: int, doing: str) -> None:
        """How far it is."""
        write_json_atomic(self.progress_path, Progress(done=done, parts=parts, doing=doing).model_dump())

    def write_result(self, result: EvaluationResult) -> None:
        """The last word of an evaluation that worked."""
        write_json_atomic(self.result_path, result.model_dump(mode="json"))

    def standing(self) -> Standing:
        """How it stands. Raises EvaluationError where it cannot be read."""
        identity = self.identity()
        alive = identity is not None and processes.is_alive(identity)  # before its files: it writes, then ends
        try:
            if self.result_path.exists():
                result = EvaluationResult.model_validate(read_json(self.result_path))
                return Standing(evaluation_id=self.path.name, state="finished", result=result)
            if self.failure_path.exists():
                failure = Failure.model_validate(read_json(self.failure_path))
                return Standing(evaluation_id=self.path.name, state="failed", failure=failure)
            progress = Progress.model_validate(read_json(self.progress_path)) if self.progress_path.exists() else None
        except (ValueError, OSError) as error:
            raise EvaluationError(f"{self.path} cannot be read: {' '.join(str(error).split())}") from error
        if alive or (identity is None and self.is_young):
            return Standing(evaluation_id=self.path.name, state="running", progress=progress)
        code = None if identity is None else processes.exit_status(identity)
        message = "its process is gone without a result. Start it again; worker.log may say more."
        failure = Failure(kind="killed", message=message, exit_code=code, log_tail=self.log_tail())
        return Standing(evaluation_id=self.path.name, state="failed", progress=progress, failure=failure)


def evaluations_of(workspace: Workspace) -> Path:
    """Where the evaluations of a workspace are."""
    return workspace.root / "evaluations"


def find_evaluation(workspace: Workspace, evaluation_id: str | None = None) -> EvaluationFolder:
    """An evaluation by id, or the latest one. Raises EvaluationError, WorkspaceError."""
    folder = evaluations_of(workspace)
    known = sorted(path.name for path in folder.iterdir() if ID_PATTERN.match(path.name)) if folder.is_dir() else []
    if evaluation_id is None or evaluation_id == "latest":
        if not known:
            raise EvaluationError("there are no evaluations yet. Start one with: mcp-evo evaluate <run or model>")
        return EvaluationFolder(folder / known[-1])
    check_id(evaluation_id, "valid id of an evaluation")
    if evaluation_id not in known:
        newest = f" The newest: {', '.join(known[-3:])}." if known else " There are none yet."
        raise EvaluationError(f"there is no evaluation {evaluation_id!r}.{newest}")
    return EvaluationFolder(folder / evaluation_id)


def start_evaluation(workspace: Workspace, plan: EvaluationPlan) -> EvaluationFolder:
    """Writes the plan and starts its process. Raises EvaluationError, RunError, OSError."""
    processes.require_posix()
    folder = EvaluationFolder(evaluations_of(workspace) / plan.evaluation_id)
    folder.path.parent.mkdir(mode=0o700, exist_ok=True)
    folder.path.mkdir(mode=0o700)
    write_json_atomic(folder.plan_path, plan.model_dump(mode="json"))
    identity, _ = processes.spawn(
        (sys.executable, "-P", "-m", "trainer.evaluate_main", str(folder.path)),
        directory=folder.path,
        log_path=folder.log_path,
        environment=child_environment(workspace, plan),
    )
    write_json_atomic(folder.process_path, identity.note())
    return folder


def child_environment(workspace: Workspace, plan: EvaluationPlan) -> dict[str, str]:
    """What the process sees; the hub's tokens only where a subject comes from the hub."""
    tokens = any(resolve_model(one.model).needs_network for one in plan.subjects)
    return processes.child_environment(
        more=workspace.config().child_environment, tokens=tokens, threads=plan.config.threads
    )


def wait_for(
    folder: EvaluationFolder, timeout_s: float | None = None, tell: Callable[[Standing], None] | None = None
) -> Standing:
    """How it stands at its end, or after `timeout_s`; `tell` hears of every look."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        standing = folder.standing()
        if tell is not None:
            tell(standing)
        if standing.state != "running" or (deadline is not None and time.monotonic() >= deadline):
            return standing
        time.sleep(POLL_S)


def stop_evaluation(folder: EvaluationFolder) -> bool:
    """Ends its process. Returns whether it is gone."""
    return folder.stop()
