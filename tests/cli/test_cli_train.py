"""`mcp-evo train` and `mcp-evo runs`: contracts, exit codes, Ctrl-C, kill -9, bad input that leaves nothing behind."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

REQUEST = "train the tiny calculator agent on 64 mixed problems, reward >= 0.9, seed 1"


def script(cli: Any, **values: object) -> None:
    """Makes every fake run of this folder follow a script (read from the run's parent folder)."""
    cli.environment["FAKE_SCRIPT"] = json.dumps(values)
    cli.workspace.mkdir(mode=0o700, exist_ok=True)
    (cli.workspace / "config.yaml").write_text("child_environment: [FAKE_*]\n")


def until_running(cli: Any, timeout_s: float = 30.0) -> Path:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        runs = list((cli.workspace / "runs").glob("*/metrics.jsonl"))
        if runs and runs[0].stat().st_size > 0:
            return runs[0].parent
        time.sleep(0.05)
    raise AssertionError("the run did not begin")


def test_json_is_the_one_document_of_the_contract(cli: Any) -> None:
    done = cli.run("train", REQUEST, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {"run_id", "state", "verdict", "eval", "steps", "seconds"} <= set(document)
    assert (document["state"], document["verdict"]) == ("finished", "goal_reached")
    for name in ("before", "after"):
        assert {"metric", "split", "n", "mean", "ci95"} <= set(document["eval"][name])
        assert document["eval"][name]["split"] == "test"
    assert document["eval"]["after"]["ci95"][0] > document["eval"]["before"]["ci95"][1]
    assert "It learned" in done.stderr
    listed = json.loads(cli.run("runs", "list", "--json").stdout)
    assert listed["total"] == 1
    assert listed["runs"][0]["run_id"] == document["run_id"]
    shown = json.loads(cli.run("runs", "show", document["run_id"], "--json").stdout)
    assert shown["run_id"] == document["run_id"]
    assert shown["request"] == REQUEST
    assert shown["provenance"]["problems"] == {"source": "request", "detail": "64 mixed problems"}
    assert shown["provenance"]["learning_rate"]["source"] == "policy"
    assert shown["skill_versions"]["rllm-config"].startswith("v")


def test_a_person_sees_settings_progress_and_a_report(quick_cli: Any) -> None:
    done = quick_cli.run("train", REQUEST)
    assert done.returncode == 0, done.stderr
    for part in (
        "request: 64 mixed problems",
        "policy: rllm-config",
        "4 problems x 4 episodes",
        "Test success",
        "Files",
    ):
        assert part in done.stdout
    assert done.stderr == ""
    shown = quick_cli.run("runs", "show")
    assert "finished, goal reached" in shown.stdout
    assert "finished" in quick_cli.run("runs", "list").stdout


def test_settings_reach_the_run(quick_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("temperature: 0.8\nseed: 5\n")
    done = quick_cli.run("train", "seed 7", "--set", "max_steps=2", "--config", "c.yaml", "--id", "mine", "--json")
    assert json.loads(done.stdout)["run_id"] == "mine"
    config = json.loads((quick_cli.workspace / "runs" / "mine" / "config.json").read_text())
    assert (config["seed"], config["temperature"], config["max_steps"]) == (7, 0.8, 2)


def test_the_original_profile(quick_cli: Any) -> None:
    quick_cli.run("train", "tiny", "--profile", "original", "--set", "max_steps=1", "--id", "o")
    config = json.loads((quick_cli.workspace / "runs" / "o" / "config.json").read_text())
    assert (config["learning_rate"], config["batch_size"], config["num_generations"]) == (1e-5, 2, 4)
    assert (config["temperature"], config["problems"]) == (0.7, 64)
    assert json.loads((quick_cli.workspace / "runs" / "o" / "run.json").read_text())["profile"] == "original"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "qwen-9b"], ["unknown model 'qwen-9b'", "tiny"]),
        (["train", "batch 8, 4 problems"], ["batch_size 8", "(4)"]),
        (["train", "--set", "max_episodes=3"], ["4 problems x num_generations 4 = 16"]),
        (["train", "64 problems and 32 problems"], ["contradicts itself", '"64 problems"', '"32 problems"']),
        (["train", "--set", "lerning_rate=1"], ["learning_rate"]),
        (["train", "--config", "none.yaml"], ["no such file"]),
        (["train", "tiny", "--id", "../evil"], ["not a run id"]),
        (["train", "tiny", "--profile", "fast"], ["fast"]),
    ],
)
def test_bad_input_is_one_message_and_leaves_no_run(quick_cli: Any, arguments: list[str], parts: list[str]) -> None:
    done = quick_cli.run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("mcp-evo: ")
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr
    assert not list(quick_cli.folder.glob(".mcp-evo/runs/*/"))
    assert list(Path(quick_cli.folder).parent.glob("evil")) == []
    with_json = quick_cli.run(*arguments, "--json")
    assert with_json.returncode == 1
    assert set(json.loads(with_json.stdout)) == {"error", "kind"}


@pytest.mark.parametrize("run_id", ["nosuch", "../x", "/etc/passwd", "a b"])
@pytest.mark.parametrize("command", ["show", "stop"])
def test_an_unknown_run_is_one_message(quick_cli: Any, command: str, run_id: str) -> None:
    quick_cli.workspace.mkdir()
    done = quick_cli.run("runs", command, run_id)
    assert done.returncode == 1
    assert done.stderr.startswith("mcp-evo: ")
    assert done.stderr.count("\n") == 1


def test_reading_commands_create_no_workspace(quick_cli: Any) -> None:
    for arguments in (["runs", "list"], ["runs", "show"], ["runs", "stop"]):
        done = quick_cli.run(*arguments)
        assert done.returncode == 1
        assert "no workspace" in done.stderr
    assert quick_cli.run().returncode == 0
    assert not quick_cli.workspace.exists()


def test_usage_errors_are_2(quick_cli: Any) -> None:
    assert quick_cli.run("train", "--nosuch").returncode == 2
    assert quick_cli.run("nosuch").returncode == 2
    assert quick_cli.run("runs", "list", "--limit", "0").returncode == 2


def test_a_workspace_that_cannot_be_written(quick_cli: Any) -> None:
    (quick_cli.folder / "file").write_text("")
    done = quick_cli.run("train", "tiny", "--workspace", "file/w")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def test_ctrl_c_stops_the_run_and_is_130(cli: Any) -> None:
    script(cli, steps=1000, pause_s=0.05)
    process = cli.start("train", "tiny", "--json")
    until_running(cli)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert (document["state"], document["stop_reason"]) == ("stopped", "user")
    assert "stopping after the step" in err
    assert json.loads((cli.run_directory() / "run.json").read_text())["state"] == "stopped"


def test_a_second_ctrl_c_ends_a_deaf_worker_at_once(cli: Any) -> None:
    script(cli, steps=1000, pause_s=0.05, fault="ignore_stop")
    process = cli.start("train", "tiny", "--json")
    until_running(cli)
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert process.returncode == 130
    assert json.loads(out)["state"] == "stopped"


def test_kill_9_of_the_worker_is_failed_with_class_and_log(cli: Any) -> None:
    script(cli, steps=1000, pause_s=0.05)
    process = cli.start("train", "tiny", "--json")
    run = until_running(cli)
    os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    document = json.loads(out)
    assert document["state"] == "failed"
    assert document["failure"]["kind"] == "killed"
    assert document["failure"]["exit_code"] == -9
    assert any("fake worker" in line for line in document["failure"]["log_tail"])
    assert "fake worker" in err


def test_a_worker_that_raises(quick_cli: Any) -> None:
    script(quick_cli, fault="raise")
    done = quick_cli.run("train", "tiny", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failure"]["kind"] == "ValueError"
    assert "the reward is not a number" in done.stderr


def test_a_detached_run_is_stopped_by_another_command(cli: Any) -> None:
    script(cli, steps=1000, pause_s=0.05)
    started = json.loads(cli.run("train", "tiny", "--detach", "--json").stdout)
    assert started["state"] in ("starting", "running")
    until_running(cli)
    second = json.loads(cli.run("train", "tiny", "--detach", "--json").stdout)
    assert second["state"] == "queued"
    stopped = json.loads(cli.run("runs", "stop", second["run_id"], "--json").stdout)
    assert stopped["state"] == "stopped"
    stopped = json.loads(cli.run("runs", "stop", started["run_id"], "--json").stdout)
    assert (stopped["state"], stopped["stop_reason"]) == ("stopped", "user")


def test_a_detached_run_that_is_killed_is_settled_by_the_next_look(cli: Any) -> None:
    script(cli, steps=1000, pause_s=0.05)
    cli.run("train", "tiny", "--detach")
    run = until_running(cli)
    os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
    time.sleep(0.2)
    shown = json.loads(cli.run("runs", "show", "--json").stdout)
    assert shown["state"] == "failed"
    assert shown["failure"]["kind"] == "killed"
    assert shown["failure"]["log_tail"]


def test_the_users_own_trainer_py_breaks_nothing(cli: Any) -> None:
    for name in ("trainer", "optimizer", "skill_bank", "mcp_server", "typer"):
        (cli.folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    done = cli.run("train", "tiny", "--json")
    assert json.loads(done.stdout)["state"] == "finished"


def test_approve_mode_asks_and_refuses_without_a_terminal(quick_cli: Any) -> None:
    done = quick_cli.run("train", "approve 模式，tiny")
    assert done.returncode == 1
    assert "--yes" in done.stderr
    assert not list(quick_cli.folder.glob(".mcp-evo/runs/*/"))
    assert quick_cli.run("train", "approve 模式，tiny", "--yes").returncode == 0


def test_unknown_words_and_unsafe_values_are_warned_about(quick_cli: Any) -> None:
    done = quick_cli.run("train", "tiny on purple elephants, learning rate 0.5", "--json")
    assert done.returncode == 0
    assert 'not understood and ignored: "purple elephants"' in done.stderr
    assert "learning_rate 0.5 lies outside the range" in done.stderr


def test_the_overview_names_the_next_command(quick_cli: Any) -> None:
    before = json.loads(quick_cli.run("--json").stdout)
    assert before["exists"] is False
    assert "train" in before["next"]
    quick_cli.run("train", REQUEST)
    after = quick_cli.run()
    assert "goal_reached" in after.stdout
    assert str(quick_cli.workspace) in after.stdout


def test_the_workspace_option_may_stand_anywhere(quick_cli: Any) -> None:
    quick_cli.run("train", "tiny", "--workspace", "elsewhere", "--set", "max_steps=1")
    for arguments in (
        ["--workspace", "elsewhere", "runs", "list", "--json"],
        ["runs", "list", "--json", "--workspace=elsewhere"],
    ):
        assert json.loads(quick_cli.run(*arguments).stdout)["total"] == 1
    assert not quick_cli.workspace.exists()
