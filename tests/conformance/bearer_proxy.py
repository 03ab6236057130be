"""A proxy that adds the server's bearer token: the conformance suite and its scenarios cannot send one.

Every other byte passes as it is, Host and Origin among them, so what the server says about those is tested, too. It
runs in a thread of its own; answers, streams included, are passed on as they come.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

BUFFER = 64 * 1024
MAX_HEAD = 64 * 1024


@dataclass
class BearerProxy:
    """Listens on a port of its own; forwards once `target` is set."""

    port: int = 0
    target: tuple[str, int] | None = None
    token: str = ""
    _connections: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, with one of ours to the server."""
        assert self.target is not None
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        server_reader, server_writer = await asyncio.open_connection(*self.target)
        back = asyncio.create_task(_pipe(server_reader, writer))
        try:
            while (head := await _head(reader)) is not None:
                lines = head.split(b"\r\n")
                kept = [line for line in lines[1:-2] if not line.lower().startswith(b"authorization:")]
                bearer = f"Authorization: Bearer {self.token}".encode("ascii")
                server_writer.write(b"\r\n".join([lines[0], bearer, *kept, b"", b""]))
                await _body(kept, reader, server_writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            server_writer.close()
            await asyncio.wait([back], timeout=1)
            back.cancel()
            writer.close()
            self._connections.discard(task)

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Serves until it is told to stop."""
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0, limit=MAX_HEAD)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for one in list(self._connections):
            one.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial.strip():
            raise
        return None


async def _body(headers: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    known = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in headers)}
    if known.get(b"transfer-encoding", b"").lower() == b"chunked":
        while True:
            size = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            writer.write(size + chunk)
            await writer.drain()
            if chunk == b"\r\n":
                return
    left = int(known.get(b"content-length", b"0"))
    while left > 0:
        part = await reader.read(min(left, BUFFER))
        if not part:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(part)
        writer.write(part)
        await writer.drain()
    await writer.drain()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(BUFFER):
            writer.write(part)
            await writer.drain()
        writer.close()


@contextmanager
def bearer_proxy() -> Iterator[BearerProxy]:
    """A proxy that listens; give it `target` and `token` before anybody connects."""
    proxy, ready = BearerProxy(), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(proxy.serve(ready, stop),), daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the proxy does not listen")
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
