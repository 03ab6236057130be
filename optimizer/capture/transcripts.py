"""Claude Code transcripts as events: the fallback for sessions that no hook saw.

1. A transcript is `<projects>/<folder>/<session>.jsonl`, one JSON object a line. The format is the client's own and
   changes: what is not known is passed over, a torn or bad line costs itself, every field may be missing.
2. A call is told when its result stands there (order of ends, as hooks have it); one without a result when the
   conversation has gone on without it. Its response is `toolUseResult`, what a hook calls `tool_response`, where the
   line has it, else the text of the result block.
3. Sub-agents have their own files (`<session>/subagents/agent-*.jsonl`, older ones `agent-*.jsonl` beside the session)
   or stand between the session's lines (`isSidechain`). Their calls carry the sub-agent's id and come before the call
   that waited for them. A file without a call of its own is a harness fork's: only its end is told.
4. Lines copied from a session that this one was forked from are passed over (`optimizer.capture.forks`).
5. Each event has a `call_id`: of the tool call, else of the line it was told by. So an import can be repeated: what
   the store knows is not added again.

Reading streams: besides the line at hand only open calls and the ids of calls and sub-agents are held.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from optimizer.capture.forks import copied_from
from optimizer.events import MAIN, Event, EventKind
from optimizer.ids import content_id
from optimizer.outcome import judge, judge_reported_failure

SOURCE = "transcript"

_ENDS = frozenset({"end_turn", "stop_sequence", "refusal"})
"""`stop_reason` of a message behind which the agent waits for its user."""

_NO_PROMPT = ("<local-command-", "<bash-stdout>", "<bash-stderr>", "Caveat: ", "<task-notification>")
"""Beginnings of user lines that the client wrote itself."""

_INTERRUPTED = "[Request interrupted by user"


@dataclass
class TranscriptCounts:
    """What a reading met, filled as it goes on."""

    lines: int = 0
    bad_lines: list[int] = field(default_factory=list)
    """Lines of the session's own file that are no JSON object, from 0."""
    copied_lines: int = 0
    """Lines that another session's file holds as its own."""
    unknown_lines: int = 0
    """Lines of a kind that says nothing to us."""


def session_of(path: Path) -> str:
    """The session a transcript tells of: what its first lines say, else its file's name."""
    for number, line in enumerate(_lines(path)):
        document = _object(line)
        name = document.get("sessionId") if document is not None else None
        if isinstance(name, str) and name:
            return name
        if number > 200:
            break
    return path.stem


def read_transcript(path: Path, counts: TranscriptCounts | None = None) -> Iterator[Event]:
    """The events of a session, in the order in which they ended; `line` counts them from 0.

    Raises OSError where the session's own file cannot be read; a sub-agent's file that cannot be read is passed over.
    """
    session = path.stem if _is_uuid(path.stem) else session_of(path)
    files = _agent_files(path, session)
    reader = _Conversation(session, MAIN, counts or TranscriptCounts(), files)
    told: set[str] = set()
    number = 0
    for event in _everything(path, reader, files):
        if event.call_id is not None:
            if event.call_id in told:  # a harness fork's file holds copies of the conversation it was made from
                continue
            told.add(event.call_id)
        yield msgspec.structs.replace(event, line=number)
        number += 1


def _everything(path: Path, reader: "_Conversation", files: dict[str, Path]) -> Iterator[Event]:
    yield from _read(path, reader)
    for agent in list(files):
        yield from _read_agent(files.pop(agent), agent, reader.session)


def _is_uuid(name: str) -> bool:
    return len(name) == 36 and name.count("-") == 4


def told_by(path: Path) -> Path | None:
    """The session's own transcript, where `path` is a sub-agent's file that is read together with it."""
    if not path.stem.startswith("agent-"):
        return None
    if path.parent.name == "subagents":
        main = path.parent.parent.with_suffix(".jsonl")
    else:
        main = path.with_name(f"{session_of(path)}.jsonl")
    return main if main != path and main.is_file() else None


def _agent_files(path: Path, session: str) -> dict[str, Path]:
    """Sub-agent → its file, in the order of their names."""
    found = {}
    for file in sorted((path.parent / path.stem / "subagents").glob("agent-*.jsonl")):
        found[file.stem.removeprefix("agent-")] = file
    if not path.stem.startswith("agent-"):
        for file in sorted(path.parent.glob("agent-*.jsonl")):
            agent = file.stem.removeprefix("agent-")
            if agent not in found and _belongs(file, session):
                found[agent] = file
    return found


def _belongs(file: Path, session: str) -> bool:
    try:
        return session_of(file) == session
    except OSError:
        return False


def _lines(path: Path) -> Iterator[bytes]:
    """Lines, split on 0x0A only; the last one may lack its line feed."""
    with open(path, "rb") as stream:
        yield from stream


def _read(path: Path, reader: "_Conversation") -> Iterator[Event]:
    for number, line in enumerate(_lines(path)):
        reader.counts.lines += 1
        if not line.strip():
            continue
        document = _object(line)
        if document is None:
            reader.counts.bad_lines.append(number)
        else:
            yield from reader.line(document, line)
    yield from reader.end()


def _read_agent(path: Path, agent: str, session: str) -> Iterator[Event]:
    reader = _Conversation(session, agent, TranscriptCounts(), {})
    kind = _agent_type(path)
    first = last = None
    try:
        for event in _read(path, reader):
            if event.kind in (EventKind.TURN_END, EventKind.USER_PROMPT, EventKind.SESSION_START):
                last = event.time or last  # a sub-agent's turns and tasks are its parent's
                continue
            if first is None:
                first = event
                yield Event(
                    kind=EventKind.SUBAGENT_START, session=session, agent=agent, time=reader.began,
                    source=SOURCE, call_id=f"{agent}:start", agent_type=kind,
                )  # fmt: skip
            last = event.time or last
            yield event
    except OSError:
        return
    if reader.began is None and first is None:
        return
    yield Event(
        kind=EventKind.SUBAGENT_END, session=session, agent=agent, time=last or reader.began,
        source=SOURCE, call_id=f"{agent}:end", agent_type=kind,
    )  # fmt: skip


def _agent_type(path: Path) -> str | None:
    """Type of a sub-agent, where the file beside its transcript says it."""
    try:
        document = _object(path.with_suffix(".meta.json").read_bytes())
    except OSError:
        return None
    kind = None if document is None else document.get("agentType")
    return kind if isinstance(kind, str) and kind else None


_decode = msgspec.json.Decoder().decode


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        document = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@dataclass
class _Call:
    """A call whose result was not read yet."""

    agent: str
    tool: str
    input: Any


class _Conversation:
    """Turns the lines of one file into events."""

    def __init__(self, session: str, agent: str, counts: TranscriptCounts, files: dict[str, Path]) -> None:
        self.session, self.agent, self.counts = session, agent, counts
        self.began: float | None = None
        self._files = files
        self._open: dict[str, _Call] = {}
        self._chains: dict[str, str] = {}
        """Line of a sidechain → its first line, for versions that do not name the sub-agent."""
        self._turn: tuple[str, float | None] | None = None
        """(id, time) of the agent's last line in a turn that has not ended."""
        self._ending: str | None = None
        """The message that says it is the turn's last; its other lines may follow."""
        self._started = False
        self._id = ""
        """The line at hand: its uuid, else a hash of it."""

    def line(self, document: dict[str, Any], raw: bytes) -> Iterator[Event]:
        """The events that this line tells."""
        uuid = document.get("uuid")
        self._id = uuid if isinstance(uuid, str) and uuid else f"line-{content_id(raw.strip())}"
        if copied_from(document, self.session) is not None:
            self.counts.copied_lines += 1
            return
        time = _time(document.get("timestamp"))
        if self.began is None:
            self.began = time
        kind, message = document.get("type"), document.get("message")
        if kind == "system" and document.get("subtype") in ("turn_duration", "stop_hook_summary"):
            yield from self._close_turn()
            return
        if kind not in ("user", "assistant") or not isinstance(message, dict):
            self.counts.unknown_lines += 1
            return
        if not self._started:
            self._started = True
            yield self._event(EventKind.SESSION_START, MAIN, time, call_id=f"{self.session}:start")
        agent = self._agent_of(document)
        if kind == "assistant":
            yield from self._assistant(message, agent, time)
        else:
            yield from self._user(document, message, agent, time)

    def end(self) -> Iterator[Event]:
        """What the end of the file tells: a turn that said it was over."""
        if self._ending is not None:
            yield from self._close_turn()

    def _event(self, kind: EventKind, agent: str, time: float | None, **more: Any) -> Event:
        return Event(kind=kind, session=self.session, agent=agent, time=time, source=SOURCE, **more)

    def _agent_of(self, document: dict[str, Any]) -> str:
        if self.agent != MAIN or document.get("isSidechain") is not True:
            return self.agent
        named = document.get("agentId")
        if isinstance(named, str) and named:
            return named
        parent = document.get("parentUuid")
        root = self._chains.get(parent, self._id) if isinstance(parent, str) else self._id
        self._chains[self._id] = root
        return f"sidechain-{root}"

    def _assistant(self, message: dict[str, Any], agent: str, time: float | None) -> Iterator[Event]:
        named = message.get("id")
        identity = named if isinstance(named, str) and named else self._id
        if agent == self.agent:
            if self._ending is not None and self._ending != identity:
                yield from self._close_turn()
            self._turn = (self._id, time)
            reason = message.get("stop_reason")
            if isinstance(reason, str) and reason in _ENDS:
                self._ending = identity
        for block in _blocks(message):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                self._open[block["id"]] = _Call(agent, str(block.get("name")), block.get("input"))

    def _user(
        self, document: dict[str, Any], message: dict[str, Any], agent: str, time: float | None
    ) -> Iterator[Event]:
        results = [block for block in _blocks(message) if block.get("type") == "tool_result"]
        for block in results:
            yield from self._result(block, document, len(results), agent, time)
        if results or agent != self.agent:
            return
        text = _text_of(message.get("content"))
        if text.startswith(_INTERRUPTED):
            yield from self._abandon(agent, time)
            yield from self._close_turn()
        elif not _is_prompt(document, text):
            self.counts.unknown_lines += 1
            if text.startswith("<task-notification>"):
                yield from self._close_turn()
        else:
            yield from self._abandon(agent, time)
            yield from self._close_turn()
            yield self._event(EventKind.USER_PROMPT, agent, time, text=text, call_id=self._id)

    def _close_turn(self) -> Iterator[Event]:
        if self._turn is not None:
            uuid, time = self._turn
            self._turn = self._ending = None
            yield self._event(EventKind.TURN_END, self.agent, time, call_id=f"{uuid}:end")

    def _abandon(self, agent: str, time: float | None) -> Iterator[Event]:
        """Calls that the conversation went on without: they happened, how they ended is not known."""
        for call_id in [name for name, call in self._open.items() if call.agent == agent]:
            call = self._open.pop(call_id)
            yield self._event(EventKind.TOOL_CALL, agent, time, tool=call.tool, input=call.input, call_id=call_id)

    def _result(
        self, block: dict[str, Any], document: dict[str, Any], results: int, agent: str, time: float | None
    ) -> Iterator[Event]:
        named = block.get("tool_use_id")
        call_id = named if isinstance(named, str) and named else f"{self._id}:result"
        call = self._open.pop(call_id, None)
        if call is None:  # its call stands in a torn line
            call = _Call(agent, "", None)
        structured = document.get("toolUseResult") if results == 1 else None
        text = _text_of(block.get("content"))
        response = structured if structured is not None else block.get("content")
        if isinstance(response, list) and all(isinstance(one, dict) and one.get("type") == "text" for one in response):
            response = text
        yield from self._subagent(structured)
        failed = block.get("is_error") is True
        tool = call.tool or None
        judgement = judge_reported_failure(tool, call.input, text) if failed else judge(tool, call.input, response)
        yield self._event(
            EventKind.TOOL_FAILURE if failed else EventKind.TOOL_CALL,
            call.agent,
            time,
            tool=tool,
            input=call.input,
            response=(text or response) if failed else response,
            outcome=judgement.outcome,
            reason=judgement.reason,
            evidence=judgement.evidence,
            duration_s=_duration(structured),
            call_id=call_id,
        )

    def _subagent(self, structured: Any) -> Iterator[Event]:
        """What the sub-agent did whose parent has just got its answer."""
        agent = structured.get("agentId") if isinstance(structured, dict) else None
        if isinstance(agent, str) and agent in self._files and structured.get("status") != "async_launched":
            yield from _read_agent(self._files.pop(agent), agent, self.session)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [block.get("text") for block in content if isinstance(block, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _is_prompt(document: dict[str, Any], text: str) -> bool:
    """Whether a person (or what speaks for one) wrote the line, and not the client."""
    if document.get("isMeta") is True or document.get("isCompactSummary") is True or not text.strip():
        return False
    return not text.startswith(_NO_PROMPT)


def _time(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(structured: Any) -> float | None:
    """Seconds that the call itself took, where its result says so."""
    if isinstance(structured, dict):
        for key in ("durationMs", "totalDurationMs"):
            value = structured.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value / 1000
    return None
