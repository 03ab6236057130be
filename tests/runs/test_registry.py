"""Finding runs: by id, by a beginning, the latest one; damaged ones are listed, not hidden."""

import pytest
from run_helpers import MakeRun

from trainer.runs.errors import RunError, WorkspaceError
from trainer.runs.registry import config_hash, create_run, find_run, latest_run, list_runs, new_run_id
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace, check_id
from trainer.settings import resolve


def test_new_ids_are_ids_and_sort_by_time() -> None:
    ids = [new_run_id(1_700_000_000 + 60 * i) for i in range(20)]
    assert ids == sorted(ids)
    # 32 random bits: fifty of one second collide once in four million times (with 16 bits it was once in fifty)
    fifty = [check_id(new_run_id(1_700_000_000)) for _ in range(50)]
    assert len(set(fifty)) == 50
    assert {len(one.rsplit("-", 1)[1]) for one in fifty} == {8}


def test_runs_are_listed_newest_first_and_found(workspace: Workspace, make_run: MakeRun) -> None:
    for name, created in (("b-old", 1.0), ("a-new", 2.0)):
        directory = make_run(name)
        directory.set_fields(created_at=created)
    assert [run.document.run_id for run in list_runs(workspace)] == ["a-new", "b-old"]
    assert latest_run(workspace).document.run_id == "a-new"
    assert find_run(workspace).document.run_id == "a-new"
    assert find_run(workspace, "latest").document.run_id == "a-new"
    assert find_run(workspace, "b-old").document.run_id == "b-old"
    assert find_run(workspace, "b").document.run_id == "b-old"


def test_an_unknown_run_is_one_clear_error(workspace: Workspace, make_run: MakeRun) -> None:
    with pytest.raises(RunError, match="no runs in"):
        find_run(workspace)
    make_run("run-one")
    make_run("run-two")
    with pytest.raises(RunError, match=r"no run 'run-onee'.*Did you mean run-one.*mcp-evo runs list"):
        find_run(workspace, "run-onee")
    with pytest.raises(RunError, match="begins the ids of 2 runs"):
        find_run(workspace, "run-")
    with pytest.raises(WorkspaceError, match="not a run id"):
        find_run(workspace, "../../etc/passwd")


def test_a_damaged_run_is_listed_as_lost_with_the_reason(workspace: Workspace, make_run: MakeRun) -> None:
    directory = make_run("broken")
    directory.document_path.write_text("{")
    make_run("whole")
    (workspace.runs / "no-run").mkdir()
    (workspace.runs / "file").write_text("")
    runs = {run.directory.run_id: run.document for run in list_runs(workspace)}
    assert set(runs) == {"broken", "whole"}
    assert runs["broken"].state is RunState.LOST
    assert runs["broken"].failure is not None
    assert runs["broken"].failure.kind == "unreadable"


def test_a_run_cannot_be_called_latest(workspace: Workspace) -> None:
    with pytest.raises(RunError, match="latest"):
        create_run(workspace, resolve("tiny").config, run_id="latest")


def test_the_hash_tells_configurations_apart() -> None:
    one, two = resolve("seed 1").config, resolve("seed 2").config
    assert config_hash(one) == config_hash(resolve("seed 1").config)
    assert config_hash(one) != config_hash(two)
