"""Supervision: brings what `run.json` says in line with what the operating system says, and starts what waits.

`tick(workspace)` may be called by any process as often as it likes: command lines and servers that share a workspace
take turns under one lock, so a run is started once and gets its final state once.

How a run that lost its process ends:
1. The worker left its own final state: nothing to do.
2. It left `failure.json`: `failed` with that class.
3. We are its parent: the exit status tells. SIGKILL while the kernel's count of out-of-memory kills rose: `oom`;
   another signal: `killed` (or `crashed` for SIGSEGV and the like); 0 without a final state: `incomplete`.
4. Its parent still lives and may know the status: it is left to the parent for a while.
5. The machine was restarted, or nobody ever knew its process: `lost`.
6. Else it vanished without a word although it reports every exception: `failed` as `killed`.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trainer.config import ConfigError
from trainer.runs import processes
from trainer.runs.errors import RunError
from trainer.runs.processes import ProcessIdentity
from trainer.runs.registry import Run, list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunDocument, RunState
from trainer.runs.workspace import Workspace

PARENT_GRACE_S = 15.0
"""How long a dead worker is left to its living parent, which alone knows the exit status."""

STARTING_GRACE_S = 30.0
"""A run that says `starting` and names no process is being started by someone; after this long, by nobody."""

_CRASH_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}

Starter = Callable[[RunDirectory, Workspace], ProcessIdentity]
"""Starts the worker of a queued run."""


@dataclass
class TickReport:
    """What one look at the workspace changed."""

    started: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    """Runs that got a final state."""
    queued: list[str] = field(default_factory=list)
    """Runs that wait, the first in line first."""
    skipped: bool = False
    """Another process was at it."""


def tick(workspace: Workspace, start: Starter, *, lock_timeout_s: float = 0.0) -> TickReport:
    """One look: settles dead runs, starts queued ones while slots are free."""
    report = TickReport()
    lock = FileLock(str(workspace.runs / ".supervise.lock"), timeout=lock_timeout_s, mode=0o600)
    try:
        with lock:
            _settle_and_start(workspace, start, report)
    except Timeout:
        report.skipped = True
    return report


def _settle_and_start(workspace: Workspace, start: Starter, report: TickReport) -> None:
    active = 0
    queue: list[Run] = []
    for run in list_runs(workspace):
        state = run.document.state
        if state.is_final:
            continue
        if state is RunState.QUEUED:
            if not _is_held(run.document):
                queue.append(run)
            elif _settle_held(run.directory, run.document):
                report.settled.append(run.directory.run_id)
        elif reconcile(run.directory).state.is_final:
            report.settled.append(run.directory.run_id)
        else:
            active += 1
    queue.sort(key=lambda run: (run.document.created_at, run.document.run_id))
    config = workspace.config()
    for run in queue:
        if run.directory.stop_reason() is not None:
            run.directory.finish(RunState.STOPPED, stop_reason=run.directory.stop_reason())
            report.settled.append(run.directory.run_id)
        elif active < config.max_concurrent_runs:
            if _start(run.directory, workspace, start, config.keep_free_mb):
                report.started.append(run.directory.run_id)
                active += 1
            else:
                report.settled.append(run.directory.run_id)
        else:
            report.queued.append(run.directory.run_id)


def _start(directory: RunDirectory, workspace: Workspace, start: Starter, keep_free_mb: int) -> bool:
    """Starts one run; a run that cannot be started ends as failed, so that the queue goes on."""
    free_mb = shutil.disk_usage(directory.path).free // 2**20
    if free_mb < keep_free_mb:
        message = (
            f"{free_mb} MB are free in {workspace.root}, {keep_free_mb} MB are wanted. "
            f"Free some space, or lower keep_free_mb in {workspace.config_path}, and start again."
        )
        directory.finish(RunState.FAILED, failure=Failure(kind="disk_full", message=message))
        return False
    try:
        mark_starting(directory)
        identity = start(directory, workspace)
    except (RunError, ConfigError, OSError) as error:
        directory.finish(RunState.FAILED, failure=Failure(kind="launch", message=str(error)))
        return False
    record_process(directory, identity)
    return True


def mark_starting(directory: RunDirectory) -> None:
    """State `starting`, before the process exists."""
    me = processes.identify(os.getpid())
    directory.set_fields(
        state=RunState.STARTING,
        started_at=time.time(),
        launcher_pid=None if me is None else me.pid,
        launcher_started_at=None if me is None else me.started_at,
        oom_kills_before=processes.oom_kills(),
    )


def record_process(directory: RunDirectory, identity: ProcessIdentity) -> None:
    """Notes which process the run is."""
    directory.set_fields(pid=identity.pid, process_started_at=identity.started_at)


def identity_of(document: RunDocument) -> ProcessIdentity | None:
    """The process a run document names."""
    if document.pid is None or document.process_started_at is None:
        return None
    return ProcessIdentity(document.pid, document.process_started_at)


def _launcher(document: RunDocument) -> ProcessIdentity | None:
    extra = document.model_extra or {}
    pid, started = extra.get("launcher_pid"), extra.get("launcher_started_at")
    if isinstance(pid, int) and isinstance(started, (int, float)):
        return ProcessIdentity(pid, float(started))
    return None


def _is_held(document: RunDocument) -> bool:
    return bool((document.model_extra or {}).get("held"))


def _settle_held(directory: RunDirectory, document: RunDocument) -> bool:
    """A run that a pool holds in its own queue is lost when the pool's process is gone."""
    holder = _launcher(document)
    if holder is not None and processes.is_alive(holder):
        return False
    message = "the process that was about to run it has ended. Start it again with the same request."
    directory.finish(RunState.LOST, failure=Failure(kind="lost", message=message))
    return True


def held_by_this_process() -> dict[str, Any]:
    """Fields of a queued run that this process will start itself (a pool): no supervisor starts it."""
    me = processes.identify(os.getpid())
    assert me is not None
    return {"held": True, "launcher_pid": me.pid, "launcher_started_at": me.started_at}


def settle_answered(directory: RunDirectory, *, succeeded: bool) -> RunDocument:
    """The final state of a run whose warm worker lives on and said `done` or `failed`."""
    document = directory.read_document()
    if document.state.is_final:
        return document
    asked = directory.stop_reason()
    word = directory.read_failure()
    tail = directory.log_tail()
    if word is not None:
        return directory.finish(RunState.FAILED, failure=word.model_copy(update={"log_tail": tail}))
    if asked is not None:
        return directory.finish(RunState.STOPPED, stop_reason=asked)
    said = "done" if succeeded else "failed"
    message = f"the worker said `{said}` without saying how the run went."
    return directory.finish(RunState.FAILED, failure=Failure(kind="incomplete", message=message, log_tail=tail))


def reconcile(directory: RunDirectory) -> RunDocument:
    """The document of a run, brought in line with its process. A queued or final one is returned as it is."""
    document = directory.read_document()
    if document.state.is_final or document.state is RunState.QUEUED:
        return document
    identity = identity_of(document)
    if identity is None:
        began = document.started_at or document.created_at
        if 0 <= time.time() - began < STARTING_GRACE_S:
            return document
        return directory.finish(
            RunState.LOST,
            failure=Failure(kind="lost", message="whoever started it went away before its process was known."),
        )
    if processes.is_alive(identity):
        return document
    # the process is gone: read again, as its last act may have been to write its final state
    document = directory.read_document()
    if document.state.is_final:
        return document
    return _settle(directory, document, identity)


def _settle(directory: RunDirectory, document: RunDocument, identity: ProcessIdentity) -> RunDocument:
    tail = directory.log_tail()
    word = directory.read_failure()
    status = processes.exit_status(identity)
    if word is not None:
        failure = word.model_copy(update={"exit_code": status, "log_tail": tail})
        return directory.finish(RunState.FAILED, failure=failure)
    asked = directory.stop_reason()
    if asked is not None and (status is None or status in (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT)):
        return directory.finish(RunState.STOPPED, stop_reason=asked)
    if status is None:
        if _left_to_launcher(directory, document, identity):
            return document
        if processes.boot_time() > identity.started_at + 1.0:
            message = "the machine was restarted while it ran. Start it again with the same request."
            return directory.finish(RunState.LOST, failure=Failure(kind="restart", message=message, log_tail=tail))
    failure = classify_exit(status, oom_before=(document.model_extra or {}).get("oom_kills_before"))
    return directory.finish(RunState.FAILED, failure=failure.model_copy(update={"log_tail": tail}))


def _left_to_launcher(directory: RunDirectory, document: RunDocument, identity: ProcessIdentity) -> bool:
    """Whether the worker's parent, still alive, shall have the first word."""
    launcher = _launcher(document)
    if launcher is None or launcher.pid == os.getpid() or not processes.is_alive(launcher):
        return False
    last_sign = max(identity.started_at, _mtime(directory.heartbeat_path), _mtime(directory.log_path))
    return 0 <= time.time() - last_sign < PARENT_GRACE_S


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def classify_exit(status: int | None, *, oom_before: int | None = None) -> Failure:
    """What an exit status says about a worker that left no word. By status only, never by the text of its log."""
    if status is None:
        return Failure(
            kind="killed",
            message="the worker vanished without a word: it was killed (kill -9, out of memory) or crashed hard. "
            "The last lines of its log are below.",
        )
    if status == -signal.SIGKILL:
        now = processes.oom_kills()
        if oom_before is not None and now is not None and now > oom_before:
            return Failure(
                kind="oom",
                message="the kernel killed the worker for want of memory. Lower batch_size, num_generations or "
                "max_completion_tokens, or set lora=true.",
                exit_code=status,
            )
        return Failure(kind="killed", message="the worker was killed (SIGKILL).", exit_code=status)
    if status < 0:
        number = signal.Signals(-status) if -status in signal.valid_signals() else None
        name = number.name if number is not None else f"signal {-status}"
        kind = "crashed" if number in _CRASH_SIGNALS else "killed"
        return Failure(kind=kind, message=f"the worker was ended by {name}.", exit_code=status)
    if status == 0:
        return Failure(kind="incomplete", message="the worker ended without saying how the run went.", exit_code=0)
    return Failure(kind="exit", message=f"the worker ended with exit status {status}.", exit_code=status)


def stop_run(
    directory: RunDirectory,
    *,
    reason: str = "user",
    stop_grace_s: float = processes.STOP_GRACE_S,
    term_grace_s: float = processes.TERM_GRACE_S,
) -> RunDocument:
    """Ends a run: STOP file, SIGTERM, SIGKILL, each after its grace. A run that has ended is returned as it is."""
    document = reconcile(directory)
    if document.state.is_final:
        return document
    directory.request_stop(reason)
    document = directory.read_document()
    identity = identity_of(document)
    if identity is None:
        if document.state is RunState.QUEUED:
            return directory.finish(RunState.STOPPED, stop_reason=reason)
        return document
    if not _final_within(directory, identity, stop_grace_s):
        processes.terminate(identity, term_grace_s=term_grace_s)
    document = reconcile(directory)
    if not document.state.is_final and not processes.is_alive(identity):
        document = directory.finish(RunState.STOPPED, stop_reason=reason)
    return document


def _final_within(directory: RunDirectory, identity: ProcessIdentity, timeout_s: float) -> bool:
    """Waits for the process to end, or, for a warm worker that lives on, for the run to be over."""
    deadline = time.monotonic() + timeout_s
    while processes.is_alive(identity):
        if directory.read_document().state.is_final:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True
