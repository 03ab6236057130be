"""A workspace made by hand, `mcp-evo dashboard` as a process of its own, and a client that knows how to knock."""

import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_server.findings.proposing import Draft, propose_text
from mcp_server.state import ServerState
from optimizer.trial.plan import QUICK
from optimizer.trial.statistics import summarise
from optimizer.trial.types import ArmResult, Decision, Pair, TrialVerdict
from optimizer.tryout import apply_decision, prepare_trial
from trainer.config import TrainingConfig
from trainer.experience.config import open_pool
from trainer.experience.records import Counters, ExperienceRecord, Status
from trainer.runs.registry import create_run
from trainer.runs.types import RunState

COMMAND = [sys.executable, "-P", "-m", "mcp_server.cli.main"]

AT_TERMINAL = (
    "import fcntl, os, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\nos.execv(sys.argv[1], sys.argv[1:])\n"
)
"""Makes standard input the terminal that the process belongs to, as a shell would."""

HOSTILE = "<img src=x onerror=\"document.title='caught'\"><script>document.title='caught'</script>"
"""Text that a page which made markup of it would carry out."""

BLOCK = "Warmer.\n\n```yaml policy\ntemperature:\n  - {when: {params: '<10M', env: calculator}, default: 0.9}\n```"

RUN = "run-one"

SUCCESS = [(0.5, 0.8), (0.55, 0.75), (0.45, 0.85), (0.5, 0.7)]
"""Of the trial's pairs: without and with the patch."""


@dataclass(frozen=True)
class Made:
    """A workspace and what is in it."""

    root: Path
    patch_id: str
    prose_id: str
    run_id: str = RUN

    def at(self, root: Path) -> "Made":
        return replace(self, root=root)

    @property
    def state(self) -> ServerState:
        return ServerState(self.root)

    def audit(self) -> list[dict[str, Any]]:
        path = self.root / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_workspace(root: Path) -> Made:
    """Makes it without training anything."""
    state = ServerState(root)
    home = state.home()
    make_run(state)
    section = home.bank.source("rllm-config").base.sections[1].name
    patch = propose_text(
        state,
        Draft(
            "rllm-config", section, BLOCK, "append", {"params": "<10M", "env": "calculator"}, "Warmer sampling", None
        ),
    )
    folder = prepare_trial(home, patch.patch_id, QUICK)
    spec = folder.spec()
    for index, (base, patched) in enumerate(SUCCESS):
        scenario, seed = spec.pair_at(index)
        arms = {name: ArmResult(success=value, n=128) for name, value in (("base", base), ("patched", patched))}
        folder.add_pair(Pair(index=index, scenario=scenario.name, seed=seed, **arms))
    decision = Decision(
        verdict=TrialVerdict.BETTER,
        say="better: effect +0.275 over 4 pairs",
        next_step="review the patch and approve or reject it",
        summary=summarise(folder.pairs(spec), spec.plan),
    )
    folder.write_decision(decision)
    apply_decision(home, spec, decision)
    prose = propose_text(
        state,
        Draft(
            "rllm-monitor", "loop", f"Name the run id first, never {HOSTILE}.", "append", None, f"Say {HOSTILE}", None
        ),
    )
    make_pool(state)
    return Made(root, patch.patch_id, prose.patch_id)


def make_run(state: ServerState, run_id: str = RUN, steps: int = 30) -> None:
    """A finished run of rising reward, with episodes."""
    config = TrainingConfig(model="tiny", env="calculator")
    directory = create_run(
        state.workspace(),
        config,
        run_id=run_id,
        request=f"train the tiny agent {HOSTILE}",
        provenance={"learning_rate": {"source": "set", "detail": "--set learning_rate=…"}},
    )
    directory.set_fields(state=RunState.RUNNING, step=steps)
    for step in range(1, steps + 1):
        directory.append_metrics(row_of(step, steps))
    evaluation = {"metric": "success", "split": "validation", "n": 128, "mean": 0.5, "ci95": [0.4, 0.6]}
    directory.append_event("validation", step=10, eval=evaluation)
    directory.episodes_folder.mkdir()
    directory.episode_path(steps).write_text(json.dumps(episode(steps)) + "\n")
    directory.finish(RunState.FINISHED, verdict="no_goal")


def row_of(step: int, steps: int) -> dict[str, Any]:
    return {
        "step": step,
        "time_s": 0.2,
        "reward_mean": step / steps,
        "entropy": 1.0 - step / (2 * steps),
        "grad_norm": 0.3,
        "completion_mean": 60.0,
        "tool_call_rate": 1.0,
        "frac_zero_variance": 0.25,
        "seconds": {"generate": 0.1, "update": 0.1},
    }


def episode(step: int) -> dict[str, Any]:
    """Three tokens of the model, one of the environment."""
    return {
        "step": step,
        "group": 0,
        "generation": 0,
        "task": 3,
        "prompt": f"Compute 1 + 1. {HOSTILE}",
        "messages": [
            {"role": "user", "content": f"Compute 1 + 1. {HOSTILE}"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "finish", "arguments": {"answer": "2\u202e"}}}],
            },
        ],
        "completion_ids": [301, 26, 205, 4],
        "mask": [1, 1, 0, 1],
        "logprobs": [-0.1, -2.0, 0.0, -0.01],
        "reward": 1.0,
        "stop_reason": "finished",
        "turns": 1,
        "tool_calls": 1,
        "tool_errors": 0,
        "parse_errors": 0,
        "error": None,
    }


def make_pool(state: ServerState) -> None:
    with open_pool(state.workspace(), "default", create=True) as pool:
        pool.insert_as_is(
            ExperienceRecord(
                "Compute x + y.",
                f"call add, then finish {HOSTILE}",
                status=Status.ACTIVE,
                family="calculator",
                counters=Counters(retrieved=40, used=30, won=24, lost=6, control_won=5, control_lost=5),
            )
        )
        pool.insert_as_is(
            ExperienceRecord("Compute x - y.", "call subtract", status=Status.QUARANTINED, status_reason="not tried")
        )


# ---- the process


@dataclass
class Running:
    """An open dashboard."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    log: Path
    terminal: int
    """Where its person types."""
    cookie: str = ""
    csrf: str = ""

    @property
    def port(self) -> int:
        return int(self.ready["url"].rstrip("/").rpartition(":")[2])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def code(self) -> str:
        return str(self.ready["link"]).partition("#login=")[2]

    def knock(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str | None] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request; a header of None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if self.cookie:
            sent["cookie"] = self.cookie
        if method == "POST":
            sent |= {"origin": self.origin, "content-type": "application/json", "x-evo-csrf": self.csrf}
            sent["content-length"] = str(len(body or b""))
        sent |= headers or {}
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> tuple[int, Any]:
        status, _, body = self.knock(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        return status, _json(body)

    def post(self, path: str, document: Any, **headers: str | None) -> tuple[int, Any]:
        status, _, body = self.knock(
            "POST",
            path,
            json.dumps(document).encode(),
            {name.replace("_", "-"): value for name, value in headers.items()},
        )
        return status, _json(body)

    def new_link(self) -> None:
        """Presses Enter, and takes the link that is given."""
        os.write(self.terminal, b"\n")
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())

    def log_in(self) -> "Running":
        """As the page does with the link's code."""
        status, headers, _ = self.knock("POST", "/login", json.dumps({"code": self.code}).encode())
        assert status == 200
        return self.take(headers)

    def take(self, headers: dict[str, str]) -> "Running":
        """Keeps what a login gave, as a browser does."""
        self.cookie = headers["set-cookie"].partition(";")[0]
        status, session = self.get("/session")
        assert status == 200
        self.csrf = session["csrf"]
        return self

    def decision(self, patch_id: str, decision: str, **more: Any) -> dict[str, Any]:
        """What the page would send about the patch as it stands now."""
        status, page = self.get(f"/api/patches/{patch_id}")
        assert status == 200
        typed = page["digests"]["result"][:6] if page["digests"] else ""
        return {"decision": decision, "mark": page["mark"], "typed": typed, "reason": "", **more}

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def environment(**more: str) -> dict[str, str]:
    """Of the process: nothing that would say an agent drives the shell, unless `more` says so."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH") if name in os.environ}
    return {**kept, **more}


@contextmanager
def dashboard_of(root: Path, log: Path, *arguments: str, person: bool = True, **more: str) -> Iterator[Running]:
    """Opens a dashboard; `person`: its standard input is a terminal."""
    master, slave = pty.openpty()
    with open(log, "a") as errors:
        command = [*COMMAND, "--workspace", str(root), "dashboard", "--json", *arguments]
        process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *command] if person else command,
            stdin=slave if person else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(**more),
            cwd="/",
            text=True,
            start_new_session=True,
        )
    os.close(slave)
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    try:
        assert line, log.read_text()
        yield Running(process, json.loads(line), log, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        os.close(master)
