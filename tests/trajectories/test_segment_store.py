"""Segments on disk: incremental, streaming, rebuildable, shared between processes; any bytes as an events file."""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.events import BadEvent, Event, EventKind, glance, parse, to_line, tool_call
from optimizer.segment.store import SegmentStore
from optimizer.skill_tree import SkillTree
from optimizer.store import TrajectoryStore
from skill_bank.bank import SkillBank

GROUPS = {"rllm-config": "rllm", "rllm-run": "rllm", "traj-loop": "traj"}


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    return TrajectoryStore(tmp_path / "trajectories")


def normalised(number: int, text: str = "") -> bytes:
    """One turn of a session: a skill, calls, its end."""
    common = {"session_id": "s", "conversation_id": "s", "timestamp": "2026-03-01T10:00:00+00:00"}
    skill = {"tool_name": "Skill", "tool_input": {"skill": "rllm-run"}, "tool_response": {"success": True}}
    call = {"tool_name": "Bash", "tool_input": {"command": f"ls {number}"}, "tool_response": {"stdout": text}}
    free = {"tool_name": "Read", "tool_input": {"file_path": f"/p/{number}.py"}, "tool_response": {"file": text}}
    rows = [{"type": "tool_call", **one} for one in (skill, call)] + [{"type": "turn_end"}]
    rows += [{"type": "tool_call", **free}, {"type": "turn_end"}]
    return b"".join(msgspec.json.encode({**common, **row}) + b"\n" for row in rows)


def write(store: TrajectoryStore, session: str, data: bytes) -> Path:
    path = store.file(session)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def contents(kept: SegmentStore) -> dict[str, bytes]:
    return {str(path.relative_to(kept.root)): path.read_bytes() for path in kept.root.rglob("*.jsonl")}


def test_piece_by_piece_is_the_same_as_at_once(store: TrajectoryStore, tmp_path: Path) -> None:
    data = b"".join(normalised(number) for number in range(6)) + b'{"torn": \n' + normalised(9)
    whole = SegmentStore(TrajectoryStore(tmp_path / "whole"), GROUPS.get)
    write(whole.store, "s", data)
    expected = whole.update("s")
    kept = SegmentStore(store, GROUPS.get)
    path = write(store, "s", b"")
    for start in range(0, len(data), 137):
        with open(path, "ab") as stream:
            stream.write(data[start : start + 137])
        kept.update("s")
    assert kept.segments("s") == expected
    assert contents(kept) == contents(whole)
    (seen,) = kept.refresh()
    assert (seen.events, seen.bad_lines, seen.bad_line_numbers) == (35, 1, [30])


def test_an_unchanged_session_is_not_opened_again(store: TrajectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write(store, f"s{number}", normalised(number))
    first = SegmentStore(store, GROUPS.get).refresh()
    assert [one.changed for one in first] == [True] * 3
    kept = SegmentStore(store, GROUPS.get)
    opened: list[str] = []
    refresh_one = kept.refresh_one
    monkeypatch.setattr(kept, "refresh_one", lambda name: opened.append(name) or refresh_one(name))  # type: ignore[func-returns-value]
    assert [(one.session, one.events, one.changed) for one in kept.refresh()] == [
        (one.session, one.events, False) for one in first
    ]
    with open(store.file("s1"), "ab") as stream:
        stream.write(normalised(7))
    assert [one.changed for one in kept.refresh()].count(True) == 1
    assert opened == ["s1"]


def test_a_file_that_was_replaced_is_segmented_anew(store: TrajectoryStore) -> None:
    kept = SegmentStore(store, GROUPS.get)
    write(store, "s", normalised(1) + normalised(2))
    assert len(kept.update("s")) == 4
    write(store, "s", to_line(tool_call("s", "Read", {}, {}, time=1.0)) + b"\n")
    (only,) = kept.update("s")
    assert only.layer == "other"
    assert sorted(contents(kept)) == ["other/s.jsonl"]


def test_a_damaged_segments_file_is_made_again(store: TrajectoryStore) -> None:
    kept = SegmentStore(store, GROUPS.get)
    write(store, "s", normalised(1) + normalised(2))
    expected = kept.update("s")
    (kept.root / "rllm" / "s.jsonl").write_bytes(b"")
    assert kept.update("s") == expected
    shutil.rmtree(kept.root)
    assert kept.update("s") == expected
    (kept.root / "state" / "s.json").write_text('{"version": 4, "fold": 3}')
    assert kept.update("s") == expected


def test_segments_of_a_session_that_is_gone(store: TrajectoryStore) -> None:
    kept = SegmentStore(store, GROUPS.get)
    path = write(store, "s", normalised(1))
    assert kept.update("s")
    shutil.rmtree(path.parent)
    assert kept.update("s") == []
    assert kept.refresh() == []


def test_memory_does_not_grow_with_the_session(store: TrajectoryStore) -> None:
    """10 MB of events in a few MB: what is kept is segments, not events."""
    filler = "output of a command\n" * 100
    write(store, "s", b"".join(normalised(number, filler) for number in range(2500)))
    size = os.path.getsize(store.file("s"))
    assert size > 10_000_000
    kept = SegmentStore(store, GROUPS.get)
    tracemalloc.start()
    try:
        kept.refresh()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the segments of 2,500 turns are 3.6 MB of lines; the read buffer is 1 MB
    assert peak < 12_000_000 < size + 2_000_000
    assert len(kept.segments("s")) == 5000


SHARING = """
import os, sys
from pathlib import Path
from optimizer.segment import many, store
from optimizer.store import TrajectoryStore

store.SHARED_BYTES = 0
if sys.argv[2] == "killed":
    many._work = lambda *_: os._exit(9)
kept = store.SegmentStore(TrajectoryStore(Path(sys.argv[1])), {"rllm-run": "rllm"}.get)
here = []
refresh_one = kept.refresh_one
kept.refresh_one = lambda name: here.append(name) or refresh_one(name)
assert many.can_share()
print(sorted((one.session, one.events) for one in kept.refresh(processes=3)))
print(len(here))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a process is copied")
@pytest.mark.parametrize("fate", ["lives", "killed"])
def test_a_backlog_is_shared_with_copies_of_the_process(store: TrajectoryStore, tmp_path: Path, fate: str) -> None:
    """The same bytes as by one process, and nothing is left undone where the copies die."""
    for number in range(5):
        write(store, f"s{number}", b"".join(normalised(turn) for turn in range(number + 1)))
    command = [sys.executable, "-P", "-c", SHARING, str(store.root), fate]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    told, here = done.stdout.splitlines()
    assert told == str([(f"s{number}", 5 * (number + 1)) for number in range(5)])
    # the largest first, each to the smallest share of three: s4 | s3, s0 | s2, s1
    assert int(here) == (1 if fate == "lives" else 5)
    kept = SegmentStore(store, {"rllm-run": "rllm"}.get)
    files = contents(kept)
    shutil.rmtree(kept.root)
    kept.refresh()
    assert contents(kept) == files


def test_the_bank_says_which_skills_belong_to_which(tmp_path: Path) -> None:
    tree = SkillTree(SkillBank.seed(tmp_path / "skills"))
    assert tree.group_of("rllm-train") == "rllm"
    assert "rllm-config" in tree.children_of("rllm-train")
    assert "rllm-train" in tree.children_of("traj-launch-training")
    assert (tree.group_of("pdf"), tree.children_of("pdf")) == (None, frozenset())


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [normalised(1), normalised(2), b"\n", b"\xff\n", b'{"type":"tool_call"', "{\u2028}\x85".encode()]
        ),
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(PIECES)
def test_any_bytes_as_an_events_file(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    """No crash, nothing lost, the same ids when read in one go and piece by piece."""
    folder = tmp_path_factory.mktemp("bytes")
    data = b"".join(pieces)
    lines = data.split(b"\n")[:-1]
    at_once = SegmentStore(TrajectoryStore(folder / "a"), GROUPS.get)
    write(at_once.store, "s", data)
    segments = at_once.update("s")
    (seen,) = at_once.refresh()
    assert seen.events + seen.bad_lines + sum(not line.strip() for line in lines) == len(lines)
    kept = SegmentStore(TrajectoryStore(folder / "b"), GROUPS.get)
    path = write(kept.store, "s", b"")
    for piece in pieces:
        with open(path, "ab") as stream:
            stream.write(piece)
        kept.update("s")
    assert kept.segments("s") == segments


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
HOOK_KEYS = ["session_id", "tool_name", "tool_input", "tool_response", "agent_id", "error", "prompt", "received_at"]
HOOK_NAMES = ["PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop", "UserPromptSubmit", "SessionEnd", "Other"]


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {"hook_event_name": st.sampled_from(HOOK_NAMES) | json_values},
        optional={key: st.sampled_from(["s", "Bash", "Skill"]) | json_values for key in HOOK_KEYS},
    )
)
def test_any_json_as_a_hook_input(document: dict[str, object]) -> None:
    """Both readings agree, and an event is worth keeping: it survives being written in our own form."""
    line = json.dumps(document).encode()
    try:
        full = parse(line, 3)
    except BadEvent:
        with pytest.raises(BadEvent):
            glance(line, 3)
        return
    quick = glance(line, 3)
    assert (quick.kind, quick.session, quick.agent, quick.tool) == (full.kind, full.session, full.agent, full.tool)
    assert (quick.outcome, quick.reason, quick.evidence) == (full.outcome, full.reason, full.evidence)
    again = parse(to_line(full), 3)
    assert (again.kind, again.session, again.outcome, again.line) == (full.kind, full.session, full.outcome, 3)


def test_what_python_writes_is_read(store: TrajectoryStore) -> None:
    """NaN, half a surrogate pair and a very large number are no strict JSON, but real writers make them."""
    document = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "x"}
    line = json.dumps({**document, "tool_response": {"a": float("nan"), "b": "\ud800", "n": 10**30}}).encode()
    event = parse(line, 0)
    assert (event.tool, event.outcome) == ("x", "ok")
    assert event.response == {"a": None, "b": "\\ud800", "n": str(10**30)}
    assert isinstance(parse(to_line(event), 0), Event)
    assert event.kind is EventKind.TOOL_CALL
