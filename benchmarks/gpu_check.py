"""What a GPU machine should measure, in at most five minutes.

    MCP_EVO_SMOLLM2=/path/to/SmolLM2.gguf python benchmarks/gpu_check.py [--gsm8k FILE.jsonl] [--minutes 5]

1. Throughput of a step on SmolLM2-135M in bfloat16 against TRL on the same device (`throughput.py`), three rounds.
2. Where the weights of Qwen2.5-0.5B-Instruct lie in the local cache and a GSM8K file is given: success on 64 problems
   before and after as many training steps as the time allows, with intervals. A probe, not a result.

One JSON document on standard output; what could not be measured says why. It has not been run so far.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import BenchmarkError, Workload
from benchmarks.throughput import measure, model_of


def require_gpu() -> str:
    """Name of the CUDA device. Raises BenchmarkError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise BenchmarkError(
            "this machine has no CUDA device that torch can use. Run it on one; `mcp-evo doctor --train` says what "
            "training finds on this machine, and benchmarks/throughput.py measures on the CPU."
        )
    return str(torch.cuda.get_device_name())


def throughput_part(work: Path) -> dict[str, Any]:
    """Part 1."""
    from benchmarks.warm_up import policy_folder

    folder = policy_folder(model_of("smollm2-135m"), work)
    workload = Workload(str(folder), episodes=64, device="cuda", dtype="bfloat16", steps=5)
    return measure(workload, work, rounds=3, max_rounds=3, warm_up=1)


def gsm8k_part(file: Path, until: float) -> dict[str, Any]:
    """Part 2. `until`: time.perf_counter() at which the last step must have begun."""
    from trainer.config import TrainingConfig
    from trainer.envs import registry
    from trainer.envs.base import Split
    from trainer.evaluate import Evaluator, limits_of
    from trainer.grpo import AgentGRPO
    from trainer.models.catalog import resolve_model
    from trainer.models.load import ModelFault, load
    from trainer.rollout.engine import RolloutEngine
    from trainer.tasks import build_tasks

    os.environ["HF_HUB_OFFLINE"] = "1"
    config = TrainingConfig(
        env="gsm8k",
        env_args={"file": str(file)},
        model="qwen-0.5b",
        problems=256,
        batch_size=8,
        num_generations=8,
        max_completion_tokens=320,
        max_steps=200,
        learning_rate=1e-6,
        test_problems=64,
        validation_problems=8,
    )
    try:
        loaded = load(resolve_model(config.model), "cuda", "bfloat16")
    except ModelFault as fault:
        return {"not_measured": str(fault)}
    spec = registry.load(config.env)
    tasks = build_tasks(config, spec, file.parent)
    evaluator = Evaluator(config, loaded, spec, tasks)
    before, _ = evaluator.run(Split.TEST)
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        AgentGRPO(
            config,
            loaded,
            tasks,
            RolloutEngine(loaded.model, loaded.tokenizer, spec, limits_of(config), seed=config.seed),
            Path(folder),
            on_episodes=lambda step, episodes: None,
            on_step=lines.append,
            on_event=lambda kind, **fields: None,
            after_step=lambda step: "time" if time.perf_counter() > until else None,
        ).train()
    after, _ = evaluator.run(Split.TEST)
    return {
        "before": before.model_dump(mode="json"),
        "after": after.model_dump(mode="json"),
        "steps": len(lines),
        "step_seconds": [line["time_s"] for line in lines],
        "rewards": [line["reward_mean"] for line in lines],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=Path, help="a .jsonl file with `question` and `answer`")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mcp-evo-benchmarks")
    arguments = parser.parse_args()
    began = time.perf_counter()
    arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        document: dict[str, Any] = {"device": require_gpu()}
        try:
            document["throughput"] = throughput_part(arguments.work)
        except BenchmarkError as error:
            document["throughput"] = {"not_measured": str(error)}
        left = began + 60 * arguments.minutes - 75  # a minute and a quarter for the last step and the evaluation
        if arguments.gsm8k is None:
            document["gsm8k"] = {"not_measured": "no file was given (--gsm8k)"}
        elif time.perf_counter() > left:
            document["gsm8k"] = {"not_measured": "no time was left"}
        else:
            document["gsm8k"] = gsm8k_part(arguments.gsm8k, left)
    except BenchmarkError as error:
        raise SystemExit(f"gpu_check: {error}") from None
    document["seconds"] = round(time.perf_counter() - began, 1)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
