"""Transcripts of Claude Code become events: tolerant, sub-agents apart, copies once, imports repeatable."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import corpus
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.capture.forks import HarnessForks, copied_from, first_sessions, is_harness_fork
from optimizer.capture.hooks import capture
from optimizer.capture.importing import import_transcript
from optimizer.capture.transcripts import TranscriptCounts, read_transcript, told_by
from optimizer.clip import CLIPPED, FIELD_BYTES, MANY, clip, clip_text
from optimizer.events import Event, EventKind, parse
from optimizer.outcome import Outcome, outcome_of
from optimizer.store import TrajectoryStore

SESSION = "0c4f7b1e-3a55-4d0e-9b7e-1f2a3b4c5d6e"
AGENT = "a1b2c3d4e5f60718"


class Writer:
    """A made-up transcript, a second between its lines."""

    def __init__(self, session: str = SESSION, **always: Any) -> None:
        self.session, self.always = session, always
        self.rows: list[dict[str, Any]] = []

    def line(self, kind: str, **more: Any) -> str:
        number = len(self.rows)
        uuid = f"{self.session[:8]}-{self.always.get('agentId', 'main')}-{number}"
        stamp = f"2026-03-01T10:{number // 60:02d}:{number % 60:02d}.000Z"
        base = {"type": kind, "uuid": uuid, "sessionId": self.session, "timestamp": stamp, "version": "2.1.0"}
        self.rows.append({**base, **self.always, **more})
        return uuid

    def prompt(self, text: str, **more: Any) -> str:
        return self.line("user", message={"role": "user", "content": text}, **more)

    def says(self, *blocks: dict[str, Any], stop: str | None = None, **more: Any) -> str:
        message = {"id": f"msg_{len(self.rows)}", "role": "assistant", "content": list(blocks), "stop_reason": stop}
        return self.line("assistant", message={**message, **more.pop("message", {})}, **more)

    def call(self, call_id: str, tool: str, **arguments: Any) -> str:
        return self.says({"type": "tool_use", "id": call_id, "name": tool, "input": arguments}, stop="tool_use")

    def result(self, call_id: str, text: str, structured: Any = None, *, error: bool | None = None, **more: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        if error is not None:
            block["is_error"] = error
        extra = {} if structured is None else {"toolUseResult": structured}
        return self.line("user", message={"role": "user", "content": [block]}, **extra, **more)

    def done(self, text: str = "Done.") -> str:
        return self.says({"type": "text", "text": text}, stop="end_turn")

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in self.rows))
        return path


def session_file(folder: Path) -> Path:
    return folder / f"{SESSION}.jsonl"


def kinds(events: Iterable[Event]) -> list[str]:
    return [str(event.kind) for event in events]


def test_a_session_reads_like_its_hooks(tmp_path: Path) -> None:
    log = Writer()
    log.rows.append({"type": "summary", "summary": "earlier", "leafUuid": "x"})
    prompt = log.prompt("train the tiny agent")
    log.call("toolu_1", "Bash", command="ls")
    log.result("toolu_1", "a.txt", {"stdout": "a.txt", "stderr": "", "interrupted": False, "durationMs": 12})
    log.call("toolu_2", "Bash", command="false")
    log.result("toolu_2", "Exit code 1\nno", "Error: Exit code 1\nno", error=True)
    log.call("toolu_3", "mcp__evo__list_runs", limit=2)
    log.result("toolu_3", '{"runs": []}')
    end = log.done()
    log.prompt("thanks")
    events = list(read_transcript(log.write(session_file(tmp_path))))
    assert kinds(events) == [
        *("session_start", "user_prompt", "tool_call", "tool_failure", "tool_call", "turn_end", "user_prompt")
    ]
    assert [event.line for event in events] == list(range(7))
    assert {event.session for event in events} == {SESSION}
    assert {event.source for event in events} == {"transcript"}
    first, failed, third = (event for event in events if event.is_call)
    assert (first.tool, first.input, first.call_id, first.duration_s) == ("Bash", {"command": "ls"}, "toolu_1", 0.012)
    assert first.response == {"stdout": "a.txt", "stderr": "", "interrupted": False, "durationMs": 12}
    assert (failed.outcome, failed.response) == (Outcome.FAILED, "Exit code 1\nno")
    assert failed.evidence == "structured"
    assert third.response == '{"runs": []}'
    assert (events[1].text, events[1].call_id) == ("train the tiny agent", prompt)
    assert events[5].call_id == f"{end}:end"
    assert first.time == 1772359203.0  # 2026-03-01T10:00:03Z: the line of its result, counted by hand


def test_what_the_client_writes_itself_is_no_prompt(tmp_path: Path) -> None:
    log = Writer()
    log.prompt("Caveat: The messages below were generated", isMeta=True)
    log.prompt("<local-command-stdout>x</local-command-stdout>")
    log.prompt("This session is being continued from", isCompactSummary=True)
    log.prompt("<command-name>/rllm-train</command-name>")
    log.done()
    log.prompt("<task-notification>done</task-notification>")
    log.line("system", subtype="compact_boundary", content="")
    log.line("file-history-snapshot", snapshot={})
    log.line("something-new", payload=[1])
    counts = TranscriptCounts()
    events = list(read_transcript(log.write(session_file(tmp_path)), counts))
    assert kinds(events) == ["session_start", "user_prompt", "turn_end"]
    assert counts.unknown_lines == 7
    assert counts.bad_lines == []


def test_an_interrupted_turn_keeps_its_calls(tmp_path: Path) -> None:
    log = Writer()
    log.prompt("go")
    log.call("toolu_1", "Bash", command="sleep 900")
    log.prompt("[Request interrupted by user for tool use]")
    log.prompt("stop that")
    log.call("toolu_2", "Bash", command="ls")
    events = list(read_transcript(log.write(session_file(tmp_path))))
    assert kinds(events) == ["session_start", "user_prompt", "tool_call", "turn_end", "user_prompt"]
    assert (events[2].outcome, events[2].response) == (Outcome.UNKNOWN, None)  # toolu_2 may still be running


def sub_agent(tools: int, session: str = SESSION, agent: str = AGENT) -> Writer:
    log = Writer(session, agentId=agent, isSidechain=True)
    log.prompt("look around")
    for number in range(tools):
        log.call(f"toolu_{agent}_{number}", "Read", file_path=f"/p/{number}.py")
        log.result(f"toolu_{agent}_{number}", "text", {"type": "text", "file": {"filePath": f"/p/{number}.py"}})
    log.done("found it")
    return log


@pytest.mark.parametrize("place", ["subagents", "beside"])
def test_sub_agents_have_files_of_their_own(tmp_path: Path, place: str) -> None:
    log = Writer()
    log.prompt("explore")
    log.call("toolu_a", "Task", prompt="look around", subagent_type="Explore")
    log.result(
        "toolu_a",
        "found it",
        {"status": "completed", "agentId": AGENT, "totalToolUseCount": 2, "totalDurationMs": 9000},
    )
    log.done()
    path = log.write(session_file(tmp_path))
    folder = tmp_path / SESSION / "subagents" if place == "subagents" else tmp_path
    sub_agent(2).write(folder / f"agent-{AGENT}.jsonl")
    (folder / f"agent-{AGENT}.meta.json").write_text('{"agentType": "Explore"}', encoding="utf-8")
    sub_agent(0, agent="afork").write(folder / "agent-afork.jsonl")
    sub_agent(1, session="f" * 36, agent="aother").write(tmp_path / "agent-aother.jsonl")
    events = list(read_transcript(path))
    assert [(str(event.kind), event.agent) for event in events] == [
        *(("session_start", "main"), ("user_prompt", "main"), ("subagent_start", AGENT), ("tool_call", AGENT)),
        *(("tool_call", AGENT), ("subagent_end", AGENT), ("tool_call", "main"), ("turn_end", "main")),
        ("subagent_end", "afork"),
    ]
    assert {event.session for event in events} == {SESSION}
    assert [event.agent_type for event in events if event.agent_type] == ["Explore", "Explore"]
    forks = HarnessForks()
    ends = {}
    for event in events:
        if event.kind == EventKind.SUBAGENT_START:
            forks.start(event.agent)
        elif event.is_call:
            forks.call(event.agent)
        elif event.kind == EventKind.SUBAGENT_END:
            ends[event.agent] = forks.end(event.agent, event.agent_type)
    assert ends == {AGENT: False, "afork": True}


def test_a_sub_agent_s_file_is_told_with_its_session(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    log = Writer()
    log.prompt("explore")
    path = log.write(session_file(tmp_path))
    inner = sub_agent(1).write(tmp_path / SESSION / "subagents" / f"agent-{AGENT}.jsonl")
    beside = sub_agent(1, agent="aolder").write(tmp_path / "agent-aolder.jsonl")
    alone = sub_agent(1, session="f" * 36, agent="alone").write(tmp_path / "agent-alone.jsonl")
    assert [told_by(one) for one in (path, inner, beside, alone)] == [None, path, path, None]
    assert [import_transcript(one, store).added for one in (inner, beside)] == [0, 0]
    import_transcript(path, store)
    import_transcript(alone, store)
    assert {event.agent for event in store.read(SESSION).events} == {"main", AGENT, "aolder"}
    assert [event.agent for event in store.read("f" * 36).events if event.is_call] == ["alone"]


def test_sidechains_between_the_lines(tmp_path: Path) -> None:
    log = Writer()
    log.prompt("explore")
    log.call("toolu_a", "Task", prompt="x")
    chains = []
    for number in (1, 2):  # two at once, without a name
        root = log.prompt("look around", isSidechain=True, parentUuid=None)
        call = {"type": "tool_use", "id": f"toolu_s{number}", "name": "Grep", "input": {}}
        log.line("assistant", isSidechain=True, parentUuid=root, message={"id": f"m{number}", "content": [call]})
        chains.append(log.rows[-1]["uuid"])
    for number, parent in zip((2, 1), reversed(chains), strict=True):
        log.result(f"toolu_s{number}", "x", isSidechain=True, parentUuid=parent)
    log.result("toolu_a", "found it", {"status": "completed"})
    log.done()
    events = [event for event in read_transcript(log.write(session_file(tmp_path))) if event.is_call]
    assert [event.tool for event in events] == ["Grep", "Grep", "Task"]
    assert events[0].agent != events[1].agent
    assert all(event.agent.startswith("sidechain-") for event in events[:2])
    assert events[2].agent == "main"


def test_a_forked_session_does_not_repeat_its_parent(tmp_path: Path) -> None:
    parent = Writer()
    parent.prompt("go")
    parent.call("toolu_1", "Bash", command="ls")
    parent.result("toolu_1", "x")
    child_id = "11111111-2222-3333-4444-555555555555"
    child = Writer(child_id)
    for row in parent.rows:
        child.rows.append(
            {**row, "sessionId": child_id, "forkedFrom": {"sessionId": SESSION, "messageUuid": row["uuid"]}}
        )
    child.prompt("another way")
    child.call("toolu_2", "Bash", command="pwd")
    child.result("toolu_2", "/")
    counts = TranscriptCounts()
    events = list(read_transcript(child.write(tmp_path / f"{child_id}.jsonl"), counts))
    assert [event.call_id for event in events if event.is_call] == ["toolu_2"]
    assert counts.copied_lines == 3
    assert copied_from(child.rows[0], child_id) == SESSION
    assert copied_from(parent.rows[0], SESSION) is None
    assert first_sessions([("toolu_1", SESSION), ("toolu_1", child_id), ("toolu_2", child_id)]) == {
        "toolu_1": SESSION,
        "toolu_2": child_id,
    }


def test_a_harness_fork_with_copied_calls_counts_none_twice(tmp_path: Path) -> None:
    log = Writer()
    log.prompt("go")
    log.call("toolu_1", "Bash", command="ls")
    log.result("toolu_1", "x")
    log.done()
    path = log.write(session_file(tmp_path))
    copy = Writer(agentId="acompact-1", isSidechain=True)
    copy.rows += [{**row, **copy.always} for row in log.rows]
    copy.write(tmp_path / SESSION / "subagents" / "agent-acompact-1.jsonl")
    assert [event.call_id for event in read_transcript(path) if event.is_call] == ["toolu_1"]


@pytest.mark.parametrize(
    ("agent_type", "started", "calls", "fork"),
    [
        ("", False, 0, True),
        (None, False, 0, True),
        ("Explore", False, 0, False),
        ("", True, 0, False),
        ("", False, 3, False),
    ],
)
def test_what_a_harness_fork_is(agent_type: str | None, started: bool, calls: int, fork: bool) -> None:
    assert is_harness_fork(agent_type, started=started, calls=calls) is fork


def test_importing_again_adds_nothing_and_growth_is_added(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    log = Writer()
    log.prompt("go, my password: hunter2x")
    log.call("toolu_1", "Bash", command="ls")
    path = log.write(session_file(tmp_path))
    assert import_transcript(path, store).added == 2
    log.result("toolu_1", "x")
    log.done()
    log.write(path)
    sub_agent(1).write(tmp_path / SESSION / "subagents" / f"agent-{AGENT}.jsonl")
    second = import_transcript(path, store)
    assert (second.session, second.added, second.known) == (SESSION, 5, 2)
    before = store.file(SESSION).read_bytes()
    third = import_transcript(path, store)
    assert (third.added, third.known) == (0, 7)
    assert store.file(SESSION).read_bytes() == before
    assert b"hunter2x" not in before


def test_what_hooks_recorded_is_not_imported(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    log = Writer()
    log.prompt("before the hooks were there")
    for call_id in ("toolu_1", "toolu_2"):
        log.call(call_id, "Bash", command="ls")
        log.result(call_id, "x")
    log.done()
    path = log.write(session_file(tmp_path))
    hook = {"session_id": SESSION, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "toolu_2"}
    capture(str(tmp_path), json.dumps({**hook, "tool_input": {"command": "ls"}, "tool_response": "x"}).encode())
    imported = import_transcript(path, store)
    assert imported.known == 1
    calls = [event.call_id for event in store.read(SESSION).events if event.is_call]
    assert sorted(call for call in calls if call) == ["toolu_1", "toolu_2"]


@pytest.mark.parametrize("ending", [b"\n", b"", b"\n\n", b'\n{"type":"user","mess'])
def test_bad_lines_cost_themselves(tmp_path: Path, ending: bytes) -> None:
    log = Writer()
    log.prompt("go\u2028there\x85now")
    log.call("toolu_1", "Bash", command="ls")
    log.result("toolu_1", "x")
    path = log.write(session_file(tmp_path))
    lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    lines[1:1] = [b"\xff\xfe", b"[1, 2]", b"null", b'{"type": ', b"\x00", b"[" * 5_000]
    path.write_bytes(b"\n".join(lines) + ending)
    counts = TranscriptCounts()
    events = list(read_transcript(path, counts))
    assert [event.call_id for event in events if event.is_call] == ["toolu_1"]
    assert events[1].text == "go\u2028there\x85now"
    assert counts.bad_lines[:6] == [1, 2, 3, 4, 5, 6]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["user", "assistant", "system", "summary"]) | ANY,
        "uuid": ANY, "parentUuid": ANY, "sessionId": ANY, "timestamp": ANY, "isSidechain": ANY, "agentId": ANY,
        "toolUseResult": ANY | st.fixed_dictionaries({"agentId": ANY, "durationMs": ANY}), "forkedFrom": ANY,
        "subtype": ANY,
        "message": ANY | st.fixed_dictionaries({
            "content": ANY | st.lists(st.fixed_dictionaries({}, optional={
                "type": st.sampled_from(["tool_use", "tool_result", "text"]) | ANY, "id": ANY, "tool_use_id": ANY,
                "name": ANY, "input": ANY, "content": ANY, "text": ANY, "is_error": ANY}), max_size=3),
            "id": ANY, "stop_reason": ANY}),
    },
)  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FIELDS.map(lambda row: json.dumps(row).encode()) | st.binary(max_size=30), max_size=8))
def test_any_lines_are_read_without_a_complaint(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("t")
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(b"\n".join(lines))
    events = list(read_transcript(path))
    assert [event.line for event in events] == list(range(len(events)))
    store = TrajectoryStore(folder / "trajectories")
    first = import_transcript(path, store)
    assert first.added == len(events)
    again = import_transcript(path, store)
    assert (again.added, again.known) == (0, len(events))


def test_reading_streams(tmp_path: Path) -> None:
    log = Writer()
    log.prompt("go")
    log.call("toolu_1", "Bash", command="ls")
    log.result("toolu_1", "x")
    path = log.write(session_file(tmp_path))
    with open(path, "ab") as stream:
        stream.write(b"x" * 1000 + b"\n")
    reading = read_transcript(path)
    assert next(reading).kind == EventKind.SESSION_START
    assert next(reading).text == "go"


# ---- clipping


def test_small_events_are_not_clipped() -> None:
    document = {"tool_response": {"stdout": "x" * FIELD_BYTES, "lines": list(range(MANY))}, "n": 1}
    assert clip(document) == document


def test_a_clipped_text_keeps_head_evidence_and_tail() -> None:
    middle = (
        "noise\n" * 20_000
        + 'Traceback (most recent call last)\n  File "<string>", line 1\nboom\n'
        + "bash: x: command not found\n"
    )
    text = "HEAD\n" + middle + "noise\n" * 20_000 + "TAIL"
    out = clip({"tool_name": "Bash", "tool_response": {"stdout": text, "stderr": ""}})
    clipped = out["tool_response"]["stdout"]
    assert len(clipped.encode()) <= FIELD_BYTES
    assert clipped.startswith("HEAD")
    assert clipped.endswith("TAIL")
    for kept in ('Traceback (most recent call last)\n  File "<string>"', "bash: x: command not found"):
        assert kept in clipped
    (note,) = out[CLIPPED]
    import hashlib

    digest = hashlib.sha256(text.encode()).hexdigest()
    assert note == {"path": ["tool_response", "stdout"], "bytes": len(text), "sha256": digest}
    assert digest in clipped
    assert clip(out) == out


def test_many_members_keep_the_ends() -> None:
    out = clip({"tool_response": {"rows": list(range(10_000)), "map": {str(n): n for n in range(5_000)}}})
    assert out["tool_response"]["rows"][0] == 0
    assert out["tool_response"]["rows"][-1] == 9_999
    assert len(out["tool_response"]["rows"]) == MANY
    assert len(out["tool_response"]["map"]) == MANY
    assert [note["members"] for note in out[CLIPPED]] == [10_000, 5_000]
    assert clip(out) == out


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=3_000), st.integers(1024, 4096))
def test_clipped_texts_fit_and_stay(text: str, limit: int) -> None:
    once = clip_text(text, limit)
    assert len(once.encode("utf-8", "surrogatepass")) <= max(limit, 0)
    assert clip_text(once, limit) == once
    if len(text.encode()) <= limit:
        assert once == text


def test_clipping_leaves_the_outcome() -> None:
    big = "x" * 200_000
    for response in (
        {"stdout": f"Exit code 2\n{big}"},
        {"stdout": "", "stderr": f"{big}\nTraceback (most recent call last):\n{big}"},
    ):
        before = outcome_of("Bash", response)
        assert before[0] == Outcome.FAILED
        assert outcome_of("Bash", clip({"tool_response": response})["tool_response"]) == before
    with pytest.raises(ValueError, match="at least 1024"):
        clip({}, 10)


def test_clipping_leaves_the_outcomes_of_real_sessions() -> None:
    found = corpus.files("sessions/*/events.jsonl")
    if not found:
        pytest.skip(corpus.MISSING)
    clipped = 0
    for path in found:
        for number, line in enumerate(path.read_bytes().split(b"\n")):
            if len(line) < 2048:
                continue
            try:
                document = json.loads(line)
            except ValueError:  # the torn ones
                continue
            short = clip(document, 2048)
            clipped += short != document
            before, after = parse(line, number), parse(json.dumps(short).encode(), number)
            assert (after.outcome, after.evidence, after.reason) == (before.outcome, before.evidence, before.reason)
    assert clipped > 100
