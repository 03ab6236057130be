"""Retention: what may go, what protects a run, and that carrying out a plan judges again."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from trainer.config import TrainingConfig
from trainer.runs import processes
from trainer.runs.errors import RunError
from trainer.runs.registry import create_run, find_run, list_runs
from trainer.runs.retention import DAY_S, Retention, carry_out, plan_pruning
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

ALL = Retention(keep_last=0, older_than_days=0)


def make(
    workspace: Workspace, run_id: str, *, days: float = 0, state: RunState = RunState.FINISHED, **fields: Any
) -> RunDirectory:
    """A run that ended so many days ago, with an episode file of 1000 bytes and weights of 5000."""
    config = TrainingConfig.model_validate({"model": fields.pop("model", "tiny")})
    directory = create_run(workspace, config, run_id=run_id, **fields)
    (directory.path / "episodes").mkdir()
    (directory.path / "episodes" / "step-000001.jsonl").write_bytes(b"x" * 1000)
    (directory.path / "model").mkdir()
    (directory.path / "model" / "model.safetensors").write_bytes(b"w" * 5000)
    if state.is_final:
        directory.set_fields(state=RunState.RUNNING)
        ended = time.time() - days * DAY_S
        directory.finish(state, ended_at=ended)
        document = directory.read_document().model_dump()
        (directory.path / "run.json").write_text(json.dumps({**document, "created_at": ended - 10}))
    elif state is not RunState.QUEUED:
        directory.set_fields(state=state)
    return directory


def reasons(workspace: Workspace, retention: Retention = ALL, *names: str) -> tuple[set[str], dict[str, str]]:
    plan = plan_pruning(workspace, retention, names)
    return {one.run_id for one in plan.delete}, {one.run_id: one.reason for one in plan.keep}


def test_age_and_number_both_protect(workspace: Workspace) -> None:
    for number, days in enumerate((50, 40, 20, 1)):
        make(workspace, f"r{number}", days=days)
    assert reasons(workspace, Retention(keep_last=1, older_than_days=30))[0] == {"r0", "r1"}
    assert reasons(workspace, Retention(keep_last=3, older_than_days=30))[0] == {"r0"}
    deleted, kept = reasons(workspace, Retention(keep_last=1, older_than_days=45))
    assert deleted == {"r0"}
    assert kept == {"r3": "one of the newest 1", "r2": "ended 20 days ago", "r1": "ended 40 days ago"}


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.STARTING, RunState.RUNNING])
def test_what_has_not_ended_stays_even_when_it_is_named(workspace: Workspace, state: RunState) -> None:
    make(workspace, "r", state=state)
    assert reasons(workspace, ALL, "r") == (set(), {"r": f"is {state}"})


@pytest.mark.parametrize(
    ("where", "document"),
    [
        ("patches/p-1/patch.json", {"finding": {"run_id": "old"}}),
        ("trials/t-1/plan.json", {"scenarios": [{"from": "/home/x/.mcp-evo/runs/old/model"}]}),
        ("rounds/round-000001.json", {"round": 1, "run_id": "old", "state": "closed"}),
        ("rounds/requests/e-1.json", {"evidence": [{"kind": "run", "old": 3}]}),
        ("evaluations/eval-1/plan.json", {"subjects": [{"model": "/w/runs/old/model"}]}),
    ],
)
def test_what_is_referred_to_stays(workspace: Workspace, where: str, document: dict[str, Any]) -> None:
    make(workspace, "old", days=99)
    make(workspace, "other", days=99)
    path = workspace.root / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    for names in ((), ("old", "other")):
        deleted, kept = reasons(workspace, ALL, *names)
        assert deleted == {"other"}
        assert kept == {"old": f"{where} refers to it"}


def test_a_torn_document_still_protects_what_it_names(workspace: Workspace) -> None:
    make(workspace, "old", days=99)
    (workspace.root / "rounds" / "round-000002.json").write_text('{"round": 2, "run_id": "old", "sta')
    assert reasons(workspace)[0] == set()


def test_a_finished_evaluation_does_not_need_the_run_any_more(workspace: Workspace) -> None:
    make(workspace, "old", days=99)
    folder = workspace.root / "evaluations" / "eval-1"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"run_id": "old"}))
    assert reasons(workspace)[0] == set()
    (folder / "result.json").write_text("{}")
    assert reasons(workspace)[0] == {"old"}


def test_a_name_inside_another_word_is_no_reference(workspace: Workspace) -> None:
    make(workspace, "old", days=99)
    (workspace.root / "rounds" / "round-000001.json").write_text(json.dumps({"say": "an old one", "run_id": "older"}))
    assert reasons(workspace)[0] == {"old"}


def test_parents_and_start_models_stay(workspace: Workspace) -> None:
    parent = make(workspace, "parent", days=99)
    start = make(workspace, "start", days=99)
    make(workspace, "child", state=RunState.QUEUED, parent_run=parent.run_id)
    make(workspace, "trained-on", days=1, model=str(start.path / "model"))
    deleted, kept = reasons(workspace)
    assert deleted == {"trained-on"}
    assert kept["parent"] == "run child goes on from it"
    assert kept["start"] == "run trained-on was trained from it"


def test_links_and_unreadable_runs_stay(workspace: Workspace, tmp_path: Path) -> None:
    make(workspace, "broken", days=99).document_path.write_text("{")
    elsewhere = make(workspace, "linked", days=99).path
    os.rename(elsewhere, tmp_path / "elsewhere")
    elsewhere.symlink_to(tmp_path / "elsewhere")
    deleted, kept = reasons(workspace)
    assert deleted == set()
    assert kept["broken"] == "its document cannot be read"
    assert kept["linked"] == "is a link to another place"


def test_a_plan_deletes_nothing_and_carrying_it_out_frees_what_it_says(workspace: Workspace) -> None:
    make(workspace, "old", days=99)
    make(workspace, "new", days=1)
    plan = plan_pruning(workspace, Retention(keep_last=1, older_than_days=30))
    assert {run.document.run_id for run in list_runs(workspace)} == {"old", "new"}
    on_disk = sum(path.stat().st_size for path in (workspace.runs / "old").rglob("*") if path.is_file())
    assert plan.size_bytes == on_disk > 6000
    done = carry_out(workspace, plan)
    assert [one.run_id for one in done.deleted] == ["old"]
    assert done.size_bytes == on_disk
    assert {run.document.run_id for run in list_runs(workspace)} == {"new"}
    assert not list(workspace.runs.glob(".trash-*"))
    assert carry_out(workspace, plan).skipped[0].reason == "is gone already"


def test_results_only_keeps_what_was_measured(workspace: Workspace) -> None:
    directory = make(workspace, "old", days=99)
    directory.append_metrics({"step": 1, "reward_mean": 0.5})
    plan = plan_pruning(workspace, Retention(keep_last=0, older_than_days=0, results_only=True))
    assert plan.size_bytes == 6000
    carry_out(workspace, plan)
    run = find_run(workspace, "old")
    assert run.document.state is RunState.FINISHED
    assert run.directory.metrics() == [{"step": 1, "reward_mean": 0.5}]
    assert run.directory.read_config().model == "tiny"
    assert run.directory.events()[-1]["kind"] == "pruned"
    assert not (directory.path / "episodes").exists()
    assert not (directory.path / "model").exists()
    again = plan_pruning(workspace, Retention(keep_last=0, older_than_days=0, results_only=True))
    assert again.delete == []
    assert again.keep[0].reason == "holds results only"


def test_carrying_out_judges_again(workspace: Workspace) -> None:
    """Between plan and deed a round came to refer to one run, and another one is gone on from."""
    for name in ("a", "b", "c"):
        make(workspace, name, days=99)
    plan = plan_pruning(workspace, ALL)
    (workspace.root / "rounds" / "round-000001.json").write_text(json.dumps({"run_id": "a"}))
    make(workspace, "b2", state=RunState.QUEUED, parent_run="b")
    done = carry_out(workspace, plan)
    assert [one.run_id for one in done.deleted] == ["c"]
    assert {one.run_id: one.reason for one in done.skipped} == {
        "a": "rounds/round-000001.json refers to it",
        "b": "run b2 goes on from it",
    }
    assert {run.document.run_id for run in list_runs(workspace)} == {"a", "b", "b2"}


def test_what_an_interrupted_prune_left_is_cleared_by_the_next(workspace: Workspace) -> None:
    left = workspace.runs / ".trash-old-1-2"
    left.mkdir()
    (left / "file").write_bytes(b"x" * 10)
    plan = plan_pruning(workspace, ALL)
    assert [(one.run_id, one.size_bytes) for one in plan.trash] == [(".trash-old-1-2", 10)]
    carry_out(workspace, plan)
    assert not left.exists()


def test_a_worker_that_still_speaks_its_last_words_is_left_alone(workspace: Workspace) -> None:
    directory = make(workspace, "r")
    me = processes.identify(os.getpid())
    assert me is not None
    document = directory.read_document().model_dump()
    (directory.path / "run.json").write_text(
        json.dumps({**document, "pid": me.pid, "process_started_at": me.started_at})
    )
    assert "its process" in reasons(workspace)[1]["r"]


def test_a_busy_supervisor_means_nothing_is_deleted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace, "old", days=99)
    plan = plan_pruning(workspace, ALL)
    monkeypatch.setattr("trainer.runs.retention.LOCK_TIMEOUT_S", 0.1)
    with FileLock(str(workspace.runs / ".supervise.lock")), pytest.raises(RunError, match="Nothing was deleted"):
        carry_out(workspace, plan)
    assert (workspace.runs / "old").exists()


def test_unknown_runs_are_named(workspace: Workspace) -> None:
    with pytest.raises(RunError, match="no run 'nothing'"):
        plan_pruning(workspace, ALL, ["nothing"])
