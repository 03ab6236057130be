"""Made-up recorded trials: whole trial folders and patches, with outcomes that are known beforehand."""

from collections.abc import Sequence
from typing import Any

from optimizer.home import Home
from optimizer.patch_store import PatchKind, PatchRecord, PolicyChange, Stage
from optimizer.trial.folder import TrialFolder, TrialSpec
from optimizer.trial.plan import DEFAULT, TrialPlan
from optimizer.trial.scenarios import TINY_PARAMS, Scenario
from optimizer.trial.statistics import decide
from optimizer.trial.types import ArmResult, Decision, Pair
from skill_bank.policy import Assignment, CompiledPolicy, Origin

POLICY = CompiledPolicy(
    "rllm-config", (Assignment("x.default", 1, None, Origin("rllm-config", "sizes", "base", "base.md", 1)),)
)


def scenario_of(env: str) -> Scenario:
    return Scenario(name=f"{env}-mixed", env=env, params=TINY_PARAMS)


def pair_of(spec: TrialSpec, index: int, difference: float) -> Pair:
    scenario, seed = spec.pair_at(index)
    return Pair(
        index=index,
        scenario=scenario.name,
        seed=seed,
        base=ArmResult(success=0.5, n=128),
        patched=ArmResult(success=0.5 + difference, n=128),
    )


def add_trial(
    home: Home,
    number: int,
    differences: Sequence[float],
    *,
    env: str = "calculator",
    key: str = "learning_rate",
    plan: TrialPlan = DEFAULT,
    after: float = 2.0,
    **fields: Any,
) -> Decision:
    """A patch of `key` with one trial of these differences, decided by the gate itself."""
    patch_id = f"{number:03d}-up-{key}".replace("_", "-")
    spec = TrialSpec(
        trial_id=f"trial-{patch_id}-1",
        patch_id=patch_id,
        skill="rllm-config",
        plan=plan,
        scenarios=(scenario_of(env),),
        seed=number,
        scope={"params": "<10M", "env": env},
        base_digest="a",
        patched_digest="b",
        created_at=1000.0 + number,
    )
    folder = TrialFolder.create(home.trials, spec, POLICY, POLICY)
    pairs = [pair_of(spec, index, one) for index, one in enumerate(differences)]
    for pair in pairs:
        folder.add_pair(pair)
    decision = decide(pairs, plan) or decide(pairs, plan, out_of_budget=True)
    assert decision is not None
    folder.write_decision(decision)
    better = decision.verdict == "better"
    home.patches.write(
        PatchRecord(
            **{
                "patch_id": patch_id,
                "skill": "rllm-config",
                "group": "rllm",
                "layer": "traj",
                "section": "sizes",
                "kind": PatchKind.POLICY,
                "description": "",
                "scope": {"params": "<10M", "env": env},
                "changes": [PolicyChange(key=f"{key}.default", before=1.0, after=after)],
                "effect_hash": f"{number}",
                "base_digest": "a",
                "result_digest": "b",
                "verdict": str(decision.verdict),
                "stage": Stage.ACTIVE if better else Stage.REJECTED,
                "trials": [spec.trial_id],
                "created_at": 1000.0 + number,
                **fields,
            }
        )
    )
    return decision


PAYS = (0.30, 0.29, 0.31, 0.30)
"""Better at the first look, however it is resampled: mean .30, spread at most .01."""

FAILS = (-0.30, -0.29, -0.31, -0.30)
"""Worse at the first look, however it is resampled."""


def fill(home: Home, good: int, bad: int, families: Sequence[str] = ("calculator", "lookup")) -> int:
    """In each family first a lever that fails `bad` times, then one that pays `good` times; returns the trials."""
    number = 0
    for env in families:
        for _ in range(bad):
            number += 1
            assert add_trial(home, number, FAILS, env=env, key="max_turns").verdict == "worse"
        for _ in range(good):
            number += 1
            assert add_trial(home, number, PAYS, env=env, key="learning_rate").verdict == "better"
    return number
