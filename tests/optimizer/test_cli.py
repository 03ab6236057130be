"""The commands around evolution as processes: contracts, exit codes, what is refused, a person at a real terminal."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from conftest import FAKE_WORKER

from mcp_server.cli.main import run as run_command
from optimizer.home import Home

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"
AGENT_VARIABLES = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI")


class CommandLine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        dropped = {"MCP_EVO_HOME", "PYTHONPATH", *AGENT_VARIABLES}
        self.environment = {key: value for key, value in os.environ.items() if key not in dropped}
        self.environment |= {"MCP_EVO_WORKER": json.dumps(FAKE_WORKER), "HOME": str(folder)}
        self.workspace = folder / ".mcp-evo"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "mcp_server.cli.main", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """The document of a command, run as a process."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def here(self, *arguments: str) -> tuple[int, str, str]:
        """Runs a command that starts no process in this one: (exit code, stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command([*arguments, "--workspace", str(self.workspace)])
        return code, out.getvalue(), err.getvalue()

    def look(self, *arguments: str) -> Any:
        """The document of a command that only reads."""
        code, out, err = self.here(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def at_a_terminal(self, answer: Any, *arguments: str) -> tuple[int, str]:
        """Runs the command with a terminal and types `answer(text so far)` when it returns something."""
        pid, handle = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(sys.executable, self.command(*arguments), self.environment)
        text = ""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ready, _, _ = select.select([handle], [], [], 0.1)
            if ready:
                try:
                    data = os.read(handle, 65536)
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                text += data.decode("utf-8", errors="replace")
                typed = answer(text)
                if typed is not None:
                    os.write(handle, f"{typed}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        return os.waitstatus_to_exitcode(status), text


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def evolve(cli: CommandLine, *more: str) -> Any:
    return cli.json(
        "evolve", REQUEST, "--rounds", "2", "--profile", "original", "--plan", "quick", "--seed", "5", *more
    )


def digest_in(text: str) -> str:
    return text.split("digest", 1)[1].split()[0]


def test_the_whole_contract(cli: CommandLine) -> None:
    document = evolve(cli, "--yes")
    first, second = document["rounds"]
    for one in document["rounds"]:
        assert {"round", "skill_version", "run_id", "eval", "patch_id", "verdict", "patches"} <= set(one)
        for when in ("before", "after"):
            assert {"metric", "split", "n", "mean", "ci95"} <= set(one["eval"][when])
    assert second["eval"]["after"]["ci95"][0] > first["eval"]["after"]["ci95"][1]
    patch = first["patch_id"]
    # one by one
    assert cli.look("patches", "list")["total"] == 1
    shown = cli.look("patches", "show", patch)
    assert shown["approval"]["channel"] == "unattended"
    assert "learning_rate" in shown["diff"]
    assert [one["round"] for one in cli.look("rounds", "list")["rounds"]] == [1, 2]
    assert cli.look("rounds", "show", "1")["rounds"][0]["patch_id"] == patch
    chain = cli.look("explain", "rllm-config:learning_rate")["chain"]
    kinds = [one["kind"] for one in chain]
    assert kinds[:6] == ["value", "patch", "approval", "trial", "finding", "run"]
    assert kinds[6:] == ["event"] * 3
    assert all(one["id"] for one in chain)
    # the last ones are real events
    session = cli.look("trajectories", "show", document["evolution"], "--limit", "100")
    lines = {one["line"]: one for one in session["events"]}
    for entry in chain[6:]:
        assert lines[entry["line"]]["tool"] == entry["tool"]
        assert lines[entry["line"]]["run_id"] == first["run_id"]
    base = cli.look("explain", "rllm-config:beta")["chain"]
    assert [one["kind"] for one in base] == ["value", "base"]
    segments = cli.look("trajectories", "segment")["sessions"][0]["segments"]
    assert {one["layer"] for one in segments} == {"rllm", "traj"}
    report = cli.look("trajectories", "analyze")
    assert report["findings"]
    audit = cli.look("audit", "verify")
    assert audit == {"ok": True, "entries": 2, "problems": []}
    # for people
    assert "promoted" in cli.here("rounds", "show")[1]
    assert patch in cli.here("patches", "list")[1]


def test_tampering_with_the_log_is_exit_code_1(cli: CommandLine) -> None:
    evolve(cli, "--yes", "--final-trial")
    path = cli.workspace / "audit.jsonl"
    path.write_text(path.read_text().replace("unattended", "terminal"))
    code, out, _ = cli.here("audit", "verify", "--json")
    assert code == 1
    assert json.loads(out)["ok"] is False


def test_without_a_terminal_it_waits_and_a_person_goes_on(cli: CommandLine) -> None:
    document = evolve(cli)
    patch = document["awaiting"]
    assert patch is not None
    assert len(document["rounds"]) == 1
    refused = cli.run("approve", patch)
    assert refused.returncode == 1
    assert "a person at a terminal" in refused.stderr
    cli.environment["CLAUDECODE"] = "1"
    code, text = cli.at_a_terminal(lambda text: None, "approve", patch)
    assert code == 1
    assert "an agent cannot approve" in text
    del cli.environment["CLAUDECODE"]
    # the wrong digest
    typed: list[str] = []

    def wrong(text: str) -> str | None:
        if "to approve" in text and not typed:
            typed.append("000000")
            return "zzzzzz"
        return None

    code, text = cli.at_a_terminal(wrong, "approve", patch)
    assert code == 1
    assert "nothing was approved" in text
    assert cli.look("patches", "show", patch)["stage"] == "tried"
    # the right one
    asked: list[str] = []

    def right(text: str) -> str | None:
        if "to approve" in text and not asked:
            asked.append(text)
            return digest_in(text)[:6]
        return None

    code, text = cli.at_a_terminal(right, "approve", patch)
    assert code == 0, text
    assert "rllm-config@2" in text
    assert "learning rate" in asked[0].replace("_", " ")  # what it is about was on the screen before the question
    result = cli.json("evolve", "--resume", "latest", "--yes")
    assert [one["patch_id"] for one in result["rounds"]] == [patch, None]
    entries = cli.look("audit", "list")["entries"]
    assert [(one["kind"], one["channel"]) for one in entries] == [("approved", "terminal"), ("promoted", "terminal")]


@pytest.mark.slow
def test_one_by_one(cli: CommandLine) -> None:
    document = evolve(cli)
    finding = cli.look("rounds", "show", "1")["rounds"][0]["findings"][0]
    assert finding == "learning_rate_too_low"
    again = cli.run("reject", document["awaiting"], "--reason", "too bold")
    assert again.returncode == 0
    reports = list((cli.workspace / "reports" / "rllm").glob("*.json"))
    finding_id = json.loads(reports[0].read_text())["findings"][0]["id"]
    staged = cli.json("patches", "propose", "--finding", finding_id)
    assert staged["changes"][0]["after"] != 3e-4  # that one was rejected
    tried = cli.json("patches", "try", staged["patch_id"], "--plan", "quick", "--seed", "3")
    assert {"patch_id", "trial_id", "stage", "verdict", "effect", "ci95", "pairs"} <= set(tried)
    assert tried["pairs"] in (4, 8, 12, 16)
    body = cli.folder / "body.md"
    body.write_text("- Say which value you changed.\n")
    prose = cli.json("patches", "propose", "--skill", "rllm-config", "--section", "coupled", "--body", str(body))
    assert prose["kind"] == "prose"
    refused = cli.run("patches", "try", prose["patch_id"])
    assert refused.returncode == 1
    assert "its effect is not measured" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["patches", "show", "nope"], "there is no patch 'nope'"),
        (["patches", "show", "../../x"], "not an id"),
        (["patches", "try", "nope"], "there is no patch"),
        (["patches", "propose"], "a patch needs --finding"),
        (["patches", "propose", "--finding", "nope"], "no report holds finding"),
        (["approve", "nope"], "there is no patch"),
        (["reject", "nope", "--reason", "x"], "there is no patch"),
        (["rounds", "show", "7"], "there is no round 7"),
        (["explain", "rllm-config"], "write skill:policy.key"),
        (["explain", "rllm-config:nope"], "has no policy key 'nope'"),
        (["explain", "nope:x"], "there is no skill"),
        (["evolve", "--resume", "nope"], "there is no evolution"),
        (["evolve", "train tiny", "--profile", "nope"], "no profile 'nope'"),
        (["trajectories", "show"], "no session was recorded"),
    ],
)
def test_bad_input_is_one_clear_line(cli: CommandLine, arguments: list[str], words: str) -> None:
    Home.create(cli.workspace)
    code, out, err = cli.here(*arguments)
    assert code == 1, out
    assert words in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_request_that_cannot_be_trained_makes_no_workspace(cli: CommandLine) -> None:
    done = cli.run("evolve", "train the tiny calculator agent, batch 128, 64 problems")
    assert done.returncode == 1
    assert not cli.workspace.exists()


def test_interrupted_evolution_leaves_no_process_and_goes_on(cli: CommandLine) -> None:
    cli.environment["FAKE_STEP_S"] = "0.2"
    cli.environment["OMP_NUM_THREADS"] = "1"
    cli.workspace.mkdir(mode=0o700)
    (cli.workspace / "config.yaml").write_text("child_environment: [FAKE_*]\n")
    arguments = cli.command("evolve", REQUEST, "--profile", "original", "--yes", "--plan", "quick", "--seed", "5")
    process = subprocess.Popen(
        arguments, cwd=cli.folder, env=cli.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(cli.workspace.glob("runs/*/metrics.jsonl")):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    (run,) = cli.workspace.glob("runs/*/run.json")
    assert json.loads(run.read_text())["state"] == "stopped"
    (cli.workspace / "config.yaml").write_text("child_environment: []\n")
    result = cli.json("evolve", "--resume", "latest", "--yes")
    assert result["rounds"][0]["verdict"] == "better"
    assert result["rounds"][0]["run_id"].endswith("-again2")
