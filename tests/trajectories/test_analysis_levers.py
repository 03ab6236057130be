"""Findings of sessions and the levers that the decision table names for them."""

from typing import Any

import pytest
from analysis_helpers import made_up

from optimizer.analyze.detectors import training_facts
from optimizer.analyze.levers import LeverTable
from optimizer.analyze.sessions import with_levers
from optimizer.types import Finding

TABLE = LeverTable(
    {
        "truncation": {
            "lever": "max_completion_tokens", "direction": "up", "factor": 4,
            "candidates": [4, 8], "confidence": "high",
        }
    }
)  # fmt: skip


def co_occurrence() -> Finding:
    (one,) = [f for f in training_facts.detect(made_up("training_facts_yes")) if f.kind == "zero_reward_at_cap"]
    return one


def levered(provenance: dict[str, dict[str, Any]] | None, finding: Finding | None = None) -> Finding:
    asked: list[str] = []

    def provenance_of(run: str) -> dict[str, dict[str, Any]] | None:
        asked.append(run)
        return provenance

    (one,) = with_levers([finding or co_occurrence()], TABLE, provenance_of)
    assert set(asked) <= {"run_41"}
    return one


def test_a_finding_about_a_run_of_ours_names_the_lever() -> None:
    one = levered({"max_completion_tokens": {"source": "policy"}})
    assert one.lever is not None
    assert (one.lever.key, str(one.lever.direction), one.lever.choices) == ("max_completion_tokens", "up", (4.0, 8.0))
    assert (one.run_id, one.blocked) == ("run_41", None)
    assert one.what == co_occurrence().what  # the lever adds no cause to what was seen


@pytest.mark.parametrize("source", ["request", "set", "override"])
def test_what_the_request_fixed_is_blocked(source: str) -> None:
    one = levered({"max_completion_tokens": {"source": source}})
    assert one.blocked is not None
    assert "max_completion_tokens is no lever here" in one.blocked


def test_other_runs_and_other_kinds_have_none() -> None:
    assert levered(None) == co_occurrence()
    still = next(f for f in training_facts.detect(made_up("training_facts_yes")) if f.kind == "still_rising")
    (one,) = with_levers([still], TABLE, lambda run: {})
    assert one.lever is None
