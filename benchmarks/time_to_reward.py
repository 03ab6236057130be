"""Seconds and episodes until held-out success reaches a goal, against plain TRL, several seeds.

    python benchmarks/time_to_reward.py [--goal 0.9] [--seeds 3] [--budget 300] [--json]

Both sides start from the same weights and meet the same problems in the same order with the same learning rate, group
size and loss, a step of one side after a step of the other. The clock of a side is the time of its own steps; held-out
evaluations (128 problems, the same engine, temperature 1) stand outside of it. The goal is reached when the last two
evaluations together lie at or above it, as in training. A side that does not get there within `--budget` seconds of its
own time says so. Ours ends an episode when the answer is submitted; TRL's agent loop has no such member, so there the
model goes on until it calls no tool.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too

from benchmarks.common import OURS, TRL, BenchmarkError, Side, Workload
from benchmarks.throughput import model_of


class Race:
    """One side of one seed, from its first evaluation to the goal or the end of its budget."""

    def __init__(self, side: Side, goal: float, budget_s: float, every: int, episodes: int) -> None:
        """`every`: steps between evaluations; `episodes`: of one step."""
        self.side, self.goal, self.budget_s, self.every, self.episodes = side, goal, budget_s, every, episodes
        self.seconds, self.steps = 0.0, 0
        self.curve: list[dict[str, float]] = []
        self.reached = self.over = False

    def evaluate(self) -> None:
        mean = float(self.side.evaluate()["mean"])
        self.curve.append({"step": self.steps, "seconds": round(self.seconds, 2), "success": mean})
        self.reached = reached(self.curve, self.goal)
        self.over = self.reached or self.seconds >= self.budget_s

    def go_on(self) -> None:
        """One step, and an evaluation where it is due."""
        self.seconds += float(self.side.step()["seconds"]["step"])
        self.steps += 1
        if self.steps % self.every == 0 or self.seconds >= self.budget_s:
            self.evaluate()

    def result(self) -> dict[str, Any]:
        return {
            "reached": self.reached,
            "seconds": round(self.seconds, 2),
            "steps": self.steps,
            "episodes": self.steps * self.episodes,
            "last_success": self.curve[-1]["success"],
            "says": f"{self.goal} reached after {self.seconds:.1f} s"
            if self.reached
            else f"not reached in {self.seconds:.0f} s",
            "curve": self.curve,
        }


def reached(curve: list[dict[str, float]], goal: float) -> bool:
    """Whether the last two evaluations after the start lie at or above the goal on average."""
    last = [point["success"] for point in curve if point["step"] > 0][-2:]
    return len(last) == 2 and statistics.fmean(last) >= goal


def race(workload: Workload, work: Path, goal: float, budget_s: float, every: int) -> dict[str, Any]:
    """Both sides of one seed, alternating step by step."""
    with (
        Side(OURS, workload, work / "race-ours.log") as ours,
        Side(TRL, workload, work / "race-trl.log") as trl,
    ):
        races = {n: Race(s, goal, budget_s, every, workload.episodes) for n, s in ((OURS, ours), (TRL, trl))}
        for one in races.values():
            one.evaluate()
        while not all(one.over for one in races.values()):
            for one in races.values():
                if not one.over:
                    one.go_on()
        for name, one in races.items():
            print(
                f"seed {workload.seed} {name:5s} {one.result()['says']}, {one.steps} steps", file=sys.stderr, flush=True
            )
        configurations = {OURS: ours.configuration, TRL: trl.configuration}
        return {name: one.result() | {"configuration": configurations[name]} for name, one in races.items()}


def combine(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the seeds that reached the goal, how many did, and TRL's seconds over ours where both did."""
    document: dict[str, Any] = {}
    for name in (OURS, TRL):
        good = [seed[name] for seed in seeds if seed[name]["reached"]]
        document[name] = {"reached": len(good), "of": len(seeds)}
        if good:
            document[name] |= {key: statistics.median(one[key] for one in good) for key in ("seconds", "episodes")}
    both = [seed for seed in seeds if seed[OURS]["reached"] and seed[TRL]["reached"]]
    if both:
        document["ratio_seconds"] = round(statistics.median(s[TRL]["seconds"] / s[OURS]["seconds"] for s in both), 2)
        document["ratio_episodes"] = round(statistics.median(s[TRL]["episodes"] / s[OURS]["episodes"] for s in both), 2)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, smollm2-135m, a folder, a .gguf file")
    parser.add_argument("--goal", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of its own steps that each side has")
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--every", type=int, default=5, help="steps between evaluations")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--warmed", action="store_true", help="start from the warmed policy of throughput.py")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mcp-evo-benchmarks")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        from trainer.models.catalog import resolve_model

        model = model_of(arguments.model)
        folder = resolve_model(model).location
        if arguments.warmed or not (Path(folder) / "config.json").is_file():
            from benchmarks.warm_up import policy_folder

            folder = str(policy_folder(model, arguments.work))
        results = []
        for seed in range(1, arguments.seeds + 1):
            workload = Workload(
                model=folder,
                episodes=arguments.episodes,
                generations=arguments.generations,
                learning_rate=arguments.learning_rate,
                threads=arguments.threads,
                seed=seed,
                steps=4_000,
                stop_at_finish=True,
            )
            results.append(race(workload, arguments.work, arguments.goal, arguments.budget, arguments.every))
    except BenchmarkError as error:
        raise SystemExit(f"time_to_reward: {error}") from None
    document = {"goal": arguments.goal, "budget_s": arguments.budget, **combine(results), "seeds": results}
    if arguments.json:
        print(json.dumps(document, indent=1))
        return
    for number, result in enumerate(results, start=1):
        for name in (OURS, TRL):
            one = result[name]
            print(f"seed {number} {name:5s} {one['says']} ({one['episodes']} episodes, last {one['last_success']:.2f})")
    print({key: value for key, value in document.items() if key != "seeds"})


if __name__ == "__main__":
    main()
