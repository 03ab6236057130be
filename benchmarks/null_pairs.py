"""Pairs of arms for measuring noise and the gate: null ones, whose difference is chance alone, and stepped ones.

*Reseeded*: the same configuration with another run seed, so that any `better` about it is false. *Stepped*: the same
seed with three times the learning rate, as a patch would set it; what differs beyond its mean is what common random
numbers leave of the noise. A rate changed by a hundredth or less makes no null pair: under common random numbers most
of its arms end with the same success (measured: 29 of 48 on the plain base), and a set in which more than a tenth of
the differences are exactly zero is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.trial.folder import pair_seed
from optimizer.trial.plan import DEFAULT, TrialPlan
from optimizer.trial.scenarios import Scenario
from optimizer.trial.statistics import decide
from optimizer.trial.types import ArmResult, Decision, Pair
from optimizer.tryout import arm_config
from skill_bank.policy import CompiledPolicy
from trainer.config import TrainingConfig

BASE, RESEEDED, STEPPED = "base", "reseeded", "stepped"

STEP = 3.0
"""Factor of the learning rate of a stepped arm."""

MOST_ZEROS = 0.1


class TooAlike(ValueError):
    """The arms of a null set are the same runs: its error rate would say nothing."""


def arm_configs(
    scenario: Scenario, policy: CompiledPolicy, index: int, seed: int, plan: TrialPlan = DEFAULT
) -> dict[str, TrainingConfig]:
    """base, reseeded and stepped configuration of one index."""
    base = arm_config(scenario, pair_seed(seed, scenario.name, index), policy, plan)
    other = arm_config(scenario, pair_seed(seed, f"{RESEEDED}/{scenario.name}", index), policy, plan)
    stepped = base.model_copy(update={"learning_rate": base.learning_rate * STEP})
    return {BASE: base, RESEEDED: other, STEPPED: stepped}


def pairs_of(
    arm: str, scenarios: Sequence[Scenario], results: Mapping[tuple[str, int, str], ArmResult], count: int
) -> list[Pair]:
    """The base with another arm over these scenarios, `count` pairs of each. Raises TooAlike."""
    pairs = [
        Pair(
            index=number * len(scenarios) + place,
            scenario=scenario.name,
            seed=number,
            base=results[scenario.name, number, BASE],
            patched=results[scenario.name, number, arm],
        )
        for number in range(count)
        for place, scenario in enumerate(scenarios)
    ]
    check_differ(pairs, arm)
    return pairs


def check_differ(pairs: Sequence[Pair], arm: str) -> None:
    """Raises TooAlike where more than a tenth of the differences are exactly zero."""
    zeros = sum(pair.difference == 0 for pair in pairs)
    if zeros > MOST_ZEROS * len(pairs):
        raise TooAlike(
            f"{arm} arms: {zeros} of {len(pairs)} differences are exactly zero (allowed: a tenth). The arms are "
            "the same runs; give them different seeds"
        )


def centred(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs without the mean difference of their scenario, so that only their noise is left."""
    names = dict.fromkeys(pair.scenario for pair in pairs)
    means = {name: float(np.mean([one.difference for one in pairs if one.scenario == name])) for name in names}
    return [
        pair.model_copy(
            update={"patched": pair.patched.model_copy(update={"success": pair.patched.success - means[pair.scenario]})}
        )
        for pair in pairs
    ]


@dataclass(frozen=True)
class Change:
    """What is done to the patched arm of a null pair, to make a pair of a known effect."""

    gain: float = 0.0
    collapse: float = 0.0
    """Share of patched arms that collapse, drawn at random."""
    collapsed_to: float = 0.1
    """Success of a collapsed arm."""


def changed(pair: Pair, change: Change, rng: np.random.Generator, index: int) -> Pair:
    """The pair with its arms swapped half of the time, then the change."""
    base, patched = (pair.base, pair.patched) if rng.random() < 0.5 else (pair.patched, pair.base)
    if rng.random() < change.collapse:
        fields = {"success": min(change.collapsed_to, patched.success), "collapsed": True}
    else:
        fields = {"success": min(max(patched.success + change.gain, 0.0), 1.0)}
    return pair.model_copy(update={"index": index, "base": base, "patched": patched.model_copy(update=fields)})


def resampled(
    pairs: Sequence[Pair], plan: TrialPlan, decisions: int, rng: np.random.Generator, change: Change | None = None
) -> list[Decision]:
    """Whole trials on pairs drawn with replacement within their scenario, which take turns as in a real trial."""
    names = list(dict.fromkeys(pair.scenario for pair in pairs))
    of = {name: [pair for pair in pairs if pair.scenario == name] for name in names}
    made = []
    for _ in range(decisions):
        drawn: list[Pair] = []
        decision = None
        while decision is None:
            group = of[names[len(drawn) % len(names)]]
            one = group[int(rng.integers(len(group)))]
            drawn.append(changed(one, change or Change(), rng, len(drawn)))
            decision = decide(drawn, plan)
        made.append(decision)
    return made
