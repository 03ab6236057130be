"""Who may ask: the guard in front of every path, the one-time code of a link, the session it is exchanged for.

1. The link that `mcp-evo dashboard` gives holds a code behind `#`: browsers send no such part anywhere, so it is in no
   log and no Referer. The page exchanges it, once and within minutes, for a cookie that no script can read
   (HttpOnly) and that no other site's request carries (SameSite=Strict).
2. Host and Origin are checked against exact lists on every path, as over HTTP (`over_http.Address`). What comes from
   another site by the browser's own word is refused, whatever else it holds.
3. What changes something needs, beyond the cookie, an Origin of ours and a header with the session's second secret.
Nothing here outlives the process.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSRF_HEADER = "x-evo-csrf"

SECRET_BYTES = 32

CODE_LIFE_S = 10 * 60.0
"""How long a link may wait to be opened."""

SESSION_LIFE_S = 12 * 3600.0

MAX_SESSIONS = 16
"""Browsers at a time; the oldest session ends for a new one."""

MAX_BODY_BYTES = 16 * 1024

SAFE_METHODS = ("GET", "HEAD")

EVERYWHERE = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer."""


@dataclass(frozen=True)
class Session:
    """A browser that came by a link."""

    csrf: str
    ends_at: float


@dataclass
class Access:
    """Codes and sessions of one dashboard."""

    port: int
    clock: Callable[[], float] = time.monotonic
    _code: tuple[bytes, float] | None = None
    """Hash of the code that may still be exchanged, and when it ends."""
    _sessions: dict[bytes, Session] = field(default_factory=dict, repr=False)

    @property
    def cookie(self) -> str:
        """Its name: cookies of one host are shared by all of its ports."""
        return f"mcp-evo-dashboard-{self.port}"

    def new_code(self) -> str:
        """A code for a link; the one before, if nobody used it, ends."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._code = (_hash(code), self.clock() + CODE_LIFE_S)
        return code

    def exchange(self, code: str) -> str | None:
        """The cookie for a code, which is spent; None for one that is wrong, spent or too old."""
        waiting = self._code
        if waiting is None or not hmac.compare_digest(_hash(code), waiting[0]):
            return None
        self._code = None
        if self.clock() > waiting[1]:
            return None
        token = secrets.token_urlsafe(SECRET_BYTES)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_hash(token)] = Session(secrets.token_urlsafe(SECRET_BYTES), self.clock() + SESSION_LIFE_S)
        return token

    def session(self, request: Request) -> Session | None:
        """The session of a request; None without one."""
        token = request.cookies.get(self.cookie)
        found = None if token is None else self._sessions.get(_hash(token))
        return found if found is not None and self.clock() <= found.ends_at else None

    def may_change(self, request: Request, session: Session) -> bool:
        """Whether the page itself sent this request: its header holds the session's second secret."""
        given = request.headers.getlist(CSRF_HEADER)
        return len(given) == 1 and hmac.compare_digest(_hash(given[0]), _hash(session.csrf))


def _hash(text: str) -> bytes:
    """Secrets are kept and compared as hashes: equal length whatever was sent, and no secret in a dump."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Guard:
    """Lets through what has an allowed Host and comes from no other site, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: list[str], origins: list[str]) -> None:
        self.app, self.hosts, self.origins = app, frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            refused = self.refusal(scope["method"], Headers(scope=scope))
            await (refused or self.app)(scope, receive, _with_headers(send, EVERYWHERE))

    def refusal(self, method: str, headers: Headers) -> Response | None:
        """What is answered instead, or None."""
        if headers.get("host", "").lower() not in self.hosts or len(headers.getlist("host")) != 1:
            return PlainTextResponse("this Host is not allowed", status_code=421)
        origins = headers.getlist("origin")
        if len(origins) > 1 or (origins and origins[0].lower() not in self.origins):
            return PlainTextResponse("this Origin is not allowed", status_code=403)
        if method not in SAFE_METHODS and not origins:
            return PlainTextResponse("an Origin is needed", status_code=403)
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") and not _opens_a_page(method, headers):
            return PlainTextResponse("requests of other sites are not answered", status_code=403)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= MAX_BODY_BYTES):
            return PlainTextResponse(f"a body may have {MAX_BODY_BYTES} bytes", status_code=413)
        return None


def _opens_a_page(method: str, headers: Headers) -> bool:
    """A link elsewhere that was followed: the page it opens holds nothing until it has asked for itself."""
    return (
        method == "GET" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in more.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


class TooLarge(ValueError):
    """A body beyond the limit."""


async def body_of(request: Request) -> bytes:
    """The body, whatever length was announced. Raises TooLarge."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(f"a body may have {MAX_BODY_BYTES} bytes")
    return data
