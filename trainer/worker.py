"""The child process: trains one run directory from `config.json` to its final state.

    python -P -m trainer.worker RUN_DIR
    python -P -m trainer.worker --serve --protocol-fd N     run directories on stdin, one line each, answers on fd N
    python -P -m trainer.worker --doctor DEVICE             one real step on a device, JSON on stdout

What it guarantees: the run document ends in a final state whatever Python can still do; a model folder is complete or
absent; an update that is not finite never reaches the weights; SIGTERM and Ctrl-C end the run as `stopped`.
"""

import argparse
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Threads that wait by spinning make every step of two runs on the same cores 10 to 20 times slower; read by the OpenMP
# runtime when torch is loaded, so before it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import psutil

from trainer import parallel
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunState
from trainer.session import Session, Stopped

_signalled: list[int] = []
"""The signals that came."""


def _on_signal(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGTERM, signal.SIGINT):  # once is enough; the last word must be written in peace
        signal.signal(one, signal.SIG_IGN)
    _signalled.append(number)
    raise Stopped(signal.Signals(number).name)


def _handle_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)


def failure_of(error: BaseException) -> Failure:
    """The class of a failure by the exception's type, never by its text."""
    import errno

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
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = "disk_full"
        message = f"the disk is full ({error.filename or 'run directory'}). Free space and start the run again."
    if kind == "oom":
        message = (
            f"out of memory ({message[:200]}). Use fewer or shorter episodes (batch_size, num_generations, "
            "max_completion_tokens), or lora=true."
        )
    return Failure(kind=kind, message=message)


def train_directory(path: Path) -> int:
    """Runs one directory to its final state. Returns an exit status: 0 ended by itself or stopped, 1 failed."""
    directory = RunDirectory(path)
    try:
        session = Session(directory)
        session.run()
        if parallel.is_main():
            session.conclude()
    except Stopped as stopped:
        if parallel.world_size() > 1:
            return _end_among_others(directory, stopped)
        reason = directory.stop_reason() or str(stopped)
        directory.append_event("stopped", reason=reason)
        directory.finish(RunState.STOPPED, stop_reason=reason)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        failure = failure_of(error)
        failure.log_tail = directory.log_tail()
        failure.exit_code = 1
        try:
            if not parallel.is_main():  # its last word is read by rank 0, which is ended by the launcher
                if directory.read_failure() is None:
                    directory.write_failure(failure)
                return 1
            directory.write_failure(failure)
            directory.append_event("failed", kind_of_failure=failure.kind, message=failure.message)
            directory.finish(RunState.FAILED, failure=failure)
        except OSError:
            traceback.print_exc()
        return 1
    return 0


def _end_among_others(directory: RunDirectory, stopped: Stopped) -> int:
    """The last word of one process of several. A signal that nobody asked for comes from the launcher, which ends all
    when one has gone. The status is not 0, so that the launcher ends the others, too."""
    if not parallel.is_main():
        return 1
    reason, failure = directory.stop_reason(), directory.read_failure()
    if reason is None and str(stopped) == "SIGTERM":
        failure = failure or Failure(kind="killed", message="another process of the run was killed or ended.")
        failure.log_tail = directory.log_tail()
        directory.append_event("failed", kind_of_failure=failure.kind, message=failure.message)
        directory.finish(RunState.FAILED, failure=failure)
    else:
        directory.append_event("stopped", reason=reason or str(stopped))
        directory.finish(RunState.STOPPED, stop_reason=reason or str(stopped))
    return 1


def _silence_libraries() -> None:
    import logging
    import warnings

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def serve(protocol: int) -> int:
    """A warm worker: imports first, then runs one directory after another, in this process."""
    import trl  # noqa: F401 - the point of a warm worker

    import trainer.grpo  # noqa: F401

    with os.fdopen(protocol, "w", buffering=1) as answers:
        answers.write("ready\n")
        for line in sys.stdin:
            path = line.strip()
            if not path:
                continue
            status = train_directory(Path(path))
            answers.write(f"{'done' if status == 0 else 'failed'} {path}\n")
            if _signalled:  # the signal meant the process, not only its run
                break
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -P -m trainer.worker", description="Trains a run directory.")
    parser.add_argument("run_dir", nargs="?", type=Path)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--protocol-fd", type=int)
    parser.add_argument("--doctor", metavar="DEVICE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    _handle_signals()
    if arguments.doctor:
        from trainer.doctor import one_step

        print(json.dumps(one_step(arguments.doctor)))
        return 0
    _silence_libraries()
    if arguments.serve:
        if arguments.protocol_fd is None:
            parser.error("--serve needs --protocol-fd")
        try:
            return serve(arguments.protocol_fd)
        except Stopped:  # while it waited for work
            return 0
    if arguments.run_dir is None:
        parser.error("a run directory is needed")
    directory = RunDirectory(arguments.run_dir.absolute())
    if parallel.world_size() == 1:  # of several processes, the launcher's is the run's
        # whoever started it writes this, too, but may die in between
        directory.set_fields(pid=os.getpid(), process_started_at=psutil.Process().create_time())
    return train_directory(directory.path)


if __name__ == "__main__":
    sys.exit(main())
