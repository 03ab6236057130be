"""Segmentation beyond single skills: the tree, timers, free segments by files, evidence; and real sessions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpus import CORPUS, MADE_UP, MISSING, files
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.events import MAIN, BadEvent, Event, EventKind, glance, parse, tool_call
from optimizer.facts import Format, facts_of
from optimizer.segment.free import FreeTurn
from optimizer.segment.segmenter import Segmenter, SegmenterState
from optimizer.segment.types import Segment, SegmentKind, segment_id

GROUPS = {"train": "rllm", "config": "rllm", "run": "rllm", "loop": "traj", "segment": "traj"}
CHILDREN = {"train": ("config", "run"), "loop": ("train", "segment")}


def children_of(skill: str) -> tuple[str, ...]:
    return CHILDREN.get(skill, ())


class Session:
    """Events one after the other, of one agent or another."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, *, agent: str = MAIN, **more: Any) -> "Session":
        line = len(self.events)
        more.setdefault("outcome", "ok" if kind == EventKind.TOOL_CALL else "unknown")
        self.events.append(Event(kind=kind, session="s", agent=agent, line=line, time=float(line), **more))
        return self

    def call(self, tool: str, agent: str = MAIN, response: Any = None, **call_input: Any) -> "Session":
        return self.add(EventKind.TOOL_CALL, agent=agent, tool=tool, input=call_input, response=response)

    def skill(self, name: str, agent: str = MAIN) -> "Session":
        return self.call("Skill", agent, skill=name)

    def turn_end(self, agent: str = MAIN) -> "Session":
        return self.add(EventKind.TURN_END, agent=agent)

    def prompt(self, text: str) -> "Session":
        return self.add(EventKind.USER_PROMPT, text=text)

    @property
    def segments(self) -> list[Segment]:
        segmenter = Segmenter(GROUPS.get, children_of=children_of)
        segmenter.feed(self.events)
        return segmenter.state.segments


def test_an_orchestrator_stays_open_while_its_skills_run() -> None:
    session = Session().skill("loop").skill("train").call("Bash").skill("config").call("Read").skill("run")
    session.call("Bash").skill("segment").call("Bash").turn_end()
    loop, train, config, run, segment = session.segments
    assert [one.skill for one in session.segments] == ["loop", "train", "config", "run", "segment"]
    assert (loop.parent, train.parent, config.parent, run.parent) == (None, loop.id, train.id, train.id)
    assert segment.parent == loop.id
    assert loop.children == [train.id, segment.id]
    assert train.children == [config.id, run.id]
    # exclusive calls: loop 0; train 1 2; config 3 4; run 5 6; segment 7 8
    assert [one.tool_calls for one in session.segments] == [1, 2, 2, 2, 2]
    assert [one.tree_tool_calls for one in session.segments] == [9, 6, 2, 2, 2]
    assert [one.layer for one in session.segments] == ["traj", "rllm", "rllm", "rllm", "traj"]
    assert [one.spans[0].ended_by for one in session.segments] == ["skill", "skill", "skill", "skill", "turn_end"]


def test_a_skill_that_nobody_declares_closes_the_tree() -> None:
    loop, train, other, config = (
        Session().skill("loop").skill("train").skill("pdf").call("Read").skill("config").segments
    )
    assert (other.parent, other.layer, config.parent) == (None, "other", None)
    assert not loop.open
    assert not train.open
    assert loop.tree_tool_calls == 2


def test_a_sub_agents_skill_belongs_to_the_orchestrator_that_waits_for_it() -> None:
    session = Session().skill("loop").skill("train", "a1").call("Bash", "a1").skill("config", "a1")
    session.add(EventKind.SUBAGENT_END, agent="a1").call("Bash")
    loop, train, config = session.segments
    assert (train.parent, config.parent, train.agent) == (loop.id, train.id, "a1")
    assert (train.spans[0].ended_by, config.spans[0].ended_by) == ("skill", "subagent_end")
    assert (loop.tool_calls, loop.tree_tool_calls, loop.open) == (2, 5, True)


def test_the_tree_goes_on_over_a_timer_turn() -> None:
    session = Session().skill("train").skill("run").call("ScheduleWakeup", prompt="look again").turn_end()
    session.prompt("look again").call("Bash").skill("config").turn_end()
    train, run, config = session.segments
    assert (run.tool_calls, run.span_tool_calls, config.parent) == (3, 2, train.id)
    assert [span.ended_by for span in run.spans] == ["turn_end", "skill"]


def test_a_persons_prompt_ends_it_even_while_a_monitor_is_set() -> None:
    session = Session().skill("run").call("Monitor", response={"taskId": "m1"}).turn_end().prompt("stop").call("Read")
    run, free = session.segments
    assert (run.tool_calls, free.kind, free.spans[0].first_line) == (2, SegmentKind.FREE, 4)


def test_a_monitor_that_was_stopped_keeps_nothing_open() -> None:
    session = Session().skill("run").call("Monitor", response={"taskId": "m1"}).turn_end()
    session.call("TaskStop", task_id="m1").turn_end().call("Read")
    run, free = session.segments
    assert (run.tool_calls, len(run.spans), free.kind) == (3, 2, SegmentKind.FREE)


def test_a_turn_before_the_timer_is_due_is_a_persons() -> None:
    session = Session().skill("run").call("ScheduleWakeup", delaySeconds=120).turn_end().call("Read").turn_end()
    run, free = session.segments
    assert (run.tool_calls, free.kind, free.tool_calls) == (2, SegmentKind.FREE, 1)
    # also where it begins with a skill that the orchestrator would have declared
    session = Session().skill("train").call("ScheduleWakeup", delaySeconds=120).turn_end().skill("config")
    assert [one.parent for one in session.segments] == [None, None]
    # the wake-up was set at second 1 for second 3; line 3 is at second 3
    (run,) = Session().skill("run").call("ScheduleWakeup", delaySeconds=2).turn_end().call("Read").segments
    assert run.tool_calls == 3
    # a monitor may have been the reason
    session = Session().skill("run").call("Monitor", response={"taskId": "m"}).call("ScheduleWakeup", delaySeconds=120)
    (run,) = session.turn_end().call("Read").segments
    assert run.tool_calls == 4


def test_a_turn_without_calls_does_not_use_the_timer_up() -> None:
    session = Session().skill("run").call("ScheduleWakeup").turn_end().turn_end().call("Bash").turn_end().call("Read")
    run, free = session.segments
    assert (run.tool_calls, free.first_line) == (3, 6)


def test_a_prompt_may_put_a_skill_in_force() -> None:
    run, free = Session().prompt("/run run_1 now").call("Bash").turn_end().prompt("/compact").call("Read").segments
    assert (run.skill, run.args, run.first_line, run.tool_calls, run.layer) == ("run", "run_1 now", 0, 1, "rllm")
    assert free.kind is SegmentKind.FREE


def test_free_calls_of_a_turn_belong_together_by_files() -> None:
    session = Session().call("Bash", command="ls").call("Read", file_path="/p/a.py").call("Read", file_path="/p/b.py")
    session.call("TaskUpdate").call("Edit", file_path="/p/a.py").call("Bash", command="python /p/a.py").turn_end()
    session.call("Edit", file_path="/p/b.py")
    first, second, third = session.segments
    assert ([span.first_line for span in first.spans], first.tool_calls) == ([0, 4], 4)
    assert (first.files, first.written) == (["/p/a.py"], ["/p/a.py"])
    assert ([(span.first_line, span.last_line) for span in second.spans], second.tool_calls) == ([(2, 3)], 2)
    assert third.first_line == 7


def test_a_call_that_names_two_files_joins_their_segments() -> None:
    session = Session().call("Read", file_path="/p/a.py").call("Read", file_path="/p/b.py")
    session.call("Bash", command="cd /p && diff a.py b.py").call("Read", file_path="/p/c.py")
    both, other = session.segments
    assert (both.id, both.tool_calls, both.last_line) == (segment_id("s", 0, SegmentKind.FREE), 3, 2)
    assert [(span.first_line, span.last_line) for span in both.spans] == [(0, 0), (1, 2)]
    assert other.files == ["/p/c.py"]


class CountedValues(dict[str, int]):
    """Counts how many of its values are looked at."""

    looked_at = 0

    def values(self) -> Any:
        values, counted = super().values(), self

        class Values:
            def __iter__(self) -> Iterator[int]:
                for value in values:
                    counted.looked_at += 1
                    yield value

            def __reversed__(self) -> Iterator[int]:
                for value in reversed(values):
                    counted.looked_at += 1
                    yield value

        return Values()


def test_a_long_turn_over_many_files_looks_at_few_of_them() -> None:
    """A turn that goes on for days names thousands of files; what a call costs does not grow with them."""
    turn = FreeTurn(keys=CountedValues())
    for number in range(400):
        for name in (f"{number}.py", f"{number // 2}.py"):  # a new file, and one named before
            index = turn.group_of([name])
            if index < 0:
                index = len(turn.groups)
                turn.groups.append(
                    Segment(
                        id="",
                        kind=SegmentKind.FREE,
                        session="s",
                        agent=MAIN,
                        layer="other",
                        first_line=number,
                        last_line=number,
                    )
                )
            turn.last = index
    assert len(turn.groups) == 400
    assert isinstance(turn.keys, CountedValues)
    assert 0 < turn.keys.looked_at <= 2 * 800


def test_judgements_carry_their_lines() -> None:
    session = Session().skill("run").call("Bash", command="python -m pytest -q > out.txt")
    session.add(EventKind.TOOL_CALL, tool="Bash", input={}, outcome="failed", reason="ls: no", evidence="masked")
    session.add(EventKind.TOOL_FAILURE, tool="Edit", input={"file_path": "/p/a.py"}, outcome="failed", reason="no")
    session.call("Write", file_path="/p/run.yaml").call("start_training").call("Read", file_path="/p/train.log")
    (run,) = session.segments
    assert run.outcome == "failed"
    assert [(one.line, one.text) for one in run.failures] == [(2, "ls: no"), (3, "no")]
    assert [one.line for one in run.masked] == [2]
    assert [(one.kind, one.line) for one in run.intents] == [("test", 1), ("config", 4), ("launch", 5), ("log", 6)]
    assert run.files == ["/p/run.yaml", "/p/train.log"]
    assert [(one.path, one.line, one.how) for one in run.file_guesses] == [("out.txt", 1, ">")]


def test_a_session_may_be_fixed_to_a_layer() -> None:
    session = Session().add(EventKind.SESSION_START, response={"layer": "traj"}).call("Read").skill("run")
    assert [one.layer for one in session.segments] == ["traj", "traj"]
    session = Session().add(EventKind.SESSION_START, response={"layer": "nonsense"}).call("Read").skill("run")
    assert [one.layer for one in session.segments] == ["other", "rllm"]


def test_a_run_is_linked_by_the_event_that_launched_it() -> None:
    call = tool_call("s", "mcp__evo__start_training", {}, {}, time=1.0, run_id="r1")
    look = tool_call("s", "monitor_run", {}, {}, time=2.0, run_id="r0")
    segmenter = Segmenter(GROUPS.get)
    segmenter.feed([call, look])
    (only,) = segmenter.state.segments
    assert (only.runs, only.launched) == (["r1", "r0"], ["r1"])


AGENTS = st.sampled_from([MAIN, MAIN, "a1"])
CALLS = st.one_of(
    st.tuples(st.just("skill"), AGENTS, st.sampled_from([*GROUPS, "pdf"])),
    st.tuples(st.just("file"), AGENTS, st.sampled_from(["/p/a.py", "/p/b.py", "/p/c.py"])),
    st.tuples(st.just("bash"), AGENTS, st.sampled_from(["ls", "diff a.py b.py", "cat c.py > d.py", "wc b.py c.py"])),
    st.tuples(st.just("timer"), AGENTS, st.sampled_from(["ScheduleWakeup", "Monitor", "CronCreate", "TaskStop"])),
    st.tuples(st.sampled_from(["turn_end", "user_prompt", "subagent_end", "session_end"]), AGENTS, st.just("/run x")),
)


def session_of(steps: list[tuple[str, str, str]]) -> list[Event]:
    session = Session()
    for kind, agent, value in steps:
        if kind == "skill":
            session.skill(value, agent)
        elif kind == "file":
            session.call("Edit", agent, file_path=value)
        elif kind == "bash":
            session.call("Bash", agent, command=value)
        elif kind == "timer":
            session.call(value, agent, response={"id": "t"}, id="t", prompt="/run x")
        else:
            session.add(kind, agent=agent, text=value)
    return session.events


@settings(max_examples=150, deadline=None)
@given(st.lists(CALLS, max_size=40), st.integers(0, 40))
def test_no_call_is_lost_or_counted_twice_and_cutting_changes_nothing(
    steps: list[tuple[str, str, str]], cut: int
) -> None:
    events = session_of(steps)
    whole = Segmenter(GROUPS.get, children_of=children_of)
    whole.feed(events)
    segments = whole.state.segments
    lines = {event.line: event for event in events if event.is_call}
    owners: dict[int, str] = {}
    for segment in segments:
        own = [
            line
            for line, event in lines.items()
            if event.agent == segment.agent and any(span.first_line <= line <= span.last_line for span in segment.spans)
        ]
        assert len(own) == segment.tool_calls == sum(span.tool_calls for span in segment.spans)
        for line in own:
            assert line not in owners
            owners[line] = segment.id
    assert owners.keys() == lines.keys()
    by_id = {segment.id: segment for segment in segments}
    assert len(by_id) == len(segments)
    for segment in segments:
        below = sum(by_id[child].tree_tool_calls for child in segment.children)
        everything = segment.tool_calls + below
        # a sub-agent may go on with a child after its orchestrator was closed, which does not count what came then
        if outlived(segment, by_id):
            assert segment.tool_calls <= segment.tree_tool_calls <= everything
        else:
            assert segment.tree_tool_calls == everything
        assert segment.parent is None or segment.id in by_id[segment.parent].children
    first = Segmenter(GROUPS.get, children_of=children_of)
    first.feed(events[:cut])
    state = msgspec.json.decode(msgspec.json.encode(first.state), type=SegmenterState)
    resumed = Segmenter(GROUPS.get, state, children_of)
    resumed.feed(events[cut:])
    assert resumed.state.segments == segments


def outlived(segment: Segment, by_id: dict[str, Segment]) -> bool:
    """Whether a segment below this one has a call behind this one's last."""
    children = [by_id[one] for one in segment.children]
    return any(one.last_line > segment.last_line and one.agent != segment.agent for one in children) or any(
        outlived(one, by_id) for one in children
    )


def test_what_a_sub_agent_does_after_its_orchestrator_ended_is_not_the_orchestrators() -> None:
    steps = [("skill", "main", "train"), ("skill", "a1", "config"), ("skill", "main", "train")]
    first, child, second = segmented([*steps, ("file", "a1", "/p/a.py")])
    assert (child.parent, first.children, second.children) == (first.id, [child.id], [])
    assert (child.tool_calls, first.tree_tool_calls, second.tree_tool_calls) == (2, 2, 1)


def segmented(steps: list[tuple[str, str, str]]) -> list[Segment]:
    whole = Segmenter(GROUPS.get, children_of=children_of)
    whole.feed(session_of(steps))
    return whole.state.segments


def check_against_facts(path: Path, format: Format) -> None:
    """Skill segments' first spans are the facts' exclusive ones; no call is outside of a segment."""
    facts = facts_of(path, format)
    segmenter = Segmenter(lambda skill: None)
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        try:
            segmenter.take(glance(line, number))
        except BadEvent:
            continue
    segments = segmenter.state.segments
    skills = [one for one in segments if one.kind == SegmentKind.SKILL]
    assert [(one.first_line, one.skill, one.args) for one in skills] == [
        (one["line"], one["name"], one["args"]) for one in facts["skills"]
    ]
    assert [one.span_tool_calls for one in skills] == [one["tool_calls"] for one in facts["skill_segments"]]
    assert sum(one.tool_calls for one in segments) == facts["tool_calls"]
    # a call that goes on over a timer's turn is free in the facts and the skill's in its segment
    continued = sum(one.tool_calls - one.span_tool_calls for one in skills)
    assert facts["free_tool_calls"] == continued + sum(one.tool_calls for one in segments) - sum(
        one.tool_calls for one in skills
    )
    assert {path for one in segments for path in one.files} == set().union(*map(set, facts["files"].values()))


@pytest.mark.parametrize("name", ["normalised", "outcomes", "hooks"])
def test_made_up_sessions_agree_with_their_facts(name: str) -> None:
    check_against_facts(MADE_UP / f"{name}.jsonl", Format.HOOKS if name == "hooks" else Format.NORMALISED)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=MISSING)
def test_real_sessions_agree_with_their_facts() -> None:
    paths = files("sessions/*/events.jsonl")
    assert len(paths) >= 12
    for path in paths:
        check_against_facts(path, Format.NORMALISED)
    for path in files("hooks/**/*.jsonl"):
        check_against_facts(path, Format.HOOKS)


@pytest.mark.skipif(not CORPUS.is_dir(), reason=MISSING)
def test_a_glance_judges_real_events_as_a_full_reading_does() -> None:
    for path in (*files("sessions/*/events.jsonl"), *files("hooks/**/*.jsonl")):
        for number, line in enumerate(path.read_bytes().split(b"\n")):
            if not line:
                continue
            try:
                full = parse(line, number)
            except BadEvent:
                with pytest.raises(BadEvent):
                    glance(line, number)
                continue
            quick = glance(line, number)
            assert msgspec.structs.replace(quick, input=None, response=None) == msgspec.structs.replace(
                full, input=None, response=None
            )


def test_documents_are_plain_json() -> None:
    (segment,) = Session().skill("run").segments
    document = json.loads(json.dumps(segment.document()))
    assert (document["skill"], document["outcome"], document["kind"]) == ("run", "ok", "skill")
    assert msgspec.convert(document, Segment) == segment
