"""Facts of a session: what can be counted without any judgement beyond the rules below, one pass, in bounded memory.

1. A file is split on byte 0x0A only. A line that is not valid UTF-8 JSON, or no event, is listed and skipped. Lines are
   counted from 0; file order is the order of events; times are data.
2. A skill segment reaches from a Skill call (included) to the next Skill call, turn end or end of the same conversation
   (excluded). These are exclusive spans: continuation over timer turns and the tree of skills are the segmenter's.
3. In the older normalised form a sub-agent's calls carry its parent's conversation: a call that ended within the time
   of an Agent call (its end less `totalDurationMs`, up to its end) is inferred to be a sub-agent's.
4. `failed` rests on structured evidence, `masked_candidates` on what a shell command's own programs printed; files are
   those that tool inputs name, of calls that did not fail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from optimizer.call_fields import CallInput, CallResponse, input_fields, response_fields, text
from optimizer.events import MAIN, BadEvent, Event, EventKind, glance
from optimizer.intents import FILE_KEYS
from optimizer.masked import candidate, printed
from optimizer.outcome import Evidence

_AGENTS = ("Agent", "Task")
_FACT_OF = {"Read": "read", "Write": "written", "Edit": "edited", "MultiEdit": "edited", "NotebookEdit": "edited"}
_CALLS = (EventKind.TOOL_CALL, EventKind.TOOL_FAILURE)


class Format(StrEnum):
    """What a file holds."""

    NORMALISED = "normalised"
    """The older form: `type`, `session_id`, `conversation_id`, `timestamp`."""
    HOOKS = "hooks"
    """Raw hook input, one object a line; `<name>.times.json` beside it may hold the times of arrival."""
    TRANSCRIPT = "transcript"
    """A Claude Code transcript."""


class FactsError(ValueError):
    """A file whose facts cannot be told: says why and what to do."""


@dataclass
class _Line:
    """What is remembered of a call until the end, where a sub-agent may turn out to have made it."""

    line: int
    ended: datetime


@dataclass
class _Cover:
    """The time in which a sub-agent worked, from its parent's call."""

    line: int
    begin: datetime
    end: datetime
    response: CallResponse
    only_mine: int = 0
    shared: int = 0


@dataclass
class _Times:
    """First, last, steps back and repetitions of the times, as they come."""

    first: tuple[datetime, str] | None = None
    last: tuple[datetime, str] | None = None
    before: datetime | None = None
    steps_back: int = 0
    count: int = 0
    seen: set[datetime] = field(default_factory=set)

    def take(self, when: datetime, written: str) -> None:
        if self.first is None or when < self.first[0]:
            self.first = (when, written)
        if self.last is None or when > self.last[0]:
            self.last = (when, written)
        self.steps_back += self.before is not None and when < self.before
        self.before = when
        self.count += 1
        self.seen.add(when)

    def document(self) -> dict[str, Any] | None:
        if self.first is None or self.last is None:
            return None
        return {
            "first": self.first[1],
            "last": self.last[1],
            "span_seconds": round((self.last[0] - self.first[0]).total_seconds(), 6),
            "steps_back": self.steps_back,
            "repeated": self.count - len(self.seen),
        }


class FactsFold:
    """Takes a session's events in file order; `document` gives its facts."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.session: str | None = None
        self.lines = 0
        self.malformed: list[int] = []
        self._events = 0
        self._ends = {EventKind.TURN_END: 0, EventKind.SUBAGENT_END: 0}
        self._tools: dict[str, int] = {}
        self._times = _Times()
        self._conversations: dict[str, dict[str, int]] = {}
        self._segments: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}
        self._failed: list[dict[str, Any]] = []
        self._masked: list[dict[str, Any]] = []
        self._files: dict[str, set[str]] = {"read": set(), "written": set(), "edited": set()}
        self._covers: list[_Cover] = []
        self._timed_calls: list[_Line] = []

    def take(self, event: Event, when: datetime | None, written: str | None) -> None:
        """Takes an event; `when` and `written`: its time and how its source wrote it."""
        if self.session is None:
            self.session = event.session
        self._events += 1
        if when is not None:
            self._times.take(when, written or when.isoformat())
        conversation = event.session if event.agent == MAIN else event.agent
        counts = self._conversations.setdefault(conversation, {"tool_calls": 0, "turn_ends": 0, "conversation_ends": 0})
        if event.kind in _CALLS:
            counts["tool_calls"] += 1
            self._call(event, conversation, when)
        elif event.kind == EventKind.TURN_END:
            counts["turn_ends"] += 1
            self._ends[EventKind.TURN_END] += 1
            self._end_segment(conversation, event.line, "turn_end")
        elif event.kind == EventKind.SUBAGENT_END:
            counts["conversation_ends"] += 1
            self._ends[EventKind.SUBAGENT_END] += 1
        elif event.kind == EventKind.SESSION_END:
            self._end_segment(conversation, event.line, "session_end")

    def _end_segment(self, conversation: str, line: int, by: str) -> None:
        segment = self._open.pop(conversation, None)
        if segment is not None:
            segment.update(end_line=line, ended_by=by)

    def _call(self, event: Event, conversation: str, when: datetime | None) -> None:
        tool, call = event.tool or "?", input_fields(event.input)
        self._tools[tool] = self._tools.get(tool, 0) + 1
        failed = event.evidence == Evidence.ANSWER or (event.failed and event.evidence in (None, Evidence.STRUCTURED))
        if failed:
            self._failed.append({"line": event.line, "tool": tool, "why": event.reason or "failed"})
        elif event.evidence in (Evidence.MASKED, Evidence.PROBE):
            self._masked.append({"line": event.line, "what": _complaint(event, call)})
        if tool in FILE_KEYS and not failed:
            path = text(call.notebook_path if tool == "NotebookEdit" else call.file_path)
            if path is not None:
                self._files[_FACT_OF[tool]].add(path)
        if self.source == Format.NORMALISED and when is not None:
            self._place(event, tool, when)
        if tool == "Skill":
            self._end_segment(conversation, event.line, "skill")
            self._open[conversation] = self._segment(event.line, conversation, call)
            self._segments.append(self._open[conversation])
        segment = self._open.get(conversation)
        if segment is not None:
            segment["tool_calls"] += 1
            segment["tools"][tool] = segment["tools"].get(tool, 0) + 1
            segment["failed"] += failed
            segment["last_line"] = event.line
            segment["lines"].append(event.line)

    @staticmethod
    def _segment(line: int, conversation: str, call: CallInput) -> dict[str, Any]:
        name = call.name if call.skill is msgspec.UNSET else call.skill
        return {
            "line": line,
            "end_line": None,
            "ended_by": "end",
            "conversation": conversation,
            "name": None if name is msgspec.UNSET else name,
            "args": None if call.args is msgspec.UNSET else call.args,
            "tool_calls": 0,
            "main_tool_calls": 0,
            "tools": {},
            "failed": 0,
            "last_line": line,
            "lines": [],
        }

    def _place(self, event: Event, tool: str, when: datetime) -> None:
        if tool not in _AGENTS:
            self._timed_calls.append(_Line(event.line, when))
            return
        response = response_fields(event.response)
        duration = None if response is None else response.totalDurationMs
        if response is not None and isinstance(duration, int | float):
            self._covers.append(_Cover(event.line, when - timedelta(milliseconds=duration), when, response))

    def _inferred(self) -> set[int]:
        """Lines of the calls that sub-agents made, counted with their covers."""
        lines: set[int] = set()
        for cover in self._covers:
            cover.only_mine = cover.shared = 0
        for call in self._timed_calls if self._covers else ():
            mine = [cover for cover in self._covers if cover.begin <= call.ended < cover.end]
            if mine:
                lines.add(call.line)
            for cover in mine:
                cover.only_mine += len(mine) == 1
                cover.shared += len(mine) > 1
        return lines

    def document(self) -> dict[str, Any]:
        """The facts so far."""
        inferred = self._inferred()
        segments = []
        for one in self._segments:
            lines = one["lines"]
            counted = {key: value for key, value in one.items() if key != "lines"}
            counted["main_tool_calls"] = sum(line not in inferred for line in lines)
            counted["tools"] = dict(sorted(one["tools"].items()))
            segments.append(counted)
        subagents = [_subagent(cover) for cover in self._covers]
        in_skills = sum(one["tool_calls"] for one in segments)
        calls = sum(self._tools.values())
        return {
            "source": str(self.source),
            "session": self.session,
            "lines": self.lines,
            "malformed_lines": self.malformed,
            "events": self._events,
            "tool_calls": calls,
            "turn_ends": self._ends[EventKind.TURN_END],
            "conversation_ends": self._ends[EventKind.SUBAGENT_END],
            "tools": dict(sorted(self._tools.items())),
            "time": self._times.document(),
            "skills": [{key: one[key] for key in ("line", "conversation", "name", "args")} for one in segments],
            "skill_segments": segments,
            "skill_tool_calls": in_skills,
            "free_tool_calls": calls - in_skills,
            "conversations": self._conversations,
            "subagents": subagents,
            "subagent_tool_calls_inferred": len(inferred),
            "subagent_uses_declared": sum(one["declared_uses"] or 0 for one in subagents),
            "failed": self._failed,
            "masked_candidates": self._masked,
            "files": {name: sorted(paths) for name, paths in self._files.items()},
            "files_touched": len(set().union(*self._files.values())),
        }


def _complaint(event: Event, call: CallInput) -> str | None:
    response = response_fields(event.response)
    if response is None:
        return event.reason
    return candidate(text(call.command) or "", printed(text(response.stdout) or "", text(response.stderr) or ""))


def _subagent(cover: _Cover) -> dict[str, Any]:
    response = cover.response
    return {
        "line": cover.line,
        "agent_id": _known(response.agentId),
        "agent_type": _known(response.agentType),
        "declared_uses": _known(response.totalToolUseCount),
        "only_mine": cover.only_mine,
        "shared": cover.shared,
    }


def _known(value: Any) -> Any:
    return None if value is msgspec.UNSET else value


def facts_of(path: Path, format: Format) -> dict[str, Any]:
    """The facts of the session in `path`. Raises FactsError where it cannot be read."""
    if not path.is_file():
        raise FactsError(f"{path} is no file: give the events file of one session, or a transcript")
    fold = FactsFold(format)
    if format is Format.TRANSCRIPT:
        _from_transcript(path, fold)
    else:
        _from_lines(path, fold, arrivals_of(path) if format is Format.HOOKS else None)
    return fold.document()


def _from_lines(path: Path, fold: FactsFold, arrivals: list[Any] | None) -> None:
    for number, line in enumerate(_lines(path)):
        fold.lines += 1
        try:
            event = glance(line, number)
        except BadEvent:
            fold.malformed.append(number)
            continue
        written = event.time_text
        if arrivals is not None and number < len(arrivals) and isinstance(arrivals[number], str):
            written = arrivals[number]
        fold.take(event, *_moment(event, written))


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their line feed; the last one also without one."""
    with open(path, "rb") as stream:
        for line in stream:  # a binary stream splits on 0x0A only
            yield line[:-1] if line.endswith(b"\n") else line


def _from_transcript(path: Path, fold: FactsFold) -> None:
    from optimizer.capture.transcripts import TranscriptCounts, read_transcript

    counts = TranscriptCounts()
    for event in read_transcript(path, counts):
        fold.take(event, *_moment(event, event.time_text))
    fold.lines, fold.malformed = counts.lines, counts.bad_lines


def arrivals_of(path: Path) -> list[Any] | None:
    """Times of arrival that lie beside a file of hook input, by line; None: there are none. Raises FactsError."""
    side = path.with_name(path.name.removesuffix(".jsonl") + ".times.json")
    if not side.is_file():
        return None
    try:
        times = msgspec.json.decode(side.read_bytes())
    except ValueError as error:
        raise FactsError(f"{side} is not JSON ({error}): it should be a list of times, one for each line") from error
    if not isinstance(times, list):
        raise FactsError(f"{side} is no list: it should hold one time for each line of {path.name}")
    return times


def _moment(event: Event, written: str | None) -> tuple[datetime | None, str | None]:
    """The time of an event to the microsecond, and as it is written."""
    if written is not None:
        try:
            when = datetime.fromisoformat(written)
        except ValueError:
            return None, None
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)), written
    if event.time is None:
        return None, None
    try:
        return datetime.fromtimestamp(event.time, UTC), None
    except (ValueError, OverflowError, OSError):
        return None, None
