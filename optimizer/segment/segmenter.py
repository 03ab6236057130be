"""From events to segments: a fold over a session's events in file order.

1. A skill call (`load_skill` of our server, or the `Skill` tool) opens a skill segment of its agent and closes the one
   before. Every call of that agent belongs to it until the next skill call or the turn's end.
2. At a turn end the segment stays open when it set a timer or monitor (the next turn may be the timer's); a prompt by
   the user closes it. Each turn is a span of its own, so both ways of counting are there.
3. Calls outside of a skill form one free segment a turn. No call is in two segments, none is lost.
4. The layer is that of the skill's group in the bank; without one of our skills in force it is `other`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from optimizer.events import Event, EventKind
from optimizer.layers import Layer, layer_of_group
from optimizer.segment.types import Segment, SegmentKind, Span, segment_id

GroupOf = Callable[[str], str | None]
"""Group of a skill in the bank; None: not one of ours."""

_TIMERS = frozenset({"ScheduleWakeup", "Monitor"})
_FILE_KEYS = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}


def skill_of(event: Event) -> str | None:
    """The skill that this call puts in force, or None; our own `load_skill` that failed loaded nothing."""
    if not event.is_call or event.tool is None or not isinstance(event.input, dict):
        return None
    ours = event.tool.rsplit("__", 1)[-1] == "load_skill"
    if (not ours and event.tool != "Skill") or (ours and event.failed):
        return None
    name = event.input.get("skill", event.input.get("name"))
    return name if isinstance(name, str) and name else None


class SegmenterState(msgspec.Struct):
    """What the fold remembers: everything so far, open segments included."""

    segments: list[Segment] = msgspec.field(default_factory=list)
    open_by_agent: dict[str, int] = msgspec.field(default_factory=dict)
    """Agent → index of its open segment."""


class Segmenter:
    """Feeds on events; `state.segments` holds the result at any time."""

    def __init__(self, group_of: GroupOf, state: SegmenterState | None = None) -> None:
        self.group_of = group_of
        self.state = state or SegmenterState()

    def feed(self, events: Iterable[Event]) -> None:
        """Takes events in file order."""
        for event in events:
            if event.is_call:
                self._call(event)
            elif event.kind == EventKind.TURN_END:
                self._turn_end(event)
            elif event.kind == EventKind.USER_PROMPT:
                self._close(event.agent, "user_prompt")
            elif event.kind == EventKind.SESSION_END:
                for agent in list(self.state.open_by_agent):
                    self._close(agent, "session_end")

    def _open_segment(self, agent: str) -> Segment | None:
        index = self.state.open_by_agent.get(agent)
        return None if index is None else self.state.segments[index]

    def _call(self, event: Event) -> None:
        skill = skill_of(event)
        if skill is not None:
            self._close(event.agent, "skill")
            self._begin(event, SegmentKind.SKILL, skill)
        segment = self._open_segment(event.agent)
        if segment is None:
            segment = self._begin(event, SegmentKind.FREE, None)
        if segment.waiting:
            segment.waiting = False
            segment.spans.append(Span(first_line=event.line, last_line=event.line))
        _count(segment, event)

    def _begin(self, event: Event, kind: SegmentKind, skill: str | None) -> Segment:
        layer = Layer.OTHER if skill is None else layer_of_group(self.group_of(skill))
        args = event.input.get("args") if skill is not None and isinstance(event.input, dict) else None
        segment = Segment(
            id=segment_id(event.session, event.line, kind),
            kind=kind,
            session=event.session,
            agent=event.agent,
            skill=skill,
            args=args if isinstance(args, str) else None,
            layer=layer,
            first_line=event.line,
            last_line=event.line,
            spans=[Span(first_line=event.line, last_line=event.line)],
            started_at=event.time,
        )
        self.state.open_by_agent[event.agent] = len(self.state.segments)
        self.state.segments.append(segment)
        return segment

    def _turn_end(self, event: Event) -> None:
        segment = self._open_segment(event.agent)
        if segment is None or segment.waiting:
            return
        if segment.kind is SegmentKind.SKILL and segment.has_timer:
            segment.spans[-1].ended_by = "turn_end"
            segment.waiting = True
        else:
            self._close(event.agent, "turn_end")

    def _close(self, agent: str, by: str) -> None:
        index = self.state.open_by_agent.pop(agent, None)
        if index is None:
            return
        segment = self.state.segments[index]
        segment.open = False
        segment.waiting = False
        if segment.spans[-1].ended_by is None:
            segment.spans[-1].ended_by = by


def _count(segment: Segment, event: Event) -> None:
    segment.last_line = event.line
    segment.tool_calls += 1
    span = segment.spans[-1]
    span.last_line = event.line
    span.tool_calls += 1
    tool = event.tool or "?"
    segment.tools[tool] = segment.tools.get(tool, 0) + 1
    segment.ended_at = event.time if event.time is not None else segment.ended_at
    if tool in _TIMERS or tool.startswith("Cron"):
        segment.has_timer = True
    if event.outcome == "failed":
        segment.failed.append(event.line)
    elif event.outcome == "unknown":
        segment.unknown += 1
    if event.run_id is not None and event.run_id not in segment.runs:
        segment.runs.append(event.run_id)
    path = _file_of(tool, event.input)
    if path is not None and event.outcome != "failed" and path not in segment.files:
        segment.files.append(path)


def _file_of(tool: str, call_input: Any) -> str | None:
    key = _FILE_KEYS.get(tool)
    path = call_input.get(key) if key is not None and isinstance(call_input, dict) else None
    return path if isinstance(path, str) and path else None
