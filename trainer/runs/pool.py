"""Warm workers: processes that have done their imports and take one run after another.

1. Each slot of a pool is one worker process, started ahead and fed by one thread: a run directory a line on its stdin,
   `ready`, `done RUN_DIR` or `failed RUN_DIR` lines back on a pipe of its own (`--protocol-fd`).
2. A worker that dies takes only its run with it: the run is settled by its exit status and the slot starts afresh.
3. A run that waits in a pool is `queued` and held by the pool's process, so no supervisor starts it a second time.
"""

import os
import queue
import threading
import time
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import IO, Self

from trainer.runs import processes, supervise
from trainer.runs.errors import RunError
from trainer.runs.processes import ProcessIdentity
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Failure, RunDocument, RunState


class RunHandle:
    """A run given to a pool."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._over = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the run has its final state."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None = None) -> RunDocument | None:
        """The final document, or None when `timeout_s` passed first."""
        return self.directory.read_document() if self._over.wait(timeout_s) else None

    def cancel(self, reason: str = "user") -> None:
        """Asks the run to stop: before it starts, or at the end of the step it is in."""
        self.directory.request_stop(reason)

    def _settle(self) -> None:
        self._over.set()


class _Slot:
    """One warm worker and the thread that feeds it."""

    def __init__(self, pool: "WorkerPool", number: int) -> None:
        self._pool = pool
        self._log = pool.folder / f"pool-{os.getpid()}-{number}.log"
        self._identity: ProcessIdentity | None = None
        self._process: Popen[bytes] | None = None
        self._answers: IO[str] | None = None
        self.tried = threading.Event()
        """Its worker is up, or has failed to come up once."""
        self.thread = threading.Thread(target=self._work, name=f"pool-{number}", daemon=True)

    def _start_process(self) -> None:
        reading, writing = os.pipe()
        try:
            self._identity, self._process = processes.spawn(
                [*self._pool.command, "--serve", "--protocol-fd", str(writing)],
                directory=self._pool.folder,
                log_path=self._log,
                environment=self._pool.environment,
                stdin=PIPE,
                pass_handles=(writing,),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._answers = os.fdopen(reading, "r", encoding="utf-8", newline="\n")

    @property
    def _usable(self) -> bool:
        return self._answers is not None and self._identity is not None and processes.is_alive(self._identity)

    def _bring_up(self) -> None:
        """Makes sure that a worker waits for a job. Raises RunError, OSError."""
        if self._usable:
            return
        self._drop()
        self._start_process()
        assert self._answers is not None
        if self._answers.readline().strip() != "ready":
            self._drop()
            raise RunError(f"a warm worker did not come up: {self._log_end() or 'it wrote nothing'}")

    def _log_end(self) -> str:
        if not self._log.exists():
            return ""
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return " | ".join(line for line in lines if line.strip())[-400:]

    def _drop(self) -> None:
        """Lets go of the worker: closes its pipes and makes sure that it is gone."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:  # it is dead and the pipe holds bytes nobody will read
                pass
        if self._identity is not None and not processes.wait_until_gone(self._identity, 3.0):
            processes.terminate(self._identity, term_grace_s=3.0)
        if self._answers is not None:
            self._answers.close()
        self._identity = self._process = self._answers = None

    def kill(self) -> None:
        """Ends the worker whatever it does; its thread then settles the run it was at."""
        if self._identity is not None:
            processes.terminate(self._identity, term_grace_s=3.0)

    def _work(self) -> None:
        try:
            self._bring_up()
        except (RunError, OSError) as error:  # tried again, and reported, with the first job
            self._pool.note_start_failure(str(error))
        self.tried.set()
        while (handle := self._pool.next_job()) is not None:
            asked = handle.directory.stop_reason()
            if asked is not None:
                supervise.conclude(handle.directory, RunState.STOPPED, stop_reason=asked)
            else:
                self._serve_or_say_why(handle.directory)
            self._pool.job_over(handle)
        self._drop()
        if self._log.exists():
            self._log.unlink()

    def _serve_or_say_why(self, directory: RunDirectory) -> None:
        """A job that cannot be recorded (full disk, deleted folder) must not end the thread: others wait behind it."""
        try:
            self._serve(directory)
        except (RunError, OSError) as error:
            self._pool.note_start_failure(f"{directory.run_id}: {error}")

    def _serve(self, directory: RunDirectory) -> None:
        """Runs one job and gives it its final state."""
        try:
            self._bring_up()
        except (RunError, OSError) as error:
            self._pool.note_start_failure(str(error))
            supervise.conclude(directory, RunState.FAILED, failure=Failure(kind="launch", message=str(error)))
            return
        assert self._identity is not None
        began_at = self._log.stat().st_size
        supervise.mark_starting(directory, keep_free_mb=self._pool.keep_free_mb)
        supervise.record_process(directory, self._identity)
        answer = self._ask(directory)
        self._keep_log(directory, began_at)
        if answer == "":
            processes.wait_until_gone(self._identity, 5.0)
            supervise.reconcile(directory)
            self._drop()
        else:
            supervise.settle_answered(directory, succeeded=answer.startswith("done "))

    def _ask(self, directory: RunDirectory) -> str:
        """The worker's answer, `done …` or `failed …`; empty: it is gone."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._answers is not None
        try:
            self._process.stdin.write(f"{directory.path}\n".encode())
            self._process.stdin.flush()
            return next((line for line in self._answers if line.startswith(("done ", "failed "))), "")
        except OSError:  # a broken pipe: it died between two runs
            return ""

    def _keep_log(self, directory: RunDirectory, began_at: int) -> None:
        """The worker's output during this run becomes the run's worker.log, unless the worker wrote one itself."""
        if directory.log_path.exists():
            return
        with open(self._log, "rb") as stream:
            stream.seek(began_at)
            directory.log_path.write_bytes(stream.read())


class WorkerPool:
    """`size` warm workers with `threads` CPU threads each (None: the library's default)."""

    def __init__(
        self,
        size: int,
        threads: int | None = None,
        *,
        folder: Path,
        command: tuple[str, ...] = (),
        more_environment: tuple[str, ...] = (),
        tokens: bool = False,
        keep_free_mb: int | None = None,
    ) -> None:
        """`folder` is where the workers run and log; `tokens` hands hub tokens to them; `keep_free_mb`: free space
        below which a run ends. Raises RunError."""
        if size < 1:
            raise ValueError("a pool needs at least one worker")
        processes.require_posix()
        self.folder = folder
        self.keep_free_mb = keep_free_mb
        self.command = command or processes.worker_command()
        self.environment = processes.child_environment(more=more_environment, tokens=tokens, threads=threads)
        self._jobs: queue.Queue[RunHandle | None] = queue.Queue()
        self._open: list[RunHandle] = []
        self._lock = threading.Lock()
        self._closed = False
        self.start_failures: list[str] = []
        """Why workers did not come up, for the log of whoever owns the pool."""
        self._slots = [_Slot(self, number) for number in range(size)]
        for slot in self._slots:
            slot.thread.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Waits until every worker has done its imports; False where one is not up by then (see `start_failures`)."""
        deadline = time.monotonic() + timeout_s
        tried = [slot.tried.wait(max(0.0, deadline - time.monotonic())) for slot in self._slots]
        return all(tried) and not self.start_failures

    def submit(self, run_dir: Path) -> RunHandle:
        """Gives a run to the next free worker. Raises RunError when the pool is closed."""
        handle = RunHandle(RunDirectory(run_dir.absolute()))
        with self._lock:
            if self._closed:
                raise RunError("the pool is closed")
            self._open.append(handle)
            self._jobs.put(handle)
        return handle

    def next_job(self) -> RunHandle | None:
        """The next job; None: there will be none."""
        return self._jobs.get()

    def job_over(self, handle: RunHandle) -> None:
        """The run has its final state."""
        with self._lock:
            self._open.remove(handle)
        handle._settle()

    def note_start_failure(self, reason: str) -> None:
        """Remembers why a worker did not come up."""
        with self._lock:
            self.start_failures.append(reason)

    def close(self, *, cancel: bool = False, grace_s: float = processes.STOP_GRACE_S) -> None:
        """Ends the pool after the runs it holds; with `cancel` they are asked to stop and killed after `grace_s`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            held = list(self._open)
            for _ in self._slots:
                self._jobs.put(None)
        if cancel:
            for handle in held:
                handle.cancel("pool closed")
            deadline = time.monotonic() + grace_s
            for slot in self._slots:
                slot.thread.join(max(0.0, deadline - time.monotonic()))
                if slot.thread.is_alive():
                    slot.kill()
        for slot in self._slots:
            slot.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(cancel=kind is not None)
