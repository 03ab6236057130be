"""Rounds in halves, and rounds that a training agent of its own trains: real processes, the fake worker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import FAKE_WORKER

from mcp_server.cli.agent_launch import AgentTask, opener, prompt_for, task_for
from mcp_server.cli.context import CommandError
from optimizer.home import Home
from optimizer.round_store import RoundStore
from optimizer.round_types import RoundState

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"
AGENT = Path(__file__).parent.parent / "support" / "scripted_agent.py"


def cli(root: Path, *arguments: str, fails: bool = False) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "DISPLAY")}
    environment |= {"MCP_EVO_WORKER": json.dumps(FAKE_WORKER), "COLUMNS": "300"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(root), *arguments, "--json"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        timeout=240,
    )
    assert (done.returncode != 0) == fails, done.stderr
    if fails:
        return {"error": done.stderr + done.stdout}
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_round_in_two_halves_and_the_next_one(tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    begun = cli(root, "rounds", "start", REQUEST, "--profile", "original", "--seed", "5")
    (one,) = begun["rounds"]
    assert (one["state"], one["eval"]["after"] is not None, one["patches"]) == ("checked", True, [])
    evolution = begun["evolution"]
    refused = cli(root, "rounds", "start", "--evolution", evolution, fails=True)["error"]
    assert "close it first" in refused
    closed = cli(root, "rounds", "optimize", "--yes")
    assert closed["rounds"][0]["state"] == "closed"
    assert closed["rounds"][0]["verdict"] == "better"
    second = cli(root, "rounds", "start", "--evolution", evolution)
    assert second["rounds"][0]["round"] == 2
    assert second["rounds"][0]["eval"]["after"]["mean"] > one["eval"]["after"]["mean"]
    (check,) = second["rounds"][0]["checks"]  # the patch of round 1, on fresh pairs
    assert check["patch_id"] == closed["rounds"][0]["patch_id"]


def test_without_a_person_a_round_waits(tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    cli(root, "rounds", "start", REQUEST, "--profile", "original", "--seed", "5")
    waiting = cli(root, "rounds", "optimize")
    assert waiting["rounds"][0]["state"] == "awaiting_approval"
    assert waiting["awaiting"] is not None


def test_an_agent_trains_and_another_process_optimises(tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    home = Home.create(root)
    command = [sys.executable, "-P", str(AGENT), "{prompt}"]
    (root / "config.yaml").write_text(yaml.safe_dump({"training_agent_headless": command}), encoding="utf-8")
    launched = cli(root, "rounds", "launch", f"round=1 | {REQUEST}", "--headless", "--profile", "original")
    assert (launched["round"], launched["exit_code"]) == (1, 0)
    assert "trained" in Path(launched["opened"]).read_text(encoding="utf-8")
    closed = cli(root, "rounds", "optimize", "1", "--yes")["rounds"][0]
    assert (closed["state"], closed["verdict"]) == ("closed", "better")
    current = RoundStore(root).read(1)
    assert current.session is not None
    assert current.session != current.evolution
    # run and session know each other, and the report rests on the agent's session
    document = json.loads((root / "runs" / current.run_id / "run.json").read_text(encoding="utf-8"))
    assert (document["round"], document["session"]) == (1, current.session)
    assert home.reports.read(current.report_id or "").sessions == [current.session]
    layers = {one.layer for one in home.segments.update(current.session)}
    assert layers == {"rllm"}
    assert {one.skill for one in home.segments.update(current.evolution)} == {"traj-optimize"}


def test_a_round_without_a_run_says_what_is_missing(tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    shown = cli(root, "rounds", "launch", f"round=1 | {REQUEST}", "--print")
    assert "MCP_EVO_LAYER=rllm" in shown["command"]
    assert shown["opened"] is None
    assert "has no run yet" in cli(root, "rounds", "optimize", "1", fails=True)["error"]
    # launching it again is no second round
    assert cli(root, "rounds", "launch", f"round=1 | {REQUEST}", "--print")["round"] == 1
    assert (
        "not the next one: write round=2" in cli(root, "rounds", "launch", f"round=7 | {REQUEST}", fails=True)["error"]
    )
    assert RoundStore(root).numbers() == [1]
    assert RoundStore(root).read(1).state is RoundState.CREATED


@pytest.mark.parametrize("request_", ["64 problems", "round=1", "round=1 | ", "round=x | 64 problems"])
def test_what_names_no_round_is_refused(tmp_path: Path, request_: str) -> None:
    root = tmp_path / ".mcp-evo"
    assert "what to train" in cli(root, "rounds", "launch", request_, fails=True)["error"]
    assert not root.exists()


def test_an_agent_that_is_not_installed(tmp_path: Path) -> None:
    root = tmp_path / ".mcp-evo"
    Home.create(root)
    (root / "config.yaml").write_text(yaml.safe_dump({"training_agent_headless": ["no-such-agent", "{prompt}"]}))
    error = cli(root, "rounds", "launch", f"round=1 | {REQUEST}", "--headless", fails=True)["error"]
    assert "no-such-agent cannot be started" in error
    assert "training_agent" in error


def everything(name: str) -> str:
    return f"/bin/{name}"


def nothing(name: str) -> None:
    return None


TASK = AgentTask(
    ("claude", 'it\'s "round=1" | 训练'), {"MCP_EVO_HOME": "/a b/.mcp-evo"}, Path("/a b"), "mcp-evo round 1"
)


@pytest.mark.parametrize(
    ("environment", "platform", "begins"),
    [
        ({"TMUX": "/tmp/x"}, "linux", ["tmux", "new-window"]),
        ({"TMUX": "/tmp/x"}, "darwin", ["tmux", "new-window"]),
        ({"DISPLAY": ":0"}, "linux", ["x-terminal-emulator", "-T"]),
        ({"WAYLAND_DISPLAY": "w"}, "linux", ["x-terminal-emulator", "-T"]),
        ({"TERM_PROGRAM": "iTerm.app"}, "darwin", ["osascript", "-e"]),
        ({"TERM_PROGRAM": "Apple_Terminal"}, "darwin", ["osascript", "-e"]),
    ],
)
def test_which_terminal_is_opened(environment: dict[str, str], platform: str, begins: list[str]) -> None:
    command = opener(TASK, environment, platform, everything)
    assert command is not None
    assert command[:2] == begins
    assert opener(TASK, environment, platform, nothing) is None
    if platform == "darwin" and "TMUX" not in environment:
        assert ("iTerm" in command[2]) == (environment["TERM_PROGRAM"] == "iTerm.app")
        assert "tell application" in command[2]


def test_without_a_display_nothing_is_opened() -> None:
    assert opener(TASK, {}, "linux", everything) is None


def test_the_line_survives_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a 'b' $HOME"
    folder.mkdir()
    prompt = 'it\'s "round=1" | 训练 $HOME `x`'
    script = "import os, sys; print(sys.argv[1]); print(os.environ['MCP_EVO_HOME']); print(os.getcwd())"
    task = AgentTask((sys.executable, "-c", script, prompt), {"MCP_EVO_HOME": str(folder)}, folder, "t")
    said = subprocess.run(["sh", "-c", task.shell_line()], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [prompt, str(folder), str(folder.resolve())]


def test_the_task_names_skill_round_and_profile() -> None:
    prompt = prompt_for(3, "64 problems", "original")
    assert "rllm-train" in prompt
    assert "round=3 | 64 problems" in prompt
    assert 'profile="original"' in prompt
    with pytest.raises(CommandError, match=r"has no \{prompt\}"):
        task_for(1, "x", ["claude"], Path("/w"), Path("/"))
