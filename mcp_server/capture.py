"""The server's own record of its tool calls: every client leaves a trajectory, also one without hooks.

A middleware sees each `tools/call` with its result, refused ones included, and appends one event to the session's raw
file. Arguments are kept whole (texts beyond 64 KB as head, tail, length and hash), so that the call is known again when
a hook or a transcript saw it, too; the response as its text and its data, large data as its size and hash. A call that
stops half way to ask the user (protocol of 2026) is recorded once, when it is answered. An answer leaves when its call
is on record. A record that cannot be written is logged and never breaks the call.

A record is written where the answer is made: a dozen short system calls, less than handing them to a thread and waiting
for it. Where the disk turns out slow or another process holds the file, a thread writes, and calls that end meanwhile
are written together.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, InputRequiredResult, TextContent
from pydantic import BaseModel

from mcp_server.access.roles import token_name
from mcp_server.answers import clip
from mcp_server.in_place import InPlace
from mcp_server.state import LAYER_VARIABLE, SESSION_PATTERN, ServerState

if TYPE_CHECKING:
    from optimizer.events import Event

SESSION_META = "mcp-evo/session"
"""Key of a request's `_meta` with which a client names the session that the call belongs to."""

MAX_RECORDED_BYTES = 4096
"""Larger data is recorded by size and hash: a trajectory is read by people and by analysis."""

CALL_META = ("claudecode/toolUseId", "claude/toolUseId")
"""Keys of a request's `_meta` under which clients tell their own id of the call. Hooks and transcripts carry it, too:
the index knows the call again by it."""

MAX_CALL_ID = 128
"""Characters; a longer one is no id."""

logger = logging.getLogger(__name__)


class Capture:
    """Middleware that records tool calls."""

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self._opened: set[str] = set()
        self._waiting: list[_Call] = []
        self._writing = anyio.Lock()
        self._in_place = InPlace()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call" or ctx.request_id is None:
            return await call_next(ctx)
        params = ctx.params or {}
        session = session_of(params) or self.state.session
        began, clock = time.time(), time.monotonic()
        result: HandlerResult = None
        failure: str | None = None
        try:
            result = await call_next(ctx)
            return result
        except anyio.get_cancelled_exc_class():
            failure = "cancelled by the client"
            raise
        except MCPError as error:
            failure = str(error)
            raise
        finally:
            self.state.called_at = time.monotonic()
            outcome = _outcome(result, failure)
            if outcome is not None:
                duration = time.monotonic() - clock
                client = None if session in self._opened else client_of(ctx)
                call = _Call(session, params, *outcome, began, duration, token_name(), client)
                with anyio.CancelScope(shield=True):
                    await self._write(call)

    async def _write(self, call: "_Call") -> None:
        """Writes a call; by a thread together with those that ended while others were being written."""
        if not self._writing.locked() and self._written_at_once(call):
            return
        self._waiting.append(call)
        async with self._writing:
            if self._waiting:  # else whoever wrote last wrote it, too
                calls, self._waiting = self._waiting, []
                await anyio.to_thread.run_sync(self._record, calls)

    def _written_at_once(self, call: "_Call") -> bool:
        """Writes a call of a session that is open, if nothing has to be waited for."""
        if call.session not in self._opened or not self._in_place.allowed:
            return False
        try:
            self._record([call], wait=False)
        except BlockingIOError:
            return False
        return True

    def _record(self, calls: "Sequence[_Call]", *, wait: bool = True) -> None:
        """Writes calls. Raises BlockingIOError, without `wait`, where the file is being written by others."""
        from optimizer.events import EventKind
        from optimizer.ids import BadId
        from trainer.runs.errors import WorkspaceError

        by_session: dict[str, list[_Call]] = {}
        for call in calls:
            by_session.setdefault(call.session, []).append(call)
        for session, some in by_session.items():
            try:
                with self._in_place.timed():
                    if not self.state.exists:
                        self.state.workspace()
                    if session not in self._opened:
                        self._opened.add(session)
                        self._mark(session, EventKind.SESSION_START, some[0].client)
                    self.state.trajectories().append(*(_event(call) for call in some), wait=wait)
            except BlockingIOError:
                raise
            except (OSError, WorkspaceError, BadId) as error:
                logger.warning("%d tool call(s) could not be recorded: %s", len(some), error)

    def close(self) -> None:
        """Marks the end of the sessions that were recorded."""
        from optimizer.events import EventKind

        for session in self._opened:
            try:
                self._mark(session, EventKind.SESSION_END, None)
            except OSError as error:
                logger.warning("the end of session %s could not be recorded: %s", session, error)
        self._opened.clear()

    def _mark(self, session: str, kind: str, response: Any) -> None:
        from optimizer.events import Event

        self.state.trajectories().append(Event(kind=kind, session=session, time=time.time(), response=response))


@dataclass(frozen=True)
class _Call:
    """A call that has ended."""

    session: str
    params: Mapping[str, Any]
    response: Any
    failure: str | None
    """Evidence that it failed."""
    began: float
    duration_s: float
    token: str | None
    client: dict[str, Any] | None
    """Of the session's first call."""


def _event(call: _Call) -> "Event":
    import msgspec

    from optimizer.clip import clip as clip_event
    from optimizer.events import tool_call

    arguments = call.params.get("arguments") or {}
    event = tool_call(
        call.session,
        clip(str(call.params.get("name")), 128),
        clip_event({"input": arguments})["input"],
        call.response,
        time=call.began,
        failed=call.failure is not None,
        reason=call.failure,
        duration_s=round(call.duration_s, 4),
        run_id=run_of(arguments, call.response),
    )
    return msgspec.structs.replace(event, call_id=call_id_of(call.params), token=call.token)


def session_of(params: Mapping[str, Any]) -> str | None:
    """The session a request names in its `_meta`, or None. Raises MCPError for one that cannot be an id."""
    meta = params.get("_meta")
    named = meta.get(SESSION_META) if isinstance(meta, Mapping) else None
    if named is None:
        return None
    from optimizer.ids import ID_PATTERN

    if not isinstance(named, str) or ID_PATTERN.match(named) is None:
        raise MCPError(
            code=INVALID_PARAMS,
            message=f"_meta {SESSION_META} must be 1 to 64 of a-z, 0-9, '-' and '_', beginning with a letter or digit",
        )
    return named


def call_id_of(params: Mapping[str, Any]) -> str | None:
    """The client's own id of the call, where it told one."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return None
    for key in CALL_META:
        named = meta.get(key)
        if isinstance(named, str) and 0 < len(named) <= MAX_CALL_ID and named.isprintable():
            return named
    return None


def client_of(ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    """Name and version of the client, as far as it gave them, the protocol version, and the layer where it is fixed."""
    found: dict[str, Any] = {"protocol": ctx.protocol_version}
    fixed = os.environ.get(LAYER_VARIABLE)
    if fixed:
        found["layer"] = fixed
    params = ctx.session.client_params
    if params is not None:
        found["client"] = {
            "name": clip(params.client_info.name, 80),
            "version": clip(params.client_info.version, 40),
        }
    return found


def _outcome(result: HandlerResult, failure: str | None) -> tuple[Any, str | None] | None:
    """(recorded response, evidence of a failure); None: nothing to record yet."""
    if failure is not None:
        return None, clip(failure, 300)
    if isinstance(result, InputRequiredResult):
        return None
    if isinstance(result, CallToolResult):
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        return _recorded(" ".join(texts), bool(result.is_error), result.structured_content)
    document = result.model_dump(mode="json", by_alias=True) if isinstance(result, BaseModel) else result
    if not isinstance(document, dict):
        return None
    if document.get("resultType") == "input_required":
        return None
    text = " ".join(part["text"] for part in document.get("content", []) if part["type"] == "text")
    return _recorded(text, bool(document.get("isError")), document.get("structuredContent"))


def _recorded(text: str, is_error: bool, data: Any) -> tuple[Any, str | None]:
    if is_error:
        return {"text": text[:MAX_RECORDED_BYTES], "isError": True}, clip(text, 300)
    return {"text": text[:MAX_RECORDED_BYTES], "data": bounded(data, MAX_RECORDED_BYTES)}, None


def bounded(value: Any, limit: int) -> Any:
    """The value, or, where its JSON is longer than `limit` bytes, its size and hash and its short fields."""
    import msgspec

    try:
        if len(msgspec.json.encode(value)) <= limit:  # a tenth of the time of the standard library
            return value
    except (TypeError, ValueError):  # half a surrogate pair, or nothing that JSON has
        pass
    encoded = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    if len(encoded) <= limit:
        return value
    kept: dict[str, Any] = {"bytes": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
    if isinstance(value, Mapping):
        short = {key: one for key, one in value.items() if isinstance(one, int | float | bool)}
        short |= {key: one for key, one in value.items() if isinstance(one, str) and len(one) <= 200}
        kept = {**short, **kept}
    return kept


def run_of(arguments: Mapping[str, Any], response: Any) -> str | None:
    """The training run that a call launched or looked at: what it answered, else what it was asked for, if that can be
    an id."""
    data = response.get("data") if isinstance(response, dict) else None
    answered = data.get("run_id") if isinstance(data, dict) else None
    named = answered if isinstance(answered, str) else arguments.get("run_id")
    return named if isinstance(named, str) and SESSION_PATTERN.match(named) and named != "latest" else None
