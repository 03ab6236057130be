"""Records and runs for tests."""

import json
import random
import re
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.envs.arithmetic import evaluate, show
from trainer.envs.base import Split
from trainer.envs.house_rules import MEANINGS, HouseRules
from trainer.experience.records import ExperienceRecord, Status
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.runs.workspace import create_workspace


def lesson(when: str, content: str, **fields: Any) -> ExperienceRecord:
    """An active record with fixed times."""
    return ExperienceRecord(when, content, **{"status": Status.ACTIVE, "created": 1.0, "modified": 1.0} | fields)


def write_run(root: Path, run_id: str = "house-run", env: str = "house_rules") -> RunDirectory:
    """A finished run of a workspace whose episodes were scripted: eight attempts at each of twelve problems."""
    config = TrainingConfig(env=env, problems=12, validation_problems=16, test_problems=16, seed=3)
    directory = RunDirectory(create_workspace(root).runs / run_id)
    directory.create(RunDocument(run_id=run_id, created_at=1.0, state=RunState.FINISHED), config)
    rng, lines = random.Random(1), []
    for number, row in enumerate(HouseRules.tasks(Split.TRAIN, 12, 3)):
        found = re.search(r"(\d+) @ (\d+)", row["prompt"])
        assert found is not None
        for k in range(8):
            expression = rng.choice(MEANINGS).format(a=found[1], b=found[2])
            value = show(evaluate(expression))
            calls = [("calculate", {"expression": expression}, value), ("finish", {"answer": value}, "done")]
            messages: list[dict[str, Any]] = [{"role": "user", "content": row["prompt"]}]
            for tool, arguments, result in calls:
                function = {"name": tool, "arguments": arguments}
                call = {"type": "function", "function": function}
                messages += [
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": result},
                ]
            lines.append(
                {"step": 1, "group": number, "generation": k, "prompt": row["prompt"], "row": row, "messages": messages,
                 "reward": float(value == row["answer"]), "valid": True, "stop_reason": "finished"}
            )  # fmt: skip
    directory.episodes_folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    directory.episode_path(1).write_text(text, encoding="utf-8")
    return directory
