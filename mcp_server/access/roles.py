"""Who a request comes from, and what they may do.

1. Roles are steps: `view` reads, `run` also works (starts, stops, proposes, tries), `approve` also decides. What a tool
   needs follows from its annotations (`role_for`).
2. Only who owns the folder reaches other files of the machine: for everybody else a path in an argument has to lead
   into the project (`outside`), wherever a tool would read it.
3. Over HTTP the guard in front of the server tells who comes (`over_http.Guard`), by a named token or by the plain
   one of the workspace. On stdio it is whoever started the server. The last two own the folder and may do everything.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, TextContent

from mcp_server.answers import Next, clip, next_text

if TYPE_CHECKING:
    from optimizer.approvals import Origin

OWNER = "owner"
"""Name of whoever owns the workspace."""

_BETWEEN_WORDS = re.compile(r"[\s,;=()'\"“”‘’，；（）]+")

HELP = Next(say="See where things stand.", tool="round_status")


class Role(StrEnum):
    """What a token may do."""

    VIEW = "view"
    """Resources, prompts and tools that change nothing."""
    RUN = "run"
    """Also start, stop, propose and try."""
    APPROVE = "approve"
    """Also answer the questions about patches and campaigns, and undo what was decided."""

    def includes(self, other: "Role") -> bool:
        """Whether it may do all that the other may."""
        steps = list(Role)
        return steps.index(self) >= steps.index(other)


UNDOES_A_DECISION = frozenset({"rollback_skill"})
"""Tools that take out of force what a person let in."""


def role_for(tool: str, *, read_only: bool) -> Role:
    """The role that calling a tool takes."""
    if read_only:
        return Role.VIEW
    return Role.APPROVE if tool in UNDOES_A_DECISION else Role.RUN


@dataclass(frozen=True)
class Caller:
    """Whoever a request comes from."""

    name: str
    role: Role
    mark: str = ""
    """Tells tokens apart that had the same name one after the other."""


ANYBODY_HERE = Caller(OWNER, Role.APPROVE)


def caller_now() -> Caller:
    """Whoever sent the request that is being served."""
    token = get_access_token()
    return ANYBODY_HERE if token is None else Caller(token.client_id, Role(token.scopes[0]), token.subject or "")


def token_name() -> str | None:
    """The name of the token that was shown; None on stdio."""
    token = get_access_token()
    return None if token is None else token.client_id


def origin_of(ctx: ServerRequestContext[Any, Any]) -> "Origin":
    """Who passes a decision on: the token's name, and what the client calls itself."""
    from optimizer.approvals import Origin

    params = ctx.session.client_params
    client = None if params is None else clip(f"{params.client_info.name} {params.client_info.version}", 120)
    return Origin(token_name(), client)


def refusal(what: str, needed: Role, caller: Caller) -> str:
    """Why a token may not do something, and which one may."""
    return (
        f"{what} takes a token with role {needed}; token {caller.name!r} has role {caller.role}. Whoever runs this "
        f"server can make one: mcp-evo tokens add NAME --role {needed}"
    )


def _refused(why: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=f"{why}. Next: {next_text(HELP)}")], is_error=True)


def outside(folder: Path, arguments: Any) -> str | None:
    """The first text in arguments, or word of a request, that names something there is outside of a folder."""
    home = folder.resolve()
    for text in _texts(arguments):
        if "/" not in text and not text.startswith(("~", "..")):
            continue
        try:
            path = (home / Path(text).expanduser()).resolve()
            if path.exists() and not path.is_relative_to(home):
                return text
        except (OSError, ValueError, RuntimeError):  # too long, a null character, no such user: no path of anything
            continue
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts(one)
            if name == "request" and isinstance(one, str):
                yield from (word for word in _BETWEEN_WORDS.split(one) if len(word) > 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


class RoleGuard:
    """Middleware that refuses what the caller may not do: tools beyond its role, paths beyond the project."""

    def __init__(self, server: MCPServer[Any]) -> None:
        self._server = server
        self._needed: dict[str, Role] = {}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call" or (caller := caller_now()).name == OWNER:
            return await call_next(ctx)
        params = ctx.params or {}
        name = str(params.get("name"))
        needed = await self.needed(name)
        if not caller.role.includes(needed):
            return _refused(refusal(clip(name, 64), needed, caller))
        foreign = outside(ctx.lifespan_context.folder, params.get("arguments"))
        if foreign is not None:
            return _refused(
                f"{clip(foreign, 80)!r} is outside of the project, which token {caller.name!r} does not reach. Whoever "
                "runs this server can put it into the project's folder"
            )
        return await call_next(ctx)

    async def needed(self, tool: str) -> Role:
        """The role that a tool takes; that of a working one for a tool that there is not."""
        if not self._needed:
            self._needed = {
                one.name: role_for(
                    one.name, read_only=one.annotations is not None and one.annotations.read_only_hint is True
                )
                for one in await self._server.list_tools()
            }
        return self._needed.get(tool, Role.RUN)
