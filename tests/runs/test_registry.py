"""Finding runs: by id, by a beginning, the latest one; damaged ones are listed, not hidden."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_helpers import MakeRun

from trainer.runs import registry
from trainer.runs.errors import RunError, WorkspaceError
from trainer.runs.registry import config_hash, create_run, find_run, latest_run, list_runs, new_run_id
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
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


def wait_until_settled() -> None:
    time.sleep(2 * registry.SETTLED_NS / 1e9)


def test_a_document_that_did_not_change_is_not_read_again(
    workspace: Workspace, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def reading(directory: RunDirectory) -> RunDocument:
        read.append(directory.run_id)
        return RunDocument.model_validate_json(directory.document_path.read_bytes())

    for number in range(5):
        make_run(f"run-{number}")
    monkeypatch.setattr(RunDirectory, "read_document", reading)
    wait_until_settled()
    first = list_runs(workspace)
    assert sorted(read) == [f"run-{number}" for number in range(5)]
    read.clear()
    assert list_runs(workspace) == first
    assert read == []
    os.utime(first[0].directory.document_path)
    assert list_runs(workspace) == first
    assert read == [first[0].directory.run_id]


def test_a_run_that_ended_is_looked_at_now_and_then(workspace: Workspace, make_run: MakeRun) -> None:
    directory = make_run("over")
    directory.finish(RunState.STOPPED)
    wait_until_settled()
    assert list_runs(workspace)[0].document.state is RunState.STOPPED
    directory.document_path.write_text("{")
    time.sleep(1.2 * registry.ENDED_EVERY_S)
    assert list_runs(workspace)[0].document.state is RunState.LOST


def test_a_document_that_changes_while_its_time_stands_still_is_read_each_time(
    workspace: Workspace, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the files is taken to be as coarse as can be: nothing but the age of a change can be relied on."""
    directory = make_run("quick")
    path = directory.document_path
    for step in range(100, 200):  # of one length, in the same file
        text = path.read_text()
        with open(path, "r+", encoding="utf-8") as stream:
            stream.write(json.dumps({**json.loads(text), "step": step}).ljust(len(text) + 8))
        assert list_runs(workspace)[0].document.step == step


def test_what_another_process_changes_is_seen_by_the_next_look(workspace: Workspace, make_run: MakeRun) -> None:
    directory = make_run("shared")
    wait_until_settled()
    assert [run.document.step for run in list_runs(workspace)] == [0]
    assert [run.document.step for run in list_runs(workspace)] == [0]
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trainer.runs.rundir import RunDirectory\n"
        "directory = RunDirectory(Path(sys.argv[1]))\n"
        "for line in sys.stdin:\n"
        "    directory.set_fields(step=int(line))\n"
        "    print('written', flush=True)\n"
    )
    command = [sys.executable, "-P", "-c", script, str(directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for step in range(11, 31):
            other.stdin.write(f"{step}\n")
            other.stdin.flush()
            assert other.stdout.readline() == "written\n"
            assert list_runs(workspace)[0].document.step == step
            if step % 10 == 0:
                wait_until_settled()
        other.stdin.close()
    assert other.returncode == 0


def test_runs_that_come_go_and_break_are_seen_by_the_next_look(workspace: Workspace, make_run: MakeRun) -> None:
    make_run("one")
    broken = make_run("two")
    wait_until_settled()
    assert len(list_runs(workspace)) == 2
    whole = broken.document_path.read_bytes()
    broken.document_path.write_text("{")
    for _ in range(2):  # what cannot be read is tried again each time
        states = {run.directory.run_id: run.document.state for run in list_runs(workspace)}
        assert states == {"one": RunState.QUEUED, "two": RunState.LOST}
        wait_until_settled()
    broken.document_path.write_bytes(whole)
    assert {run.document.state for run in list_runs(workspace)} == {RunState.QUEUED}
    os.rename(broken.path, workspace.root / "elsewhere")
    assert [run.directory.run_id for run in list_runs(workspace)] == ["one"]
    make_run("three")
    assert {run.directory.run_id for run in list_runs(workspace)} == {"one", "three"}


def test_only_some_workspaces_stay_known(tmp_path: Path) -> None:
    for number in range(2 * registry.MAX_WORKSPACES):
        (tmp_path / str(number) / "runs").mkdir(parents=True)
        assert list_runs(Workspace(tmp_path / str(number))) == []
    assert len(registry._known) == registry.MAX_WORKSPACES
    assert list_runs(Workspace(tmp_path / "nowhere")) == []
