"""A command line in a folder of its own, with a worker that learns nothing but speaks the protocol."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli import main

# A test run in the background may inherit an ignored SIGINT, and would hand it on to the commands it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

FAKE_WORKER = [sys.executable, "-P", str(Path(__file__).parents[1] / "runs" / "fake_worker.py")]


class CommandLine:
    """Runs `mcp-evo` as a process."""

    def __init__(self, folder: Path, worker: list[str] | None) -> None:
        self.folder = folder
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("MCP_EVO_HOME", "MCP_EVO_WORKER", "PYTHONPATH", "COLUMNS")
        } | {"HOME": str(folder), "COLUMNS": "120"}
        if worker is not None:
            self.environment["MCP_EVO_WORKER"] = json.dumps(worker)

    @property
    def workspace(self) -> Path:
        return self.folder / ".mcp-evo"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "mcp_server.cli.main", *arguments]

    def run(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments)
        return json.loads(done.stdout)

    def run_directory(self) -> Path:
        (only,) = (path for path in (self.workspace / "runs").iterdir() if path.is_dir())
        return only


@dataclass(frozen=True)
class Outcome:
    """What a command did in this process."""

    returncode: int
    stdout: str
    stderr: str


class InProcess(CommandLine):
    """Runs `mcp-evo` in this process: the same code from its arguments on, without the price of a start."""

    def __init__(
        self, folder: Path, worker: list[str], capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(folder, worker)
        self._capsys, self._patch = capsys, patch

    def run(self, *arguments: str, timeout: float = 120.0) -> Any:
        for name in ("MCP_EVO_WORKER", "FAKE_SCRIPT", "COLUMNS"):
            if name in self.environment:
                self._patch.setenv(name, self.environment[name])
        self._capsys.readouterr()
        code = main.run(arguments)
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, FAKE_WORKER)


@pytest.fixture
def quick_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """In this process, in a folder of its own."""
    line = InProcess(tmp_path, FAKE_WORKER, capsys, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_EVO_HOME", raising=False)
    return line


@pytest.fixture
def real_cli(tmp_path: Path) -> CommandLine:
    """The same with the real worker."""
    return CommandLine(tmp_path, None)
