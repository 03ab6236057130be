"""The six life cycles and the three ways to train on guided attempts, each as a short run with what can be seen of it.

- `rows`: records in the pool when the run ended (`rows_before`: of the pool that it began with).
- `model`: the digest of the weights when the run ended, and whether they are those it began with.
- `written_at`: steps whose attempts are the evidence of records; 0: the filling before the first step.
- `guided`, `stripped`: attempts that saw lessons, and those of them trained on the prompt without.

Runs that use a pool of old begin with a copy of the one that `init_only` filled.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.experience_uplift import fill_config
from benchmarks.kept_runs import KeptRuns
from trainer.config import TrainingConfig
from trainer.experience.pool import ExperiencePool, pool_path
from trainer.experience.records import ExperienceRecord
from trainer.models.catalog import resolve_model
from trainer.runs.rundir import RunDirectory

CYCLES = ("no_pool", "init_only", "init_train", "init_train_update", "existing_train", "existing_train_update")
SAMPLES = ("ec", "ei", "het")
EXISTING = ("existing_train", "existing_train_update")
STEPS = 8
SHARE = 0.5
"""Of each group sees lessons, whatever the mode: with more of them a short run shows more."""
UPDATE_EVERY = 2


def modes_config(mode: str, seed: int, **changes: Any) -> TrainingConfig:
    """A short run of a preset with a pool of its own."""
    experience: dict[str, Any] = {"preset": mode, "pool": f"mode-{name_of(mode)}"}
    if mode not in ("no_pool", "init_only"):
        experience["rollout_ratio"] = SHARE
    if mode.endswith("_update"):
        experience["updated_freq"] = UPDATE_EVERY
    config = fill_config(seed, problems=16, tests=32)
    values = {"max_steps": STEPS, "experience": experience, "save_every": 0} | changes
    return TrainingConfig.model_validate(config.model_dump() | values)


def name_of(mode: str) -> str:
    """The run of a mode."""
    return mode.replace("_", "-")


def modes(runs: KeptRuns, seed: int, **changes: Any) -> list[dict[str, Any]]:
    """One row a mode, in their order."""
    configs = {f"mode-{name_of(mode)}": modes_config(mode, seed, **changes) for mode in (*CYCLES, *SAMPLES)}
    existing = [f"mode-{name_of(mode)}" for mode in EXISTING]
    found = runs.run({name: config for name, config in configs.items() if name not in existing})
    filled = pool_path(runs.work, "mode-init-only")
    found |= runs.run({name: configs[name] for name in existing}, dict.fromkeys(existing, filled))
    start = digest_of(Path(resolve_model(configs[existing[0]].model).location))
    rows = []
    for mode in (*CYCLES, *SAMPLES):
        directory = found[f"mode-{name_of(mode)}"]
        before = records_in(filled) if mode in EXISTING else []
        rows.append({"mode": mode, **observed(directory, pool_path(runs.work, f"mode-{name_of(mode)}"), before, start)})
    return rows


def observed(
    directory: RunDirectory, pool_file: Path, before: Sequence[ExperienceRecord], start: str
) -> dict[str, Any]:
    """What can be seen of a run that has ended."""
    metrics = directory.metrics()
    records = records_in(pool_file)
    model = digest_of(directory.model_folder) if directory.model_folder.is_dir() else start
    guided, stripped = (int(sum(row.get(key, 0) for row in metrics)) for key in ("guided", "guided_stripped"))
    return {
        "steps": len(metrics),
        "rows_before": len(before),
        "rows": len(records),
        "model": model[:12],
        "model_changed": model != start,
        "written_at": steps_of(records, directory.run_id),
        "guided": guided,
        "stripped": stripped,
    }


def records_in(pool_file: Path) -> list[ExperienceRecord]:
    """All records of a pool; none where there is no file."""
    if not pool_file.exists():
        return []
    with ExperiencePool(pool_file) as pool:
        return list(pool.store.iterate())


def steps_of(records: Sequence[ExperienceRecord], run_id: str) -> list[int]:
    """The steps of a run whose attempts records rest on."""
    return sorted(
        {
            int(e.trajectory.partition("/")[0])
            for r in records
            for e in r.evidence
            if e.run_id == run_id and e.trajectory
        }
    )


def digest_of(folder: Path) -> str:
    """SHA-256 over names, shapes and values of all weights, in single precision: the bundled file holds half."""
    from safetensors.numpy import load_file

    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        for name, values in sorted(load_file(file).items()):
            digest.update(f"{name}{values.shape}".encode())
            digest.update(values.astype("float32").tobytes())
    return digest.hexdigest()
