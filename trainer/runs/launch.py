"""The local launcher: from a resolved configuration to a run that trains in its own process, and following it.

`start_run` returns at once; `follow` yields what happens until the run has its final state, supervising on the way.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainer import reporting
from trainer.models.catalog import resolve_model
from trainer.runs import processes, supervise
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.processes import ProcessIdentity
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.supervise import TickReport
from trainer.runs.types import RunDocument
from trainer.runs.workspace import Workspace
from trainer.settings import Resolved

POLL_S = 0.2
"""How often the files of a running run are looked at."""

TICK_S = 1.0
"""How often a follower supervises."""


@dataclass(frozen=True)
class LocalLauncher:
    """Starts workers on this machine."""

    command: tuple[str, ...] = ()
    """Command of the worker before its run directory; empty: the real one."""

    def start(self, directory: RunDirectory, workspace: Workspace) -> ProcessIdentity:
        """Starts the worker of one run. Raises RunError, ConfigError, OSError."""
        config = directory.read_config()
        tokens = resolve_model(config.model).needs_network or reporting.needs_hub_token(os.environ, config)
        environment = processes.child_environment(
            more=[*workspace.config().child_environment, *reporting.variables(config)],
            tokens=tokens,
            threads=config.threads,
        )
        command = self.command or processes.worker_command()
        if config.processes > 1:
            command = (*processes.several(config.processes), *command)
            environment |= processes.LOOPBACK_ONLY
        with open(directory.log_path, "a", encoding="utf-8") as log:  # all there is of a worker killed in its imports
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} starting a worker for run {directory.run_id}\n")
        identity, _ = processes.spawn(
            [*command, str(directory.path)],
            directory=directory.path,
            log_path=directory.log_path,
            environment=environment,
        )
        return identity

    def tick(self, workspace: Workspace, *, lock_timeout_s: float = 0.0) -> TickReport:
        """Supervises the workspace once, starting what waits."""
        return supervise.tick(workspace, self.start, lock_timeout_s=lock_timeout_s)


def start_run(
    workspace: Workspace,
    resolved: Resolved,
    *,
    launcher: LocalLauncher | None = None,
    run_id: str | None = None,
    request: str | None = None,
    **fields: Any,
) -> RunDirectory:
    """Creates a run and starts it, or queues it where no slot is free. It carries the thresholds that it is watched by.

    Raises RunError, WorkspaceError, PolicyError, OSError.
    """
    processes.require_posix()
    text = request if request is not None else (resolved.request.text if resolved.request is not None else None)
    round_number = resolved.request.round if resolved.request is not None else None
    watched_by = MonitorPolicy.in_force(workspace.root, resolved.context)
    values = {"profile": resolved.profile, "parameters": resolved.model.params, "round": round_number, **fields}
    directory = create_run(
        workspace,
        resolved.config,
        run_id=run_id,
        request=text,
        provenance=resolved.provenance,
        fill=watched_by.save,
        **values,
    )
    (launcher or LocalLauncher()).tick(workspace, lock_timeout_s=10.0)
    return directory


@dataclass(frozen=True)
class RunUpdate:
    """What is new since the last look."""

    document: RunDocument
    metrics: Sequence[dict[str, Any]]
    events: Sequence[dict[str, Any]]


def follow(
    workspace: Workspace,
    directory: RunDirectory,
    *,
    launcher: LocalLauncher | None = None,
    poll_s: float = POLL_S,
    should_go_on: Callable[[], bool] | None = None,
) -> Iterator[RunUpdate]:
    """Yields an update every `poll_s` until the run is over (the last one carries the final document)."""
    local = launcher or LocalLauncher()
    metrics_at = events_at = 0
    ticked = 0.0
    while should_go_on is None or should_go_on():
        if time.monotonic() - ticked >= TICK_S:
            local.tick(workspace)
            ticked = time.monotonic()
        document = supervise.reconcile(directory)
        metrics, metrics_at = directory.metrics_from(metrics_at)
        events, events_at = directory.events_from(events_at)
        yield RunUpdate(document, metrics, events)
        if document.state.is_final:
            return
        time.sleep(poll_s)


def wait(
    workspace: Workspace,
    directory: RunDirectory,
    *,
    launcher: LocalLauncher | None = None,
    timeout_s: float | None = None,
) -> RunDocument:
    """Waits for the final state, or until `timeout_s`; returns the document as it is then."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    document = directory.read_document()
    updates = follow(
        workspace,
        directory,
        launcher=launcher,
        should_go_on=lambda: deadline is None or time.monotonic() < deadline,
    )
    for update in updates:
        document = update.document
    return document
