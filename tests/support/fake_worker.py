"""A worker that trains nothing: it writes the files of a run as a plausible function of its configuration and seed.

Same command line and protocol as `trainer.worker`: `fake_worker.py RUN_DIR`, or `--serve --protocol-fd N`. The model of
learning: success at temperature 1 starts at .35, learns fastest near a learning rate of 3e-4, not at all far below,
breaks above 3e-3, needs diversity (temperature) and room (completion cap). Runs with the same seed share their luck.

Environment: FAKE_STEP_S seconds a step (default 0); FAKE_DIE_AT_STEP kills the process with SIGKILL at that step.
"""

import hashlib
import math
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.runs.rundir import RunDirectory
from trainer.runs.statistics import wilson
from trainer.runs.types import RunState, Verdict

BEST_RATE = 3e-4
BREAKING_RATE = 3e-3
NEEDED_TOKENS = 64


def stream(*key: object) -> random.Random:
    """Random numbers keyed by what they are for, never by the order of asking."""
    return random.Random(hashlib.sha256(repr(key).encode()).digest())


class Learner:
    """State of the pretended model."""

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config
        self.start = {"simple": 0.5, "mixed": 0.35, "hard": 0.25}[config.difficulty]
        self.success = self.start
        luck = math.exp(stream("luck", config.seed).gauss(0, 0.2))
        distance = math.log10(config.learning_rate / BEST_RATE) / 0.55
        self.speed = luck * math.exp(-0.5 * distance * distance) * min(config.temperature, 1.0) ** 1.3
        self.breaks = config.learning_rate > BREAKING_RATE
        self.truncated = max(0.0, min(0.9, 1.2 - config.max_completion_tokens / NEEDED_TOKENS))
        self.steepness = 0.11
        self.entropy = 0.35 * min(config.temperature, 1.5)

    def learn(self, episodes: int) -> None:
        """One optimiser step on so many episodes."""
        share = episodes / 32
        if self.breaks:
            self.success *= 0.55**share
            self.entropy *= 0.6**share
            return
        gain = self.steepness * self.speed * (1 - self.truncated) * share
        self.success += gain * self.success * (1 - self.success) * 2
        self.entropy *= 1 - 0.02 * self.speed * share

    def at_temperature(self) -> float:
        """Success under the training temperature: cooler sampling follows the best guess more often."""
        cool = 1 + 0.5 * max(0.0, 1 - self.config.temperature)
        return (1 - self.truncated) * min(1.0, self.success * cool)

    def evaluation(self, n: int, key: str) -> dict[str, Any]:
        chance = max(0.0, min(1.0, self.success * (1 - 0.3 * self.truncated)))
        draws = stream("eval", self.config.seed)
        solved = sum(draws.random() < chance for _ in range(n))
        mean = solved / n
        return {
            "metric": "success",
            "split": "test" if key != "validation" else "validation",
            "n": n,
            "mean": mean,
            "ci95": list(wilson(solved, n)),
            "parse_ok_rate": 0.97,
            "tool_call_rate": 0.95,
            "correct_given_valid_call": min(1.0, mean / 0.95),
            "finish_rate": 1 - self.truncated,
            "truncated_rate": self.truncated,
            "turns_mean": 2.2,
            "seconds": 0.01,
        }


def metrics_row(learner: Learner, step: int, began: float) -> dict[str, Any]:
    """The line of metrics.jsonl of one step."""
    config = learner.config
    episodes, size = config.episodes_per_step, config.num_generations
    luck = stream("step", config.seed, step)
    chance = learner.at_temperature()
    alike = max(0.0, 1 - config.temperature / 0.5)  # episodes of a problem copy each other when sampling is cold
    all_one = alike * chance + (1 - alike) * chance**size
    all_zero = alike * (1 - chance) + (1 - alike) * (1 - chance) ** size
    groups = config.batch_size
    ones = sum(luck.random() < all_one for _ in range(groups)) / groups
    zeros = min(1 - ones, sum(luck.random() < all_zero for _ in range(groups)) / groups)
    noise = luck.gauss(0, math.sqrt(max(chance * (1 - chance), 1e-4) / episodes))
    reward = min(1.0, max(0.0, chance + noise))
    length = min(config.max_completion_tokens, NEEDED_TOKENS * (0.8 + 0.2 * luck.random()))
    return {
        "step": step,
        "time_s": time.time() - began,
        "episodes": episodes,
        "reward_mean": reward,
        "reward_std": math.sqrt(reward * (1 - reward)),
        "reward_max": 1.0 if reward > 0 else 0.0,
        "frac_zero_variance": ones + zeros,
        "frac_groups_all_one": ones,
        "frac_groups_all_zero": zeros,
        "entropy": learner.entropy * (0.95 + 0.1 * luck.random()),
        "clip_low": 0.15 if learner.breaks else 0.0,
        "clip_high": 0.2 if learner.breaks else 0.0,
        "grad_norm": (25.0 if learner.breaks else 0.6) * (0.8 + 0.4 * luck.random()),
        "loss": 0.01 * luck.gauss(0, 1),
        "learning_rate": config.learning_rate,
        "tokens_model": int(0.6 * length * episodes),
        "tokens_environment": int(0.4 * length * episodes),
        "completion_mean": length,
        "completion_max": min(config.max_completion_tokens, int(1.5 * length)),
        "turns_mean": 2.2,
        "tool_call_rate": 0.05 if learner.breaks and step > 4 else 0.95,
        "parse_ok_rate": 0.3 if learner.breaks and step > 4 else 0.97,
        "finish_rate": 1 - learner.truncated,
        "truncated_rate": learner.truncated,
        "env_error_rate": 0.0,
        "unique_completions": max(1 / size, min(1.0, config.temperature**0.8)),
        "seconds": {"generate": 0.0, "environment": 0.0, "logprob": 0.0, "update": 0.0, "other": 0.0},
    }


def train(path: Path) -> None:
    """One run from its config.json to its final state."""
    directory = RunDirectory(path)
    config = directory.read_config()
    learner = Learner(config)
    began = time.time()
    directory.set_fields(
        state=RunState.RUNNING,
        started_at=began,
        pid=os.getpid(),
        device="cpu",
        parameters=1_000_000,
        planned_steps=config.planned_steps,
    )
    evals: dict[str, Any] = {}
    directory.append_event("started")
    if not config.skip_eval_before:
        evals["before"] = learner.evaluation(config.test_problems, "before")
        directory.append_event("eval", when="before", **evals["before"])
    reached = False
    step = 0
    for step in range(1, config.planned_steps + 1):
        if os.environ.get("FAKE_DIE_AT_STEP") == str(step):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("FAKE_STEP_S", "0")))
        directory.append_metrics(metrics_row(learner, step, began))
        learner.learn(config.episodes_per_step)
        directory.beat()
        reason = directory.stop_reason()
        if reason is not None:
            directory.finish(RunState.STOPPED, step=step, stop_reason=reason, eval=evals)
            return
        if config.target_reward is not None and config.validate_every and step % config.validate_every == 0:
            validation = learner.evaluation(config.validation_problems, "validation")
            directory.append_event("validation", step=step, **validation)
            if validation["mean"] >= config.target_reward:
                reached = True
                break
    evals["after"] = learner.evaluation(config.test_problems, "after")
    directory.append_event("eval", when="after", **evals["after"])
    verdict = Verdict.NO_GOAL
    if config.target_reward is not None:
        verdict = Verdict.GOAL_REACHED if reached else Verdict.GOAL_MISSED
    directory.append_event("finished")
    directory.finish(RunState.FINISHED, step=step, eval=evals, verdict=verdict, seconds=time.time() - began)


def main() -> None:
    arguments = sys.argv[1:]
    if "--serve" not in arguments:
        train(Path(arguments[0]))
        return
    protocol = os.fdopen(int(arguments[arguments.index("--protocol-fd") + 1]), "w", encoding="utf-8", buffering=1)
    protocol.write("ready\n")
    for line in sys.stdin:
        path = line.strip()
        if path:
            train(Path(path))
            protocol.write(f"done {path}\n")


if __name__ == "__main__":
    main()
