"""What a policy of the optimiser would have made of recorded opportunities.

1. The pairs of a candidate are resampled with replacement, scenario by scenario in the turns of a trial, and go through
   the gate itself (`optimizer.trial.statistics.decide`) look by look under the policy's plan.
2. An accepted patch is worth the mean difference of all its recorded pairs, whatever the resampled ones showed: that is
   the truth of the resampled world, so luck at the bar earns nothing. A patch that loses on average costs.
3. Several candidates are screened on jointly resampled rows, the best goes through the gate on pairs of its own.
4. A lever that failed as often in a row as the policy bears is not tried: it costs and gains nothing.
5. Random draws depend on seed, repetition and candidate alone, so two policies see the same luck.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from optimizer.meta.recorded import REJECTING
from optimizer.meta.types import Candidate, Opportunity, OptimizerPolicy, Outcome
from optimizer.trial.plan import TrialPlan, plan_named
from optimizer.trial.run import never
from optimizer.trial.screen import ScreenRow
from optimizer.trial.statistics import decide
from optimizer.trial.types import Decision, Pair, TrialVerdict

REPETITIONS = 24
"""Resampled histories: their noise is then a fifth of that between opportunities, which the interval holds as well."""

T = TypeVar("T")


@dataclass
class _Sum:
    gain: float = 0.0
    episodes: float = 0.0
    accepted: int = 0
    harmful: int = 0


@dataclass
class Replayer:
    """Replays opportunities; verdicts that two policies share are computed once."""

    opportunities: Sequence[Opportunity]
    seed: int
    cancelled: Callable[[], bool] = never
    _known: dict[tuple[str, int, str], tuple[Decision, int]] = field(default_factory=dict)

    def outcomes(self, policy: OptimizerPolicy, repetitions: int = REPETITIONS) -> list[Outcome]:
        """What the policy makes of each opportunity, in their order."""
        sums = [_Sum() for _ in self.opportunities]
        for repetition in range(repetitions):
            failures: dict[tuple[str, str], int] = defaultdict(int)
            for opportunity, total in zip(self.opportunities, sums, strict=True):
                if self.cancelled():
                    return []
                self._one(opportunity, policy, repetition, failures, total)
        return [
            Outcome(
                id=one.id,
                family=one.family,
                gain=total.gain,
                episodes=total.episodes,
                accepted=total.accepted,
                harmful=total.harmful,
            )
            for one, total in zip(self.opportunities, sums, strict=True)
        ]

    def _one(
        self,
        opportunity: Opportunity,
        policy: OptimizerPolicy,
        repetition: int,
        failures: dict[tuple[str, str], int],
        total: _Sum,
    ) -> None:
        key = None if opportunity.lever is None else (opportunity.lever, opportunity.place)
        if key is not None and policy.lever_patience is not None and failures[key] >= policy.lever_patience:
            return
        chosen, screened = self._chosen(opportunity, policy, repetition)
        decision, pairs = self._verdict(chosen, plan_named(policy.plan), repetition)
        total.episodes += (screened + 2 * pairs) * opportunity.arm_episodes
        if decision.verdict is TrialVerdict.BETTER:
            total.gain += chosen.gain
            total.accepted += 1
            total.harmful += chosen.gain < 0
            if key is not None:
                failures[key] = 0
        elif key is not None and (decision.verdict is TrialVerdict.WORSE or decision.reason in REJECTING):
            failures[key] += 1

    def _chosen(self, opportunity: Opportunity, policy: OptimizerPolicy, repetition: int) -> tuple[Candidate, int]:
        """(the candidate that gets the trial, arms that screening it took)."""
        candidates = opportunity.candidates[: policy.candidates]
        if len(candidates) == 1:
            return candidates[0], 0
        draw = random.Random(f"{self.seed}/{repetition}/screen/{opportunity.id}")
        rows: list[ScreenRow] = [_drawn(opportunity.screening, draw) for _ in range(policy.screening_pairs)]
        sums = [sum(row.candidates[one.patch_id].success for row in rows) for one in candidates]
        best = max(range(len(candidates)), key=lambda index: sums[index])
        return candidates[best], policy.screening_pairs * (len(candidates) + 1)

    def _verdict(self, candidate: Candidate, plan: TrialPlan, repetition: int) -> tuple[Decision, int]:
        """(verdict, pairs it took) of a resampled trial."""
        known = (candidate.patch_id, repetition, plan.name)
        if known not in self._known:
            self._known[known] = resampled_trial(
                candidate.pairs, plan, f"{self.seed}/{repetition}/{candidate.patch_id}"
            )
        return self._known[known]


def resampled_trial(pairs: Sequence[Pair], plan: TrialPlan, seed: str) -> tuple[Decision, int]:
    """(verdict, pairs used) of a trial whose pairs are drawn from recorded ones. Raises ValueError without pairs."""
    if not pairs:
        raise ValueError("nothing to resample: a recorded trial needs pairs")
    by_scenario: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_scenario.setdefault(pair.scenario, []).append(pair)
    groups = list(by_scenario.values())
    draw = random.Random(seed)
    drawn: list[Pair] = []
    for look in plan.looks:
        while len(drawn) < look:
            drawn.append(_drawn(groups[len(drawn) % len(groups)], draw))
        decision = decide(drawn, plan)
        if decision is not None:
            return decision, len(drawn)
    raise AssertionError("the last look of a plan always decides")


def _drawn(rows: Sequence[T], draw: random.Random) -> T:
    """One of the rows; `random()` alone is the same in every version of Python."""
    return rows[int(draw.random() * len(rows))]
