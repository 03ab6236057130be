"""What goes on between two tool calls: supervision of runs, and long work in processes that outlive the server.

Supervising needs no leader: every server and every command line may do it, they take turns under one lock that the
operating system frees when its holder dies. So a server that is killed takes nothing with it.
"""

import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from mcp_server.state import ServerState

TICK_S = 2.0
"""How often runs are looked at while one may be under way."""

IDLE_TICKS = 10
"""While none is known to be, only every so many ticks: another process may have queued one and died."""

logger = logging.getLogger(__name__)


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
    from mcp_server.cli.context import CommandError
    from trainer.runs.errors import RunError, WorkspaceError
    from trainer.runs.registry import list_runs

    try:
        workspace = state.workspace()
        state.launcher().tick(workspace)
        return any(not run.document.state.is_final for run in list_runs(workspace))
    except (RunError, WorkspaceError, CommandError, OSError) as error:
        logger.warning("runs cannot be supervised: %s", error)
        return False


def start_command(state: ServerState, arguments: Sequence[str], log_path: Path) -> int:
    """Starts `mcp-evo ARGUMENTS` on this workspace as a process of its own and returns its pid.

    It has its own session and no handle of ours; what it prints goes to `log_path`. Raises RunError, OSError.
    """
    from mcp_server.cli.train import WORKER_VARIABLE
    from trainer.runs import processes

    log_path.parent.mkdir(parents=True, exist_ok=True)
    environment = processes.child_environment(more=[*state.workspace().config().child_environment, WORKER_VARIABLE])
    command = [sys.executable, "-P", "-m", "mcp_server.cli.main", "--workspace", str(state.root), *arguments]
    identity, _ = processes.spawn(command, directory=state.root, log_path=log_path, environment=environment)
    return identity.pid


def child_log(state: ServerState, name: str) -> Path:
    """Where a detached command logs."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return state.root / "logs" / f"{name}-{stamp}-{os.getpid()}.log"
