"""Arms that were run, kept line by line: a long measurement that is killed goes on where it was.

An arm is one training run of a paired trial (see docs/evolution.md), on one single-threaded worker; two run side by
side. Its result depends on its configuration alone, so a line is used again where the configuration is the same.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from optimizer.trial.arms import ArmJob
from optimizer.trial.pooled import PooledArms
from optimizer.trial.types import ArmResult
from skill_bank.files import append_json, read_json_lines
from trainer.config import TrainingConfig
from trainer.runs.registry import config_hash

BATCH = 4
"""Arms handed out at once; what is written is never more than this many behind what was run."""


class ArmBook:
    """Runs arms and remembers their results in `arms.jsonl`. A context manager: its workers end with it."""

    def __init__(self, work: Path, say: Callable[[str], None]) -> None:
        self.work = work
        self.path = work / "arms.jsonl"
        self.say = say
        self.known: dict[tuple[str, str], ArmResult] = {}
        work.mkdir(parents=True, exist_ok=True)
        for _, row in read_json_lines(self.path).rows:
            self.known[row["arm"], row["config_hash"]] = ArmResult.model_validate(row["result"])
        self._runner: PooledArms | None = None

    def run(self, wanted: Mapping[str, TrainingConfig]) -> dict[str, ArmResult]:
        """Name → result, in the order asked for. Raises TrialError where an arm gives none."""
        keys = {name: (name, config_hash(config)) for name, config in wanted.items()}
        missing = [name for name, key in keys.items() if key not in self.known]
        for start in range(0, len(missing), BATCH):
            names = missing[start : start + BATCH]
            jobs = [ArmJob(name, wanted[name], self.work / "runs" / name) for name in names]
            for job in jobs:
                shutil.rmtree(job.folder, ignore_errors=True)
            for name, result in zip(names, self._open().run(jobs, lambda: False), strict=True):
                row = {"arm": name, "config_hash": keys[name][1], "result": result.model_dump(mode="json")}
                append_json(self.path, row)
                self.known[keys[name]] = result
            for job in jobs:
                shutil.rmtree(job.folder, ignore_errors=True)
            self.say(f"{start + len(names)} of {len(missing)} arms")
        return {name: self.known[key] for name, key in keys.items()}

    def _open(self) -> PooledArms:
        if self._runner is None:
            self._runner = PooledArms(self.work / "workers")
        return self._runner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._runner is not None:
            self._runner.close(cancel=problem[0] is not None)
            self._runner = None
