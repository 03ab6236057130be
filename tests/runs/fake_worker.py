"""A worker that speaks the run-directory protocol without learning anything: what the run layer is tested against.

What it does is written in the run's `fake.json`, else in $FAKE_SCRIPT:
steps, seconds a step, and one of the faults below.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from trainer.runs import processes
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, Failure, RunState, Verdict


def evaluation(split: str, mean: float, n: int = 128) -> Eval:
    return Eval(split=split, n=n, mean=mean, ci95=(max(0.0, mean - 0.08), min(1.0, mean + 0.08)))


def run(path: Path) -> bool:
    directory = RunDirectory(path)
    text = (path / "fake.json").read_text() if (path / "fake.json").exists() else os.environ.get("FAKE_SCRIPT", "{}")
    script = json.loads(text)
    steps, pause = int(script.get("steps", 3)), float(script.get("pause_s", 0.01))
    fault, at = script.get("fault"), int(script.get("at", 2))
    me = processes.identify(os.getpid())
    assert me is not None
    print(f"fake worker {os.getpid()} runs {path.name}", flush=True)
    (path / "seen.json").write_text(json.dumps({"environment": dict(os.environ), "cwd": os.getcwd(), "path": sys.path}))
    directory.set_fields(
        state=RunState.RUNNING, pid=me.pid, process_started_at=me.started_at, device="cpu", parameters=860_000
    )
    directory.append_event("started")
    before = evaluation("test", 0.35)
    directory.append_event("eval", name="before", eval=before.model_dump(mode="json"))
    directory.set_fields(eval={"before": before.model_dump()})
    for step in range(1, steps + 1):
        directory.beat()
        if fault == "ignore_stop":
            pass
        elif (reason := directory.stop_reason()) is not None:
            directory.append_event("stop_requested", reason=reason)
            directory.finish(RunState.STOPPED, stop_reason=reason)
            return True
        time.sleep(pause)
        if step == at and fault == "raise":
            error = ValueError("the reward is not a number")
            directory.write_failure(Failure(kind=type(error).__name__, message=str(error)))
            print("Traceback: the reward is not a number", file=sys.stderr, flush=True)
            return False
        if step == at and fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == at and fault == "segv":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        if step == at and fault == "exit":
            os._exit(int(script.get("status", 7)))
        if step == at and fault == "leave":
            os._exit(0)
        reward = 0.35 + 0.6 * step / steps
        directory.append_metrics(
            {
                "step": step,
                "time_s": step * pause,
                "episodes": 32,
                "reward_mean": reward,
                "entropy": 0.5 - 0.3 * step / steps,
                "completion_mean": 40.0,
                "seconds": {
                    "generate": pause * 0.6,
                    "environment": 0.0,
                    "logprob": 0.0,
                    "update": pause * 0.4,
                    "other": 0.0,
                },
            }
        )
        directory.set_fields(step=step)
    after = evaluation("test", 0.95)
    directory.append_event("eval", name="after", eval=after.model_dump(mode="json"))
    directory.append_event("finished")
    directory.finish(
        RunState.FINISHED,
        verdict=Verdict.GOAL_REACHED,
        eval={"before": before.model_dump(), "after": after.model_dump()},
    )
    return True


def serve(handle: int) -> int:
    with os.fdopen(handle, "w", buffering=1) as protocol:
        protocol.write("ready\n")
        for line in sys.stdin:
            path = Path(line.strip())
            word = "done" if run(path) else "failed"
            protocol.write(f"{word} {path}\n")
    return 0


def main() -> int:
    arguments = sys.argv[1:]
    if "--serve" in arguments:
        return serve(int(arguments[arguments.index("--protocol-fd") + 1]))
    return 0 if run(Path(arguments[-1])) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main())
