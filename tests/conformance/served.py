"""`mcp-evo serve` for the protocol's test programs: a workspace of its own and a worker that trains nothing."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

COMMAND = [sys.executable, "-P", "-m", "mcp_server.cli.main"]

FAKE_WORKER = Path(__file__).parent.parent / "support" / "fake_worker.py"

START_TIMEOUT_S = 120.0


class ServeError(Exception):
    """The server did not start; the message holds what it said."""


@dataclass(frozen=True)
class Served:
    """A server that listens."""

    url: str
    port: int
    token: str


def environment() -> dict[str, str]:
    """What a server gets: nothing that would say an agent drives it, and the worker that trains nothing."""
    names = ("PATH", "LANG", "TMPDIR", "PYTHONPATH", "HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "MCP_EVO_WORKER": json.dumps([sys.executable, "-P", str(FAKE_WORKER)])}


def stdio_command(workspace: Path) -> list[str]:
    """The command that serves a workspace on stdio."""
    return [*COMMAND, "--workspace", str(workspace), "serve"]


@contextmanager
def serving(workspace: Path, log: Path, hosts: tuple[str, ...] = ()) -> Iterator[Served]:
    """Serves a workspace over HTTP on a free port; `hosts` are further values of the Host header. Raises ServeError."""
    allowed = [part for host in hosts for part in ("--allow-host", host)]
    with open(log, "a") as errors:
        process = subprocess.Popen(
            [*COMMAND, "--workspace", str(workspace), "serve", "--http", "--port", "0", "--json", *allowed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            cwd="/",
            text=True,
        )
    assert process.stdout is not None
    watchdog = threading.Timer(START_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise ServeError(f"the server did not start: {log.read_text()[-2000:]}")
        ready = json.loads(line)
        port = int(ready["url"].rpartition(":")[2].partition("/")[0])
        yield Served(ready["url"], port, Path(ready["token_file"]).read_text().strip())
    finally:
        watchdog.cancel()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
