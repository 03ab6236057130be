"""The server over streamable HTTP, for clients on this machine that do not start it themselves.

1. Every request needs a bearer token, on every path: the plain one of the workspace, which lies in a file that only its
   owner can read and is never printed, logged or put into a URL, or a named one with a role
   (`mcp_server/access/tokens.py`).
2. Host and Origin are checked against explicit lists (DNS rebinding: a web page whose name resolves to 127.0.0.1 would
   otherwise speak to us), by us for every path and by the SDK once more.
3. Only loopback addresses are bound, unless that is allowed and the names under which clients will come are given.
4. Bodies, sessions, idle time and requests at a time are bounded (`Limits`): 413, 503, 404 and 429 say so.

Imported by `mcp-evo serve --http` only: a stdio server starts without any of it.
"""

import hmac
import ipaddress
import re
import secrets
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_server.access.roles import OWNER, Caller, Role
from mcp_server.access.secret_files import SecretError, secret_in
from mcp_server.access.tokens import TokenError, Tokens
from mcp_server.state import ServerState

MCP_PATH = "/mcp"

DEFAULT_PORT = 8765

TOKEN_FILE = "http-token"
"""In the workspace folder."""

TOKEN_BYTES = 32

TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{32,256}\Z")

BACKLOG = 256
"""Connections that may wait to be accepted."""

SHUTDOWN_S = 3
"""How long open streams may hold up the end of the server; runs go on without it anyhow."""

_HOST_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252})(:[0-9]{1,5})?\Z")
_ORIGIN_PATTERN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252})(:[0-9]{1,5})?\Z")


class HttpError(Exception):
    """A server that must not or cannot be started so; the message says what to do."""


@dataclass(frozen=True)
class Limits:
    """What clients may take of the server."""

    body_bytes: int = 4 * 2**20
    """Of one request; the largest arguments of ours are texts of some kilobytes. Beyond: 413."""
    sessions: int = 100
    """Sessions at a time, in the protocol that has them; each costs memory until it ends. Beyond: 503."""
    idle_s: float = 30 * 60
    """After which a session without a request under way ends. Afterwards: 404, and the client opens another."""
    at_a_time: int = 256
    """Requests under way for one token, open streams included. Beyond: 429."""
    connections: int = 1024
    """Of all clients together, with a token or without. Beyond: 503."""


@dataclass(frozen=True)
class Address:
    """Where to listen, and under which names clients may come."""

    host: str = "127.0.0.1"
    """Name or IP address to bind."""
    port: int = DEFAULT_PORT
    """0: any free one."""
    allow_hosts: tuple[str, ...] = ()
    """Further values of the Host header: `name` (with our port or without one) or `name:port`."""
    allow_origins: tuple[str, ...] = field(default=())
    """Further values of the Origin header: web pages that may call us."""
    allow_remote: bool = False
    """Whether other machines may reach it."""

    def __post_init__(self) -> None:
        """Raises HttpError for an address that is refused."""
        for name in self.allow_hosts:
            if _HOST_PATTERN.match(name) is None:
                raise HttpError(f"--allow-host {name!r} is no host: give a name or an address, with :port or without")
        for origin in self.allow_origins:
            if _ORIGIN_PATTERN.match(origin) is None:
                raise HttpError(f"--allow-origin {origin!r} is no origin: give https://name or https://name:port")
        if not is_loopback(self.host) and not (self.allow_remote and self.allow_hosts):
            raise HttpError(
                f"--host {self.host} can be reached from other machines, which is refused: give --allow-remote and "
                "--allow-host NAME for each name under which clients come, or leave --host out (127.0.0.1)"
            )

    def hosts(self, port: int) -> list[str]:
        """Allowed values of the Host header, exactly."""
        own = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"]
        if is_loopback(self.host) and self.host not in ("127.0.0.1", "localhost", "::1"):
            own.append(f"{_bracketed(self.host)}:{port}")
        more = [
            value for name in self.allow_hosts for value in ([name] if _has_port(name) else [name, f"{name}:{port}"])
        ]
        return [value.lower() for value in (*own, *more)]

    def origins(self, port: int) -> list[str]:
        """Allowed values of the Origin header, exactly. Without the header a request is no web page's."""
        return [*(f"http://{host}" for host in self.hosts(port)), *(one.lower() for one in self.allow_origins)]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address. Names other than localhost count as not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _has_port(name: str) -> bool:
    return re.search(r":[0-9]+\Z", name) is not None and (not name.startswith("[") or "]:" in name)


def token_of(root: Path, *, renew: bool = False) -> str:
    """The token of a workspace, made where there is none; `renew` makes a new one. Raises HttpError, OSError."""
    try:
        return secret_in(root / TOKEN_FILE, TOKEN_PATTERN, lambda: secrets.token_urlsafe(TOKEN_BYTES), renew=renew)
    except SecretError as error:
        raise HttpError(str(error)) from error


class Guard:
    """Lets through what has the right Host, Origin and token; everything else gets a status and a reason.

    What it lets through carries its caller in the scope, as the SDK expects one: a session and a question belong to the
    caller that opened them.
    """

    def __init__(
        self,
        app: ASGIApp,
        who: Callable[[str], Caller | None],
        hosts: Sequence[str],
        origins: Sequence[str],
        at_a_time: int = Limits.at_a_time,
    ) -> None:
        self.app, self.who, self.at_a_time = AuthContextMiddleware(app), who, at_a_time
        self.hosts, self.origins = frozenset(hosts), frozenset(origins)
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":  # there are no web sockets here
            found = self.look_at(Headers(scope=scope))
            if isinstance(found, Response):
                await found(scope, receive, send)
            else:
                await self._serve(found, scope, receive, send)

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        if self._under_way[caller.name] >= self.at_a_time:
            busy = f"{self.at_a_time} requests of this token are under way already: wait for one of them to end"
            await Response(busy, status_code=429, headers={"retry-after": "1"})(scope, receive, send)
            return
        self._under_way[caller.name] += 1
        try:
            await self.app({**scope, "user": _user_of(caller)}, receive, send)
        finally:
            self._under_way[caller.name] -= 1

    def look_at(self, headers: Headers) -> "Caller | Response":
        """Who comes, or what is answered instead. What was wrong is said, what would be right is not."""
        if headers.get("host", "").lower() not in self.hosts or len(headers.getlist("host")) != 1:
            return Response("this Host is not allowed; see --allow-host", status_code=421)
        origins = headers.getlist("origin")
        if origins and (len(origins) > 1 or origins[0].lower() not in self.origins):
            return Response("this Origin is not allowed; see --allow-origin", status_code=403)
        given = headers.getlist("authorization")
        caller = self._caller(given[0]) if len(given) == 1 else None
        if caller is None:
            return Response(
                f"a bearer token is needed: that in the file {TOKEN_FILE} of the workspace, or a named one "
                "(mcp-evo tokens)",
                status_code=401,
                headers={"www-authenticate": 'Bearer realm="mcp-evo"'},
            )
        return caller

    def _caller(self, given: str) -> Caller | None:
        scheme, _, value = given.partition(" ")
        return self.who(value.strip()) if scheme.lower() == "bearer" else None


def _user_of(caller: Caller) -> AuthenticatedUser:
    """The caller as the SDK knows callers. The token itself is not handed on: nothing behind the guard needs it."""
    return AuthenticatedUser(
        AccessToken(token="", client_id=caller.name, scopes=[str(caller.role)], subject=caller.mark or None)
    )


def whose(token: str, named: Tokens) -> Callable[[str], Caller | None]:
    """Tells whose a token is: the plain one's owner, the holder of a named one, nobody. Compares in constant time."""
    expected = token.encode()

    def who(secret: str) -> Caller | None:
        owner = hmac.compare_digest(secret.encode("utf-8", "replace"), expected)
        other = named.caller(secret)
        return Caller(OWNER, Role.APPROVE) if owner else other

    return who


def application(
    server: MCPServer[ServerState],
    address: Address,
    port: int,
    who: Callable[[str], Caller | None],
    limits: Limits = Limits(),
) -> ASGIApp:
    """The guarded ASGI application of a server that listens on `port`."""
    hosts, origins = address.hosts(port), address.origins(port)
    app = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        host=address.host,
        max_request_body_size=limits.body_bytes,
        max_sessions=limits.sessions,
        session_idle_timeout=limits.idle_s,
        transport_security=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins),
    )
    return Guard(app, who, hosts, origins, limits.at_a_time)


def bind(address: Address) -> socket.socket:
    """The listening socket. Raises HttpError where it cannot be had."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address.host, address.port))
        made.listen(BACKLOG)  # here, as a second server is told so only now
    except OSError as error:
        made.close()
        raise HttpError(
            f"{address.host}:{address.port} cannot be used ({error.strerror or error}). Choose another --port, or 0 "
            "for any free one"
        ) from error
    return made


def serve(
    server: MCPServer[ServerState],
    root: Path,
    address: Address,
    on_ready: Callable[[str], None],
    *,
    renew: bool = False,
    limits: Limits = Limits(),
) -> None:
    """Serves until SIGINT or SIGTERM; `on_ready(url)` is called once the socket listens. Raises HttpError, OSError."""
    token, named = token_of(root, renew=renew), Tokens(root)
    try:
        named.read()
    except TokenError as error:
        raise HttpError(str(error)) from error
    with bind(address) as listening:
        port = int(listening.getsockname()[1])
        app = application(server, address, port, whose(token, named), limits)
        on_ready(f"http://{_bracketed(address.host)}:{port}{MCP_PATH}")
        anyio.run(_serve, web_server(app, connections=limits.connections), listening)


def web_server(app: ASGIApp, *, connections: int | None = None) -> uvicorn.Server:
    """What carries an application of ours: it trusts no proxy's headers, opens no web sockets and logs no request.

    `connections`: how many at once; None: as many as come.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            limit_concurrency=connections,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )


async def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    await server.serve(sockets=[listening])


def client_command(url: str, root: Path) -> str:
    """The line that adds the server to Claude Code: the shell reads the token from its file when it is run."""
    token = f"$(cat {shlex.quote(str(root / TOKEN_FILE))})"
    return f'claude mcp add --transport http evo {url} --header "Authorization: Bearer {token}"'


def ready_document(url: str, root: Path) -> dict[str, Any]:
    """What `--json` prints once the server listens."""
    return {"url": url, "token_file": str(root / TOKEN_FILE), "command": client_command(url, root)}
