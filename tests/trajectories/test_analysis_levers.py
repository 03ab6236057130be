"""Findings of sessions and the levers that the decision table names for them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from analysis_helpers import DATA, made_up

from mcp_server.findings.evidence import analyse_layer
from mcp_server.findings.proposing import propose_from_finding
from mcp_server.state import ServerState
from optimizer.analyze.detectors import training_facts
from optimizer.analyze.levers import LeverTable
from optimizer.analyze.sessions import with_levers
from optimizer.home import Home
from optimizer.types import Finding
from trainer.config import TrainingConfig
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

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


def test_a_finding_of_a_session_becomes_a_staged_patch(tmp_path: Path) -> None:
    """From tool output of a session over finding and lever to a patch that is scoped to the run's model and task."""
    root = tmp_path / "work"
    home = Home.create(root)
    directory = RunDirectory(root / "runs" / "run_41")
    document = RunDocument(run_id="run_41", state=RunState.FINISHED, created_at=0, provenance={})
    directory.create(document, TrainingConfig(model="tiny", env="calculator"))
    folder = root / "trajectories" / "raw" / "plain"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "training_facts_yes.jsonl", folder / "events.jsonl")
    state = ServerState(root)
    report = analyse_layer(state, "plain").report
    found = next(one for one in report.findings if one.kind == "zero_reward_at_cap")
    assert found.lever is not None
    assert (found.run_id, found.lever.key, found.blocked) == ("run_41", "max_completion_tokens", None)
    assert report.findings[0].lever is not None  # what can be acted on comes first
    patch = propose_from_finding(state, found.id)
    assert patch.skill == "rllm-config"
    assert patch.scope is not None
    assert patch.scope["env"] == "calculator"
    assert home.patches.read(patch.patch_id).finding is not None
