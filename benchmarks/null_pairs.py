"""Null pairs: two arms that differ in nothing that helps, so that any `better` about them is false.

Two families. `perturbed`: the same seed, the learning rate of one arm times 1.01 (common random numbers, as in a real
trial). `reseeded`: the same configuration with another run seed (nothing in common). With the same seed and the same
rate both arms would be one run; a set in which more than a tenth of the differences are exactly zero is refused.
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

PERTURBED, RESEEDED = "perturbed", "reseeded"
FAMILIES = (PERTURBED, RESEEDED)

NUDGE = 1.01
"""Factor of the learning rate: far too small to matter, enough to make another run of it. (At 1.001 the arms of the
plain base, whose rate is 1e-5, were equal token for token.)"""

MOST_ZEROS = 0.1


class TooAlike(ValueError):
    """The arms of a null set are the same runs: its error rate would say nothing."""


def null_configs(
    scenario: Scenario, policy: CompiledPolicy, index: int, seed: int, plan: TrialPlan = DEFAULT
) -> dict[str, TrainingConfig]:
    """base, perturbed and reseeded configuration of one index."""
    own = pair_seed(seed, scenario.name, index)
    base = arm_config(scenario, own, policy, plan)
    other = arm_config(scenario, pair_seed(seed, f"{RESEEDED}/{scenario.name}", index), policy, plan)
    nudged = base.model_copy(update={"learning_rate": base.learning_rate * NUDGE})
    return {"base": base, PERTURBED: nudged, RESEEDED: other}


def pairs_of(
    family: str, scenarios: Sequence[Scenario], results: Mapping[tuple[str, int, str], ArmResult], count: int
) -> list[Pair]:
    """The pairs of a family over these scenarios, `count` of each. Raises TooAlike."""
    pairs = [
        Pair(
            index=number * len(scenarios) + place,
            scenario=scenario.name,
            seed=number,
            base=results[scenario.name, number, "base"],
            patched=results[scenario.name, number, family],
        )
        for number in range(count)
        for place, scenario in enumerate(scenarios)
    ]
    check_differ(pairs, family)
    return pairs


def check_differ(pairs: Sequence[Pair], family: str) -> None:
    """Raises TooAlike where more than a tenth of the differences are exactly zero."""
    zeros = sum(pair.difference == 0 for pair in pairs)
    if zeros > MOST_ZEROS * len(pairs):
        raise TooAlike(
            f"family {family}: {zeros} of {len(pairs)} differences are exactly zero (allowed: a tenth). The arms are "
            "the same runs; give them different seeds or a larger nudge"
        )


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
