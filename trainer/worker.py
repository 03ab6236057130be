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

from trainer import last_words, parallel, worker_log
from trainer.runs import processes, supervise
from trainer.runs.rundir import RunDirectory
from trainer.session import Session, Stopped
from trainer.worker_log import say

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


def _only_note_signals() -> None:
    """From here on a signal is remembered and interrupts nothing: last words are being written."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: _signalled.append(number))


def train_directory(path: Path) -> int:
    """Runs one directory to its final state. Returns an exit status: 0 ended by itself or stopped, 1 failed,
    `disk.FULL_STATUS` failed and could not even say so."""
    directory = RunDirectory(path)
    if not parallel.is_main():
        return _train(directory)
    state = directory.read_document().state
    if state.is_final:  # given up (or stopped) by others before this process came up
        say(f"run {directory.run_id} is {state} already")
        return 0
    with worker_log.bounded(directory.log_path):
        say(f"worker {os.getpid()} takes run {directory.run_id}")
        try:
            status = _train(directory)
        finally:
            last_words.release(directory)
        say(f"run {directory.run_id} is over")
    return status


def _train(directory: RunDirectory) -> int:
    try:
        if parallel.is_main():
            last_words.hold_reserve(directory)
        session = Session(directory)
        session.run()
        if parallel.is_main():
            session.conclude()
    except Stopped as stopped:
        _only_note_signals()
        if parallel.world_size() > 1:
            return last_words.stopped_among_others(directory, str(stopped))
        return last_words.stopped(directory, str(stopped))
    except Exception as error:
        _only_note_signals()
        traceback.print_exc()
        sys.stderr.flush()
        return last_words.failed(directory, error)
    return 0


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
            with worker_log.redirected(RunDirectory(Path(path)).log_path):
                status = train_directory(Path(path))
            answers.write(f"{'done' if status == 0 else 'failed'} {path}\n")
            if _signalled:  # the signal meant the process, not only its run
                break
            _handle_signals()
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
        me = processes.identify(os.getpid())
        assert me is not None
        # whoever started it writes this, too, but may die in between
        directory.set_fields(**supervise.process_fields(me))
    return train_directory(directory.path)


if __name__ == "__main__":
    sys.exit(main())
