"""What this machine can do, and what share of it a measured step reaches.

    python benchmarks/roofline.py [--throughput FILE.json] [--json]

Measured: matrix products in float32 at the shapes of `tiny` and SmolLM2-135M (rows: one token of 32 episodes, a packed
update, a padded one), and memory bandwidth (copy and read of 256 MB). With `--throughput`, a document of
`throughput.py --json`, each phase's necessary work (floating point operations of the shared form, each prefix once) is
divided by its seconds and by the best measured rate. The best of several repeats counts: it is the machine's, the rest
is what else runs on it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder that decide its work."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    inner: int
    vocabulary: int

    @property
    def linear_parameters(self) -> int:
        """Weights of all layers that every token meets, the head not counted."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.key_heads)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Shape":
        """From a config.json."""
        heads = int(config["num_attention_heads"])
        size = config.get("head_dim") or config["hidden_size"] // heads
        return cls(
            config["num_hidden_layers"],
            config["hidden_size"],
            heads,
            config.get("num_key_value_heads") or heads,
            size,
            config["intermediate_size"],
            config["vocab_size"],
        )


TINY = Shape(4, 128, 4, 2, 32, 448, 560)
SMOLLM2 = Shape(30, 576, 9, 3, 64, 1536, 49_152)


def forward_flops(shape: Shape, tokens: float, scored: float, keys: float) -> float:
    """Operations of a forward pass: 2 per weight and token, 4·keys·heads·size per token and layer for attention.

    tokens: that go through the layers; scored: that go through the head; keys: mean number that a token looks at.
    """
    linear = 2.0 * shape.linear_parameters * tokens
    attention = 4.0 * keys * shape.heads * shape.head_size * shape.layers * tokens
    return linear + attention + 2.0 * shape.vocabulary * shape.hidden * scored


def necessary_work(shape: Shape, side: dict[str, Any]) -> dict[str, float]:
    """Operations of one step in the shared form: every prefix once. `side`: a side of a throughput document.

    generate: all tokens of all episodes once, the model's scored. update: the same forward, and twice for the backward
    pass. Prompts count once per group.
    """
    workload = side["configuration"]["workload"]
    episodes, groups = workload["episodes"], workload["episodes"] // workload["generations"]
    prompt, own, spoken = side["prompt_tokens"], side["tokens_per_episode"], side["model_tokens_per_episode"]
    prefix = forward_flops(shape, groups * prompt, 0, prompt / 2)
    rest = forward_flops(shape, episodes * own, episodes * spoken, prompt + own / 2)
    return {"generate": prefix + rest, "update": 3 * (prefix + rest)}


def best_rate(run: Callable[[], Any], work: float, seconds: float) -> float:
    """The highest work per second over repeats within about `seconds`."""
    run()
    best, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        run()
        best = max(best, work / (time.perf_counter() - began))
    return best


def products(threads: int, seconds: float) -> list[dict[str, Any]]:
    """Gigaflops of x·Wᵀ at the shapes that matter."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    rows = []
    for name, shape in (("tiny", TINY), ("smollm2-135m", SMOLLM2)):
        for use, count in (("decode, 32 rows", 32), ("packed update", 3200), ("padded update", 12_800)):
            for part, inputs, outputs in (
                ("gate and up", shape.hidden, 2 * shape.inner),
                ("down", shape.inner, shape.hidden),
                ("query, key, value", shape.hidden, shape.head_size * (shape.heads + 2 * shape.key_heads)),
            ):
                x, weight = torch.randn(count, inputs), torch.randn(outputs, inputs)
                with torch.inference_mode():
                    rate = best_rate(
                        lambda x=x, w=weight: functional.linear(x, w), 2.0 * count * inputs * outputs, seconds
                    )
                rows.append(
                    {"model": name, "use": use, "part": part, "shape": [count, inputs, outputs], "gflops": rate / 1e9}
                )
    return rows


def bandwidth(threads: int, seconds: float) -> dict[str, float]:
    """Gigabytes a second: a copy moves each byte twice, a sum once."""
    import torch

    torch.set_num_threads(threads)
    source, target = torch.randn(64 * 2**20), torch.empty(64 * 2**20)
    size = source.numel() * 4
    return {
        "copy": best_rate(lambda: target.copy_(source), 2.0 * size, seconds) / 1e9,
        "read": best_rate(source.sum, float(size), seconds) / 1e9,
    }


def reached(document: dict[str, Any], shape: Shape, peak_gflops: float) -> dict[str, dict[str, float]]:
    """Share of the machine's best product rate that each phase of each side reaches, counted in necessary work."""
    shares: dict[str, dict[str, float]] = {}
    for name in ("ours", "ours_without_flat_skip", "trl"):
        side = document[name]
        work = necessary_work(shape, side)
        shares[name] = {
            phase: round(flops / side["seconds"][phase] / 1e9 / peak_gflops, 4) for phase, flops in work.items()
        }
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.6, help="for each shape")
    parser.add_argument("--throughput", type=Path, help="a document of throughput.py --json")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = products(arguments.threads, arguments.seconds)
    document: dict[str, Any] = {
        "threads": arguments.threads,
        "products": [dict(row, gflops=round(row["gflops"], 1)) for row in rows],
        "memory_gb_s": {k: round(v, 1) for k, v in bandwidth(arguments.threads, 2 * arguments.seconds).items()},
    }
    peak = max(row["gflops"] for row in rows)
    document["peak_gflops"] = round(peak, 1)
    if arguments.throughput:
        measured = json.loads(arguments.throughput.read_text())
        folder = Path(measured["ours"]["configuration"]["workload"]["model"])
        shape = Shape.of(json.loads((folder / "config.json").read_text()))
        document["necessary_gflop"] = {k: round(v / 1e9, 2) for k, v in necessary_work(shape, measured["ours"]).items()}
        document["share_of_peak"] = reached(measured, shape, peak)
    if arguments.json:
        print(json.dumps(document, indent=1))
        return
    for row in document["products"]:
        print(f"{row['model']:14s}{row['use']:18s}{row['part']:20s}{row['shape']!s:22s}{row['gflops']:8.1f} GFLOP/s")
    print({k: v for k, v in document.items() if k != "products"})


if __name__ == "__main__":
    main()
