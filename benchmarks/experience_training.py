"""Training with lessons in half of each group against training without, and step credit on against off.

Both: paired seeds (houses, problems, order and random streams are the pair's), equal training episodes, success held
out and always without lessons. The number of pairs is fixed beforehand.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.evolution import paired_interval
from benchmarks.experience_uplift import HOUSES, LESSONS, PROBLEMS, effect_of, fill_config
from benchmarks.kept_runs import KeptRuns, told_of_experience
from trainer.config import TrainingConfig
from trainer.experience.pool import pool_path
from trainer.runs.rundir import RunDirectory

NONE, HALF, EIGHTH, QUARTER, OWN = "none", "half", "eighth", "quarter", "own"
SHARES = {HALF: 0.5, EIGHTH: 0.125, QUARTER: 0.25}
"""That share of each group sees lessons of a pool that was filled and tried before."""


@dataclass(frozen=True)
class Setting:
    """What the arms of a pair have in common."""

    houses: int
    difficulty: str
    problems: int
    shape: tuple[int, int]
    """Problems of a step, attempts at each."""
    episodes: int
    """Training episodes of an arm."""
    every: int
    """Steps between validations."""
    goal: float
    """Held-out success that counts as learned."""
    arms: tuple[str, ...]
    suffix: str = ""
    """Of the names of runs and pools."""
    fill_suffix: str = ""

    def name(self, arm: str, seed: int) -> str:
        """The run of an arm, and its pool."""
        return f"train-{arm}{self.suffix}-s{seed}"

    def fill_name(self, seed: int) -> str:
        """The run that fills the pool of a pair."""
        return f"fill{self.fill_suffix}-s{seed}"


SETTINGS = {
    "houses": Setting(HOUSES, "mixed", PROBLEMS, (4, 8), 1024, 4, 0.4, (NONE, HALF, EIGHTH, OWN)),
    "house": Setting(1, "hard", 24, (4, 8), 512, 2, 0.5, (NONE, HALF, EIGHTH, OWN), "-1house", "-1house"),
    "small-steps": Setting(1, "hard", 24, (2, 4), 512, 8, 0.5, (NONE, QUARTER, OWN), "-small", "-1house"),
}
"""Four houses; one; one with the published 2 problems x 4 attempts a step. With one house numbers go to 99: up to 20 it
has too few problems for three splits."""
VALIDATION_PROBLEMS = 64

CREDITS = ("off", "decouple", "allocation")
CREDIT_EPISODES = 512


def filling(setting: Setting, seed: int) -> TrainingConfig:
    """The run that fills the pool of a pair."""
    config = fill_config(seed, setting.houses, setting.problems)
    experience = {"preset": "init_only", "pool": setting.fill_name(seed)}
    values = {"difficulty": setting.difficulty, "experience": experience}
    return TrainingConfig.model_validate(config.model_dump() | values)


def experience_of(arm: str, seed: int, setting: Setting) -> dict[str, Any] | None:
    """The lessons of an arm; all arms are trained without them.

    `own`: one attempt of each group sees lessons of the run's own attempts, made after each step into an empty pool and
    tried while training, so no episode more than `none`. A guided attempt that is the only one of its group has no
    baseline of its own and is compared with the whole group.
    """
    if arm == NONE:
        return None
    section = {"pool": setting.name(arm, seed), "retrieve_top_k": LESSONS}
    if arm == OWN:
        ratio = 1 / setting.shape[1]
        return section | {"preset": "existing_train_update", "rollout_ratio": ratio, "updated_freq": 1}
    return section | {"preset": "existing_train", "rollout_ratio": SHARES[arm]}


def training_config(arm: str, seed: int, setting: Setting) -> TrainingConfig:
    """One arm of a pair: everything but the experience is equal."""
    values = {
        "batch_size": setting.shape[0],
        "num_generations": setting.shape[1],
        "max_episodes": setting.episodes,
        "validate_every": setting.every,
        "validation_problems": VALIDATION_PROBLEMS,
        "test_problems": 128,
        "save_every": 0,
        "experience": experience_of(arm, seed, setting),
    }
    return TrainingConfig.model_validate(filling(setting, seed).model_dump() | values)


def training(runs: KeptRuns, seeds: Sequence[int], setting: Setting) -> dict[str, Any]:
    """Episodes until the goal and the mean of the validation curve, arm by arm; differences to `none` by pairs."""
    fills = {seed: setting.fill_name(seed) for seed in seeds}
    filled = runs.run({name: filling(setting, seed) for seed, name in fills.items()})
    names = {(arm, seed): setting.name(arm, seed) for seed in seeds for arm in setting.arms}
    configs = {name: training_config(arm, seed, setting) for (arm, seed), name in names.items()}
    pools = {name: pool_path(runs.work, fills[seed]) for (arm, seed), name in names.items() if arm in SHARES}
    done = runs.run(configs, pools)
    rows = []
    for seed in seeds:
        costs = told_of_experience(filled[fills[seed]])["filled"]
        row: dict[str, Any] = {"seed": seed, "filling_episodes": costs["attempts"] + costs["trials"]}
        for arm in setting.arms:
            row[arm] = told_of(done[names[arm, seed]], setting.goal, setting.episodes)
        rows.append(row)
    return {
        "houses": setting.houses,
        "shape": list(setting.shape),
        "goal": setting.goal,
        "episodes": setting.episodes,
        "arms": {arm: _arm(rows, arm) for arm in setting.arms},
        "differences": {arm: _differences(rows, arm) for arm in setting.arms if arm != NONE},
        "filling_episodes": round(statistics.fmean(row["filling_episodes"] for row in rows)),
        "seeds": rows,
    }


def told_of(directory: RunDirectory, goal: float, budget: int) -> dict[str, Any]:
    """The validation curve of a run and what it comes to."""
    size = directory.read_config().episodes_per_step
    events = [one for one in directory.events() if one["kind"] == "validation"]
    curve = [(int(one["step"]) * size, float(one["eval"]["mean"])) for one in events]
    told = told_of_experience(directory).get("told", {})
    at = episodes_until(curve, goal)
    return {
        "reached": at is not None,
        "episodes_to_goal": budget if at is None else at,
        "mean": round(statistics.fmean(value for _, value in curve), 4),
        "last": round(statistics.fmean(value for _, value in curve[-2:]), 4),
        "curve": [[episodes, round(value, 4)] for episodes, value in curve],
        **{key: told[key] for key in ("injected", "uplift", "uplift_ci95") if key in told},
    }


def episodes_until(curve: Sequence[tuple[int, float]], goal: float) -> int | None:
    """Episodes after which the last two validations together lie at or above the goal; None: they never did."""
    for (_, before), (episodes, now) in pairwise(curve):
        if (before + now) / 2 >= goal:
            return episodes
    return None


def _arm(rows: Sequence[dict[str, Any]], arm: str) -> dict[str, Any]:
    those = [row[arm] for row in rows]
    return {
        "reached": sum(one["reached"] for one in those),
        "of": len(those),
        **{key: round(statistics.fmean(one[key] for one in those), 4) for key in ("episodes_to_goal", "mean", "last")},
    }


def _differences(rows: Sequence[dict[str, Any]], arm: str) -> dict[str, Any]:
    """Arm minus `none`; a run that does not reach the goal counts as having needed its whole budget."""
    found = {
        key: effect_of(paired_interval([row[arm][key] - row[NONE][key] for row in rows]), len(rows))
        for key in ("episodes_to_goal", "mean", "last")
    }
    if arm in SHARES:
        costs = [row[arm]["episodes_to_goal"] + row["filling_episodes"] - row[NONE]["episodes_to_goal"] for row in rows]
        found["episodes_to_goal_with_filling"] = effect_of(paired_interval(costs), len(rows))
    return found


def credit_config(env: str, scheme: str, seed: int, episodes: int = CREDIT_EPISODES) -> TrainingConfig:
    """One arm: the shipped update with advantages of turns or without."""
    values: dict[str, Any] = {
        "env": env,
        "max_episodes": episodes,
        "step_credit": scheme,
        "problems": 64,
        "test_problems": 256,
        "save_every": 0,
        "experience": None,
    }
    if env == "calculator":
        values["env_args"] = {}
    return TrainingConfig.model_validate(fill_config(seed).model_dump() | values)


def credit(
    runs: KeptRuns, seeds: Sequence[int], envs: Sequence[str] = ("calculator", "house_rules")
) -> list[dict[str, Any]]:
    """One row an environment and scheme: test success at the end, and the difference to `off` by pairs."""
    configs = {
        credit_name(env, scheme, seed): credit_config(env, scheme, seed)
        for env in envs
        for seed in seeds
        for scheme in CREDITS
    }
    done = runs.run(configs)

    def success(env: str, scheme: str, seed: int) -> float:
        return float(done[credit_name(env, scheme, seed)].read_document().eval["after"].mean)

    rows = []
    for env in envs:
        off = [success(env, "off", seed) for seed in seeds]
        for scheme in CREDITS[1:]:
            on = [success(env, scheme, seed) for seed in seeds]
            interval = paired_interval([b - a for a, b in zip(off, on, strict=True)])
            names = [credit_name(env, scheme, seed) for seed in seeds]
            rows.append(
                {
                    "env": env,
                    "scheme": scheme,
                    "off": round(statistics.fmean(off), 4),
                    "on": round(statistics.fmean(on), 4),
                    **effect_of(interval, len(seeds)),
                    "bad_turn_rate": round(
                        statistics.fmean(
                            row["bad_turn_rate"] for n in names for row in done[n].metrics() if "bad_turn_rate" in row
                        ),
                        4,
                    ),
                    "each": [[round(a, 4), round(b, 4)] for a, b in zip(off, on, strict=True)],
                }
            )
    return rows


def credit_name(env: str, scheme: str, seed: int) -> str:
    """The run of an arm."""
    return f"credit-{env.replace('_', '-')}-{scheme}-s{seed}"
