"""Facts of sessions equal what is written down about them, field by field: made-up sessions by hand, real ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, MADE_UP, MISSING, files

from mcp_server.cli.main import run
from optimizer.facts import FactsError, Format, facts_of

SESSIONS = files("sessions/*/events.jsonl")
HOOKS = files("hooks/**/*.jsonl")


Told = Callable[[Path, str], dict[str, Any]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What the command prints about a file."""

    def ask(path: Path, format: str) -> dict[str, Any]:
        assert run(["trajectories", "facts", str(path), "--format", format, "--json"]) == 0
        facts: dict[str, Any] = json.loads(capsys.readouterr().out)
        return facts

    return ask


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert found[key] == value, key


@pytest.mark.parametrize("name", ["normalised", "outcomes", "hooks"])
def test_made_up_sessions_by_hand(name: str, told: Told) -> None:
    expected = json.loads((MADE_UP / f"{name}.expected.json").read_text(encoding="utf-8"))
    compare(told(MADE_UP / f"{name}.jsonl", expected["source"]), expected)


def test_every_made_up_session_is_tested() -> None:
    assert sorted(path.stem for path in MADE_UP.glob("*.jsonl")) == ["hooks", "normalised", "outcomes"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason=MISSING)
def test_no_real_session_is_left_out() -> None:
    """The tests below are made from the files that are there; fewer files than facts would be fewer tests."""
    assert sorted(path.parent.name for path in SESSIONS) == sorted(path.stem for path in files("expected/*.json"))
    assert sorted(str(path.relative_to(CORPUS / "hooks").with_suffix("")) for path in HOOKS) == sorted(
        str(path.relative_to(CORPUS / "expected_hooks").with_suffix("")) for path in files("expected_hooks/**/*.json")
    )
    assert (len(SESSIONS), len(HOOKS)) == (12, 4)


@pytest.mark.skipif(not SESSIONS, reason=MISSING)
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.parent.name[:8])
def test_real_sessions(path: Path, told: Told) -> None:
    expected = json.loads((CORPUS / "expected" / f"{path.parent.name}.json").read_text(encoding="utf-8"))
    compare(told(path, "normalised"), expected)


@pytest.mark.skipif(not HOOKS, reason=MISSING)
@pytest.mark.parametrize("path", HOOKS, ids=lambda path: f"{path.parent.name}-{path.stem[:8]}")
def test_real_hook_input(path: Path, told: Told) -> None:
    expected = CORPUS / "expected_hooks" / path.relative_to(CORPUS / "hooks").with_suffix(".json")
    compare(told(path, "hooks"), json.loads(expected.read_text(encoding="utf-8")))


def test_a_transcript_has_the_same_keys(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "3f0e8c1a-7c35-4f0a-9d52-0d6a5a1d2b11.jsonl"
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/p/a.py"}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}
    lines = [
        {"type": "user", "message": {"role": "user", "content": "look"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [use]}},
        {"type": "user", "message": {"role": "user", "content": [answer]}, "toolUseResult": {"type": "text"}},
    ]
    common = {"sessionId": path.stem, "timestamp": "2026-03-01T10:00:00.000Z"}
    path.write_text("".join(json.dumps({**common, **line}) + "\n" for line in lines), encoding="utf-8")
    facts = told(path, "transcript")
    expected = json.loads((MADE_UP / "hooks.expected.json").read_text(encoding="utf-8"))
    assert list(facts) == list(expected)
    assert (facts["source"], facts["session"], facts["tools"]) == ("transcript", path.stem, {"Read": 1})
    assert (facts["lines"], facts["files"]["read"]) == (3, ["/p/a.py"])


def test_times_of_arrival_that_hooks_wrote_count(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    # 1772359200 s is 2026-03-01T10:00:00Z
    line = '{{"received_at":{},"session_id":"s","hook_event_name":"Stop"}}\n'
    path.write_text(line.format("1772359200.250000") + line.format("1772359200.000000"))
    assert facts_of(path, Format.HOOKS)["time"] == {
        "first": "2026-03-01T10:00:00+00:00",
        "last": "2026-03-01T10:00:00.250000+00:00",
        "span_seconds": 0.25,
        "steps_back": 1,
        "repeated": 0,
    }


def test_a_file_that_is_not_there_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="is no file"):
        facts_of(tmp_path / "none.jsonl", Format.HOOKS)
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    facts = facts_of(empty, Format.NORMALISED)
    assert (facts["lines"], facts["session"], facts["time"], facts["tools"]) == (0, None, None, {})


def test_damaged_times_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"")
    (tmp_path / "x.times.json").write_text("{")
    with pytest.raises(FactsError, match=r"x\.times\.json is not JSON"):
        facts_of(tmp_path / "x.jsonl", Format.HOOKS)


def test_an_answer_of_grep_is_a_fact_of_failure_but_no_failed_outcome() -> None:
    """The structured rule lists every non-zero exit; the outcome knows that grep answers by it."""
    from optimizer.events import glance

    lines = (MADE_UP / "hooks.jsonl").read_bytes().split(b"\n")
    event = glance(lines[13], 13)
    assert (event.outcome, event.evidence) == ("ok", "answer")
