"""Held-out success after training on few originals alone, and on the same originals with generated tasks among them.

    python benchmarks/generated_tasks.py [--env calculator] [--originals 16] [--problems 64] [--steps 40] [--seeds 3]

Both arms of a seed start from the same weights, play the same number of episodes and are tested on the same problems
under the same random streams; a training set of `--problems` is mixed of `--originals` originals and generated tasks,
which the scripted explorer makes of these originals alone. The class's own `solution` checks them, so nothing in the
mixed set is wrong; it says in how far more of the same kind helps, not how a poor generator hurts.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too

from skill_bank.files import write_json_atomic
from trainer.config import TrainingConfig
from trainer.generation.folder import SetFolder
from trainer.generation.types import GenerationPlan
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument


def child(module: str, folder: Path) -> None:
    """Runs one of our processes to its end. Raises SystemExit with its last lines where it fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"generated_tasks: {module} {folder} failed:\n{done.stdout[-500:]}\n{done.stderr[-1500:]}")


def generate(folder: Path, config: TrainingConfig, count: int) -> dict[str, Any]:
    """Makes a set of tasks of the configuration's originals. Returns its manifest."""
    folder.mkdir(parents=True)
    plan = GenerationPlan(
        set_id=folder.name, created_at=0.0, config=config, count=count, originals=config.problems, seed=config.seed
    )
    write_json_atomic(folder / "plan.json", plan.model_dump(mode="json"))
    child("trainer.generate_main", folder)
    manifest: dict[str, Any] = json.loads(SetFolder(folder).manifest_path.read_bytes())
    return manifest


def train(folder: Path, config: TrainingConfig) -> dict[str, Any]:
    """Trains. Returns success before and after, on the test split."""
    directory = RunDirectory(folder)
    directory.create(RunDocument(run_id=folder.name, created_at=time.time()), config)
    child("trainer.worker", folder)
    document = directory.read_document()
    return {name: document.eval[name].mean for name in ("before", "after") if name in document.eval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="calculator")
    parser.add_argument("--difficulty", default="mixed")
    parser.add_argument("--originals", type=int, default=16)
    parser.add_argument("--problems", type=int, default=64, help="of the mixed training set")
    parser.add_argument("--steps", type=int, default=40, help="of 16 episodes each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--test", type=int, default=256, help="test problems")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--env-args", default="{}", help="JSON")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="generated-tasks-"))
    rows = []
    for seed in range(1, arguments.seeds + 1):
        base = TrainingConfig.model_validate(
            {
                "env": arguments.env,
                "env_args": json.loads(arguments.env_args),
                "difficulty": arguments.difficulty,
                "problems": arguments.originals,
                "max_steps": arguments.steps,
                "test_problems": arguments.test,
                "validate_every": 0,
                "threads": arguments.threads,
                "seed": seed,
            }
        )
        missing = arguments.problems - arguments.originals
        manifest = generate(work / f"set-{seed}", base, missing)
        mixture = {
            "problems": arguments.problems,
            "generated_tasks": str(work / f"set-{seed}" / "tasks.jsonl"),
            "generated_ratio": missing / arguments.problems,
            "skip_eval_before": True,
        }
        alone = train(work / f"originals-{seed}", base)
        mixed = train(work / f"mixed-{seed}", TrainingConfig.model_validate(base.model_dump() | mixture))
        rows.append({"seed": seed, "generated": manifest["kept"], **alone, "mixed": mixed["after"]})
        print(rows[-1], file=sys.stderr, flush=True)
    differences = [row["mixed"] - row["after"] for row in rows]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    summary = {"difference": statistics.mean(differences), "standard_error": error, "seeds": len(differences)}
    print(json.dumps({"settings": vars(arguments), "rows": rows, **summary}, indent=1))


if __name__ == "__main__":
    main()
