"""Two processes that train one run together: the same numbers as one, every file written once."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from trainer import parallel
from trainer.config import TrainingConfig
from trainer.runs.launch import LocalLauncher, wait
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace, create_workspace

SETTINGS = {
    "problems": 16,
    "batch_size": 4,
    "num_generations": 4,
    "max_steps": 3,
    "test_problems": 8,
    "validation_problems": 8,
    "validate_every": 2,
    "device": "cpu",
    "save_every": 2,
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "ws")


def launched(workspace: Workspace, name: str, **more: Any) -> RunDirectory:
    directory = create_run(workspace, TrainingConfig.model_validate(SETTINGS | more), run_id=name)
    LocalLauncher().tick(workspace, lock_timeout_s=10.0)
    return directory


@pytest.mark.parametrize("loss_type", [pytest.param("dapo", marks=pytest.mark.slow), "grpo"])
def test_two_processes_train_as_one(workspace: Workspace, loss_type: str) -> None:
    runs = []
    for processes in (1, 2):
        beta = 0.02 if loss_type == "grpo" else 0.0
        more = {"loss_type": loss_type, "entropy_coef": 0.01, "beta": beta}
        directory = launched(workspace, f"p{processes}", processes=processes, **more)
        document = wait(workspace, directory, timeout_s=200)
        if document.state is not RunState.FINISHED:
            pytest.fail(f"{document.failure}\n{(directory.path / 'worker.log').read_text(encoding='utf-8')}")
        runs.append(directory)
    one, two = runs
    assert [row["step"] for row in two.metrics()] == [1, 2, 3]
    for step in (1, 2, 3):
        pair = list(zip(one.episodes(step), two.episodes(step), strict=True))
        assert [a["task"] for a, _ in pair] == [b["task"] for _, b in pair]
        assert [a["generation"] for a, _ in pair] == [b["generation"] for _, b in pair]
        assert [a["completion_ids"] for a, _ in pair] == [b["completion_ids"] for _, b in pair]
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        for key in ("reward_mean", "frac_zero_variance", "trained_tokens", "episodes", "tokens_model"):
            assert b[key] == a[key], key
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=5e-3)
        assert b["loss"] == pytest.approx(a["loss"], abs=1e-4)
        assert b["clip_low"] == pytest.approx(a["clip_low"], abs=1e-3)
        assert b["logp_gap"] == pytest.approx(a["logp_gap"], abs=1e-5)
        assert ("kl" in b, "kl" in a) == (loss_type == "grpo", loss_type == "grpo")
        if loss_type == "grpo":
            assert b["kl"] == pytest.approx(a["kl"], rel=0.02, abs=1e-7)
    weights = [load_file(run.model_folder / "model.safetensors") for run in runs]
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=3e-4), name
    kinds = [event["kind"] for event in two.events()]
    for kind in ("started", "model", "finished"):
        assert kinds.count(kind) == 1, kinds
    assert [e["step"] for e in two.events() if e["kind"] == "validation"] == [2]
    assert [e["step"] for e in two.events() if e["kind"] == "checkpoint"] == [2]


def test_a_process_that_is_killed_ends_the_run_as_failed(workspace: Workspace) -> None:
    directory = launched(workspace, "killed", processes=2, max_steps=500)
    deadline = time.monotonic() + 150
    while not directory.metrics():
        assert time.monotonic() < deadline, directory.log_tail()
        time.sleep(0.1)
    launcher = psutil.Process(directory.read_document().pid or 0)
    ranks = [p for p in launcher.children(recursive=True) if "trainer.worker" in " ".join(p.cmdline())]
    assert len(ranks) == 2
    others = [p for p in ranks if p.environ().get("RANK") == "1"]
    os.kill(others[0].pid, signal.SIGKILL)
    document = wait(workspace, directory, timeout_s=120)
    assert document.state is RunState.FAILED, document
    assert document.failure is not None
    _, alive = psutil.wait_procs([*ranks, launcher], timeout=60)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_the_batch_must_be_shared_evenly() -> None:
    with pytest.raises(ValueError, match="multiple of 2"):
        TrainingConfig(batch_size=3, processes=2)


def test_means_over_ranks_count_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 over 30 tokens and 0.4 over 10: (3 + 4) / 40; a rank without tokens says nothing."""
    parts = [({"kl": 0.1, "clip_low": 0.2}, 30.0), ({"kl": 0.4}, 10.0), ({"kl": 9.0, "clip_high": 1.0}, 0.0)]
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr(parallel, "gather", lambda values: parts)
    assert parallel.weighted_means({}, 0.0) == {"kl": pytest.approx(0.175), "clip_low": pytest.approx(0.2)}
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert parallel.weighted_means({"kl": 0.5}, 0.0) == {"kl": 0.5}
