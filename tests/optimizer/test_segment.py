"""Segmentation: rules worked out on small made-up sessions."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optimizer.events import Event, EventKind, tool_call
from optimizer.layers import Layer, LayerError, check_read, check_write, layer_below
from optimizer.segment.segmenter import Segmenter, SegmenterState
from optimizer.segment.store import SegmentStore
from optimizer.segment.types import Segment, SegmentKind
from optimizer.store import TrajectoryStore

GROUPS = {"rllm-config": "rllm", "rllm-monitor": "rllm", "traj-optimize": "traj"}


def build(*steps: str, session: str = "s") -> list[Event]:
    """Steps: `name` a call, `!name` a failed one, `+skill` a skill call, `.` turn end, `?` prompt, `a:…` agent a."""
    events = []
    for line, step in enumerate(steps):
        agent, _, rest = step.rpartition(":")
        common = {"session": session, "agent": agent or "main", "line": line, "time": float(line)}
        if rest == ".":
            events.append(Event(kind=EventKind.TURN_END, **common))
        elif rest == "?":
            events.append(Event(kind=EventKind.USER_PROMPT, **common))
        elif rest == "end":
            events.append(Event(kind=EventKind.SESSION_END, **common))
        elif rest.startswith("+"):
            skill = {"name": rest[1:]}
            events.append(Event(kind=EventKind.TOOL_CALL, tool="load_skill", input=skill, outcome="ok", **common))
        elif rest.startswith("!"):
            events.append(Event(kind=EventKind.TOOL_FAILURE, tool=rest[1:], outcome="failed", **common))
        else:
            events.append(Event(kind=EventKind.TOOL_CALL, tool=rest, outcome="ok", **common))
    return events


def segments(*steps: str) -> list[Segment]:
    segmenter = Segmenter(GROUPS.get)
    segmenter.feed(build(*steps))
    return segmenter.state.segments


def test_skill_segment_ends_at_next_skill_and_at_turn_end() -> None:
    first, second, free = segments("+rllm-config", "Read", "+traj-optimize", "!Edit", ".", "Read", ".")
    assert (first.skill, first.layer, first.tool_calls, first.spans[0].ended_by) == ("rllm-config", "rllm", 2, "skill")
    assert (second.layer, second.failed, second.outcome) == ("traj", [3], "failed")
    assert second.spans[0].ended_by == "turn_end"
    assert (free.kind, free.layer, free.tool_calls, free.first_line) == (SegmentKind.FREE, "other", 1, 5)


def test_segment_goes_on_over_a_timer_turn_but_not_over_a_prompt() -> None:
    (monitor,) = segments("+rllm-monitor", "ScheduleWakeup", ".", "Read", "ScheduleWakeup", ".", "Read", ".")
    assert monitor.tool_calls == 5
    assert [span.tool_calls for span in monitor.spans] == [2, 2, 1]
    assert [span.ended_by for span in monitor.spans] == ["turn_end"] * 3
    monitor, free = segments("+rllm-monitor", "Monitor", ".", "?", "Read")
    assert not monitor.open
    assert monitor.tool_calls == 2
    assert free.kind is SegmentKind.FREE


def test_a_load_skill_that_failed_opens_nothing() -> None:
    events = build("+rllm-config", "Read")
    failed = replace(events[0], outcome="failed")
    segmenter = Segmenter(GROUPS.get)
    segmenter.feed([failed, events[1]])
    (only,) = segmenter.state.segments
    assert (only.kind, only.skill, only.tool_calls) == (SegmentKind.FREE, None, 2)


def test_agents_are_kept_apart() -> None:
    main, sub = segments("+rllm-config", "a1:Read", "a1:Edit", "Read")
    assert (main.agent, main.tool_calls) == ("main", 2)
    assert (sub.agent, sub.kind, sub.tool_calls) == ("a1", SegmentKind.FREE, 2)


def test_skill_of_the_harness_and_of_our_server_over_mcp() -> None:
    for tool, key in (("Skill", "skill"), ("mcp__evo__load_skill", "name")):
        segmenter = Segmenter(GROUPS.get)
        segmenter.feed(
            [Event(kind=EventKind.TOOL_CALL, session="s", tool=tool, input={key: "rllm-config"}, outcome="ok", line=0)]
        )
        assert segmenter.state.segments[0].layer == "rllm"
    unknown = Segmenter(GROUPS.get)
    unknown.feed([Event(kind=EventKind.TOOL_CALL, session="s", tool="Skill", input={"skill": "pdf"}, line=0)])
    assert unknown.state.segments[0].layer == "other"


STEPS = st.lists(
    st.sampled_from(
        ["+rllm-config", "+rllm-monitor", "Read", "!Bash", "ScheduleWakeup", ".", "?", "a1:Read", "a1:.", "end"]
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 30))
def test_every_call_is_in_one_segment_and_cutting_changes_nothing(steps: list[str], cut: int) -> None:
    events = build(*steps)
    whole = Segmenter(GROUPS.get)
    whole.feed(events)
    calls = sum(event.is_call for event in events)
    assert sum(one.tool_calls for one in whole.state.segments) == calls
    assert sum(span.tool_calls for one in whole.state.segments for span in one.spans) == calls
    assert len({one.id for one in whole.state.segments}) == len(whole.state.segments)
    first = Segmenter(GROUPS.get)
    first.feed(events[:cut])
    resumed = Segmenter(GROUPS.get, msgspec.json.decode(msgspec.json.encode(first.state), type=SegmenterState))
    resumed.feed(events[cut:])
    assert resumed.state == whole.state


def test_store_is_incremental_and_rebuildable(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    kept = SegmentStore(store, GROUPS.get)
    store.append(tool_call("s", "load_skill", {"name": "rllm-config"}, {"ok": 1}, time=1.0))
    store.append(tool_call("s", "start_training", {}, {"run_id": "r"}, time=2.0, run_id="r-1"))
    before = kept.update("s")
    store.append(tool_call("s", "load_skill", {"name": "traj-optimize"}, {"ok": 1}, time=3.0))
    after = kept.update("s")
    assert [one.id for one in after][:1] == [one.id for one in before]
    assert after[0].runs == ["r-1"]
    assert [one.skill for one in kept.of_layer("rllm")] == ["rllm-config"]
    files = {path: path.read_bytes() for path in kept.root.rglob("*.jsonl")}
    (kept.root / "state" / "s.json").write_text("{")
    assert SegmentStore(store, GROUPS.get).update("s") == after
    assert {path: path.read_bytes() for path in kept.root.rglob("*.jsonl")} == files


def test_an_optimiser_reads_only_the_layer_below(tmp_path: Path) -> None:
    kept = SegmentStore(TrajectoryStore(tmp_path), GROUPS.get)
    assert kept.of_layer("rllm", reader="traj") == []
    with pytest.raises(LayerError, match="only of 'rllm'"):
        kept.of_layer("traj", reader="traj")


def test_layers() -> None:
    check_write("traj", "rllm")
    check_write("meta", "traj")
    check_read("meta", "traj")
    for actor, group in (("traj", "traj"), ("meta", "rllm"), ("traj", "meta"), ("meta", "meta")):
        with pytest.raises(LayerError):
            check_write(actor, group)
    with pytest.raises(LayerError, match="optimises nothing"):
        check_write("rllm", "rllm")
    assert layer_below("meta") is Layer.TRAJ
