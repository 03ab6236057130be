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

A run whose starter died before it was known which process the run is, is looked for among the processes; where there is
none, nothing was done yet, and it goes back to the queue.

A final state that cannot be written, because the disk is full, is what the caller sees all the same; it is found again
by the next look, and written once there is room.
"""

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trainer.config import ConfigError
from trainer.runs import disk, processes
from trainer.runs.errors import RunError
from trainer.runs.processes import ProcessIdentity
from trainer.runs.registry import Run, list_runs
from trainer.runs.rundir import RunDirectory, ended
from trainer.runs.types import Failure, RunDocument, RunState
from trainer.runs.workspace import Workspace

PARENT_GRACE_S = 15.0
"""How long a dead worker is left to its living parent, which alone knows the exit status."""

STARTING_GRACE_S = 30.0
"""A run that says `starting` and names no process is being started by someone; after this long, by nobody."""

ORPHAN_GRACE_S = 2.0
"""The same where that someone is dead: a process that it forked as its last act has its command line by then."""

MAX_STARTS = 3
"""A run that came to nothing so often is not tried again: perhaps it is what kills those who start it."""

logger = logging.getLogger(__name__)

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
    faults: list[str] = field(default_factory=list)
    """Runs that could not be looked at, each with the reason: the others are looked at all the same."""


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
        try:
            if state is RunState.QUEUED:
                if not _is_held(run.document):
                    queue.append(run)
                elif _settle_held(run.directory, run.document):
                    report.settled.append(run.directory.run_id)
                continue
            document = _found_again(run.directory, run.document)
            if document.state is RunState.QUEUED:
                queue.append(Run(run.directory, document))
            elif reconcile(run.directory).state.is_final:
                report.settled.append(run.directory.run_id)
            else:
                active += 1
        except (RunError, OSError) as error:
            report.faults.append(f"{run.directory.run_id}: {error}")
            logger.warning("run %s cannot be supervised: %s", run.directory.run_id, error)
            active += 1  # whether it runs is not known: its slot is not given away
    queue.sort(key=lambda run: (run.document.created_at, run.document.run_id))
    config = workspace.config()
    for run in queue:
        if run.directory.stop_reason() is not None:
            conclude(run.directory, RunState.STOPPED, stop_reason=run.directory.stop_reason())
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
    try:
        disk.require_free(directory.path, keep_free_mb)
        mark_starting(directory, keep_free_mb=keep_free_mb)
        identity = start(directory, workspace)
    except (RunError, ConfigError, OSError) as error:
        kind = "disk_full" if disk.is_disk_error(error) else "launch"
        conclude(directory, RunState.FAILED, failure=Failure(kind=kind, message=str(error)))
        return False
    try:
        record_process(directory, identity)
    except OSError as error:
        if not disk.is_disk_error(error):
            raise
        logger.warning("run %s has started, which cannot be noted: %s", directory.run_id, error)  # the worker notes it
    return True


def _found_again(directory: RunDirectory, document: RunDocument) -> RunDocument:
    """A run that says `starting` and names no process: with its process, where it has one, else queued again.

    Only for callers that hold the supervisors' lock: nobody is in the middle of starting it.
    """
    starter = _launcher(document)
    if document.state is not RunState.STARTING or identity_of(document) is not None or _is_held(document):
        return document
    if starter is None:
        return document
    if _is_being_started(document, STARTING_GRACE_S if processes.is_alive(starter) else ORPHAN_GRACE_S):
        return document
    found = processes.find_detached(str(directory.path))
    if found is not None:
        return directory.set_fields(**process_fields(found))
    starts = (document.model_extra or {}).get("starts", 1)
    if starts >= MAX_STARTS:
        message = f"whoever started it ended or gave up before its worker was up, {starts} times. Look into its log."
        return conclude(directory, RunState.FAILED, failure=Failure(kind="launch", message=message))
    return directory.set_fields(state=RunState.QUEUED, started_at=None)


def conclude(directory: RunDirectory, state: RunState, **fields: Any) -> RunDocument:
    """`RunDirectory.finish`; on a full disk the document as it would be, so that a look still tells the truth."""
    try:
        return directory.finish(state, **fields)
    except OSError as error:
        if not disk.is_disk_error(error):
            raise
        logger.warning("the end of run %s cannot be written: %s", directory.run_id, error)
        return ended(directory.read_document(), state, **fields)


def mark_starting(directory: RunDirectory, *, keep_free_mb: int | None = None) -> None:
    """State `starting`, before the process exists."""
    starts = (directory.read_document().model_extra or {}).get("starts", 0)
    directory.set_fields(
        starts=starts + 1,
        state=RunState.STARTING,
        started_at=time.time(),
        starting_since=time.monotonic(),
        keep_free_mb=keep_free_mb,
        oom_kills_before=processes.oom_kills(),
        **_launched_by_this_process(),
    )


def record_process(directory: RunDirectory, identity: ProcessIdentity) -> None:
    """Notes which process the run is."""
    directory.set_fields(**process_fields(identity))


def process_fields(identity: ProcessIdentity) -> dict[str, Any]:
    """The fields of a run document that name its process."""
    return {"pid": identity.pid, "process_started_at": identity.started_at, "process_mark": identity.mark}


def identity_of(document: RunDocument) -> ProcessIdentity | None:
    """The process a run document names."""
    if document.pid is None or document.process_started_at is None:
        return None
    return ProcessIdentity(document.pid, document.process_started_at, document.process_mark)


def _launched_by_this_process() -> dict[str, Any]:
    me = processes.identify(os.getpid())
    assert me is not None
    return {"launcher_pid": me.pid, "launcher_started_at": me.started_at, "launcher_mark": me.mark}


def _launcher(document: RunDocument) -> ProcessIdentity | None:
    extra = document.model_extra or {}
    pid, started, mark = (extra.get(f"launcher_{name}") for name in ("pid", "started_at", "mark"))
    if isinstance(pid, int) and isinstance(started, (int, float)):
        return ProcessIdentity(pid, float(started), mark if isinstance(mark, str) else None)
    return None


def _is_held(document: RunDocument) -> bool:
    return bool((document.model_extra or {}).get("held"))


def _settle_held(directory: RunDirectory, document: RunDocument) -> bool:
    """A run that a pool holds in its own queue is lost when the pool's process is gone."""
    holder = _launcher(document)
    if holder is not None and processes.is_alive(holder):
        return False
    message = "the process that was about to run it has ended. Start it again with the same request."
    conclude(directory, RunState.LOST, failure=Failure(kind="lost", message=message))
    return True


def held_by_this_process() -> dict[str, Any]:
    """Fields of a queued run that this process will start itself (a pool): no supervisor starts it."""
    return {"held": True, **_launched_by_this_process()}


def settle_answered(directory: RunDirectory, *, succeeded: bool) -> RunDocument:
    """The final state of a run whose warm worker lives on and said `done` or `failed`."""
    document = directory.read_document()
    if document.state.is_final:
        return document
    asked = directory.stop_reason()
    word = directory.read_failure()
    tail = directory.log_tail()
    if word is not None:
        return conclude(directory, RunState.FAILED, failure=word.model_copy(update={"log_tail": tail}))
    if asked is not None:
        return conclude(directory, RunState.STOPPED, stop_reason=asked)
    said = "done" if succeeded else "failed"
    failure = Failure(kind="incomplete", message=f"the worker said `{said}` without saying how the run went.")
    if not succeeded and disk.is_full(directory.path):
        failure = classify_exit(disk.FULL_STATUS)
    return conclude(directory, RunState.FAILED, failure=failure.model_copy(update={"log_tail": tail}))


def reconcile(directory: RunDirectory) -> RunDocument:
    """The document of a run, brought in line with its process. A queued or final one is returned as it is."""
    document = directory.read_document()
    if document.state.is_final or document.state is RunState.QUEUED:
        return document
    identity = identity_of(document)
    if identity is None:
        starter = _launcher(document)
        if _is_being_started(document, STARTING_GRACE_S) or (starter is not None and not _is_held(document)):
            return document  # the latter is for `tick`, which may start it again
        return conclude(
            directory,
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
        return conclude(directory, RunState.FAILED, failure=failure)
    asked = directory.stop_reason()
    if asked is not None and (status is None or status in (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT)):
        return conclude(directory, RunState.STOPPED, stop_reason=asked)
    if status is None:
        if _left_to_launcher(directory, document, identity):
            return document
        if identity.is_from_before_restart:
            message = f"the machine was restarted while it ran. Go on with: mcp-evo runs resume {directory.run_id}"
            return conclude(directory, RunState.LOST, failure=Failure(kind="restart", message=message, log_tail=tail))
    failure = classify_exit(status, oom_before=(document.model_extra or {}).get("oom_kills_before"))
    return conclude(directory, RunState.FAILED, failure=failure.model_copy(update={"log_tail": tail}))


def _is_being_started(document: RunDocument, grace_s: float) -> bool:
    """Whether someone may still be about to name the process of a run that says `starting`.

    Counted on the clock that runs since the machine was started (`time.monotonic` is one for all its processes): the
    time of day may be set meanwhile.
    """
    since = (document.model_extra or {}).get("starting_since")
    if isinstance(since, int | float):
        return 0 <= time.monotonic() - since < grace_s
    return 0 <= time.time() - (document.started_at or document.created_at) < grace_s


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
    if status == disk.FULL_STATUS:
        message = "the disk is full: the worker could not even write its last word. Free some space, then resume it."
        return Failure(kind="disk_full", message=message, exit_code=status)
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
            return conclude(directory, RunState.STOPPED, stop_reason=reason)
        return document
    if not _final_within(directory, identity, stop_grace_s):
        processes.terminate(identity, term_grace_s=term_grace_s)
    document = reconcile(directory)
    if not document.state.is_final and not processes.is_alive(identity):
        document = conclude(directory, RunState.STOPPED, stop_reason=reason)
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
