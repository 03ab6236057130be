"""The dashboard for a browser on this machine: page, documents, decisions, behind the guard."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mcp_server.access.over_http import Address, bind, web_server
from mcp_server.dashboard.access import SESSION_LIFE_S, Access, Guard, Session, TooLarge, body_of
from mcp_server.dashboard.deciding import Deciding, Refused, decide, decision_from
from mcp_server.dashboard.documents import answer
from mcp_server.dashboard.page import page_for
from mcp_server.dashboard.running import address_of, note_closed, note_open
from mcp_server.dashboard.shaping import BadQuestion, NotThere
from mcp_server.dashboard.source import Source

MAX_QUERY = 400


@dataclass(frozen=True)
class Dashboard:
    """One open dashboard."""

    source: Source
    access: Access
    deciding: Deciding
    on_open: Callable[[], None]
    """Called when it is about to answer, with the server's own handling of signals in place."""

    def application(self) -> ASGIApp:
        """The guarded ASGI application."""
        address = Address(port=self.access.port)
        app = Starlette(
            routes=[
                Route("/", self.page, methods=["GET"]),
                Route("/login", self.login, methods=["POST"]),
                Route("/session", self.session, methods=["GET"]),
                Route("/api/{path:path}", self.document, methods=["GET"]),
                Route("/decide/{patch_id}", self.decision, methods=["POST"]),
            ],
            lifespan=self._open,
        )
        return Guard(app, address.hosts(self.access.port), address.origins(self.access.port))

    @asynccontextmanager
    async def _open(self, app: Starlette) -> AsyncIterator[None]:
        self.on_open()
        try:
            yield
        finally:  # here too, as SIGTERM ends the process as soon as the server has closed
            note_closed(self.source.root, self.access.port)

    async def page(self, request: Request) -> Response:
        """The page; it holds nothing of the workspace."""
        page = page_for("browser")
        return HTMLResponse(page.html, headers={"content-security-policy": page.policy})

    async def login(self, request: Request) -> Response:
        """Exchanges the code of a link for a cookie."""
        try:
            code = json.loads(await body_of(request))["code"]
        except TooLarge as error:
            return problem(str(error), 413)
        except (ValueError, TypeError, KeyError, RecursionError):
            return problem("a code is needed", 400)
        token = self.access.exchange(code) if isinstance(code, str) else None
        if token is None:
            return problem("this link was used already or is too old", 401)
        response = JSONResponse({})
        response.set_cookie(
            self.access.cookie, token, max_age=int(SESSION_LIFE_S), path="/", httponly=True, samesite="strict"
        )
        return response

    async def session(self, request: Request) -> Response:
        """What the page may do."""
        session = self.access.session(request)
        if session is None:
            return needs_link()
        deciding = {"allowed": self.deciding.allowed, "why_not": self.deciding.why_not}
        return JSONResponse({"csrf": session.csrf, "deciding": deciding})

    async def document(self, request: Request) -> Response:
        """A document of the workspace."""
        if self.access.session(request) is None:
            return needs_link()
        if len(request.url.query) > MAX_QUERY:
            return problem("the question is too long", 400)
        path, values = request.path_params["path"], dict(request.query_params)
        try:
            found = await anyio.to_thread.run_sync(answer, self.source, path, values)
        except NotThere as error:
            return problem(str(error), 404)
        except BadQuestion as error:
            return problem(str(error), 400)
        return JSONResponse(found)

    async def decision(self, request: Request) -> Response:
        """Carries out a person's decision about a patch."""
        session = self.access.session(request)
        if session is None:
            return needs_link()
        refused = self._may_not_change(request, session)
        if refused is not None:
            return refused
        patch_id = request.path_params["patch_id"]
        try:
            wanted = decision_from(await body_of(request))
            return JSONResponse(await anyio.to_thread.run_sync(decide, self.source, patch_id, wanted))
        except TooLarge as error:
            return problem(str(error), 413)
        except BadQuestion as error:
            return problem(str(error), 400)
        except NotThere as error:
            return problem(str(error), 404)
        except Refused as error:
            return problem(str(error), 409)

    def _may_not_change(self, request: Request, session: Session) -> Response | None:
        if not self.access.may_change(request, session):
            return problem("this request does not come from the page", 403)
        if request.headers.get("content-type") != "application/json":
            return problem("the decision must be application/json", 415)
        if not self.deciding.allowed:
            return problem(self.deciding.why_not or "this dashboard is for reading only", 403)
        return None


def problem(say: str, status: int) -> Response:
    """An answer that says what is wrong."""
    return JSONResponse({"problem": say}, status_code=status)


def needs_link() -> Response:
    """The answer to a browser without a session."""
    return problem("open the link that `mcp-evo dashboard` gave in the terminal", 401)


def link_to(access: Access) -> str:
    """A link that opens the dashboard once."""
    return f"{address_of(access.port)}#login={access.new_code()}"


def serve(
    source: Source, port: int, deciding: Deciding, on_ready: Callable[[Access], None], wants_link: int | None
) -> None:
    """Serves on 127.0.0.1 until SIGINT or SIGTERM. `on_ready(access)` is called when it is about to answer, and again
    whenever a line comes in on the terminal `wants_link` (a file descriptor). Raises HttpError, OSError."""
    with bind(Address(port=port)) as listening:
        access = Access(int(listening.getsockname()[1]))
        server = web_server(Dashboard(source, access, deciding, lambda: on_ready(access)).application())

        async def serving() -> None:
            if wants_link is not None:
                _on_line(wants_link, lambda: on_ready(access))
            await server.serve(sockets=[listening])

        note_open(source.root, access.port, deciding.allowed, os.getpid())
        try:
            anyio.run(serving)
        finally:
            note_closed(source.root, access.port)


def _on_line(terminal: int, then: Callable[[], None]) -> None:
    """Calls `then` for each line typed on the terminal, while this process is in its foreground: reading from the
    background would stop it."""
    loop = asyncio.get_running_loop()

    def typed() -> None:
        if not _in_foreground(terminal) or not os.read(terminal, 4096):
            loop.remove_reader(terminal)
            return
        then()

    loop.add_reader(terminal, typed)


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # a terminal, but not the one that this process belongs to
        return False
