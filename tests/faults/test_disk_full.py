"""A disk that fills up in the middle: the run ends as `failed: disk_full`, stays readable, and goes on once there is
room."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_helpers import MakeScripted, check_readable, check_workspace, go_on, outcome, settled, until

from skill_bank import files
from trainer.runs import disk, supervise
from trainer.runs.checkpoints import complete_checkpoints
from trainer.runs.launch import LocalLauncher
from trainer.runs.pool import WorkerPool
from trainer.runs.registry import list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import Workspace, create_workspace

STEPS = 6


def check_full(document: RunDocument, directory: RunDirectory) -> None:
    assert document.state is RunState.FAILED
    assert document.failure is not None
    assert document.failure.kind == "disk_full", document.failure
    assert document.failure.log_tail
    assert "run" in document.failure.message
    check_readable(directory)
    assert not (directory.path / ".reserve").exists()
    assert not list(directory.path.glob(".*.tmp"))


def reference(make_run: MakeScripted, workspace: Workspace, launcher: LocalLauncher) -> RunDirectory:
    whole = make_run("whole", root=workspace, steps=STEPS)
    assert settled(workspace, launcher, whole).state is RunState.FINISHED
    return whole


def test_free_space_is_looked_at_and_a_checkpoint_is_kept(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    whole = reference(make_run, workspace, launcher)
    directory = make_run("low", steps=STEPS, low_at=4)
    document = settled(workspace, launcher, directory)
    check_full(document, directory)
    assert document.failure is not None
    assert "keep_free_mb" in document.failure.message
    assert document.step == 4
    assert next(path.name for path in complete_checkpoints(directory.path / "checkpoints")) == "checkpoint-4"
    assert [event["kind"] for event in directory.events()][-3:] == ["disk_low", "checkpoint", "failed"]
    resumed = go_on(workspace, launcher, directory, low_at=10**6)
    assert outcome(resumed) == outcome(whole)


@pytest.mark.parametrize("hide_errno", [False, True], ids=["OSError", "RuntimeError"])
@pytest.mark.parametrize("limit", [100_000, 300_000])
def test_a_file_that_may_not_grow(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, hide_errno: bool, limit: int
) -> None:
    """RLIMIT_FSIZE: saving fails as on a full disk, other writes succeed; libraries hide the errno."""
    directory = make_run(steps=STEPS, weights_bytes=400_000, file_limit_bytes=limit, hide_errno=hide_errno)
    check_full(settled(workspace, launcher, directory), directory)
    assert not (directory.path / "checkpoints" / "checkpoint-1").exists(), "half a checkpoint takes space for nothing"
    go_on(workspace, launcher, directory, file_limit_bytes=None)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB; skipped where this process may not mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, launcher: LocalLauncher, make_run: MakeScripted) -> None:
    workspace = create_workspace(small_disk / "ws")
    workspace.config_path.write_text("keep_free_mb: 0\n")
    whole = reference(make_run, workspace, launcher)
    ballast = small_disk / "ballast"
    script = {"steps": STEPS, "fill": str(ballast), "weights_bytes": 300_000}
    directory = make_run("full", root=workspace, **script)
    check_full(settled(workspace, launcher, directory), directory)
    assert disk.free_mb(small_disk) == 0 or ballast.stat().st_size
    check_workspace(workspace)
    ballast.unlink()
    resumed = go_on(workspace, launcher, directory, fill=str(small_disk / "more"), weights_bytes=1000)
    assert outcome(resumed)[0][:64] == outcome(whole)[0][:64]


def fill(path: Path) -> None:
    """Takes every byte that is left."""
    with open(path, "ab", buffering=0) as stream:
        for size in (65536, 4096, 1):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError:
                continue


def test_others_fill_the_disk_until_not_a_byte_is_left(
    small_disk: Path, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    """Not even the supervisor can write: looks tell the truth all the same, and it is written once there is room."""
    workspace = create_workspace(small_disk / "ws")
    workspace.config_path.write_text("keep_free_mb: 0\nmax_concurrent_runs: 2\n")
    directory, other = (make_run(name, root=workspace, steps=10_000, pause_s=0.02) for name in ("a", "b"))
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1 and other.read_document().step >= 1)
    fill(small_disk / "ballast")
    for one in (directory, other):
        document = settled(workspace, launcher, one)
        assert document.state is RunState.FAILED
        assert document.failure is not None
        assert document.failure.kind == "disk_full"
    assert len(list_runs(workspace)) == 2
    check_workspace(workspace)
    (small_disk / "ballast").unlink()
    launcher.tick(workspace)
    for one in (directory, other):
        assert one.read_document().state is RunState.FAILED
        check_readable(one)


def test_a_final_state_that_cannot_be_written_is_told_and_written_later(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make_run(steps=1000, pause_s=0.05)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    identity = supervise.identity_of(directory.read_document())
    assert identity is not None
    os.kill(identity.pid, 9)
    real = os.fsync

    def no_room(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_room)
    document = settled(workspace, launcher, directory)
    assert document.failure is not None
    assert document.failure.kind == "killed"
    assert directory.read_document().state is RunState.RUNNING
    monkeypatch.setattr(files.os, "fsync", real)
    launcher.tick(workspace)
    assert directory.read_document().failure == document.failure
    check_readable(directory)


def test_a_line_that_did_not_fit_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines.jsonl"
    files.append_json(path, {"n": 1})
    real = os.write
    monkeypatch.setattr(files.os, "write", lambda handle, data: real(handle, data[: len(data) // 2]))
    with pytest.raises(OSError, match="bytes were written"):
        files.append_json(path, {"n": 2})
    monkeypatch.setattr(files.os, "write", real)
    files.append_json(path, {"n": 3})
    assert [row for _, row in files.read_json_lines(path).rows] == [{"n": 1}, {"n": 3}]
    assert files.read_json_lines(path).bad_lines == []


def test_a_pool_goes_on_after_a_run_that_could_not_be_recorded(workspace: Workspace, make_run: MakeScripted) -> None:
    from fault_helpers import SCRIPTED_WORKER

    with WorkerPool(1, folder=workspace.root, command=SCRIPTED_WORKER, keep_free_mb=1) as pool:
        gone = make_run("gone")
        gone.document_path.unlink()
        lost, full, good = pool.submit(gone.path), pool.submit(make_run(low_at=2).path), pool.submit(make_run().path)
        until(lambda: lost.done and full.done and good.done)
    document = full.wait()
    assert document is not None
    check_full(document, full.directory)
    assert good.directory.read_document().state is RunState.FINISHED
    assert any("gone" in reason for reason in pool.start_failures)
    assert any("takes run" in line for line in good.directory.log_tail()), "a warm worker writes each run's own log"
