"""A server for the corridor's client on a loopback port: WebSocket where OpenEnv is installed, else JSON lines."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Game:
    """One session: a treasure `seed % 3 + 1` steps to the east; 0.1 a step towards it, 1 for it."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        self.log = log
        self.position = self.treasure = 0

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The response; None ends the connection without a word."""
        self.log.append(message)
        kind, data = message["type"], message.get("data", {})
        if kind == "reset":
            self.position, self.treasure = 0, data["seed"] % 3 + 1
            return self._observation(f"The treasure is {self.treasure} steps to the east.", None)
        if kind == "state":
            return {"type": "state", "data": {"episode_id": "x", "step_count": 0}}
        if kind == "close" or data.get("steps") == 13:
            return None
        if data["steps"] > 5:
            return {"type": "error", "data": {"message": "the corridor is short", "code": "EXECUTION_ERROR"}}
        self.position += data["steps"] if data["direction"] == "east" else -data["steps"]
        found = self.position == self.treasure
        return self._observation("gold" if found else f"You are at {self.position}.", 1.0 if found else 0.1)

    def _observation(self, text: str, reward: float | None) -> dict[str, Any]:
        data = {"observation": {"text": text}, "reward": reward, "done": reward == 1.0}
        return {"type": "observation", "data": data}


@contextmanager
def json_lines(log: list[dict[str, Any]]) -> Iterator[str]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            game = Game(log)
            for line in self.rfile:
                response = game.answer(json.loads(line))
                if response is None:
                    return
                self.wfile.write(json.dumps(response).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def web_socket(log: list[dict[str, Any]]) -> Iterator[str]:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.server import serve

    def handle(connection: Any) -> None:
        game = Game(log)
        try:
            for text in connection:
                response = game.answer(json.loads(text))
                if response is None:
                    return
                connection.send(json.dumps(response))
        except ConnectionClosed:
            return

    with serve(handle, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
