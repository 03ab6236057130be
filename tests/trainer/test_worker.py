"""The real worker as a real process: a short GRPO run, stopping, failing, serving."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainingConfig
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

SMALL: dict[str, Any] = {
    "problems": 8,
    "batch_size": 2,
    "num_generations": 4,
    "max_steps": 3,
    "test_problems": 16,
    "validation_problems": 8,
    "validate_every": 2,
    "threads": 1,
    "device": "cpu",
}
COMMAND = [sys.executable, "-P", "-m", "trainer.worker"]


def create(where: Path, name: str = "r1", **more: Any) -> RunDirectory:
    directory = RunDirectory(where / name)
    directory.create(RunDocument(run_id=name, created_at=time.time()), TrainingConfig.model_validate(SMALL | more))
    return directory


def train(directory: RunDirectory, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, str(directory.path)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=directory.path,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def wait_for(condition: Any, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to this in time"
        time.sleep(0.05)


def test_a_real_run_leaves_everything_it_promises(tmp_path: Path) -> None:
    directory = create(tmp_path)
    done = train(directory)
    assert done.returncode == 0, done.stderr
    document = directory.read_document()
    assert (document.state, document.verdict, document.step) == (RunState.FINISHED, "no_goal", 3)
    assert document.device == "cpu"
    assert document.parameters is not None
    assert document.parameters < 1_500_000
    assert {name: (e.split, e.n) for name, e in document.eval.items()} == {
        "before": ("test", 16),
        "after": ("test", 16),
        "validation": ("validation", 8),
    }
    lines = directory.metrics()
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        episodes = directory.episodes(line["step"])
        assert len(episodes) == line["episodes"] == 8
        assert [e["generation"] for e in episodes] == [0, 1, 2, 3] * 2
        rewards = [e["reward"] for e in episodes]
        assert line["reward_mean"] == pytest.approx(sum(rewards) / 8)
        flat = [len(set(rewards[at : at + 4])) == 1 for at in (0, 4)]
        assert line["frac_zero_variance"] == sum(flat) / 2
        kept = [e for at, dead in zip((0, 4), flat, strict=True) if not dead for e in episodes[at : at + 4]]
        assert line["trained_tokens"] == sum(sum(e["mask"]) for e in kept)
        assert line["tokens_model"] == sum(sum(e["mask"]) for e in episodes)
    assert (directory.model_folder / "model.safetensors").exists()
    assert {e["kind"] for e in directory.events()} >= {"started", "eval", "validation", "model", "finished"}


@pytest.mark.slow
def test_the_trained_model_can_be_trained_on(tmp_path: Path) -> None:
    first = create(tmp_path, "r1", max_steps=1, validate_every=0)
    assert train(first).returncode == 0
    second = create(tmp_path, "r2", model=str(first.model_folder), max_steps=1, validate_every=0)
    assert train(second).returncode == 0, second.log_tail()
    # the second run starts where the first one ended: same problems, same streams, same model
    after, before = first.read_document().eval["after"], second.read_document().eval["before"]
    assert (after.mean, after.turns_mean) == (before.mean, before.turns_mean)


def test_stop_file_ends_the_run_as_stopped_with_its_model(tmp_path: Path) -> None:
    directory = create(tmp_path, max_steps=500)
    process = subprocess.Popen([*COMMAND, str(directory.path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(directory.metrics()) >= 2)
    directory.request_stop("user")
    assert process.wait(60) == 0
    document = directory.read_document()
    assert (document.state, document.stop_reason) == (RunState.STOPPED, "user")
    assert document.step < 500
    assert directory.model_folder.is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_as_stopped(tmp_path: Path, number: signal.Signals) -> None:
    directory = create(tmp_path, max_steps=500)
    process = subprocess.Popen([*COMMAND, str(directory.path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(directory.metrics()) >= 1)
    process.send_signal(number)
    assert process.wait(60) == 0
    assert directory.read_document().state is RunState.STOPPED


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"env": "calculater"}, "environment", "Did you mean calculator"),
        ({"model": "no-such-org/no-such-model"}, "model", "could not be fetched from the Hugging Face hub"),
        ({"env": "python:nowhere:Env"}, "environment", "no module nowhere"),
        ({"data": "tasks.jsonl"}, "data", "there is no file"),
        ({"device": "cuda"}, "model", "device cuda is not available"),
        ({"test_problems": 5000, "difficulty": "simple"}, "data", "different test problems, 5000 were asked for"),
    ],
)
def test_what_cannot_be_trained_fails_with_one_clear_sentence(
    tmp_path: Path, more: dict[str, Any], kind: str, words: str
) -> None:
    import torch

    if more.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    directory = create(tmp_path, **more)
    done = train(directory, {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 1
    document = directory.read_document()
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == kind
    assert words in document.failure.message
    assert not directory.model_folder.exists()


@pytest.mark.slow
def test_a_warm_worker_runs_one_directory_after_another(tmp_path: Path) -> None:
    first, second = create(tmp_path, "r1", max_steps=1), create(tmp_path, "r2", env="nothing")
    third = create(tmp_path, "r3", max_steps=1)
    alone = create(tmp_path, "alone", max_steps=1)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "--serve", "--protocol-fd", str(writing)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writing,),
        text=True,
    )
    os.close(writing)
    assert process.stdin is not None
    with os.fdopen(reading) as answers:
        assert answers.readline() == "ready\n"
        for directory, word in ((first, "done"), (second, "failed"), (third, "done")):
            process.stdin.write(f"{directory.path}\n")
            process.stdin.flush()
            assert answers.readline() == f"{word} {directory.path}\n"
        process.stdin.close()
        assert process.wait(30) == 0
    # what ran before in the same process changes nothing
    assert train(alone).returncode == 0
    for directory in (first, third):
        assert _deterministic(directory) == _deterministic(alone)


def _deterministic(directory: RunDirectory) -> Any:
    timeless = [{k: v for k, v in line.items() if k not in ("time_s", "seconds")} for line in directory.metrics()]
    episodes = [(e["completion_ids"], e["logprobs"], e["reward"]) for e in directory.episodes(1)]
    return timeless, episodes, directory.read_document().eval["after"].mean


def test_own_tasks_and_tools_train(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "class Shop:\n"
        "    system_prompt = 'Solve the task with the tools.'\n"
        "    def __init__(self):\n"
        "        self.reward = 0.0\n"
        "        self.finished = False\n"
        "    def reset(self, answer='', **row):\n"
        "        self.expected = answer\n"
        "        return None\n"
        "    def calculate(self, expression: str) -> str:\n"
        "        '''\n        Work it out.\n\n        Args:\n            expression: What.\n        '''\n"
        "        return '7'\n"
        "    def finish(self, answer: str) -> str:\n"
        "        '''\n        Submit.\n\n        Args:\n            answer: The answer.\n        '''\n"
        "        self.finished, self.reward = True, float(answer == self.expected)\n"
        "        return 'done'\n"
        "    def get_reward(self):\n"
        "        return self.reward\n"
        "def half(episode, environment):\n"
        "    return 0.5 * environment.get_reward() + 0.5 * (episode.turns <= 2)\n"
    )
    rows = [{"question": f"What is {i} + 3? 数学 \u2028", "answer": "7"} for i in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in rows), encoding="utf-8")
    directory = create(
        tmp_path,
        env="python:shop:Shop",
        folder=str(tmp_path),
        data=str(tmp_path / "tasks.jsonl"),
        columns={"prompt": "question"},
        reward="python:shop:half",
        max_steps=1,
        validate_every=0,
    )
    done = train(directory)
    assert done.returncode == 0, done.stderr[-2000:]
    assert directory.read_document().eval["after"].n == 4  # a fifth of 20 different problems
    assert all(e["reward"] in (0.0, 0.5, 1.0) for e in directory.episodes(1))


def test_an_environment_that_always_fails_is_a_failed_run_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "broken_env.py").write_text(
        "class Broken:\n"
        "    def reset(self, **row):\n"
        "        raise SystemExit('no licence')\n"
        "    def look(self) -> str:\n"
        "        '''Look.'''\n"
        "        return 'x'\n"
        "    def get_reward(self):\n"
        "        return 1.0\n"
    )
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"prompt": f"q{i}"}) for i in range(10)))
    directory = create(
        tmp_path, env="python:broken_env:Broken", folder=str(tmp_path), data=str(tmp_path / "t.jsonl"), problems=4
    )
    assert train(directory).returncode == 1
    document = directory.read_document()
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "environment"
    assert "reset: SystemExit: no licence" in document.failure.message
    assert "before" not in document.eval  # no number where there is no evidence
    assert not directory.model_folder.exists()


def test_doctor_makes_one_real_step() -> None:
    done = subprocess.run(
        [*COMMAND, "--doctor", "cpu", "--json"], capture_output=True, text=True, timeout=120, check=True
    )
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["weight_change"] > 0
    assert report["logprob_mean"] < 0
