"""Lines that the SDK's pipe cannot read and passes over: a client that sent one would wait for its answer for ever.

Half a surrogate pair (`"\\ud83d"`) is what programs send that cut texts by UTF-16 units. It is no Unicode text, and it
is JSON all the same: such a line is read with a mark in the place of the half. Every other line that is no message is
answered with an error, as JSON-RPC 2.0 has it (section 5.1), under the request's id where that can be read.
"""

import json
import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from skill_bank.visible import MARK

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

_HALVES = re.compile("[\ud800-\udfff]")

Item = SessionMessage | Exception


class ReadableLines:
    """The messages of a pipe, those that could be mended among them; what is none is answered here."""

    def __init__(self, inner: "ReadStream[Item]", answers: "WriteStream[SessionMessage]") -> None:
        self._inner, self._answers = inner, answers

    async def receive(self) -> Item:
        """The next message. Raises anyio.EndOfStream."""
        return await self._read(await self._inner.receive())

    async def aclose(self) -> None:
        """Closes the pipe."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return await self._read(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read(self, item: Item) -> Item:
        if not isinstance(item, ValidationError):
            return item
        found = mended(item)
        if isinstance(found, SessionMessage):
            return found
        if found is not None:
            await self._answers.send(SessionMessage(found))
        return item  # which the SDK passes over


def mended(problem: ValidationError) -> SessionMessage | JSONRPCError | None:
    """The message that a line was meant to be, or what is answered to it; None for an empty line."""
    errors = problem.errors(include_url=False)
    if errors[0]["type"] != "json_invalid":  # of each kind of message what it lacks; what lacks a part is shown whole
        document = next((one["input"] for one in errors if isinstance(one["input"], dict)), None)
        return _refused(document, INVALID_REQUEST, "this is no message of JSON-RPC 2.0")
    line = str(errors[0]["input"])
    if not line.strip():
        return None
    try:
        document = json.loads(line)
        text = _HALVES.sub(MARK, json.dumps(document, ensure_ascii=False))
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except RecursionError:
        return _refused(None, PARSE_ERROR, "this is nested too deeply to be read")
    except ValidationError:
        return _refused(document, INVALID_REQUEST, "this is nested too deeply, or no message of JSON-RPC 2.0")
    except ValueError as error:
        return _refused(None, PARSE_ERROR, f"this is no JSON: {error}")


def _refused(document: Any, code: int, message: str) -> JSONRPCError:
    """An error under the id of the request, where the document is one."""
    name = document.get("id") if isinstance(document, dict) and "method" in document else None
    known = name if isinstance(name, int | str) and not isinstance(name, bool) else None
    return JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=message))
