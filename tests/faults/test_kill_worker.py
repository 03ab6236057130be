"""kill -9 of the worker at any moment: the run ends as killed, can be read, and its successor goes on exactly there."""

import random
import time

import pytest
from fault_helpers import MakeScripted, check_readable, check_workspace, go_on, kill_now, outcome, settled, until

from trainer.runs.checkpoints import complete_checkpoints
from trainer.runs.launch import LocalLauncher
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace

STEPS = 12
KILLS = 20
AT_ONCE = 5
"""Runs that are killed side by side."""


@pytest.mark.slow
def test_twenty_kills_at_random_moments(workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted) -> None:
    workspace.config_path.write_text(f"max_concurrent_runs: {AT_ONCE}\nkeep_free_mb: 1\n")
    script = {"steps": STEPS, "pause_s": 0.02, "weights_bytes": 200_000}
    whole = make_run("whole", **script)
    began = time.monotonic()
    assert settled(workspace, launcher, whole).state is RunState.FINISHED
    lasts = time.monotonic() - began
    reference = outcome(whole)
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    phases = set()
    for first in range(0, KILLS, AT_ONCE):
        runs = [make_run(f"k{first + number}", **script) for number in range(AT_ONCE)]
        began = time.monotonic()
        launcher.tick(workspace)
        # several share the processor, so each takes longer than the one alone
        due = sorted((moments.uniform(0, 2.0 * lasts), number) for number in range(AT_ONCE))
        for moment, number in due:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            kill_now(runs[number])
        for directory in runs:
            document = settled(workspace, launcher, directory)
            check_readable(directory)
            saved = complete_checkpoints(directory.path / "checkpoints")
            phases.add((str(document.state), bool(saved)))
            if document.state is RunState.FINISHED:  # it was over before its moment came
                assert outcome(directory) == reference
                continue
            assert document.state is RunState.FAILED, (seed, document)
            assert document.failure is not None
            assert (document.failure.kind, document.failure.exit_code) == ("killed", -9), seed
            assert outcome(go_on(workspace, launcher, directory)) == reference, seed
    assert ("failed", True) in phases or ("failed", False) in phases, "no run was killed: the moments are wrong"
    check_workspace(workspace)


def test_the_log_tells_how_far_a_killed_worker_came(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted
) -> None:
    directory = make_run(steps=1000, pause_s=0.05)
    launcher.tick(workspace)
    until(lambda: directory.read_document().step >= 1)
    kill_now(directory)
    failure = settled(workspace, launcher, directory).failure
    assert failure is not None
    assert any("takes run" in line for line in failure.log_tail)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "heartbeat"])
def test_a_writer_that_dies_with_a_lock_or_a_temporary_file_blocks_nobody(
    workspace: Workspace, launcher: LocalLauncher, make_run: MakeScripted, name: str
) -> None:
    """What kill -9 leaves of an atomic write is a temporary file; of a lock, a file that nobody holds."""
    directory = make_run(steps=3)
    (directory.path / f".{name}.abcd1234.tmp").write_bytes(b'{"run_id": "ha')
    (directory.path / f"{name}.lock").touch()
    (workspace.runs / ".supervise.lock").touch()
    (workspace.runs / f".{directory.run_id}-2.{2**22}.new").mkdir()  # a run that was being created
    assert settled(workspace, launcher, directory).state is RunState.FINISHED
    check_workspace(workspace)
