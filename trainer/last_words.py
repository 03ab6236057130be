"""What a worker writes last: why its run ended, as far as the disk lets it.

A run holds a small reserve of space while it goes on and gives it back for its last words; what it was writing when the
disk was full (half a checkpoint, half a model) goes first. A worker that can write nothing at all says so by its exit
status.
"""

import os
import shutil
import sys
import traceback
from pathlib import Path

from skill_bank.files import write_json_atomic
from trainer import parallel
from trainer.runs import checkpoints, disk
from trainer.runs.process_folder import ProcessFolder
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunState
from trainer.session import MODEL_STAGING

RESERVE_BYTES = 1 << 16
"""More than run document, failure and events need at the end."""


def failure_of(error: BaseException) -> Failure:
    """The class of a failure by the exception's type, never by its text."""
    kind = type(error).__name__
    message = " ".join(str(error).split()) or kind
    known = {
        "ModelFault": "model",
        "TemplateFault": "model",
        "EnvironmentFault": "environment",
        "DataFault": "data",
        "ConfigError": "config",
        "NonFinite": "nonfinite",
        "PreflightFault": "preflight",
        "MemoryError": "oom",
        "OutOfMemoryError": "oom",
    }
    if kind in known:
        kind = known[kind]
    elif isinstance(error, disk.DiskFull):
        kind = "disk_full"
    elif isinstance(error, OSError) and disk.is_disk_error(error):
        kind = "disk_full"
        message = f"{error.strerror} ({error.filename or 'the folder of the run'}). Free some space."
    if kind == "oom":
        message = (
            f"out of memory ({message[:200]}). Use fewer or shorter episodes (batch_size, num_generations, "
            "max_completion_tokens), or lora=true."
        )
    return Failure(kind=kind, message=message)


def note_failure(folder: ProcessFolder, error: BaseException) -> None:
    """The last word of an evaluation or a set of tasks that did not work; the traceback goes to its log."""
    traceback.print_exception(error)
    sys.stderr.flush()
    failure = failure_of(error)
    failure.exit_code = 1
    failure.log_tail = folder.log_tail()
    write_json_atomic(folder.failure_path, failure.model_dump(mode="json"))


def stopped(directory: RunDirectory, signal_name: str) -> int:
    """The last word of a run that somebody ended. Returns the exit status."""
    if directory.read_document().state.is_final:  # the signal came after the last word
        return 0
    reason = directory.stop_reason() or signal_name
    try:
        directory.append_event("stopped", reason=reason)
        directory.finish(RunState.STOPPED, stop_reason=reason)
    except OSError as error:
        return failed(directory, error)
    return 0


def stopped_among_others(directory: RunDirectory, signal_name: str) -> int:
    """The last word of one process of several. A signal that nobody asked for comes from the launcher, which ends all
    when one has gone. The status is not 0, so that the launcher ends the others, too."""
    if not parallel.is_main():
        return 1
    reason, failure = directory.stop_reason(), directory.read_failure()
    if reason is None and signal_name == "SIGTERM":
        failure = failure or Failure(kind="killed", message="another process of the run was killed or ended.")
        failure.log_tail = directory.log_tail()
        directory.append_event("failed", kind_of_failure=failure.kind, message=failure.message)
        directory.finish(RunState.FAILED, failure=failure)
    else:
        directory.append_event("stopped", reason=reason or signal_name)
        directory.finish(RunState.STOPPED, stop_reason=reason or signal_name)
    return 1


def failed(directory: RunDirectory, error: Exception) -> int:
    """The last word of a run that failed. Returns the exit status."""
    failure = failure_of(error)
    if failure.kind == type(error).__name__ and disk.is_full(directory.path):  # a library hid the errno
        message = f"the disk is full ({failure.kind}: {failure.message}). Free some space."
        failure = Failure(kind="disk_full", message=message)
    if failure.kind == "disk_full":
        failure.message += f" Go on then with: mcp-evo runs resume {directory.run_id}"
    failure.log_tail = directory.log_tail()
    failure.exit_code = 1
    if not parallel.is_main():  # its last word is read by rank 0, which is ended by the launcher
        if directory.read_failure() is None:
            directory.write_failure(failure)
        return 1
    if failure.kind == "disk_full":
        _make_room(directory)
    said = False
    status = 1
    for word in (
        lambda: directory.write_failure(failure),
        lambda: directory.finish(RunState.FAILED, failure=failure),
        lambda: directory.append_event("failed", kind_of_failure=failure.kind, message=failure.message),
    ):
        try:
            word()
            said = True  # one of the first two is enough for whoever looks next
        except OSError as problem:
            traceback.print_exc()
            if not said and disk.is_disk_error(problem):
                status = disk.FULL_STATUS
    return 1 if said else status


def hold_reserve(directory: RunDirectory) -> None:
    """Space that a full disk cannot take away from the run's last words. Raises OSError where there is none."""
    with open(_reserve(directory), "wb") as stream:
        stream.write(os.urandom(RESERVE_BYTES))  # nothing that a file system could store without room
        stream.flush()
        os.fsync(stream.fileno())


def release(directory: RunDirectory) -> None:
    """Gives the reserve back."""
    _reserve(directory).unlink(missing_ok=True)


def _reserve(directory: RunDirectory) -> Path:
    return directory.path / ".reserve"


def _make_room(directory: RunDirectory) -> None:
    """Gives back what the run holds and nobody needs: its reserve, and what it was writing when the disk was full."""
    release(directory)
    shutil.rmtree(directory.path / MODEL_STAGING, ignore_errors=True)
    checkpoints.drop_incomplete(directory.path / "checkpoints")
