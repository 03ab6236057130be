"""Events: what an agent did, one JSON line each, from three sources in one model.

1. A raw file keeps each line as its source wrote it: our own form (`kind`), a Claude Code hook (`hook_event_name`), or
   the older normalised form (`type`). `parse` turns any of them into an `Event`; what is none of them is a bad line.
2. The identity of an event is (session, line), lines counted from 0. Times may repeat or step back; they are data.
3. The outcome of a call rests on evidence (`optimizer.outcome`): a word like "failed" in an output says nothing.
4. `parse` gives everything; `glance` the same event with only those fields of input and response that rules read
   (`optimizer.call_fields`), several times as fast.
"""

import json
import re
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from optimizer.call_fields import CallResponse, InputFields, ResponseFields
from optimizer.outcome import UNKNOWN, Evidence, Outcome, judge, judge_reported_failure

SCHEMA_VERSION = 1

MAIN = "main"
"""Agent of the session's own conversation; sub-agents have their ids."""


class EventKind(StrEnum):
    """What happened."""

    TOOL_CALL = "tool_call"
    TOOL_FAILURE = "tool_failure"
    """A call whose source says outright that it failed."""
    TURN_END = "turn_end"
    USER_PROMPT = "user_prompt"
    SESSION_START = "session_start"
    SESSION_END = "session_end"
    SUBAGENT_START = "subagent_start"
    SUBAGENT_END = "subagent_end"
    OTHER = "other"
    """Kept, counted, not interpreted."""

    @property
    def is_call(self) -> bool:
        return self in (EventKind.TOOL_CALL, EventKind.TOOL_FAILURE)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event. `line` is where it stands in its session's file; it is not stored."""

    schema_version: int = SCHEMA_VERSION
    kind: str
    session: str
    agent: str = MAIN
    time: float | None = None
    """Unix seconds; None: the source did not say."""
    tool: str | None = None
    input: Any = None
    response: Any = None
    outcome: str = Outcome.UNKNOWN
    reason: str | None = None
    """The evidence for a failure, shortened."""
    evidence: str | None = None
    """What kind of evidence a failure has: structured | masked | reported (`optimizer.outcome.Evidence`)."""
    duration_s: float | None = None
    source: str = "server"
    """hook | server | transcript | evolve | import."""
    call_id: str | None = None
    """The client's id of the call, where it has one."""
    text: str | None = None
    """Text of a prompt."""
    run_id: str | None = None
    """Run that this event launched or looked at, linked when it was recorded."""
    agent_type: str | None = None
    """Type of a sub-agent; a harness fork has none."""
    time_text: str | None = None
    """The time as its source wrote it, where it was text."""
    token: str | None = None
    """Name of the token that the client showed, over HTTP."""
    line: int = -1

    @property
    def is_call(self) -> bool:
        return self.kind in (EventKind.TOOL_CALL, EventKind.TOOL_FAILURE)

    @property
    def failed(self) -> bool:
        return self.outcome == Outcome.FAILED


HOOK_KINDS = {
    "PostToolUse": EventKind.TOOL_CALL,
    "PostToolUseFailure": EventKind.TOOL_FAILURE,
    "Stop": EventKind.TURN_END,
    "SubagentStart": EventKind.SUBAGENT_START,
    "SubagentStop": EventKind.SUBAGENT_END,
    "UserPromptSubmit": EventKind.USER_PROMPT,
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
}

_NORMALISED_KINDS: dict[str | None, EventKind] = {
    "tool_call": EventKind.TOOL_CALL,
    "turn_end": EventKind.TURN_END,
    "conversation_end": EventKind.SUBAGENT_END,
    "session_end": EventKind.SESSION_END,
}

_KNOWN = frozenset(EventKind)

# A member of an enum is looked up by a descriptor, which costs more than all else in a line's dispatch.
_TOOL_CALL = EventKind.TOOL_CALL
_TOOL_FAILURE = EventKind.TOOL_FAILURE
_OTHER = EventKind.OTHER


class BadEvent(ValueError):
    """A line that is no event."""


def tool_call(
    session: str,
    tool: str,
    input: Any,
    response: Any,
    *,
    time: float,
    failed: bool = False,
    reason: str | None = None,
    source: str = "server",
    agent: str = MAIN,
    duration_s: float | None = None,
    run_id: str | None = None,
) -> Event:
    """An event of our own for a call whose outcome its caller knows."""
    return Event(
        kind=EventKind.TOOL_FAILURE if failed else EventKind.TOOL_CALL,
        session=session,
        agent=agent,
        time=time,
        tool=tool,
        input=input,
        response=response,
        outcome=Outcome.FAILED if failed else Outcome.OK,
        reason=reason,
        evidence=Evidence.STRUCTURED if failed else None,
        duration_s=duration_s,
        source=source,
        run_id=run_id,
    )


class _Line(msgspec.Struct, gc=False):
    """A raw line of any form, decoded as far as an event needs it."""

    hook_event_name: str | None = None
    kind: str | None = None
    type: str | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    timestamp: str | float | None = None
    received_at: str | float | None = None
    tool_name: str | None = None
    tool_input: Any = None
    tool_response: Any = None
    error: Any = None
    duration_ms: float | None = None
    tool_use_id: str | None = None
    prompt: str | None = None


class _Glance(_Line, gc=False):
    """The same with input and response as far as rules read them."""

    tool_input: InputFields = None
    tool_response: ResponseFields = None


_TEXT_FIELDS = (
    *("hook_event_name", "kind", "type", "session_id", "conversation_id", "agent_id", "agent_type"),
    *("tool_name", "tool_use_id", "prompt"),
)
_TIME_FIELDS = ("timestamp", "received_at", "duration_ms")

_decode_line = msgspec.json.Decoder(_Line).decode
_decode_glance = msgspec.json.Decoder(_Glance).decode
_decode_own = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.Encoder().encode

_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NO_FIELDS = CallResponse()
_RESPONSE_KEY = b'"tool_response"'
_EMPTY_RESPONSE = re.compile(rb'"tool_response"\s*:\s*\{\s*\}')


def to_line(event: Event) -> bytes:
    """The event as one JSON line, without its line number."""
    document = msgspec.to_builtins(event)
    document.pop("line", None)
    return _encode({"schema_version": event.schema_version, **document})


def parse(line: bytes, number: int) -> Event:
    """The event of a raw line. Raises BadEvent."""
    try:
        if not line.isascii():
            line.decode("utf-8")  # a decoder that steps over a text does not look at its bytes
        found = _decode_line(line)
    except _REFUSED:
        line = _strict(line, number)
        found = _decode_line(line)
    return _event(found, line, number)


def glance(line: bytes, number: int) -> Event:
    """The event of a raw line; its input and response are `CallInput` and `CallResponse` where they are objects.

    Raises BadEvent for the same lines as `parse`.
    """
    try:
        if not line.isascii():
            line.decode("utf-8")
        found = _decode_glance(line)
    except _REFUSED:
        line = _strict(line, number)
        found = _decode_glance(line)
    response = found.tool_response
    if type(response) is CallResponse and response == _NO_FIELDS and _has_empty_response(line):
        anything: Any = found
        anything.tool_response = {}
    return _event(found, line, number)


def _has_empty_response(line: bytes) -> bool:
    """Whether the response is an object without fields: it says nothing, other than one whose fields no rule reads."""
    at = line.find(_RESPONSE_KEY)
    while at >= 0:
        if _EMPTY_RESPONSE.match(line, at):  # the key may stand deeper, too
            return bool(_decode_line(line).tool_response == {})
        at = line.find(_RESPONSE_KEY, at + 1)
    return False


def _event(found: _Line, line: bytes, number: int) -> Event:
    try:
        if found.hook_event_name is not None:
            return _from_hook(found, number)
        if found.kind is not None:
            return _from_own(line, number)
        if found.type is not None:
            return _from_normalised(found, number)
    except ValueError as error:
        raise BadEvent(f"line {number}: not an event ({error})") from error
    raise BadEvent(f"line {number}: an object that is no event (no kind, hook_event_name or type)")


def _strict(line: bytes, number: int) -> bytes:
    """The line without what a strict decoder refuses: NaN, Infinity, half surrogate pairs and very large numbers, which
    Python writes, and fields of an unexpected type, which say nothing. Raises BadEvent for what is no JSON object."""
    try:
        document = json.loads(line.decode("utf-8"))
        if isinstance(document, dict):
            for name in _TEXT_FIELDS:
                if not isinstance(document.get(name), str):
                    document.pop(name, None)
            for name in _TIME_FIELDS:
                if isinstance(document.get(name), bool | list | dict):
                    del document[name]
            if isinstance(document.get("duration_ms"), str):
                del document["duration_ms"]
            return _encode(_encodable(document))
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise BadEvent(f"line {number}: not JSON ({error})") from error
    raise BadEvent(f"line {number}: not an object")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, float) and value - value != 0:  # neither NaN nor Infinity is JSON
        return None
    return value


def _from_own(line: bytes, number: int) -> Event:
    event = _decode_own(line)
    kind = event.kind if event.kind in _KNOWN else EventKind.OTHER
    return msgspec.structs.replace(event, line=number, kind=kind)


def _from_hook(found: _Line, number: int) -> Event:
    kind = HOOK_KINDS.get(found.hook_event_name or "", _OTHER)
    tool, response = found.tool_name, found.tool_response
    judgement = UNKNOWN
    if kind is _TOOL_CALL:
        judgement = judge(tool, found.tool_input, response)
    elif kind is _TOOL_FAILURE:
        judgement = judge_reported_failure(tool, found.tool_input, found.error)
        response = found.error if response is None else response
    when = found.received_at
    return Event(
        kind=kind,
        session=_session(found),
        agent=found.agent_id or MAIN,
        time=None if when is None else _time(when),
        tool=tool,
        input=found.tool_input,
        response=response,
        outcome=judgement.outcome,
        reason=judgement.reason,
        evidence=judgement.evidence,
        duration_s=None if found.duration_ms is None else found.duration_ms / 1000,
        source="hook",
        call_id=found.tool_use_id,
        text=found.prompt,
        agent_type=found.agent_type,
        time_text=when if isinstance(when, str) else None,
        line=number,
    )


def _from_normalised(found: _Line, number: int) -> Event:
    kind = _NORMALISED_KINDS.get(found.type, _OTHER)
    judgement = judge(found.tool_name, found.tool_input, found.tool_response) if kind is _TOOL_CALL else UNKNOWN
    session, conversation, when = found.session_id, found.conversation_id, found.timestamp
    if not session:
        raise ValueError("session_id is no text")
    event = Event(
        kind=kind,
        session=session,
        agent=MAIN if conversation is None or conversation == session else conversation,
        time=None if when is None else _time(when),
        tool=found.tool_name,
        input=found.tool_input,
        response=found.tool_response,
        outcome=judgement.outcome,
        source="import",
        time_text=when if isinstance(when, str) else None,
        line=number,
    )
    if judgement.evidence is None:
        return event
    return msgspec.structs.replace(event, reason=judgement.reason, evidence=judgement.evidence)


def _session(found: _Line) -> str:
    if not found.session_id:
        raise ValueError(f"session_id {found.session_id!r} is no text")
    return found.session_id


def _time(value: str | float) -> float | None:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return None
    return value
