"""Outcomes with their evidence: rules by hand, and the hand labels of real calls."""

import json
from typing import Any

import pytest
from corpus import CORPUS, MADE_UP, MISSING, files

from optimizer.events import BadEvent, glance, parse
from optimizer.outcome import Evidence, Outcome, judge

LABELS = CORPUS / "labels.json"


def bash(command: str, stdout: str, stderr: str = "") -> tuple[str, str | None]:
    """(outcome, evidence) of a shell call that printed something and has no structured failure."""
    found = judge("Bash", {"command": command}, {"stdout": stdout, "stderr": stderr, "interrupted": False})
    return str(found.outcome), None if found.evidence is None else str(found.evidence)


@pytest.mark.parametrize(
    ("command", "stdout", "reason"),
    [
        ("tmux new; echo ok", "/bin/bash: line 1: tmux: command not found\nok", "/bin/bash: line 1: tmux: command not"),
        ("cat a b | head", "one\ncat: b: No such file or directory", "cat: b: No such file or directory"),
        ("git status; ls", "fatal: not a git repository", "fatal: not a git repository"),
        ("python3 -c 'x' | head", 'Traceback (most recent call last):\n  File "<string>", line 1', "python traceback"),
        # a warning before the complaint is passed over
        (
            "locale; nope",
            "bash: line 1: warning: setlocale: No such file or directory\nbash: line 2: nope: command not found",
            "bash: line 2: nope: command not found",
        ),
    ],
)
def test_masked_failures(command: str, stdout: str, reason: str) -> None:
    found = judge("Bash", {"command": command}, {"stdout": stdout, "stderr": ""})
    assert (found.outcome, found.evidence) == (Outcome.FAILED, Evidence.MASKED)
    assert found.reason is not None
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("command", "stdout", "evidence"),
    [
        ("cat train.log", 'Traceback (most recent call last):\n  File "train.py", line 3', None),
        ("cat train.log", "step 3\nError: run failed", None),
        ("tail -n 5 x.log | grep -c Error", "12 failed, error: none", None),
        ("echo done", "  bash: x: command not found", None),
        ("ls", "bash: warning: setlocale: cannot change locale: No such file or directory", None),
        # the command provides for a file that is not there yet
        ("ls out 2>&1 || echo 'not yet'", "ls: cannot access 'out': No such file or directory\nnot yet", "probe"),
        ("sleep 30; tail -5 run.log", "tail: cannot open 'run.log' for reading: No such file or directory", "probe"),
        ("if cat f; then echo y; fi", "cat: f: No such file or directory", "probe"),
        ("export LC_ALL=x; ls", "bash: line 1: warning: setlocale: LC_ALL: No such file or directory", "probe"),
        # an inline program prints what it observes
        ("python3 - <<'E'\nprint(env.step())\nE", "Error: division by zero", None),
    ],
)
def test_no_failures(command: str, stdout: str, evidence: str | None) -> None:
    assert bash(command, stdout) == ("ok", evidence)


def test_what_a_program_reports_of_itself() -> None:
    assert bash("python compile.py --name x 2>&1; ls out", "Error: archive already exists\nout") == (
        "failed",
        "reported",
    )
    assert bash("python3 << 'E'\nrun()\nE", "one\nError generating patch for x: no section")[1] == "reported"
    assert bash("cat log; python compile.py", "Error: archive already exists")[1] is None


@pytest.mark.parametrize(
    ("command", "response", "outcome"),
    [
        ("grep -q a b", "Exit code 1", "ok"),
        ("cd x && diff a b", "Exit code 1", "ok"),
        ("test -f ready", "Exit code 1", "ok"),
        ("grep -q a b", "Exit code 2", "failed"),
        ("grep -q a b", "Exit code 1\ngrep: b: No such file", "failed"),
        ("make; grep a b; make test", "Exit code 1", "failed"),
    ],
)
def test_an_exit_status_may_be_an_answer(command: str, response: str, outcome: str) -> None:
    assert judge("Bash", {"command": command}, response).outcome == outcome


def test_a_failure_by_hook_is_judged_the_same_way() -> None:
    line = {
        "session_id": "s", "hook_event_name": "PostToolUseFailure", "tool_name": "Bash",
        "tool_input": {"command": "pgrep vllm"}, "error": "Exit code 1",
    }  # fmt: skip
    assert parse(json.dumps(line).encode(), 0).outcome == "ok"
    line["error"] = "Exit code 127"
    assert parse(json.dumps(line).encode(), 0).outcome == "failed"


def test_unknown_is_an_outcome_of_its_own() -> None:
    for response in (None, "", [], {}):
        assert judge("x", {}, response).outcome is Outcome.UNKNOWN
    document: dict[str, Any] = {"type": "tool_call", "session_id": "s", "tool_name": "x"}
    for response, outcome in (({}, "unknown"), ({"file": {}}, "ok"), ({"a": {"tool_response": {}}}, "ok")):
        line = json.dumps({**document, "tool_response": response}).encode()
        assert glance(line, 0).outcome == parse(line, 0).outcome == outcome


def test_outcomes_of_a_made_up_session_by_hand() -> None:
    """Each rule once, beside a call that only looks like it."""
    lines = (MADE_UP / "outcomes.jsonl").read_bytes().rstrip(b"\n").split(b"\n")
    structured, masked, probes = {0, 1, 4, 7, 11, 13, 15, 16, 18, 28}, {22, 23}, {24, 26}
    for number, line in enumerate(lines):
        event = parse(line, number)
        if not event.is_call:
            continue
        failed = number in structured or number in masked
        expected = (
            "structured" if number in structured else "masked" if failed else "probe" if number in probes else None
        )
        assert (event.outcome, event.evidence) == ("failed" if failed else "ok", expected), number
        assert glance(line, number).outcome == event.outcome


def test_a_bad_byte_is_seen_wherever_it_stands() -> None:
    """Also in a field that neither reading looks at: all readers agree which lines are bad."""
    good = '{"type":"tool_call","session_id":"s","tool_name":"Read","tool_input":{"x":"é"},"files":["é"]}'.encode()
    assert parse(good, 0).tool == glance(good, 0).tool == "Read"
    for bad in (good[:-4] + b"\xc3" + good[-3:], good.replace("é".encode(), b"\xe9", 1)):
        for read in (parse, glance):
            with pytest.raises(BadEvent):
                read(bad, 0)


@pytest.mark.skipif(not LABELS.is_file(), reason=MISSING)
def test_hand_labels_of_real_calls() -> None:
    """Every call that a person judged failed is found, with its kind of evidence, and nothing else is called failed."""
    kinds = {"structured": "structured", "masked": None, "partial": "masked", "reported": "reported"}
    labels = json.loads(LABELS.read_text(encoding="utf-8"))["dev"]
    assert labels.keys() == {path.parent.name for path in files("sessions/*/events.jsonl")}
    assert sum(one["class"] in kinds for judged in labels.values() for one in judged) > 5
    for session, judged in labels.items():
        lines = (CORPUS / "sessions" / session / "events.jsonl").read_bytes().split(b"\n")
        events = {number: parse(line, number) for number, line in enumerate(lines) if line}
        failed = {number: event.evidence for number, event in events.items() if event.failed}
        expected = {one["line"]: one["class"] for one in judged if one["class"] in kinds}
        assert failed.keys() == expected.keys(), session
        for number, kind in expected.items():
            assert events[number].reason
            if kind == "masked":
                assert failed[number] in ("masked", "reported")
            else:
                assert failed[number] == kinds[kind]
