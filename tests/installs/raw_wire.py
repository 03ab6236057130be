"""A server process spoken to over its pipes, started as a client starts it: any command, folder and environment."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Wire:
    """One server process."""

    def __init__(
        self, command: Sequence[str], *, folder: Path | str = "/", environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=dict(environment or {}),  # nothing of ours
        )
        self._number = 0

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request: `result` or `error`."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params or {}})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)  # whatever else stood there would be no JSON
            if message.get("id") == self._number:
                return dict(message)
        assert self.process.stderr is not None
        raise AssertionError(f"the server closed its output: {self.process.stderr.read().decode()}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def shake_hands(self) -> dict[str, Any]:
        """As Claude Desktop does: the protocol of 2025-11-25, no elicitation."""
        client = {"name": "claude-ai", "version": "0.1.0"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        answered = self.ask("initialize", hello)
        self._send({"method": "notifications/initialized"})
        return answered

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        return dict(self.ask("tools/call", {"name": tool, "arguments": arguments})["result"])

    def ok(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that must succeed."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return dict(result["structuredContent"])

    def close(self) -> int:
        """Ends the session; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(30)
        finally:
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()
