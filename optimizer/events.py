"""Events: what an agent did, one JSON line each, from three sources in one model.

1. A raw file keeps each line as its source wrote it: our own form (`kind`), a Claude Code hook (`hook_event_name`), or
   the older normalised form (`type`). `parse` turns any of them into an `Event`; what is none of them is a bad line.
2. The identity of an event is (session, line), lines counted from 0. Times may repeat or step back; they are data.
3. The outcome of a call is read from structured evidence only (`optimizer.outcome`): a word like "failed" in an output
   says nothing.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from optimizer.outcome import Outcome, outcome_of

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


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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

_NORMALISED_KINDS = {
    "tool_call": EventKind.TOOL_CALL,
    "turn_end": EventKind.TURN_END,
    "conversation_end": EventKind.SUBAGENT_END,
}

_KNOWN = frozenset(EventKind)


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
        duration_s=duration_s,
        source=source,
        run_id=run_id,
    )


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def to_line(event: Event) -> bytes:
    """The event as one JSON line, without its line number."""
    document = msgspec.to_builtins(event)
    document.pop("line", None)
    return _encode({"schema_version": event.schema_version, **document})


def parse(line: bytes, number: int) -> Event:
    """The event of a raw line. Raises BadEvent."""
    try:
        document = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadEvent(f"line {number}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise BadEvent(f"line {number}: not an object")
    try:
        if "hook_event_name" in document:
            return _from_hook(document, number)
        if "kind" in document:
            return _from_own(document, number)
        if "type" in document:
            return _from_normalised(document, number)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise BadEvent(f"line {number}: not an event ({error})") from error
    raise BadEvent(f"line {number}: an object that is no event (no kind, hook_event_name or type)")


def _from_own(document: dict[str, Any], number: int) -> Event:
    event = msgspec.convert({**document, "line": number}, Event)
    return event if event.kind in _KNOWN else msgspec.structs.replace(event, kind=EventKind.OTHER)


def _from_hook(document: dict[str, Any], number: int) -> Event:
    name = document["hook_event_name"]
    kind = HOOK_KINDS.get(name, EventKind.OTHER)
    tool, response = _text(document.get("tool_name")), document.get("tool_response")
    outcome, reason = Outcome.UNKNOWN, None
    if kind is EventKind.TOOL_FAILURE:
        outcome, reason = Outcome.FAILED, f"{name}: {str(document.get('error'))[:80]}"
        response = document.get("error") if response is None else response
    elif kind is EventKind.TOOL_CALL:
        outcome, reason = outcome_of(tool, response)
    duration = document.get("duration_ms")
    return Event(
        kind=kind,
        session=_session(document),
        agent=_text(document.get("agent_id")) or MAIN,
        time=_time(document.get("received_at")),
        tool=tool,
        input=document.get("tool_input"),
        response=response,
        outcome=outcome,
        reason=reason,
        duration_s=duration / 1000 if isinstance(duration, int | float) and not isinstance(duration, bool) else None,
        source="hook",
        call_id=_text(document.get("tool_use_id")),
        text=_text(document.get("prompt")),
        line=number,
    )


def _from_normalised(document: dict[str, Any], number: int) -> Event:
    kind = _NORMALISED_KINDS.get(document["type"], EventKind.OTHER)
    tool, response = _text(document.get("tool_name")), document.get("tool_response")
    outcome, reason = outcome_of(tool, response) if kind is EventKind.TOOL_CALL else (Outcome.UNKNOWN, None)
    session = _session(document)
    conversation = _text(document.get("conversation_id")) or session
    return Event(
        kind=kind,
        session=session,
        agent=MAIN if conversation == session else conversation,
        time=_time(document.get("timestamp")),
        tool=tool,
        input=document.get("tool_input"),
        response=response,
        outcome=outcome,
        reason=reason,
        source="import",
        line=number,
    )


def _session(document: dict[str, Any]) -> str:
    session = document["session_id"]
    if not isinstance(session, str) or not session:
        raise ValueError(f"session_id {session!r} is no text")
    return session


def _text(value: Any) -> str | None:
    """A text; anything else is not one."""
    return value if isinstance(value, str) else None


def _time(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    return None
