"""The real worker behind the real command: what init writes trains, Ctrl-C and kill -9, no network, and (slow) the
acceptance runs: three seeds from the request to a gain beyond chance, four bad settings named by their own reports."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

SMALL = (
    "--set",
    "test_problems=16",
    "--set",
    "validation_problems=8",
    "--set",
    "validate_every=0",
    "--set",
    "threads=1",
)


def wait_for(run: Path, kind: str, timeout_s: float = 200.0) -> None:
    """Waits until the run's events hold one of this kind."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        events = run / "events.jsonl"
        if events.exists() and f'"kind":"{kind}"' in events.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"no event {kind}")


def test_what_init_writes_trains_as_it_stands(real_cli: Any) -> None:
    real_cli.run("init", "own")
    (real_cli.folder / "own" / "trainer.py").write_text("raise SystemExit('the wrong trainer')")
    done = real_cli.run("train", "--config", "own/config.yaml", "--set", "max_steps=2", *SMALL, "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["state"], document["steps"]) == ("finished", 2)
    assert document["eval"]["before"]["tool_call_rate"] > 0.8
    run = real_cli.run_directory()
    assert (run / "model" / "config.json").is_file()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps] == [1, 2]
    assert all(row["seconds"]["generate"] > 0 for row in steps)
    assert len((run / "episodes" / "step-000001.jsonl").read_text().splitlines()) == 16


@pytest.mark.slow
def test_ctrl_c_and_kill_9_with_the_real_worker(real_cli: Any) -> None:
    process = real_cli.start("train", "tiny", "--set", "max_steps=500", *SMALL, "--id", "first", "--json")
    run = real_cli.workspace / "runs" / "first"
    wait_for(run, "started")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["state"] == "stopped"
    process = real_cli.start("train", "tiny", "--set", "max_steps=500", *SMALL, "--id", "second", "--json")
    run = real_cli.workspace / "runs" / "second"
    wait_for(run, "started")
    os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert json.loads(out)["failure"]["kind"] == "killed"


def test_a_hub_model_without_a_network_is_one_clear_message(real_cli: Any) -> None:
    real_cli.environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(real_cli.folder / "cache")}
    done = real_cli.run("train", "qwen-0.5b, 2 steps", "--json", timeout=200)
    assert done.returncode == 1
    failure = json.loads(done.stdout)["failure"]
    assert failure["kind"] == "model"
    assert "qwen-0.5b" in failure["message"]
    assert "tiny" in failure["message"]
    assert "Traceback" not in failure["message"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_first_request_of_the_readme_learns(real_cli: Any, seed: int) -> None:
    request = f"train the tiny calculator agent on 64 mixed problems, reward >= 0.9, seed {seed}"
    busy = os.getloadavg()[0] > 2.5  # the seed before leaves about two
    done = real_cli.run("train", request, "--json", timeout=800)
    document = json.loads(done.stdout)
    before, after = document["eval"]["before"], document["eval"]["after"]
    assert before["n"] >= 128
    assert after["ci95"][0] > before["ci95"][1]
    assert (document["verdict"], after["mean"] >= 0.9) == ("goal_reached", True), after
    if not busy:  # other work on the cores says nothing about ours
        assert document["seconds"] <= 90
    assert "It learned" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("learning_rate=6e-6", ["learning rate 6e-06", "too low"]),
        ("learning_rate=6e-3", ["learning rate 0.006 is too high"]),
        ("temperature=0.1", ["at temperature 0.1"]),
        ("max_completion_tokens=24", ["cap of 24 tokens"]),
    ],
)
def test_a_bad_setting_is_named_by_the_runs_own_report(real_cli: Any, setting: str, parts: list[str]) -> None:
    done = real_cli.run("train", "tiny calculator, 20 steps, reward >= 0.9", "--set", setting, timeout=800)
    assert done.returncode == 0, done.stderr
    report = done.stdout[done.stdout.index("What the numbers say") :]
    sentence = report.splitlines()[1]
    for part in parts:
        assert part in sentence
    assert any(character.isdigit() for character in sentence)
