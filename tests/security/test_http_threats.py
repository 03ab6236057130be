"""HTTP: who is let in, under which Host and Origin, how much a client may take, what one client may not do to another.

`tests/server/test_over_http.py` holds the same of a real process; here the limits are small.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from starlette.datastructures import Headers
from starlette.responses import Response
from test_approval_forgery import APPROVE, PROSE, answered, asked, nobody

from mcp_server.access.over_http import MCP_PATH, Address, Guard, Limits, application, bind, token_of, whose
from mcp_server.access.roles import OWNER, Caller, Role
from mcp_server.access.tokens import Tokens
from mcp_server.server import build_server
from optimizer.audit import AuditLog

pytestmark = pytest.mark.anyio

PORT = 8765
TOKEN = "t" * 43


# ---- who is let in: the guard alone


def guard(**more: Any) -> Guard:
    address = Address(**more)

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is served here")

    def who(secret: str) -> Caller | None:
        return Caller(OWNER, Role.APPROVE) if secret == TOKEN else None

    return Guard(nothing, who, address.hosts(PORT), address.origins(PORT))


GOOD = [("host", f"127.0.0.1:{PORT}"), ("authorization", f"Bearer {TOKEN}")]


def status(headers: list[tuple[str, str]], **more: Any) -> int:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    found = guard(**more).look_at(Headers(raw=raw))
    return found.status_code if isinstance(found, Response) else 200


def replaced(name: str, *values: str) -> list[tuple[str, str]]:
    return [pair for pair in GOOD if pair[0] != name] + [(name, value) for value in values]


REBINDING = (
    "evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", f"127.0.0.1:{PORT}.evil.example",
    f"localhost.evil.example:{PORT}", f"2130706433:{PORT}", f"0x7f000001:{PORT}", f"127.1:{PORT}", f"0:{PORT}",
    f"0.0.0.0:{PORT}", f"[::]:{PORT}", f"[::ffff:127.0.0.1]:{PORT}", "127.0.0.1", "127.0.0.1:", "127.0.0.1:80",
    f"user@127.0.0.1:{PORT}", f"127.0.0.1:{PORT}/x", f"127.0.0.1:{PORT}, evil.example", f" 127.0.0.1:{PORT} x",
    f"127.0.0.1:{PORT}\t", "", "*", "null", f"localhost.:{PORT}", f"127.0.0.1:0{PORT}",
)  # fmt: skip


@pytest.mark.parametrize("host", REBINDING)
def test_a_rebound_name_is_not_ours(host: str) -> None:
    assert status(replaced("host", host)) == 421
    assert status(replaced("host", host), host="0.0.0.0", allow_remote=True, allow_hosts=("evo.example",)) == 421


def test_one_host_and_one_origin() -> None:
    own = f"127.0.0.1:{PORT}"
    assert status(GOOD) == 200
    assert status(replaced("host", own, own)) == 421
    assert status(replaced("host", own, "evil.example")) == 421
    assert status(replaced("host")) == 421
    assert status([*GOOD, ("origin", f"http://{own}")]) == 200
    assert status([*GOOD, ("origin", f"http://{own}"), ("origin", f"http://{own}")]) == 403
    assert status([*GOOD, ("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")]) == 200
    assert status([*replaced("host", "evil.example"), ("x-forwarded-host", own)]) == 421


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "*", "http://evil.example", "file://", "chrome-extension://abc", "http://127.0.0.1"),
        *(f"https://127.0.0.1:{PORT}", f"http://127.0.0.1:{PORT}.evil.example", f"http://127.0.0.1:{PORT}/"),
        *(f"http://127.0.0.1:{PORT}@evil.example", f"http://localhost.evil.example:{PORT}", "http://127.0.0.1:1"),
        f"http://127.0.0.1:{PORT} http://evil.example",
    ],
)
def test_a_page_of_somebody_else_is_refused(origin: str) -> None:
    assert status([*GOOD, ("origin", origin)]) == 403


@pytest.mark.parametrize(
    "given",
    [
        *("", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Token {TOKEN}", f"Bearer {TOKEN}x", f"Bearer x{TOKEN}"),
        *(f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN},{TOKEN}", f"Bearer: {TOKEN}"),
        *(f"Bearer\t{TOKEN}", f"BearerBearer {TOKEN}", f"Bearer Bearer {TOKEN}", "Bearer \xe9" * 8, "Bearer null"),
    ],
)
def test_only_the_token_itself_lets_in(given: str) -> None:
    assert status(replaced("authorization", given)) == 401


def test_where_a_token_does_not_count() -> None:
    other = replaced("authorization")
    for name in ("x-authorization", "proxy-authorization", "x-api-key", "cookie", "mcp-session-id"):
        assert status([*other, (name, f"Bearer {TOKEN}")]) == 401
    assert status(replaced("authorization", f"Bearer {TOKEN}", f"Bearer {TOKEN}")) == 401
    assert status(replaced("authorization", f"bEARER   {TOKEN} ")) == 200


def test_a_refusal_tells_nothing_that_helps() -> None:
    for headers in (
        replaced("host", "evil.example"),
        [*GOOD, ("origin", "null")],
        replaced("authorization", "Bearer x"),
    ):
        raw = [(name.encode(), value.encode()) for name, value in headers]
        found = guard().look_at(Headers(raw=raw))
        assert isinstance(found, Response)
        said = bytes(found.body).decode() + str(found.headers)
        assert TOKEN not in said
        assert f"127.0.0.1:{PORT}" not in said
        assert "access-control" not in said.lower()


# ---- what a client may take: a server in this process with small limits


@dataclass
class Served:
    root: Path
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{MCP_PATH}"

    def request(self, method: str, body: bytes | Iterator[bytes] | None = None, **headers: str) -> "Reply":
        """One request with the token; the connection stays open where the answer is a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection.request(method, MCP_PATH, body, sent, encode_chunked=not isinstance(body, bytes | None))
        return Reply(connection, connection.getresponse())

    def initialize(self, **headers: str) -> "Reply":
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        return self.request("POST", json.dumps(message).encode(), **headers)


@dataclass
class Reply:
    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def session(self) -> str:
        return self.response.headers["mcp-session-id"]

    def text(self) -> str:
        try:
            return self.response.read().decode()
        finally:
            self.connection.close()


@contextmanager
def served(root: Path, limits: Limits) -> Iterator[Served]:
    root.mkdir(parents=True, exist_ok=True)
    token = token_of(root)
    with bind(Address(port=0)) as listening:
        port = int(listening.getsockname()[1])
        app = application(build_server(root), Address(), port, whose(token, Tokens(root)), limits)
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: anyio.run(lambda: server.serve(sockets=[listening])), daemon=True)
        thread.start()
        try:
            yield Served(root, port, token)
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


LIST = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}).encode()
LEGACY = {"mcp_protocol_version": "2025-11-25"}


def test_sizes_sessions_and_time_are_bounded(root: Path) -> None:
    with served(root, Limits(body_bytes=10_000, sessions=2, idle_s=1.5, at_a_time=4)) as server:
        # a body that is too large, with its length and without
        assert server.request("POST", b'{"x": "' + b"y" * 10_000 + b'"}').status == 413
        chunks = iter([b'{"x": "', *([b"y" * 1000] * 20), b'"}'])
        assert server.request("POST", chunks).status == 413
        # sessions
        first, second = server.initialize(), server.initialize()
        assert (first.status, second.status) == (200, 200)
        refused = server.initialize()
        assert refused.status == 503
        assert "Too many open sessions" in refused.text()
        assert server.request("POST", LIST, mcp_session_id=first.session, **LEGACY).status == 200
        assert server.request("DELETE", mcp_session_id=second.session, **LEGACY).status == 200
        third = server.initialize()
        assert third.status == 200
        # time
        deadline = time.monotonic() + 20
        while server.request("POST", LIST, mcp_session_id=third.session, **LEGACY).status != 404:
            assert time.monotonic() < deadline
            time.sleep(2.5)
        assert server.initialize().status == 200


def test_requests_at_a_time_are_bounded_for_each_token(root: Path) -> None:
    other = Tokens(root)
    root.mkdir(parents=True)
    secret = other.add("alice", Role.VIEW, 600)
    with served(root, Limits(at_a_time=2)) as server:
        opened = [server.initialize() for _ in range(2)]
        for one in opened:
            one.text()
        streams = [server.request("GET", mcp_session_id=one.session, **LEGACY) for one in opened]
        assert [one.status for one in streams] == [200, 200]
        refused = server.initialize()
        assert refused.status == 429
        assert refused.response.headers["retry-after"] == "1"
        assert "under way already" in refused.text()
        assert server.initialize(Authorization=f"Bearer {secret}").status == 200, "another token has its own"
        for one in streams:
            one.connection.close()
        deadline = time.monotonic() + 20
        while server.initialize().status == 429:
            assert time.monotonic() < deadline
            time.sleep(0.2)


BODIES = {
    "deep list": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "deep arguments": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":'
    + b"[" * 50_000 + b"]" * 50_000 + b"}}}",
    "not a number": b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    "huge number": b'{"jsonrpc":"2.0","id":' + b"9" * 100_000 + b',"method":"ping"}',
    "batch": b"[" + b",".join([LIST] * 1000) + b"]",
    "no object": b'"x"',
    "nothing": b"",
    "not utf-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    "duplicate keys": b'{"jsonrpc":"2.0","id":1,"method":"x","method":"tools/list"}',
    "half a pair": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800","arguments":{}}}',
}  # fmt: skip


def test_a_hostile_body_costs_nothing_and_stops_nobody(root: Path) -> None:
    with served(root, Limits()) as server:
        session = server.initialize().session
        for name, body in BODIES.items():
            for headers in ({"mcp_session_id": session, **LEGACY}, {"mcp_protocol_version": "2026-07-28"}):
                began = time.monotonic()
                found = server.request("POST", body, **headers)
                assert found.status in (200, 202, 400, 404, 406, 413, 422), (name, found.status)
                assert "Traceback" not in found.text()
                assert time.monotonic() - began < 20, name
        assert server.request("POST", LIST, mcp_session_id=session, **LEGACY).status == 200


# ---- what one client may not do to another


async def test_sessions_and_questions_belong_to_the_token_that_opened_them(root: Path) -> None:
    root.mkdir(parents=True)
    tokens = Tokens(root)
    alice, mallory = tokens.add("alice", Role.APPROVE, 600), tokens.add("mallory", Role.APPROVE, 600)
    with served(root, Limits()) as server:
        session = server.initialize(Authorization=f"Bearer {alice}").session
        for secret, code in ((mallory, 404), (server.token, 404), (alice, 200)):
            found = server.request("POST", LIST, mcp_session_id=session, Authorization=f"Bearer {secret}", **LEGACY)
            assert found.status == code
        stolen = server.request("DELETE", mcp_session_id=session, Authorization=f"Bearer {mallory}", **LEGACY)
        assert stolen.status == 404

        async def question() -> Any:
            async with connected(server, alice) as client:
                made = await client.call_tool("propose_patch", PROSE)
                assert made.structured_content is not None  # type: ignore[union-attr]
                patch_id = made.structured_content["patch_id"]  # type: ignore[union-attr]
                return patch_id, await asked(client, patch_id)

        patch_id, found = await question()
        async with connected(server, mallory) as client:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await answered(client, patch_id, found)
        assert [one["kind"] for one in AuditLog(root).entries()] == ["token_added", "token_added"]
        patch_id, found = patch_id, await asked_by(server, alice, patch_id)
        async with connected(server, alice) as client:
            done = await answered(client, patch_id, found)
            assert done.structured_content["applied"] is True
    assert AuditLog(root).entries()[-1]["token"] == "alice"
    assert APPROVE.action == "accept"


async def asked_by(server: Served, secret: str, patch_id: str) -> Any:
    async with connected(server, secret) as client:
        return await asked(client, patch_id)


def connected(server: Served, secret: str) -> Client:
    http_client = create_mcp_http_client(headers={"Authorization": f"Bearer {secret}"})
    return Client(streamable_http_client(server.url, http_client=http_client), mode="auto", elicitation_callback=nobody)
