"""From events to segments: a fold over a session's events in file order.

1. A skill call (`Skill`, or `load_skill` of our server that worked) opens a skill segment of its agent. A user's prompt
   `/name` that names a skill of the bank opens one, too. The calls of that agent belong to it until the next skill call
   or the turn's end.
2. Skills nest: an orchestrator stays open while skills that it declares in the bank run; they are its children. A skill
   that no open orchestrator declares closes all of them. A sub-agent's skill is a child of the orchestrator that is
   open in the main conversation and declares it.
3. At a turn end a segment stays open while a timer or monitor is set: the next turn may be its, and goes on with the
   skill. A prompt of the user ends it, unless it is the text that a timer was given; so does a turn that begins before
   the only timer is due. Each turn is a span of its own.
4. Calls outside of a skill are the free segments of their turn (`optimizer.segment.free`).
5. No call is in two segments, none is lost. The layer is that of the skill's group in the bank; without one of our
   skills in force it is `other`. A session whose start says its layer (`MCP_EVO_LAYER`) is of that layer as a whole.
"""

from collections.abc import Callable, Iterable

import msgspec

from optimizer.call_fields import CallInput, CallResponse, input_fields, number, response_fields, text
from optimizer.events import MAIN, Event, EventKind
from optimizer.intents import (
    FILE_KEYS,
    TIMER_STOPS,
    TIMERS_LASTING,
    TIMERS_ONCE,
    intents_of_shell,
    intents_of_tool,
)
from optimizer.layers import Layer, layer_of_group
from optimizer.segment.counting import add_file, add_intents, count
from optimizer.segment.free import FreeTurn
from optimizer.segment.types import FileGuess, Segment, SegmentKind, Span, segment_id
from optimizer.shell import NO_COMMAND, ShellCommand, path_keys, read_command, written_files

EARLY_S = 15.0
"""Seconds before its time at which a turn may still be a timer's: clocks differ, and delays are rounded."""

_LAYERS = frozenset(map(str, Layer)) - {str(Layer.OTHER)}
_TIMER_TOOLS = TIMERS_ONCE | TIMERS_LASTING | TIMER_STOPS
_CALLS = frozenset({EventKind.TOOL_CALL, EventKind.TOOL_FAILURE})

GroupOf = Callable[[str], str | None]
"""Group of a skill in the bank; None: not one of ours."""

ChildrenOf = Callable[[str], Iterable[str]]
"""Skills that an orchestrator declares; none for any other skill."""


def no_children(skill: str) -> tuple[str, ...]:
    """A bank without orchestrators."""
    return ()


def skill_of(event: Event) -> str | None:
    """The skill that this call puts in force, or None; our own `load_skill` that failed loaded nothing."""
    tool = event.tool
    if tool is None or (tool != "Skill" and not tool.endswith("load_skill")) or not event.is_call:
        return None
    if tool != "Skill" and (tool.rsplit("__", 1)[-1] != "load_skill" or event.failed):
        return None
    call = input_fields(event.input)
    return text(call.skill if call.skill is not msgspec.UNSET else call.name)


class AgentState(msgspec.Struct):
    """What is open in one agent's conversation."""

    stack: list[Segment] = msgspec.field(default_factory=list)
    """Open skill segments: orchestrators, then the one in force."""
    free: FreeTurn = msgspec.field(default_factory=FreeTurn)
    wakeup: bool = False
    """A timer that fires once was set in this turn."""
    due: float | None = None
    """When that timer fires (Unix seconds), where it is known."""
    lasting: list[str] = msgspec.field(default_factory=list)
    """Timers and monitors that go on firing, by the id that stops them."""
    prompts: list[str] = msgspec.field(default_factory=list)
    """Texts that its timers were given: a prompt that repeats one is the timer's."""


class SegmenterState(msgspec.Struct):
    """What the fold remembers: what is open, and what was closed and not taken away yet."""

    agents: dict[str, AgentState] = msgspec.field(default_factory=dict)
    closed: list[Segment] = msgspec.field(default_factory=list)
    layer: str | None = None
    """Layer that the session is fixed to, as its start says."""
    session: str | None = None
    """Session that the lines belong to, where its events may carry other ids."""

    @property
    def open(self) -> list[Segment]:
        """Open segments, by their first line."""
        found = [one for agent in self.agents.values() for one in (*agent.stack, *agent.free.groups)]
        return sorted(found, key=lambda one: one.first_line)

    @property
    def segments(self) -> list[Segment]:
        """All segments that are still here, by their first line."""
        return sorted([*self.closed, *self.open], key=lambda one: one.first_line)

    def take_closed(self) -> list[Segment]:
        """The closed segments, which are forgotten: nothing that follows changes them."""
        taken, self.closed = self.closed, []
        return taken


class Segmenter:
    """Feeds on events; `state.segments` holds the result at any time."""

    def __init__(
        self, group_of: GroupOf, state: SegmenterState | None = None, children_of: ChildrenOf = no_children
    ) -> None:
        self.group_of = group_of
        self.children_of = children_of
        self.state = state or SegmenterState()

    def feed(self, events: Iterable[Event]) -> None:
        """Takes events in file order."""
        for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        """Takes one event."""
        kind = event.kind
        if kind in _CALLS:
            self._call(event)
        elif kind == "turn_end":
            self._turn_end(event.agent)
        elif kind == "user_prompt":
            self._prompt(event)
        elif kind == "subagent_end":
            if event.agent != MAIN:
                self._end(event.agent, "subagent_end")
        elif kind == "session_start":
            self._start(event)
        elif kind == "session_end":
            for agent in list(self.state.agents):
                self._end(agent, "session_end")

    def _start(self, event: Event) -> None:
        fixed = event.response.get("layer") if isinstance(event.response, dict) else None
        if fixed in _LAYERS:
            self.state.layer = fixed

    def _agent(self, name: str) -> AgentState:
        agent = self.state.agents.get(name)
        if agent is None:
            agent = self.state.agents[name] = AgentState()
        return agent

    def _call(self, event: Event) -> None:
        agent = self.state.agents.get(event.agent) or self._agent(event.agent)
        tool = event.tool or "?"
        call = event.input if type(event.input) is CallInput else input_fields(event.input)
        shell = None
        if agent.due is not None and agent.stack and agent.stack[-1].waiting and _too_early(agent, event):
            self._end(event.agent, "turn_end")
        if tool == "Bash":
            shell = read_command(call.command) if isinstance(call.command, str) else NO_COMMAND
        elif tool == "Skill" or tool.endswith("load_skill"):
            skill = skill_of(event)
            if skill is not None:
                self._open_skill(agent, event, skill)
        stack = agent.stack
        if stack:
            segment = stack[-1]
            if segment.waiting:
                agent.due = None
                for one in stack:
                    one.waiting = False
                segment.spans.append(Span(first_line=event.line, last_line=event.line))
            for one in stack:
                one.tree_tool_calls += 1
            if stack[0].parent is not None:
                self._count_upwards(stack[0].parent, event.agent)
        else:
            segment = self._free_segment(agent, event, _keys(tool, call, shell))
        count(segment, event, tool)
        if shell is not None:
            if shell.commands or call.run_in_background is True:
                shown = intents_of_shell(shell.commands, call.run_in_background is True)
                if shown:
                    add_intents(segment, event, shown)
            if shell.writes or shell.redirections:
                for path, how in written_files(shell):
                    segment.file_guesses.append(FileGuess(path, event.line, how))
            return
        shown = intents_of_tool(tool, call)
        if shown:
            add_intents(segment, event, shown)
        if tool in FILE_KEYS:
            if event.outcome != "failed":
                add_file(segment, tool, call)
        elif tool in _TIMER_TOOLS:
            _timer(agent, segment, event, tool, call)

    def _session(self, event: Event) -> str:
        return self.state.session if self.state.session is not None else event.session

    def _begin(self, event: Event, kind: SegmentKind, skill: str | None, args: str | None = None) -> Segment:
        session = self._session(event)
        return Segment(
            id=segment_id(session, event.line, kind),
            kind=kind,
            session=session,
            agent=event.agent,
            skill=skill,
            args=args,
            layer=self.state.layer or str(Layer.OTHER if skill is None else layer_of_group(self.group_of(skill))),
            first_line=event.line,
            last_line=event.line,
            spans=[Span(first_line=event.line, last_line=event.line)],
            started_at=event.time,
        )

    def _open_skill(self, agent: AgentState, event: Event, skill: str, args: str | None = None) -> None:
        self._close_free(agent, "skill")
        stack = agent.stack
        while stack and skill not in self.children_of(stack[-1].skill or ""):
            self._close(stack.pop(), "skill")
        parent = stack[-1] if stack else self._declaring(skill, event.agent)
        if stack:
            _end_span(stack[-1], "skill")
            for one in stack:
                one.waiting = False
        if args is None:
            args = text(input_fields(event.input).args)
        segment = self._begin(event, SegmentKind.SKILL, skill, args)
        if parent is not None:
            segment.parent = parent.id
            parent.children.append(segment.id)
        stack.append(segment)

    def _declaring(self, skill: str, agent: str) -> Segment | None:
        """The orchestrator of the main conversation that a sub-agent's skill works for."""
        main = self.state.agents.get(MAIN)
        if agent == MAIN or main is None:
            return None
        return next((one for one in reversed(main.stack) if skill in self.children_of(one.skill or "")), None)

    def _count_upwards(self, parent: str, agent: str) -> None:
        main = self.state.agents.get(MAIN)
        stack = main.stack if main is not None and agent != MAIN else []
        depth = next((number for number, one in enumerate(stack) if one.id == parent), -1)
        for one in stack[: depth + 1]:
            one.tree_tool_calls += 1

    def _free_segment(self, agent: AgentState, event: Event, keys: list[str]) -> Segment:
        turn = agent.free
        before = turn.groups[turn.last] if turn.last >= 0 else None
        index = turn.group_of(keys)
        if index < 0:
            index = len(turn.groups)
            turn.groups.append(self._begin(event, SegmentKind.FREE, None))
            if before is not None:
                before.spans[-1].ended_by = "files"
        else:
            segment = turn.groups[index]
            last = turn.groups[turn.last]
            if segment is not last or segment.spans[-1].ended_by is not None:
                if last is not segment:
                    last.spans[-1].ended_by = "files"
                segment.spans.append(Span(first_line=event.line, last_line=event.line))
        turn.last = index
        segment = turn.groups[index]
        segment.tree_tool_calls += 1
        return segment

    def _prompt(self, event: Event) -> None:
        agent = self._agent(event.agent)
        said = (event.text or "").strip()
        if said and said in agent.prompts and agent.stack and agent.stack[-1].waiting:
            return
        self._end(event.agent, "user_prompt")
        if said.startswith("/"):
            name, _, rest = said[1:].partition(" ")
            if self.group_of(name) is not None:
                self._open_skill(agent, event, name, rest.strip() or None)

    def _turn_end(self, name: str) -> None:
        agent = self._agent(name)
        self._close_free(agent, "turn_end")
        if agent.stack and agent.stack[-1].waiting:
            return  # a turn without a call: the timer's is still to come
        if not (agent.wakeup or agent.lasting):
            self._end(name, "turn_end")
            return
        agent.wakeup = False
        if agent.stack:
            _end_span(agent.stack[-1], "turn_end")
            for one in agent.stack:
                one.waiting = True
                one.has_timer = bool(agent.lasting)

    def _end(self, name: str, by: str) -> None:
        agent = self._agent(name)
        self._close_free(agent, by)
        while agent.stack:
            self._close(agent.stack.pop(), by)
        agent.wakeup, agent.due = False, None

    def _close_free(self, agent: AgentState, by: str) -> None:
        turn = agent.free
        if not turn.groups:
            return
        for one in turn.groups:
            self._close(one, by)
        agent.free = FreeTurn()

    def _close(self, segment: Segment, by: str) -> None:
        segment.open = segment.waiting = False
        _end_span(segment, by)
        self.state.closed.append(segment)


def _end_span(segment: Segment, by: str) -> None:
    if segment.spans[-1].ended_by is None:
        segment.spans[-1].ended_by = by


def _keys(tool: str, call: CallInput, shell: ShellCommand | None) -> list[str]:
    """Last components of the files that a call names."""
    if shell is not None:
        return path_keys(shell)
    if tool in FILE_KEYS:
        path = text(call.notebook_path if tool == "NotebookEdit" else call.file_path)
        return [] if path is None else [path.rsplit("/", 1)[-1]]
    return []


def _too_early(agent: AgentState, event: Event) -> bool:
    """Whether a turn cannot be a timer's: the only one that is set fires later. A prompt need not be recorded."""
    if agent.lasting or agent.due is None or event.time is None:
        return False
    return event.time < agent.due - EARLY_S


def _timer(agent: AgentState, segment: Segment, event: Event, tool: str, call: CallInput) -> None:
    if tool in TIMERS_ONCE:
        agent.wakeup = True
        answer = response_fields(event.response) or CallResponse()
        delay = number(answer.clampedDelaySeconds) or number(call.delaySeconds)
        agent.due = event.time + delay if event.time is not None and delay is not None else None
    elif tool in TIMERS_LASTING:
        answer = response_fields(event.response) or CallResponse()
        agent.lasting.append(text(answer.id) or text(answer.taskId) or f"line {event.line}")
    else:
        stopped = text(call.id) or text(call.task_id)
        if stopped in agent.lasting:
            agent.lasting.remove(stopped)
    segment.has_timer = agent.wakeup or bool(agent.lasting)
    prompt = text(call.prompt)
    if prompt is not None and prompt.strip() not in agent.prompts:
        agent.prompts = [*agent.prompts[-7:], prompt.strip()]
