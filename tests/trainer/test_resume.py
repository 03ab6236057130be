"""Going on from a checkpoint: bit for bit, also after kill -9 at any moment."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import TrainingConfig
from trainer.runs import checkpoints
from trainer.runs.checkpoints import CheckpointState, Validation
from trainer.runs.errors import RunError
from trainer.runs.registry import create_run, find_run
from trainer.runs.resume import resume_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, RunState
from trainer.runs.workspace import Workspace, create_workspace

SETTINGS = {
    "problems": 16,
    "batch_size": 2,
    "num_generations": 4,
    "max_steps": 6,
    "test_problems": 8,
    "validation_problems": 8,
    "validate_every": 2,
    "lr_schedule": "cosine",
    "warmup_steps": 2,
    "weight_decay": 0.01,
    "save_every": 1,
    "threads": 1,
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "ws")


def new(workspace: Workspace, run_id: str, **more: Any) -> RunDirectory:
    return create_run(workspace, TrainingConfig.model_validate(SETTINGS | more), run_id=run_id, request="six steps")


def start(directory: RunDirectory) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "trainer.worker", str(directory.path)],
        stdout=subprocess.DEVNULL,
        stderr=open(directory.log_path, "ab"),
    )


def weights(directory: RunDirectory) -> bytes:
    return (directory.model_folder / "model.safetensors").read_bytes()


def episodes(directory: RunDirectory) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.episodes_folder.iterdir())}


def numbers(directory: RunDirectory) -> list[dict[str, Any]]:
    """Metrics without what a clock says."""
    return [{k: v for k, v in row.items() if k not in ("time_s", "seconds")} for row in directory.metrics()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Six steps in one go."""
    directory = new(create_workspace(tmp_path_factory.mktemp("whole") / "ws"), "whole")
    assert start(directory).wait(timeout=240) == 0
    return directory


def test_after_kill_9_at_any_moment_the_rest_is_the_same(workspace: Workspace, whole: RunDirectory) -> None:
    directory = new(workspace, "killed")
    process = start(directory)
    moment = random.uniform(0.0, 1.0)
    deadline = time.monotonic() + 200
    while not checkpoints.complete_checkpoints(directory.path / "checkpoints") and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
    directory.finish(RunState.FAILED)
    resumed = resume_run(workspace, find_run(workspace, "killed"), run_id="resumed")
    assert 1 <= resumed.step <= 6
    assert start(resumed.directory).wait(timeout=240) == 0
    document = resumed.directory.read_document()
    assert document.state is RunState.FINISHED
    assert document.parent_run == "killed"
    assert weights(resumed.directory) == weights(whole)
    assert episodes(resumed.directory) == episodes(whole)
    assert numbers(resumed.directory) == numbers(whole)
    before, after = document.eval["before"], document.eval["after"]
    reference = whole.read_document().eval
    assert (before.mean, after.mean) == (reference["before"].mean, reference["after"].mean)
    steps = [event["step"] for event in resumed.directory.events() if event["kind"] == "validation"]
    assert steps == [2, 4, 6]
    assert not (resumed.directory.path / "checkpoints").exists()


@pytest.mark.slow
def test_stopped_and_resumed(workspace: Workspace, whole: RunDirectory) -> None:
    """The default interval writes no checkpoint in so short a run, but stopping does."""
    directory = new(workspace, "stopped", save_every=None)
    process = start(directory)
    deadline = time.monotonic() + 200
    while not directory.metrics() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    directory.request_stop("user")
    assert process.wait(timeout=200) == 0
    assert directory.read_document().state is RunState.STOPPED
    resumed = resume_run(workspace, find_run(workspace, "stopped"))
    assert 1 <= resumed.step < 6
    assert start(resumed.directory).wait(timeout=240) == 0
    assert weights(resumed.directory) == weights(whole)
    assert episodes(resumed.directory) == episodes(whole)


@pytest.mark.parametrize("lora", [False, True])
def test_optimiser_and_schedule_are_the_same_too(tmp_path: Path, lora: bool) -> None:
    from test_grpo import make

    if lora:
        pytest.importorskip("peft", reason="the extra `lora` is not installed: pip install 'mcp-evo[lora]'")
    states = []
    for name, from_step in (("whole", None), ("half", 3)):
        (tmp_path / name).mkdir()
        trainer, _ = make(tmp_path / name, **(SETTINGS | {"validate_every": 0, "lora": lora}))
        trainer.on_checkpoint = lambda step, folder: None
        trainer.train(
            resume_from_checkpoint=from_step and str(tmp_path / "whole" / "checkpoints" / f"checkpoint-{from_step}")
        )
        states.append(tmp_path / name / "checkpoints" / "checkpoint-5")
    a, b = states
    for file in ("optimizer.pt", "scheduler.pt"):
        one, other = (torch.load(path / file, weights_only=True) for path in (a, b))
        assert _same(one, other), file
    file = "adapter_model.safetensors" if lora else "model.safetensors"
    assert (a / file).read_bytes() == (b / file).read_bytes()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


# ---- the format, without a worker


def evaluation(mean: float) -> Eval:
    return Eval(metric="success", split="validation", n=8, mean=mean, ci95=[0.0, 1.0])


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    if whole:
        checkpoints.complete(path, CheckpointState(step=step, validations=[Validation(step=1, result=evaluation(0.5))]))
    return path


def test_a_checkpoint_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    checkpoint(tmp_path, 3)
    checkpoint(tmp_path, 10, whole=False)
    bad = checkpoint(tmp_path, 11, whole=False)
    (bad / checkpoints.STATE_FILE).write_text('{"step": 11', encoding="utf-8")
    moved = checkpoint(tmp_path, 12, whole=False)
    (moved / checkpoints.STATE_FILE).write_text(json.dumps({"step": 4}), encoding="utf-8")
    assert [path.name for path in checkpoints.complete_checkpoints(tmp_path)] == ["checkpoint-3"]


def test_the_newest_two_are_kept_and_sorted_as_numbers(tmp_path: Path) -> None:
    for step in (2, 9, 10, 100):
        checkpoint(tmp_path, step)
    names = [path.name for path in checkpoints.complete_checkpoints(tmp_path)]
    assert names == ["checkpoint-100", "checkpoint-10"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-100"]


def test_the_best_validation_is_the_last_of_equals() -> None:
    several = [
        Validation(step=step, result=evaluation(mean)) for step, mean in ((1, 0.5), (2, 0.75), (3, 0.75), (4, 0.1))
    ]
    best = checkpoints.best_of(several)
    assert best is not None
    assert best.step == 3
    assert checkpoints.best_of([]) is None


def test_what_is_taken_over_and_what_is_not(workspace: Workspace) -> None:
    old = new(workspace, "old")
    checkpoint(old.path / "checkpoints", 2)
    for step in (1, 2, 3):
        old.append_metrics({"step": step, "reward_mean": step / 10})
        old.episodes_folder.mkdir(exist_ok=True)
        old.episode_path(step).write_text(f'{{"step": {step}}}\n', encoding="utf-8")
        old.append_event("validation", step=step)
    (old.path / "monitor.json").write_text('{"watched": "by this"}', encoding="utf-8")
    old.append_event("eval", name="before")
    old.append_event("eval", name="after")
    old.set_fields(eval={"before": evaluation(0.25), "validation": evaluation(0.5)}, step=3, profile="original")
    with pytest.raises(RunError, match="queued; only a run that has ended"):
        resume_run(workspace, find_run(workspace, "old"))
    old.finish(RunState.STOPPED, stop_reason="user")
    before = {path.name: path.read_bytes() for path in old.path.rglob("*") if path.is_file()}
    resumed = resume_run(workspace, find_run(workspace, "old"))
    assert (resumed.step, resumed.parent) == (2, "old")
    fresh = resumed.directory
    assert [row["step"] for row in fresh.metrics()] == [1, 2]
    assert fresh.episode_steps() == [1, 2]
    assert [(e["kind"], e.get("step"), e.get("name")) for e in fresh.events()] == [
        ("validation", 1, None),
        ("validation", 2, None),
        ("eval", None, "before"),
        ("resumed", 2, None),
    ]
    document = fresh.read_document()
    assert document.state is RunState.QUEUED
    assert set(document.eval) == {"before"}
    assert (document.parent_run, document.step, document.profile) == ("old", 2, "original")
    assert fresh.read_config() == old.read_config()
    assert (fresh.path / "monitor.json").read_bytes() == (old.path / "monitor.json").read_bytes()
    assert before == {path.name: path.read_bytes() for path in old.path.rglob("*") if path.is_file()}


def test_without_a_checkpoint_it_begins_again_and_a_finished_run_is_refused(workspace: Workspace) -> None:
    new(workspace, "early").finish(RunState.FAILED)
    assert resume_run(workspace, find_run(workspace, "early")).step == 0
    new(workspace, "done").finish(RunState.FINISHED)
    with pytest.raises(RunError, match="start a new run with model="):
        resume_run(workspace, find_run(workspace, "done"))
