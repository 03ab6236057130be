"""What the trainer benchmarks share: the workload, the two sides as processes, and how rounds become ratios.

Each side is a process of its own (`side.py`) that makes one optimiser step when it is told to, so the sides alternate
in one run (A B C, A B C, …) and whatever else the machine does falls on all of them. While one side works the others
wait for a line on their standard input and use no processor.

- `ours`: the trainer of this package, as `mcp-evo train` runs it.
- `ours_keep_flat`: the same, but groups whose rewards do not differ stay in the batch.
- `trl`: GRPOTrainer(environment_factory=…), nothing overridden but two methods that are timed.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

SIDE = Path(__file__).with_name("side.py")

OURS, KEEP_FLAT, TRL = "ours", "ours_keep_flat", "trl"
SIDES = (TRL, OURS, KEEP_FLAT)


class BenchmarkError(Exception):
    """A benchmark that cannot be run: says why and what to do next."""


@dataclass(frozen=True)
class Workload:
    """Everything that both sides must agree on."""

    model: str
    """Folder in transformers' format."""
    episodes: int = 32
    """Episodes of a step."""
    generations: int = 8
    """Episodes of one problem (group size)."""
    max_completion_tokens: int = 160
    """Tokens after the prompt, the environment's included."""
    max_turns: int = 4
    """Model turns; TRL counts tool rounds, which are one less."""
    temperature: float = 1.0
    loss_type: str = "dapo"
    learning_rate: float = 1e-12
    """AdamW does all its work, but the weights stay: every step of every side samples from the same policy."""
    difficulty: str = "mixed"
    problems: int = 64
    seed: int = 1
    steps: int = 64
    """Upper bound; the parent decides how many are made."""
    threads: int = 2
    device: str = "cpu"
    dtype: str = "float32"
    micro_batch: int = 0
    """Rows of one forward pass on the TRL side, 0: all. TRL has no packing, so a large model needs parts."""
    stop_at_finish: bool = False
    """Whether our side ends an episode when the answer is submitted. TRL cannot, so throughput is compared without."""

    def __post_init__(self) -> None:
        if self.episodes % self.generations:
            raise BenchmarkError(
                f"--episodes {self.episodes} is not a multiple of the group size {self.generations}; "
                f"use {max(1, self.episodes // self.generations) * self.generations}."
            )
        if self.micro_batch and self.episodes % self.micro_batch:
            raise BenchmarkError(f"--micro-batch {self.micro_batch} does not divide --episodes {self.episodes}.")

    @property
    def groups(self) -> int:
        return self.episodes // self.generations

    def with_(self, **changes: Any) -> "Workload":
        return replace(self, **changes)


class Side:
    """One running side. `step()` makes one optimiser step and returns what it took."""

    def __init__(self, name: str, workload: Workload, log: Path, *, wait_policy: str = "passive") -> None:
        """`wait_policy`: "passive" (idle threads sleep, as `mcp-evo` runs), or "default" (the OpenMP runtime's own)."""
        self.name, self.log = name, log
        variables = {**os.environ, **_QUIET}
        variables.pop("OMP_WAIT_POLICY", None)
        if wait_policy == "passive":
            variables["OMP_WAIT_POLICY"] = "PASSIVE"
        with open(log, "wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SIDE), name, json.dumps(asdict(workload))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=variables,
                text=True,
            )
        self.configuration = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-12:]
            raise BenchmarkError(
                f"the side `{self.name}` ended with status {self._process.wait()}. Its last lines ({self.log}):\n"
                + "\n".join(tail)
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why
        return self._read()

    def step(self) -> dict[str, Any]:
        """One optimiser step: seconds by phase, tokens, rewards."""
        return self._ask("step")

    def evaluate(self) -> dict[str, Any]:
        """Held-out success of the present weights; not part of any step's time."""
        return self._ask("evaluate")

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_QUIET = {
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


PHASES = ("step", "generate", "update")


def ratios(slow: Sequence[dict[str, Any]], fast: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median over rounds of slow / fast seconds, for the step and its two phases.

    Round i of both sides stands side by side in time, so that the machine's mood cancels within a pair.
    """
    if len(slow) != len(fast) or not slow:
        raise ValueError(f"{len(slow)} and {len(fast)} rounds; pairs are needed")
    return {
        phase: round(
            statistics.median(a["seconds"][phase] / b["seconds"][phase] for a, b in zip(slow, fast, strict=True)), 3
        )
        for phase in PHASES
    }


def weighted_mean(rounds: Iterable[dict[str, Any]], key: str) -> float:
    """Mean of a per-round number; rounds have equally many episodes."""
    return statistics.fmean(float(one[key]) for one in rounds)


def summary(side: str, configuration: dict[str, Any], rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a side did: configuration, median seconds, tokens, rewards."""
    return {
        "side": side,
        "configuration": configuration,
        "rounds": len(rounds),
        "seconds": {p: round(statistics.median(r["seconds"][p] for r in rounds), 4) for p in PHASES},
        "tokens_per_episode": round(weighted_mean(rounds, "tokens_per_episode"), 2),
        "model_tokens_per_episode": round(weighted_mean(rounds, "model_tokens_per_episode"), 2),
        "prompt_tokens": round(weighted_mean(rounds, "prompt_tokens"), 1),
        "turns_per_episode": round(weighted_mean(rounds, "turns_per_episode"), 2),
        "reward_mean": round(weighted_mean(rounds, "reward_mean"), 4),
        "flat_groups": round(weighted_mean(rounds, "flat_groups"), 4),
        "each_round": list(rounds),
    }


def relative_difference(a: float, b: float) -> float:
    """|a - b| as a share of the smaller one."""
    return abs(a - b) / min(a, b)
