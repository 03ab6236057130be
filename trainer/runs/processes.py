"""Worker processes: the only module that starts, recognises and kills them.

1. A worker is its own session and process group, inherits no handle of ours, logs to `worker.log`, and gets an
   allow-listed environment.
2. A process is known by pid *and* start. Nothing is ever signalled by pid alone: a recycled pid is somebody else.
   Where the kernel counts starts in ticks since the machine was started (Linux) that count decides: the time of day of
   a start moves with every correction of the clock.
3. Stopping goes in three steps: the STOP file (honoured at step ends), SIGTERM after a grace, SIGKILL after another.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from trainer.runs.errors import RunError

START_TIME_TOLERANCE_S = 0.05
"""Two readings of one process's start time by psutil agree far better than this; two processes with one pid do not."""

STOP_GRACE_S = 30.0
"""Time for the step in progress to end after the STOP file was written."""

TERM_GRACE_S = 10.0
"""Time to write a last word after SIGTERM."""

_ALLOWED = """
PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_* TZ TMPDIR TERM XDG_CACHE_HOME XDG_DATA_HOME VIRTUAL_ENV CONDA_PREFIX
HF_* HUGGINGFACE_* TRANSFORMERS_* DATASETS_* TOKENIZERS_* SAFETENSORS_*
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
CUDA_* NVIDIA_* NCCL_* GLOO_* ROCR_* HIP_* TORCH_* PYTORCH_* TRITON_* ACCELERATE_*
OMP_* MKL_* OPENBLAS_* VECLIB_* NUMEXPR_* KMP_* GOMP_*
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE LD_LIBRARY_PATH DYLD_* LD_PRELOAD MALLOC_* MCP_EVO_HOME
"""
ALLOWED_VARIABLES = tuple(_ALLOWED.split())
"""Environment variables a worker may see; a name ending in * is a prefix."""

TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HUGGINGFACE_TOKEN")
"""Secrets: only a run whose model comes from the hub gets them."""

SECRET_ENDINGS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD", "_CREDENTIALS")
"""Of variables that an allowed prefix would let through: treated like the tokens."""


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that can be recognised again."""

    pid: int
    started_at: float
    """Start time by the operating system, Unix seconds (psutil); decides only where there is no mark."""
    mark: str | None = None
    """`<boot id>:<ticks from then to its start>` (Linux): the same whatever happens to the clock."""

    def note(self) -> dict[str, Any]:
        """Its form in a JSON document."""
        return {"pid": self.pid, "started_at": self.started_at, "mark": self.mark}

    @classmethod
    def from_note(cls, note: Mapping[str, Any]) -> Self:
        """Reads what `note` gave; older notes have no mark. Raises KeyError, TypeError, ValueError."""
        mark = note.get("mark")
        return cls(int(note["pid"]), float(note["started_at"]), mark if isinstance(mark, str) else None)

    def is_same(self, other: "ProcessIdentity") -> bool:
        """Whether both name one process."""
        if self.pid != other.pid:
            return False
        if self.mark is not None and other.mark is not None:
            return self.mark == other.mark
        return abs(self.started_at - other.started_at) <= START_TIME_TOLERANCE_S

    @property
    def is_from_before_restart(self) -> bool:
        """Whether the machine was restarted since it was started."""
        if self.mark is not None and _BOOT_ID is not None:
            return self.mark.partition(":")[0] != _BOOT_ID
        return boot_time() > self.started_at + 1.0


def _names(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name is one of these; a pattern that ends in * is a prefix."""
    given = tuple(patterns)
    exact = {one for one in given if not one.endswith("*")}
    prefixes = tuple(one[:-1] for one in given if one.endswith("*"))
    return lambda name: name in exact or name.startswith(prefixes)


def child_environment(
    parent: Mapping[str, str] | None = None,
    *,
    more: Iterable[str] = (),
    tokens: bool = False,
    threads: int | None = None,
) -> dict[str, str]:
    """What a worker sees: allow-listed variables of `parent`, `more` names or prefixes, tokens only if they are needed.

    `threads` sets the number of CPU threads of the numeric libraries.
    """
    source = os.environ if parent is None else parent
    allowed, asked_for = _names([*ALLOWED_VARIABLES, *TOKEN_VARIABLES]), _names(more)
    chosen = {}
    for name, value in source.items():
        secret = (name in TOKEN_VARIABLES or name.endswith(SECRET_ENDINGS)) and not tokens
        if asked_for(name) or (allowed(name) and not secret):
            chosen[name] = value
    chosen["PYTHONSAFEPATH"] = "1"  # what -P means, also for processes that the worker starts
    chosen["PYTHONUNBUFFERED"] = "1"
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            chosen[name] = str(threads)
    return chosen


def worker_command() -> tuple[str, ...]:
    """How a worker is started, without its arguments."""
    return (sys.executable, "-P", "-m", "trainer.worker")


LOOPBACK_ONLY = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
"""Processes of one run talk over the loopback interface: no name of the machine has to be resolved."""


def several(count: int) -> tuple[str, ...]:
    """What stands before the worker's command where `count` processes train one run together."""
    launcher = (sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--no-python")
    return (*launcher, f"--nproc-per-node={count}", "--max-restarts=0")


def require_posix() -> None:
    """Raises RunError on a platform without process groups."""
    if os.name != "posix":
        raise RunError("mcp-evo trains on Linux and macOS; on Windows run it inside WSL (wsl --install).")


_children: dict[int, tuple[ProcessIdentity, subprocess.Popen[bytes]]] = {}
"""Our own children by pid: only a parent learns an exit status, and only a parent's wait frees a dead child's pid. Once
it is free another process may get it, so a child counts only for an identity that is its own."""


def _child(identity: ProcessIdentity) -> "subprocess.Popen[bytes] | None":
    known = _children.get(identity.pid)
    return known[1] if known is not None and known[0].is_same(identity) else None


def _boot_id() -> str | None:
    """Changes with every start of the machine (Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:13] or None
    except (OSError, ValueError):
        return None


_BOOT_ID = _boot_id()


def _mark(pid: int) -> str | None:
    """Field 22 (starttime, in ticks since the machine was started) of /proc/PID/stat, see proc_pid_stat(5)."""
    if _BOOT_ID is None:
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return f"{_BOOT_ID}:{int(stat[stat.rindex(b')') + 2 :].split()[19])}"  # the name before it may hold anything
    except (OSError, ValueError, IndexError):
        return None


def spawn(
    command: Sequence[str],
    *,
    directory: Path,
    log_path: Path,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    pass_handles: Sequence[int] = (),
) -> tuple[ProcessIdentity, subprocess.Popen[bytes]]:
    """Starts a detached process. Raises RunError where the program cannot be started, OSError where the log cannot."""
    require_posix()
    for _, earlier in list(_children.values()):  # a run's state may be final before its process is gone: no zombies
        earlier.poll()
    with open(log_path, "ab") as log:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=directory,
                env=dict(environment),
                stdin=stdin,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
                pass_fds=tuple(pass_handles),
            )
        except OSError as error:
            raise RunError(f"the worker cannot be started ({command[0]}: {error.strerror or error}).") from error
    identity = identify(process.pid)
    if identity is None:  # it ended before it could be looked at; its start was now
        identity = ProcessIdentity(process.pid, time.time())
    _children[process.pid] = (identity, process)
    return identity, process


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a process that exists now (a zombie of ours included), else None."""
    try:
        return ProcessIdentity(pid, psutil.Process(pid).create_time(), _mark(pid))
    except (psutil.NoSuchProcess, psutil.AccessDenied, ValueError):
        return None


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether that very process still runs; a zombie has ended.

    A child of ours has ended once its exit status is there, and no sooner: the first thread of a killed process is a
    zombie already while its other threads are dying.
    """
    child = _child(identity)
    if child is not None:
        return child.poll() is None
    try:
        process = psutil.Process(identity.pid)
        if not identity.is_same(ProcessIdentity(identity.pid, process.create_time(), _mark(identity.pid))):
            return False
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.AccessDenied:
        return True  # it exists and belongs to someone else now: leave it alone


def find_detached(last_argument: str) -> ProcessIdentity | None:
    """A process with a session of its own, as `spawn` starts them, whose command line ends with `last_argument`."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words and words[-1] == last_argument and os.getsid(process.pid) == process.pid:
                return identify(process.pid)
        except (psutil.Error, OSError):
            continue
    return None


def exit_status(identity: ProcessIdentity) -> int | None:
    """Exit status (negative: ended by that signal) of an ended child of this process; None where nobody told us."""
    child = _child(identity)
    return None if child is None else child.poll()


def wait_until_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    """Waits for a process to end; False when it is still there after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while is_alive(identity):
        if time.monotonic() >= deadline:
            return False
        time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
    return True


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Signals a worker's whole process group, after checking that it still is that worker. False: it was gone."""
    if identity.pid <= 1 or identity.pid == os.getpid() or not is_alive(identity):
        return False
    try:
        if os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def terminate(identity: ProcessIdentity, *, term_grace_s: float = TERM_GRACE_S, kill_grace_s: float = 5.0) -> bool:
    """SIGTERM, then SIGKILL after a grace. Returns whether the process is gone."""
    if not send(identity, signal.SIGTERM):
        return not is_alive(identity)
    if wait_until_gone(identity, term_grace_s):
        return True
    send(identity, signal.SIGKILL)
    return wait_until_gone(identity, kill_grace_s)


def oom_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it started (Linux), else None.

    A worker that died by SIGKILL while this counter rose was killed by the kernel, not by a person.
    """
    try:
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return None
    return None


def boot_time() -> float:
    """When the machine was started, Unix seconds."""
    return float(psutil.boot_time())
