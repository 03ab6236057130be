"""Where reinforcement learning works on `tiny`: learning rate x batch shape x seeds at equal episodes, test success.

    python benchmarks/tiny_sweep.py [--seeds 3] [--episodes 512] [--json FILE] [--markdown FILE]

Two single-threaded workers side by side; a resumable work folder keeps what is done. No validation and no best
checkpoint: the number is the model at the end of its budget.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from trainer.config import TrainingConfig
from trainer.runs.pool import WorkerPool
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument

RATES = (1e-5, 1e-4, 2e-4, 3e-4, 1e-3)
SHAPES = ((2, 4), (4, 4), (4, 8))
"""(problems, generations) of a step."""


def cell_config(rate: float, shape: tuple[int, int], seed: int, episodes: int, **more: object) -> TrainingConfig:
    """One run of the sweep."""
    values = {"difficulty": "mixed", "problems": 64, "temperature": 1.0} | more
    return TrainingConfig(
        learning_rate=rate,
        batch_size=shape[0],
        num_generations=shape[1],
        max_episodes=episodes,
        seed=seed,
        validate_every=0,
        keep_episodes=False,
        threads=1,
        device="cpu",
        **values,
    )


def original(seed: int, episodes: int) -> TrainingConfig:
    """The published defaults of the original system at the same number of episodes."""
    return cell_config(1e-5, (2, 4), seed, episodes, temperature=0.7, max_completion_tokens=256, max_turns=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--rates", type=float, nargs="*", default=list(RATES))
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps finished runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="tiny-sweep-"))
    work.mkdir(parents=True, exist_ok=True)
    began = time.time()
    jobs: dict[str, TrainingConfig] = {}
    for seed in range(1, arguments.seeds + 1):
        jobs[f"original-s{seed}"] = original(seed, arguments.episodes)
        for rate in arguments.rates:
            for shape in SHAPES:
                jobs[f"r{rate:g}-b{shape[0]}x{shape[1]}-s{seed}".replace("-0", "-").replace(".", "_")] = cell_config(
                    rate, shape, seed, arguments.episodes
                )
    results = run_all(jobs, work)
    text = table(results, arguments, time.time() - began)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def run_all(jobs: dict[str, TrainingConfig], work: Path) -> dict[str, dict[str, float | str]]:
    """Name → before, after, state."""
    with WorkerPool(2, threads=1, folder=work) as pool:
        waiting = []
        for name, config in jobs.items():
            directory = RunDirectory(work / name)
            if not directory.document_path.exists():
                directory.create(RunDocument(run_id=name, created_at=time.time()), config)
            document = directory.read_document()
            waiting.append((name, directory, None if document.state.is_final else pool.submit(directory.path)))
        results = {}
        for name, directory, handle in waiting:
            if handle is not None:
                handle.wait()
            document = directory.read_document()
            evals = document.eval
            results[name] = {
                "state": document.state.value,
                "before": evals["before"].mean if "before" in evals else float("nan"),
                "after": evals["after"].mean if "after" in evals else float("nan"),
            }
            print(name, results[name], flush=True)
    return results


def table(results: dict[str, dict[str, float | str]], arguments: argparse.Namespace, seconds: float) -> str:
    """Markdown."""
    seeds = range(1, arguments.seeds + 1)
    lines = [
        "# Where RL works on `tiny`",
        "",
        f"`python benchmarks/tiny_sweep.py --seeds {arguments.seeds} --episodes {arguments.episodes}`",
        "",
        "`calculator` mixed, 64 problems, temperature 1; test success at the end (n = 128, no checkpoint choice): mean "
        + f"and range over {arguments.seeds} seeds.",
        "",
        "| learning rate | " + " | ".join(f"{b} x {g}" for b, g in SHAPES) + " |",
        "|---" * (len(SHAPES) + 1) + "|",
    ]

    def cell(names: list[str]) -> str:
        values = [float(results[name]["after"]) for name in names]
        return f"{statistics.mean(values):.2f} ({min(values):.2f}–{max(values):.2f})"

    for rate in arguments.rates:
        cells = []
        for b, g in SHAPES:
            names = [f"r{rate:g}-b{b}x{g}-s{s}".replace("-0", "-").replace(".", "_") for s in seeds]
            cells.append(cell(names))
        lines.append(f"| {rate:g} | " + " | ".join(cells) + " |")
    before = [float(results[f"original-s{s}"]["before"]) for s in seeds]
    lines += [
        "",
        f"Before training: {statistics.mean(before):.2f} ({min(before):.2f}–{max(before):.2f}). Profile `original` "
        + f"(1e-5, 2 x 4, temperature 0.7): {cell([f'original-s{s}' for s in seeds])}.",
        "",
        "A shape is problems x generations of one optimiser step; all cells have the same number of episodes.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
