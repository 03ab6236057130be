"""Clients of the server for tests: in memory and as real processes, in both protocol eras."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

from mcp_server.server import build_server

ERAS = ("auto", "legacy")
"""`auto`: protocol of 2026-07-28 by discovery; `legacy`: 2025-11-25 by handshake."""

PROTOCOL = {"auto": "2026-07-28", "legacy": "2025-11-25"}

SUPPORT = Path(__file__).parent.parent / "support"

FAKE_WORKER = [sys.executable, "-P", str(SUPPORT / "fake_worker.py")]

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"

COMMAND = [sys.executable, "-P", "-m", "mcp_server.cli.main"]


class Caller:
    """Calls tools and keeps the tests short."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def raw(self, tool: str, /, **arguments: Any) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def ok(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that must succeed."""
        result = await self.raw(tool, **arguments)
        assert not result.is_error, text_of(result)
        assert result.structured_content is not None
        assert "next" in result.structured_content
        return result.structured_content

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that must be refused."""
        result = await self.raw(tool, **arguments)
        assert result.is_error, result.structured_content
        return text_of(result)

    async def until_over(self, run_id: str | None = None, *, wait_s: float = 5, calls: int = 30) -> dict[str, Any]:
        """Monitors a run to its end."""
        seen: dict[str, Any] = {}
        for _ in range(calls):
            arguments = {"run_id": run_id} if run_id is not None else {}
            seen = await self.ok("monitor_run", wait_s=wait_s, **arguments)
            if seen["state"] in ("finished", "failed", "stopped", "lost"):
                return seen
        raise AssertionError(f"the run is not over: {seen}")


def text_of(result: CallToolResult) -> str:
    """The text of an answer."""
    return "\n".join(part.text for part in result.content if part.type == "text")


@asynccontextmanager
async def in_memory(root: Path, era: str, **options: Any) -> AsyncIterator[Caller]:
    """A client of a server in this process."""
    async with Client(build_server(root), mode=era, **options) as client:
        yield Caller(client)


def environment(**more: str) -> dict[str, str]:
    """What a server process gets: the fake worker, and nothing that would say an agent drives the shell."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "MCP_EVO_WORKER": json.dumps(FAKE_WORKER), **more}


def parameters(root: Path, **more: str) -> StdioServerParameters:
    """How a client starts the server of a workspace."""
    command, *arguments = COMMAND
    return StdioServerParameters(
        command=command, args=[*arguments, "--workspace", str(root), "serve"], env=environment(**more), cwd="/"
    )


@asynccontextmanager
async def over_stdio(root: Path, era: str, errlog: Path | None = None, **options: Any) -> AsyncIterator[Caller]:
    """A client of a server process of its own."""
    with open(errlog or os.devnull, "a", encoding="utf-8") as log:
        transport = stdio_client(parameters(root), errlog=log)
        async with Client(transport, mode=era, **options) as client:
            yield Caller(client)


def events_of(root: Path) -> list[dict[str, Any]]:
    """All recorded events of a workspace, session by session in file order."""
    found = []
    for path in sorted((root / "trajectories" / "raw").glob("*/events.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found
