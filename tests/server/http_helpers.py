"""A server process over HTTP, and SDK clients of it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from server_helpers import COMMAND, Caller, environment


@dataclass
class HttpServer:
    """A running `mcp-evo serve --http`."""

    process: subprocess.Popen[str]
    url: str
    token_file: Path
    log: Path

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@contextmanager
def serving(root: Path, log: Path, *arguments: str, **more: str) -> Iterator[HttpServer]:
    """Serves a workspace on a free port."""
    with open(log, "a") as errors:
        process = subprocess.Popen(
            [*COMMAND, "--workspace", str(root), "serve", "--http", "--port", "0", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(**more),
            cwd="/",
            text=True,
        )
    assert process.stdout is not None
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    assert line, log.read_text()
    ready = json.loads(line)
    try:
        yield HttpServer(process, ready["url"], Path(ready["token_file"]), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def over_http(
    server: HttpServer, era: str, headers: dict[str, str] | None = None, user: Any = None
) -> AsyncIterator[Caller]:
    """An SDK client with the token, or with other headers; `user` answers what it is asked."""
    sent = {"Authorization": f"Bearer {server.token}"} if headers is None else headers
    async with (
        create_mcp_http_client(headers=sent) as http,
        Client(streamable_http_client(server.url, http_client=http), mode=era, elicitation_callback=user) as client,
    ):
        yield Caller(client)


def statuses(error: BaseException) -> list[Any]:
    """Everything that an exception group says, for a look at what a client was told."""
    if isinstance(error, BaseExceptionGroup):
        return [one for inner in error.exceptions for one in statuses(inner)]
    return [str(error)]


def umask_of_others() -> int:
    """Sets a umask that would let everybody read, and returns the old one."""
    return os.umask(0)
