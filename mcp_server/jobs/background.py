"""What goes on between two tool calls: supervision of runs, and long work in processes that outlive the server.

Supervising needs no leader: every server and every command line may do it, they take turns under one lock that the
operating system frees when its holder dies. So a server that is killed takes nothing with it.
"""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_server.state import ServerState
from mcp_server.workers import WORKER_VARIABLE

if TYPE_CHECKING:
    from trainer.runs.registry import Run
    from trainer.runs.types import RunDocument

TICK_S = 2.0
"""How often runs are looked at while one may be under way."""

IDLE_TICKS = 10
"""While none is known to be, only every so many ticks: another process may have queued one and died."""

LOOK_EVERY_S = 0.5
"""A reader looks at runs that are under way when the last look of this process is so old."""

CHILD_NOTE = "process.json"
"""Says which process works on a folder."""

logger = logging.getLogger(__name__)


async def runs_to_show(state: ServerState) -> "list[Run]":
    """`runs_now` without keeping the server waiting."""
    if state.runs_in_place.allowed:
        with state.runs_in_place.timed():
            ended = ended_runs(state)
        if ended is not None:
            return ended

    def look() -> "list[Run]":
        with state.runs_in_place.timed():
            return runs_now(state)

    return await anyio.to_thread.run_sync(look)


async def supervise(state: ServerState) -> None:
    """Settles dead runs and starts queued ones, until it is cancelled.

    The first look comes after a tick: a client's first questions do not have to share the processor with it.
    """
    tick = 0
    while True:
        await anyio.sleep(TICK_S)
        tick += 1
        if state.exists and (state.runs_expected or tick % IDLE_TICKS == 0):
            state.runs_expected = await anyio.to_thread.run_sync(look_once, state)


def look_once(state: ServerState) -> bool:
    """One look at the runs; whether any is under way. What is wrong with the workspace is logged, not raised."""
    from trainer.runs.errors import RunError, WorkspaceError
    from trainer.runs.registry import list_runs
    from trainer.runs.workspace import Workspace

    began = time.monotonic()
    try:
        workspace = Workspace(state.root)
        state.launcher().tick(workspace)
        runs = list_runs(workspace)
        state.looked_at = began
        reap(state, [run.document for run in runs if run.document.state.is_final])
        return any(not run.document.state.is_final for run in runs)
    except (RunError, WorkspaceError, OSError) as error:
        logger.warning("runs cannot be supervised: %s", error)
        return False


def runs_now(state: ServerState) -> "list[Run]":
    """The runs, the newest first, as a look `LOOK_EVERY_S` ago or later found them. Where all have ended there is
    nothing to look for: that costs no more than finding that no document changed."""
    from trainer.runs.registry import list_runs
    from trainer.runs.workspace import Workspace

    ended = ended_runs(state)
    if ended is not None:
        return ended
    if time.monotonic() - state.looked_at >= LOOK_EVERY_S:
        look_once(state)
    return list_runs(Workspace(state.root))


def ended_runs(state: ServerState) -> "list[Run] | None":
    """The runs, the newest first, where all have ended: nothing is waited for. None while some are under way."""
    from trainer.runs.registry import list_runs
    from trainer.runs.workspace import Workspace

    runs = list_runs(Workspace(state.root))
    return runs if all(run.document.state.is_final for run in runs) else None


def reap(state: ServerState, ended: "Sequence[RunDocument]") -> None:
    """Takes note of ended children of this process, which would stay as zombies for as long as it lives."""
    from trainer.runs import processes, supervise

    for document in ended:
        identity = supervise.identity_of(document)
        if identity is not None:
            processes.exit_status(identity)
    for child in list(state.children):  # others may add to it meanwhile
        if processes.exit_status(child) is not None:
            state.children.remove(child)


@dataclass(frozen=True)
class Child:
    """A command that goes on by itself."""

    pid: int
    started_at: float
    log: str
    alive: bool

    def last_words(self, lines: int = 5) -> list[str]:
        """The end of what it printed."""
        try:
            text = Path(self.log).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]


def start_child(state: ServerState, arguments: Sequence[str], folder: Path) -> Child:
    """Starts `mcp-evo ARGUMENTS` on this workspace as a process of its own, noted in `folder`.

    It has its own session and no handle of ours; what it prints goes to `folder/process.log`. Whoever reads the folder
    later, this server or another, knows it by pid and start time. Raises RunError, OSError.
    """
    from skill_bank.files import write_json_atomic
    from trainer.runs import processes

    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "process.log"
    # it is this program again and decides anew what its workers may see, so it gets the hub's tokens too
    more = [*state.workspace().config().child_environment, WORKER_VARIABLE]
    environment = processes.child_environment(more=more, tokens=True)
    command = [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(state.root), *arguments]
    identity, _ = processes.spawn(command, directory=state.root, log_path=log, environment=environment)
    state.children.append(identity)
    write_json_atomic(folder / CHILD_NOTE, {**identity.note(), "log": str(log), "arguments": list(arguments)})
    return Child(identity.pid, identity.started_at, str(log), True)


def child_of(folder: Path) -> Child | None:
    """The command that was last started for this folder, and whether it still runs; None: a server started none."""
    from skill_bank.files import read_json
    from trainer.runs import processes

    try:
        note = read_json(folder / CHILD_NOTE)
    except FileNotFoundError:
        return None
    identity = processes.ProcessIdentity.from_note(note)
    return Child(identity.pid, identity.started_at, str(note["log"]), processes.is_alive(identity))
