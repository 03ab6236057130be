"""Where our step's time goes and how it grows: episodes, prompt length, turns, one at a time.

    python benchmarks/scaling.py [--quick] [--budget 300] [--json]

The bundled model plays episodes whose shape is forced: every turn counts as one readable call, whatever it says, until
`turns` turns are over, and the system message is filled up to the wanted prompt length. Everything else is real:
sampling, tool calls, rewards (mixed by a hash of the answer, so that no group is flat), loss, backward pass, optimiser.
A cell is the median of its steps after one that does not count. Cells that no longer fit into `--budget` seconds are
listed as skipped. `slope` is d log(seconds) / d log(variable) over the cells: 1 grows in proportion, 0 not at all.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

PHASES = ("generate", "environment", "logprob", "update", "other")


@dataclass(frozen=True)
class Cell:
    """One shape of a step."""

    episodes: int = 32
    prompt: int = 335
    """Tokens, at least what the tools take."""
    turns: int = 3


BASE = Cell()
SWEEPS: dict[str, tuple[Cell, ...]] = {
    "episodes": tuple(replace(BASE, episodes=n) for n in (8, 16, 32, 64, 128, 256)),
    "prompt": tuple(replace(BASE, prompt=n) for n in (100, 250, 500, 1000, 2000)),
    "turns": tuple(replace(BASE, turns=n) for n in (1, 2, 4, 8)),
}
QUICK: dict[str, tuple[Cell, ...]] = {
    "episodes": tuple(replace(BASE, episodes=n) for n in (8, 32)),
    "prompt": tuple(replace(BASE, prompt=n) for n in (100, 500)),
    "turns": tuple(replace(BASE, turns=n) for n in (1, 3)),
}

GENERATIONS = 8


class Forced:
    """An environment with one short tool, so that a prompt can be about 100 tokens."""

    def reset(self, **_: object) -> None:
        self.heard = ""

    def go(self, a: str) -> str:
        """
        Go.

        Args:
            a: A.
        """
        self.heard += a
        return "ok"

    def get_reward(self) -> float:
        """0 or 1 by a hash of what was said: no skill, but rewards that differ within a group."""
        return float(zlib.crc32(self.heard.encode()) % 2)


def slope(values: list[float], seconds: list[float]) -> float:
    """Least-squares slope of log(seconds) against log(values)."""
    x, y = [math.log(v) for v in values], [math.log(s) for s in seconds]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def measure(cell: Cell, steps: int, work: Path) -> dict[str, Any]:
    """Median seconds of a step by phase, and what it consisted of."""
    import torch
    from transformers import PrinterCallback

    from trainer.config import TrainingConfig
    from trainer.envs.base import EnvironmentSpec
    from trainer.grpo import AgentGRPO
    from trainer.models.catalog import resolve_model
    from trainer.models.load import load
    from trainer.models.parsing.types import ParsedTurn, ToolCall
    from trainer.rollout.engine import RolloutEngine
    from trainer.rollout.types import Limits
    from trainer.tasks import Tasks

    torch.manual_seed(1)
    config = TrainingConfig(
        problems=64,
        batch_size=cell.episodes // GENERATIONS,
        num_generations=GENERATIONS,
        max_steps=steps + 1,
        learning_rate=1e-12,
        max_completion_tokens=64 * cell.turns,
        max_turns=cell.turns,
        device="cpu",
    )
    loaded = load(resolve_model("tiny"), "cpu", "float32")
    engine = RolloutEngine(
        loaded.model,
        loaded.tokenizer,
        EnvironmentSpec.of("forced", Forced),
        Limits(64 * cell.turns, cell.turns),
        seed=1,
        parse=lambda text: ParsedTurn("", [ToolCall("go", {"a": text[:200]})]),
    )
    problem = {"prompt": "What is 2 + 3?"}
    short = len(engine.renderer.prompt_ids([{"role": "system", "content": ""}, {"role": "user", "content": "q"}]))
    filling = " 7" * max(0, (cell.prompt - short) // 2)
    config = config.model_copy(update={"system_prompt": filling or "."})
    rows = [dict(problem, prompt=f"What is {n} + 3?") for n in range(64)]
    lines: list[dict[str, Any]] = []
    trainer = AgentGRPO(
        config,
        loaded,
        Tasks(rows, [], []),
        engine,
        work,
        on_episodes=lambda step, episodes: None,
        on_step=lines.append,
        on_event=lambda kind, **fields: None,
        after_step=lambda step: None,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    counted = lines[1:]
    seconds = {p: round(statistics.median(one["seconds"][p] for one in counted), 4) for p in PHASES}
    return {
        **asdict(cell),
        "prompt_tokens": round(statistics.fmean(one["tokens_prompt"] / one["episodes"] for one in counted), 1),
        "completion_tokens": round(statistics.fmean(one["completion_mean"] for one in counted), 1),
        "turns_played": round(statistics.fmean(one["turns_mean"] for one in counted), 2),
        "step": round(statistics.median(one["time_s"] for one in counted), 4),
        "episodes_per_s": round(cell.episodes / statistics.median(one["time_s"] for one in counted), 1),
        "seconds": seconds,
    }


def summarise(name: str, cells: list[dict[str, Any]]) -> dict[str, float]:
    """Slopes of the step and of its two large phases against what was varied."""
    key = {"episodes": "episodes", "prompt": "prompt_tokens", "turns": "turns_played"}[name]
    done = [cell for cell in cells if "step" in cell]
    if len(done) < 2:
        return {}
    values = [float(cell[key]) for cell in done]
    found = {"step": slope(values, [c["step"] for c in done])}
    for phase in ("generate", "update"):
        found[phase] = slope(values, [max(c["seconds"][phase], 1e-4) for c in done])
    return {phase: round(value, 2) for phase, value in found.items()}


def run(sweeps: dict[str, tuple[Cell, ...]], steps: int, budget_s: float, work: Path) -> dict[str, Any]:
    """All cells that fit into the budget, each once."""
    began = time.perf_counter()
    known: dict[Cell, dict[str, Any]] = {}
    document: dict[str, Any] = {}
    for name, cells in sweeps.items():
        results = []
        for cell in cells:
            if cell not in known:
                if time.perf_counter() - began > budget_s:
                    results.append({**asdict(cell), "skipped": f"the budget of {budget_s:g} s was spent"})
                    continue
                known[cell] = measure(cell, steps, work)
                print(row(known[cell]), file=sys.stderr, flush=True)
            results.append(known[cell])
        document[name] = {"cells": results, "slope": summarise(name, results)}
    document["seconds_in_all"] = round(time.perf_counter() - began, 1)
    return document


def row(cell: dict[str, Any]) -> str:
    """One line of the table."""
    shape = f"{cell['episodes']:9d}{cell['prompt']:8d}{cell['turns']:6d}"
    if "skipped" in cell:
        return f"{shape}  {cell['skipped']}"
    phases = "".join(f"{cell['seconds'][p]:12.3f}" for p in PHASES)
    return f"{shape}{cell['completion_tokens']:12.1f}{cell['step']:9.3f}{phases}{cell['episodes_per_s']:11.1f}"


def table(document: dict[str, Any]) -> str:
    """For people."""
    head = f"{'episodes':>9s}{'prompt':>8s}{'turns':>6s}{'completion':>12s}{'step s':>9s}"
    head += "".join(f"{p:>12s}" for p in PHASES) + f"{'episodes/s':>11s}"
    lines = []
    for name in SWEEPS:
        lines += [f"by {name}", head, *(row(cell) for cell in document[name]["cells"])]
        lines += [f"slope: {document[name]['slope']}", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six small cells, one step each: under a minute")
    parser.add_argument("--steps", type=int, default=3, help="steps that count, for each cell")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds; no cell begins after them")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory(prefix="scaling-") as work:
        document = run(
            QUICK if arguments.quick else SWEEPS,
            1 if arguments.quick else arguments.steps,
            arguments.budget,
            Path(work),
        )
    document |= {"threads": arguments.threads, "model": "tiny", "generations": GENERATIONS}
    print(json.dumps(document, indent=1) if arguments.json else table(document))


if __name__ == "__main__":
    main()
