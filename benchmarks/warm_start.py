"""Seconds from asking for a run to its event `started`: a cold process against an idle warm worker, side by side.

    python benchmarks/warm_start.py [--rounds 3] [--model tiny] [--env calculator] [--json]

`cold`: a new process, as `mcp-evo train` and the server start it. `warm_first`: the first run of a worker that was
started ahead and had said `ready`; `warm_next`: a later run of the same worker, as in a trial. `started` is written
when model, problems and engine are there; what comes then (preflight, test, steps) is the same for all. Each round
measures all three, one after the other, so that whatever else the machine does falls on all of them; medians and their
ratio. `worker_up`: what was spent ahead, from starting the warm process to `ready`.

Exit status 1 where a warm start takes a second or more, in the median.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too

from trainer.runs import supervise
from trainer.runs.launch import LocalLauncher
from trainer.runs.pool import WorkerPool
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import Workspace, create_workspace
from trainer.settings import resolve

GOAL_S = 1.0
"""A warm run begins sooner than this."""

TIMEOUT_S = 300.0

KINDS = ("cold", "warm_first", "warm_next")


def new_run(workspace: Workspace, values: dict[str, Any], *, held: bool) -> RunDirectory:
    """A queued run that ends as soon as it may."""
    overrides = {"max_steps": 1, "test_problems": 8, "validation_problems": 8, "skip_eval_before": True, **values}
    fields = supervise.held_by_this_process() if held else {}
    return create_run(workspace, resolve(overrides=overrides).config, **fields)


def started_after(directory: RunDirectory, began: float) -> float:
    """Seconds from `began` (Unix time) to the event `started`, by the worker's own time stamp. Raises SystemExit."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for event in directory.events():
            if event["kind"] == "started":
                return float(event["time"]) - began
        if supervise.reconcile(directory).state.is_final:
            break
        time.sleep(0.05)
    raise SystemExit(f"the run did not start: {directory.read_document().failure or directory.log_tail()}")


def cold(workspace: Workspace, values: dict[str, Any]) -> float:
    """One run in a process of its own."""
    directory = new_run(workspace, values, held=False)
    launcher = LocalLauncher()
    began = time.time()
    launcher.tick(workspace)
    seconds = started_after(directory, began)
    supervise.stop_run(directory, stop_grace_s=TIMEOUT_S)
    return seconds


def warm(workspace: Workspace, values: dict[str, Any]) -> tuple[float, float, float]:
    """(seconds until the worker was up, its first run's start, its second run's start)."""
    began = time.monotonic()
    with WorkerPool(1, values.get("threads"), folder=workspace.root) as pool:
        if not pool.wait_until_ready(TIMEOUT_S):
            raise SystemExit(f"the warm worker did not come up: {pool.start_failures}")
        up = time.monotonic() - began
        starts = []
        for _ in range(2):
            directory = new_run(workspace, values, held=True)
            asked = time.time()
            handle = pool.submit(directory.path)
            starts.append(started_after(directory, asked))
            handle.cancel()
            handle.wait(TIMEOUT_S)
    return up, starts[0], starts[1]


def measure(rounds: int, values: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every round, medians and ratio."""
    found: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "worker_up")}
    with tempfile.TemporaryDirectory() as folder:
        workspace = create_workspace(Path(folder) / "ws")
        for _ in range(rounds):
            found["cold"].append(cold(workspace, values))
            up, first, following = warm(workspace, values)
            for kind, seconds in (("worker_up", up), ("warm_first", first), ("warm_next", following)):
                found[kind].append(seconds)
    medians = {kind: round(statistics.median(seconds), 3) for kind, seconds in found.items()}
    return {
        "seconds": {kind: [round(one, 3) for one in seconds] for kind, seconds in found.items()},
        "median": medians,
        "cold_to_warm": round(medians["cold"] / medians["warm_first"], 2),
        "goal_s": GOAL_S,
        "met": max(medians["warm_first"], medians["warm_next"]) < GOAL_S,
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Cold against warm start of a run.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--env", default="calculator")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true", help="One JSON document on stdout.")
    arguments = parser.parse_args()
    values: dict[str, Any] = {"model": arguments.model, "env": arguments.env}
    if arguments.threads is not None:
        values["threads"] = arguments.threads
    result = measure(arguments.rounds, values)
    if arguments.json:
        print(json.dumps(result))
    else:
        for kind in KINDS:
            rounds = " ".join(f"{one:.2f}" for one in result["seconds"][kind])
            print(f"{kind:10}  {result['median'][kind]:6.2f} s   ({rounds})")
        print(
            f"cold / warm_first = {result['cold_to_warm']}; the worker was up after {result['median']['worker_up']} s"
        )
        print(f"load of the machine: {result['load']} on {result['cores']} cores")
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
