"""The real worker process (its start, signals, log, last words, disk) around a session that trains a chain of hashes.

The "weights" after a step are the hash of the weights before it and the step, so that a resumed run shows whether it
went on exactly where the checkpoint lies. `script.json` of the run says what happens:
steps, pause_s (a step), weights_bytes (size of a checkpoint), print_bytes (each step), fill (a path that grows by
weights_bytes a step), hide_errno (saving fails as torch fails: RuntimeError without a number), file_limit_bytes
(RLIMIT_FSIZE), low_at (free space is reported as 0 MB from that step on).
"""

import hashlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from skill_bank.files import write_text_atomic
from trainer import session, worker
from trainer.runs import checkpoints, disk
from trainer.runs.types import Eval, RunState

FREE_MB = disk.free_mb


class ScriptedSession(session.Session):
    """A session without a model."""

    def _prepare(self) -> None:
        path = self.directory.path / "script.json"
        disk.free_mb = FREE_MB  # a warm worker may have run a script before
        self.script: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        limit = self.script.get("file_limit_bytes")
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        self.loaded: Any = SimpleNamespace(model=SimpleNamespace(parameters=list), parameters=1000)
        self.tasks: Any = SimpleNamespace(fingerprint="scripted")
        self.directory.set_fields(state=RunState.RUNNING, device="cpu", parameters=1000, data_fingerprint="scripted")
        self.directory.append_event("started", device="cpu")

    def _train(self) -> None:
        checkpoint = self._go_on_from()
        done = 0 if checkpoint is None else checkpoints.checkpoint_step(checkpoint) or 0
        weights = b"start" if checkpoint is None else (checkpoint / "weights").read_bytes()[:64]
        if "before" not in self.directory.read_document().eval:
            self._evaluated("before", 0.3)
        reason = None
        for step in range(done + 1, self.config.planned_steps + 1):
            self.directory.beat()
            time.sleep(self.script.get("pause_s", 0.01))
            self._disturb(step)
            weights = hashlib.sha256(weights + str(step).encode()).hexdigest().encode()
            reward = int(weights[:4], 16) / 65536
            path = self.directory.episode_path(step)
            path.parent.mkdir(exist_ok=True)
            write_text_atomic(path, json.dumps({"step": step, "reward": reward, "messages": []}) + "\n")
            self._record_step({"step": step, "reward_mean": reward, "time_s": self.script.get("pause_s", 0.01)})
            reason = self._after_step(step)
            if reason is not None or step < self.config.planned_steps:
                self._save(step, weights)
            if reason is not None:
                break
        if self._disk_low is not None:
            raise self._disk_low
        staging = self.directory.path / session.MODEL_STAGING
        staging.mkdir(exist_ok=True)
        self._write(staging / "weights", weights)
        os.replace(staging, self.directory.model_folder)
        self._evaluated("after", 0.6)
        if reason is not None:
            raise session.Stopped(reason)

    def _validate(self, step: int) -> None:
        """There is no model to look at."""

    def _save(self, step: int, weights: bytes) -> None:
        folder = self.directory.path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / "weights", weights)
        self._complete_checkpoint(step, folder)

    def _write(self, path: Path, weights: bytes) -> None:
        try:
            with open(path, "wb") as stream:  # like a library: no temporary file, half of it stays
                stream.write(weights)
                stream.write(bytes(self.script.get("weights_bytes", 0)))
        except OSError as error:
            if not self.script.get("hide_errno"):
                raise
            raise RuntimeError("unexpected pos 64 vs 0") from error

    def _disturb(self, step: int) -> None:
        if "print_bytes" in self.script:
            os.write(1, b"noise " * (self.script["print_bytes"] // 6) + b"\n")
        if "fill" in self.script:
            with open(self.script["fill"], "ab") as stream:
                stream.write(bytes(self.script["weights_bytes"]))
        if step >= self.script.get("low_at", step + 1):
            disk.free_mb = lambda folder: 0

    def _evaluated(self, name: str, mean: float) -> None:
        result = Eval(split="test", n=100, mean=mean, ci95=(mean - 0.1, mean + 0.1))
        self.directory.set_fields(eval={**self.directory.read_document().eval, name: result})
        self.directory.append_event("eval", name=name, eval=result.model_dump(mode="json"))


if __name__ == "__main__":
    worker.Session = ScriptedSession
    for name in ("trl", "trainer.grpo"):  # what a warm worker imports ahead
        sys.modules[name] = ModuleType(name)
    sys.exit(worker.main())
