"""Real sessions: what an analyser should find is found, with its lines; what it must not claim is never stated."""

import json
import re
from functools import cache
from typing import Any

import pytest
from analysis_helpers import CORPUS, real

from optimizer.analyze.detectors import detect_all
from optimizer.types import EventEvidence, Finding

SESSIONS = (
    "135c222b", "472ed3d1", "6214de23", "6993a6c8", "8ce6c2e9", "963e86e3", "a0b54372", "a44b0afc", "a47aefca",
    "bdb99b87", "c9e55d1b", "cdfa290b",
)  # fmt: skip


def cited(finding: Finding) -> set[int]:
    return {one.line for one in finding.evidence if isinstance(one, EventEvidence)}


def all_in(session: str) -> tuple[Finding, ...]:
    real(session)  # skips where the corpus is absent
    return _all_in(session)


@cache
def _all_in(session: str) -> tuple[Finding, ...]:
    return tuple(detect_all(real(session)))


def found_in(session: str, kind: str) -> list[Finding]:
    return [one for one in all_in(session) if one.kind == kind]


def test_reward_swings_together_with_the_length_cap() -> None:
    told = found_in("6993a6c8", "zero_reward_at_cap")
    assert {85, 94} <= {line for one in told for line in cited(one)}
    assert any("0 in 2 of 4 steps" in one.what and "192" in one.what and "not a cause" in one.what for one in told)


def test_the_gradient_norm_is_stated_without_a_cause() -> None:
    (one,) = found_in("6993a6c8", "gradient_norm_high")
    assert {85, 95} <= cited(one)
    assert "71.2500" in one.what
    assert "145.0000" in one.what
    assert not re.search(r"learning|lr|because|too high", one.what)


def test_the_score_still_rises_at_the_end() -> None:
    told = [one for one in found_in("cdfa290b", "still_rising") if "_r9" in one.what]
    assert any(86 in cited(one) and "0.7783, 0.7915, 0.8003" in one.what and "split train" in one.what for one in told)


def test_the_report_that_nobody_measured() -> None:
    told = found_in("bdb99b87", "unverified_claim")
    assert {15, 16} <= {line for one in told for line in cited(one)}
    assert any("0.1964" in one.what for one in told)
    (missing,) = [one for one in found_in("bdb99b87", "data_missing") if "reward_trend" in one.what]
    assert {10, 11} <= cited(missing)


def test_the_seed_that_never_reached_the_command() -> None:
    told = [one for one in found_in("cdfa290b", "config_not_launched") if "seed" in one.what]
    assert [cited(one) >= lines for one, lines in zip(told, ({22, 23}, {103, 104}), strict=True)] == [True, True]


def test_runs_that_are_compared_and_differ() -> None:
    told = found_in("cdfa290b", "not_like_for_like")
    (eight_nine,) = [one for one in told if "_r8 and" in one.what and "_r9 are" in one.what]
    assert "max_response_length 512 → 1024" in eight_nine.what
    assert {12, 23} <= cited(eight_nine)


@pytest.mark.parametrize(
    ("session", "line", "crash"),
    [
        ("6993a6c8", 74, "out of memory"), ("6993a6c8", 80, "out of memory"), ("6993a6c8", 209, "missing module"),
        ("6214de23", 89, "out of memory"), ("6214de23", 108, "out of memory"), ("6214de23", 152, "out of memory"),
        ("963e86e3", 11, "missing module"), ("a44b0afc", 102, "killed"), ("a44b0afc", 173, "killed"),
    ],
)  # fmt: skip
def test_crashes_that_the_sessions_show(session: str, line: int, crash: str) -> None:
    assert any(line in cited(one) and f"({crash})" in one.what for one in found_in(session, "launch_crash"))


FORBIDDEN = {
    "r1-7b-3": r"converge|premature",
    "r1-1": r"DistBackend",
    "r1-2": r"1780248991.*(?:0\.0000|truncat)",
    "r1-3": r"1780249675.*(?:worse|\b32 samples are)",
    "r1-4": r"(?:lr|learning_rate).*(?:raised|improv|2\.6)",
    "r1-5": r"silent|silence",
    "r9-2": r"same configuration",
    "r9-3": r"seed.*(?:explains|jump)",
    "r9-5": r"(?:no validation|not measured|did not fire)",
    "r9-8": r"\bwill\b|reach",
    "r10-1": r"training.failed",
}


def test_nothing_that_must_not_be_claimed_is_stated() -> None:
    texts = [one.what for session in SESSIONS for one in all_in(session) if one.kind != "unverified_claim"]
    for item, pattern in FORBIDDEN.items():
        assert not [text for text in texts if re.search(pattern, text, re.IGNORECASE)], item


def test_the_list_of_items_is_the_one_tested_here() -> None:
    path = CORPUS / "findings.json"
    if not path.exists():
        pytest.skip(f"no corpus at {CORPUS}")
    document: dict[str, Any] = json.loads(path.read_text())
    must_not = {one["id"] for one in document["claims"] if one["use_as"] == "must_not_claim"}
    should = {one["id"] for one in document["claims"] if one["use_as"] == "should_find"}
    assert must_not == set(FORBIDDEN)
    assert should == {"r1-7b-1", "r1-7b-2", "r9-6"}
    assert {one["id"] for one in document["findings"]} == {"f-invented-report", "f-seed-unused"}


@pytest.mark.parametrize("session", SESSIONS)
def test_every_finding_cites_lines_that_exist(session: str) -> None:
    view = real(session)
    lines = {event.line for event in view.events}
    for one in all_in(session):
        assert cited(one)
        assert cited(one) <= lines
        assert one.what
        assert "because" not in one.what.split(":")[0]
