"""Events, outcomes, redaction and the store: three sources, one model; one bad byte costs one line."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.events import BadEvent, Event, EventKind, parse, to_line, tool_call
from optimizer.ids import BadId, check_id, content_id
from optimizer.outcome import Outcome, outcome_of
from optimizer.redact import redact, redact_text
from optimizer.store import TrajectoryStore


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    return TrajectoryStore(tmp_path / "trajectories")


def call(session: str = "s1", tool: str = "Read", **more: Any) -> Event:
    return tool_call(session, tool, more.pop("input", {}), more.pop("response", {"ok": True}), time=1.0, **more)


def test_own_form_round_trip() -> None:
    event = call(run_id="run-1", duration_s=0.5, input={"name": "rllm-config"})
    assert parse(to_line(event), 4) == msgspec.structs.replace(event, line=4)


def test_three_sources_in_one_model() -> None:
    hook = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "Bash", "tool_response": {"stdout": "x"}}
    assert parse(json.dumps(hook).encode(), 0).outcome == Outcome.OK
    failure = {**hook, "hook_event_name": "PostToolUseFailure", "error": "no such file", "agent_id": "a7"}
    event = parse(json.dumps(failure).encode(), 3)
    assert (event.kind, event.outcome, event.agent, event.line) == (EventKind.TOOL_FAILURE, Outcome.FAILED, "a7", 3)
    assert event.reason == "PostToolUseFailure: no such file"
    old = {
        "type": "tool_call",
        "session_id": "s",
        "conversation_id": "s",
        "timestamp": "2026-05-13T06:26:31+00:00",
        "tool_name": "Skill",
        "tool_input": {"skill": "rllm-train"},
    }
    event = parse(json.dumps(old).encode(), 0)
    assert event.agent == "main"
    # 2026-05-13T06:26:31Z in Unix seconds
    assert event.time == 1778653591.0
    prompt = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "/rllm-train 64 题"}
    assert parse(json.dumps(prompt).encode(), 0).text == "/rllm-train 64 题"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"a": 1}',
        b'{"kind": 3, "session": "s"}',
        b"\xff{}",
        b'{"hook_event_name": "Stop", "session_id": null}',
    ],
)
def test_what_is_no_event_is_a_bad_line(line: bytes) -> None:
    with pytest.raises(BadEvent):
        parse(line, 0)


@pytest.mark.parametrize(
    ("tool", "response", "expected"),
    [
        ("Bash", {"stdout": "3 failed, 2 passed\nerror: see log"}, Outcome.OK),
        ("Bash", "Exit code 1\nboom", Outcome.FAILED),
        ("Bash", {"stdout": "Exit code 0"}, Outcome.OK),
        ("Bash", {"stderr": "Traceback (most recent call last)\n"}, Outcome.FAILED),
        ("Bash", {"stdout": "", "returnCodeInterpretation": "No matches found"}, Outcome.OK),
        ("Edit", "<tool_use_error>not found", Outcome.FAILED),
        ("x", {"success": False, "error": "nope"}, Outcome.FAILED),
        ("x", {"success": True, "error": "old"}, Outcome.OK),
        ("x", {"error": "nope"}, Outcome.FAILED),
        ("x", {"exitCode": 0}, Outcome.OK),
        ("x", {"exit_code": 2}, Outcome.FAILED),
        ("x", {"exit_code": True}, Outcome.OK),
        ("x", [{"type": "text"}, {"isError": True}], Outcome.FAILED),
        ("WebFetch", {"code": 404}, Outcome.FAILED),
        ("Agent", {"status": "completed"}, Outcome.OK),
        ("Agent", {"status": "aborted"}, Outcome.FAILED),
        ("x", {"interrupted": True}, Outcome.FAILED),
        ("x", None, Outcome.UNKNOWN),
        ("x", {}, Outcome.UNKNOWN),
    ],
)
def test_outcome_from_structured_evidence(tool: str, response: Any, expected: Outcome) -> None:
    assert outcome_of(tool, response)[0] is expected


SECRETS = [
    "sk-ant-api03-" + "a1B2" * 8,
    "AKIA" + "ABCDEFGH12345678",
    "ghp_" + "a1b2c3d4" * 4,
    "hf_" + "abcdEFGH" * 4,
    "AIza" + "Sy0123456789" * 3,
    "xoxb-" + "123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "abcdef123456",
    "glpat-" + "abcdefgh12345678",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_known_shapes_never_reach_the_disk(store: TrajectoryStore, secret: str) -> None:
    store.append(
        call(
            input={"command": f"curl -H 'X: {secret}' https://x", "list": [secret]},
            response=f"key={secret}",
            reason=secret,
        )
    )
    data = store.file("s1").read_bytes()
    assert secret.encode() not in data
    assert b"[redacted:" in data


def test_redaction_by_field_and_assignment() -> None:
    assert redact({"api_key": "abc", "n": 3, "max_tokens": 5}) == {
        "api_key": "[redacted:field]",
        "n": 3,
        "max_tokens": 5,
    }
    assert redact_text("password: hunter22 next") == "password: [redacted:value] next"
    assert redact_text('"DB_PASSWORD": "hunter22"') == '"DB_PASSWORD": "[redacted:value]"'
    assert redact_text("Authorization: Bearer abcdef0123456789") == "Authorization: Bearer [redacted:bearer]"
    assert redact_text("https://me:secret99@host/x") == "https://[redacted:url-password]@host/x"
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
    assert redact_text(f"a {key} b") == "a [redacted:private-key] b"


def test_ordinary_text_is_kept() -> None:
    text = "tokens_model 512, token loss .3, the secret of success; max_tokens=256 /path/to:file a@b.example"
    assert redact_text(text) == text


def test_ids() -> None:
    assert check_id("a-1_b", "run") == "a-1_b"
    for bad in ("", "..", "a/b", "A", "-a", "a" * 65, "a\n"):
        with pytest.raises(BadId):
            check_id(bad, "run")
    assert content_id("a", "b") != content_id("ab")


def test_store_reads_only_what_is_new(store: TrajectoryStore) -> None:
    store.append(call())
    first = store.read("s1")
    store.append(call(tool="Edit"))
    second = store.read("s1", first.position)
    assert [(event.line, event.tool) for event in second.events] == [(1, "Edit")]
    assert store.read("s1", second.position).events == []


def test_a_replaced_file_is_read_again(store: TrajectoryStore) -> None:
    for _ in range(3):
        store.append(call())
    position = store.read("s1").position
    path = store.file("s1")
    path.write_bytes(to_line(call(tool="New")) + b"\n")
    batch = store.read("s1", position)
    assert batch.restarted
    assert [event.tool for event in batch.events] == ["New"]


def test_one_bad_byte_costs_one_line(store: TrajectoryStore) -> None:
    store.append(call())
    with open(store.file("s1"), "ab") as stream:
        stream.write(b'{"kind": "tool_call", "session": "s1", "tool": "\xff"}\n\xe2\x80\xa8\n{"torn": ')
    store.append(call(tool="Last"))
    batch = store.read("s1")
    assert [(event.line, event.tool) for event in batch.events] == [(0, "Read"), (4, "Last")]
    assert batch.bad_lines == [1, 2, 3]


def test_sessions(store: TrajectoryStore) -> None:
    with pytest.raises(BadId, match="no session"):
        store.resolve(None)
    store.append(call("evolve-1"))
    store.append(call("evolve-2"))
    assert store.sessions() == ["evolve-1", "evolve-2"]
    assert store.resolve(None) == "evolve-2"
    assert store.resolve("evolve-1") == "evolve-1"
    with pytest.raises(BadId, match="several"):
        store.resolve("evolve")
    with pytest.raises(BadId, match="not a recorded"):
        store.resolve("x")
    with pytest.raises(BadId):
        store.append(call("../x"))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_a_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    store = TrajectoryStore(tmp_path_factory.mktemp("any"))
    path = store.file("s")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    batch = store.read("s")
    complete = data.count(b"\n")
    blank = sum(not line.strip() for line in data.split(b"\n")[:complete])
    assert len(batch.events) + len(batch.bad_lines) + blank == complete


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "hook_event_name",
                "kind",
                "type",
                "session",
                "session_id",
                "tool_name",
                "tool_input",
                "tool_response",
                "time",
            ]
        ),
        json_values,
    )
)
def test_any_json_is_an_event_or_a_bad_line(document: dict[str, Any]) -> None:
    try:
        event = parse(json.dumps(document).encode(), 0)
    except BadEvent:
        return
    assert event.kind in set(EventKind)
    parse(to_line(event), 0)


def test_fields_of_the_wrong_type_are_left_out() -> None:
    odd = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": [], "tool_use_id": 3, "prompt": {}}
    event = parse(json.dumps(odd).encode(), 0)
    assert (event.tool, event.call_id, event.text) == (None, None, None)
    assert parse(to_line(event), 0) == event
