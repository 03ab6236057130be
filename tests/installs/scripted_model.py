"""A model endpoint that follows a script, so that a real client can be watched without a model: one tool, then an end.

It speaks as much of the Messages API as Claude Code uses: streamed answers and the counting of tokens.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_WAITS = 20

CALL = "toolu_01"
"""Id of the one call that the script is about."""


@dataclass
class Script:
    """What the model does, and what it has seen."""

    tool: str
    """End of the name of the tool that it calls where it is offered and not yet answered."""
    arguments: dict[str, Any]
    meanwhile: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Read`, called every two seconds until the tool is offered: a server may still be starting."""
    waits: int = 0
    """How often it was called."""
    offered: set[str] = field(default_factory=set)
    """Names of all tools that it could have called."""
    results: dict[str, str] = field(default_factory=dict)
    """Id of a call → its result, as JSON."""

    def block(self, request: dict[str, Any]) -> dict[str, Any]:
        """The one content block of the answer to a request."""
        names = [str(tool.get("name")) for tool in request.get("tools", [])]
        self.offered |= set(names)
        for part in (part for message in request["messages"] for part in _parts(message)):
            if part.get("type") == "tool_result":
                self.results[part["tool_use_id"]] = json.dumps(part)
        called = next((name for name in names if name.endswith(self.tool)), None)
        if called is not None and CALL not in self.results:
            return {"type": "tool_use", "id": CALL, "name": called, "input": self.arguments}
        if called is None and "Read" in names and self.waits < MOST_WAITS:
            self.waits += 1
            time.sleep(2)
            return {"type": "tool_use", "id": f"toolu_wait_{self.waits}", "name": "Read", "input": self.meanwhile}
        return {"type": "text", "text": "done"}


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []


def _events(request: dict[str, Any], block: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """An answer as it is streamed."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": request["model"], "content": []}
    yield "message_start", {"message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if block["type"] == "text":
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield "content_block_start", {"index": 0, "content_block": empty}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "end_turn" if block["type"] == "text" else "tool_use"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


@contextmanager
def scripted_model(script: Script) -> Iterator[str]:
    """The endpoint, on this machine; its address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            """Nothing on the terminal."""

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            if "count_tokens" in self.path:
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(b'{"input_tokens": 1}')
                return
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for kind, data in _events(request, script.block(request)):
                self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
