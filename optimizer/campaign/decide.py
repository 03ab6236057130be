"""What a campaign does next: another run with one change, or the end. Pure.

1. It is done when a run's success on the test split is at least the target. All runs of a campaign are tested on the
   same problems.
2. A run *improves* when its test success exceeds that of the best run before it by more than one standard error of the
   difference of two rates, sqrt(p₁(1−p₁)/n₁ + p₂(1−p₂)/n₂): one problem more of 128 is no improvement.
3. The next change starts from the last run. Where that one is worse than the best by more than a standard error, or has
   nothing left to change, it starts from the best.
4. What changes is the lever of the finding that is surest (its confidence times the table's), moved by the factors of
   the table, inside the safe range of rllm-config. A setting that the request fixed is no lever. No configuration is
   trained twice, and where a value made things worse nothing beyond it is tried.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from optimizer.analyze.levers import weight
from optimizer.campaign.types import PATIENCE, Basis, CampaignRequest, CampaignRun, CampaignVerdict, Change, Planned
from optimizer.candidates import values_to_try
from optimizer.types import Direction, Finding, Lever
from trainer.runs.types import Eval

EPISODE_FIELDS = frozenset({"batch_size", "num_generations"})
"""Fields that decide the episodes of a step: where one changes, the episodes of the run are held."""

ANALYSIS_SKILL = "rllm-analyze"


@dataclass(frozen=True)
class Decision:
    """What follows: `planned`, or else the end with its verdict."""

    reason: str
    planned: Planned | None = None
    verdict: CampaignVerdict | None = None
    considered: tuple[str, ...] = ()


def standard_error(first: Eval, second: Eval) -> float:
    """Of the difference of two independent rates: sqrt(p₁(1−p₁)/n₁ + p₂(1−p₂)/n₂)."""
    return math.sqrt(sum(one.mean * (1 - one.mean) / one.n for one in (first, second)))


def exceeds(first: Eval, second: Eval) -> bool:
    """Whether the first rate lies more than one standard error of the difference above the second."""
    return first.mean - second.mean > standard_error(first, second)


def best_of(runs: Sequence[CampaignRun]) -> CampaignRun | None:
    """The run with the highest test success, of equals the earliest; None where none was tested."""
    tested = [one for one in runs if one.success is not None]
    return max(tested, key=lambda one: (one.success.mean, -one.number) if one.success else (0.0, 0), default=None)


def runs_without_improvement(runs: Sequence[CampaignRun]) -> int:
    """Runs since the last one that improved on the best before it (the first tested run counts as one that did)."""
    mark: Eval | None = None
    count = 0
    for one in runs:
        success = one.success
        if success is not None and (mark is None or exceeds(success, mark)):
            mark, count = success, 0
        else:
            count += 1
    return count


def base_of(runs: Sequence[CampaignRun]) -> CampaignRun:
    """The run that the next change starts from: the last one, or the best where the last is worse or untested."""
    last, best = runs[-1], best_of(runs)
    if best is None or best.success is None:
        return last
    return best if last.success is None or exceeds(best.success, last.success) else last


def decide(request: CampaignRequest, basis: Basis, runs: Sequence[CampaignRun]) -> Decision:
    """The next step after these runs, all of them over."""
    if not runs:
        return _first(request, basis)
    end = _ended(request, runs)
    if end is not None:
        return end
    change, considered = next_change(basis, runs)
    if change is None:
        why = "; ".join(considered) or "nothing was found"
        return Decision(
            f"after run {runs[-1].run_id}: {why}", verdict=CampaignVerdict.NOTHING_LEFT, considered=considered
        )
    planned = _planned(basis, runs, change)
    spent = sum(one.episodes for one in runs)
    if request.max_episodes is not None and spent + planned.episodes > request.max_episodes:
        reason = (
            f"the budget of {request.max_episodes:,} episodes is spent: {spent:,} were used, and a run takes up to "
            f"{planned.episodes:,}. Next would have been {change.key} {change.before:g} → {change.to:g}"
        )
        return Decision(reason, verdict=CampaignVerdict.BUDGET_SPENT, considered=considered)
    return Decision(change.reason, planned, considered=considered)


def _first(request: CampaignRequest, basis: Basis) -> Decision:
    config = basis.training({})
    episodes = config.planned_steps * config.episodes_per_step
    planned = Planned(number=1, change=None, overrides={}, why={}, episodes=episodes)
    return Decision("the first run, as the request and policy configure it", planned)


def _ended(request: CampaignRequest, runs: Sequence[CampaignRun]) -> Decision | None:
    """The end that the runs so far mean, whatever could be changed; None: none."""
    success = runs[-1].success
    if request.target is not None and success is not None and success.mean >= request.target:
        reason = (
            f"run {runs[-1].run_id} has test success {success.mean:.3f} [{success.ci95[0]:.3f}, {success.ci95[1]:.3f}] "
            f"(n {success.n}), the target is {request.target:g}"
        )
        return Decision(reason, verdict=CampaignVerdict.TARGET_REACHED)
    without = runs_without_improvement(runs)
    if without >= PATIENCE:
        best = best_of(runs)
        shown = "no run was tested" if best is None or best.success is None else f"{best.success.mean:.3f}"
        reason = f"{without} runs in a row were no better than the best before them (test success {shown})"
        return Decision(reason, verdict=CampaignVerdict.NO_IMPROVEMENT)
    if len(runs) >= request.max_runs:
        reason = f"the budget of {request.max_runs} run{'s' if request.max_runs > 1 else ''} is spent"
        return Decision(reason, verdict=CampaignVerdict.BUDGET_SPENT)
    spent_s = sum(one.seconds for one in runs)
    if request.max_seconds is not None and spent_s >= request.max_seconds:
        reason = f"the budget of {request.max_seconds / 60:g} minutes is spent: the runs took {spent_s / 60:.1f}"
        return Decision(reason, verdict=CampaignVerdict.BUDGET_SPENT)
    return None


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The surest first: the detector's confidence times the table's; those without a lever last."""
    return sorted(findings, key=lambda one: -one.confidence * weight(one.lever))


def next_change(basis: Basis, runs: Sequence[CampaignRun]) -> tuple[Change | None, tuple[str, ...]]:
    """(the change of the next run, why others were passed over); no change where nothing is left."""
    considered: list[str] = []
    base, best = base_of(runs), best_of(runs)
    for one in [base] if best is None or best is base else [base, best]:
        change = _change_from(basis, runs, one, considered)
        if change is not None:
            return change, tuple(considered)
    return None, tuple(dict.fromkeys(considered))


def _change_from(basis: Basis, runs: Sequence[CampaignRun], base: CampaignRun, considered: list[str]) -> Change | None:
    for finding in ranked(base.findings):
        lever = finding.lever
        name = finding.kind.replace("_", " ")
        if lever is None:
            considered.append(_without_lever(finding))
            continue
        why_not = basis.fixed.get(lever.key) or _no_range(basis, lever)
        if why_not is not None:
            considered.append(f"{name}: {why_not}")
            continue
        change = _move(basis, runs, base, finding, lever, considered)
        if change is not None:
            return change
    return None


def _without_lever(finding: Finding) -> str:
    if finding.kind == "budget_too_small":
        return (
            "budget too small: more steps are the user's to spend (max_steps, epochs), and a campaign holds them equal"
        )
    return f"{finding.kind.replace('_', ' ')}: no lever of policy"


def _no_range(basis: Basis, lever: Lever) -> str | None:
    low, high = basis.ranges.get(lever.key, (None, None))
    if low is None or high is None:
        return f"{lever.key} has no safe range in the policy of {lever.skill}, and a campaign stays inside of it"
    return None


def _move(
    basis: Basis,
    runs: Sequence[CampaignRun],
    base: CampaignRun,
    finding: Finding,
    lever: Lever,
    considered: list[str],
) -> Change | None:
    """The first value of the lever that was not trained and may be; tells `considered` why others were passed over."""
    low, high = basis.ranges[lever.key]
    current = basis.training(base.overrides).model_dump()[lever.key]
    passed = False
    for value in values_to_try(current, lever, low, high):
        why_not = _trained_before(basis, runs, base, lever.key, value) or _beyond_harm(runs, lever, current, value)
        why_not = why_not or _refused_value(basis, base, lever.key, value)
        if why_not is not None:
            considered.append(f"{lever.key} {current:g} → {value:g}: {why_not}")
            passed = True
            continue
        row = dict(basis.decisions[finding.kind])
        table = basis.skill_versions.get(ANALYSIS_SKILL, ANALYSIS_SKILL)
        return Change(
            key=lever.key,
            before=current,
            to=value,
            reason=(
                f"{finding.what} By {table}, {finding.kind}: {_row_text(lever)}. So {lever.key} {current:g} → "
                f"{value:g}, inside the safe range {low:g} … {high:g}; everything else as in {base.run_id}."
            ),
            finding=finding.id,
            kind=finding.kind,
            numbers={one.name: one.value for one in finding.metrics},
            row=row,
            table=table,
            base_run=base.run_id,
        )
    if not passed:
        name = finding.kind.replace("_", " ")
        considered.append(f"{name}: {lever.key} {current:g} is at the end of its safe range ({low:g} … {high:g})")
    return None


def _row_text(lever: Lever) -> str:
    choices = ", ".join(f"{one:g}" for one in lever.choices)
    sign = "to " if lever.direction is Direction.SET else "× "
    return f"{lever.key} {lever.direction} ({sign}{choices}; confidence {lever.confidence})"


def _trained_before(basis: Basis, runs: Sequence[CampaignRun], base: CampaignRun, key: str, value: float) -> str | None:
    wanted = _overrides(basis, base, key, value)
    for one in runs:
        if {**basis.config, **one.overrides} == {**basis.config, **wanted}:
            return f"that is run {one.run_id}, and the same seed would only repeat it"
    return None


def _beyond_harm(runs: Sequence[CampaignRun], lever: Lever, current: float, value: float) -> str | None:
    """Why a value is not tried: on the way to it lies one that made things worse."""
    known = {one.run_id: one for one in runs}
    for one in runs:
        change = one.change
        if change is None or change.key != lever.key or lever.direction is Direction.SET:
            continue
        base = known.get(change.base_run)
        if base is None or base.success is None:
            continue
        harmed = one.success is None or exceeds(base.success, one.success)
        between = current < change.to <= value if value > current else value <= change.to < current
        if harmed and between:
            return f"{change.to:g} made it worse already (run {one.run_id})"
    return None


def _refused_value(basis: Basis, base: CampaignRun, key: str, value: float) -> str | None:
    try:
        basis.training(_overrides(basis, base, key, value))
    except ValidationError as error:
        return " ".join(str(error.errors()[0]["msg"]).removeprefix("Value error, ").split())
    return None


def _overrides(basis: Basis, base: CampaignRun, key: str, value: float) -> dict[str, Any]:
    """Settings of the run that differs from `base` by one value; as many episodes as the first run where a step has
    another number of them."""
    changed = {**base.overrides, key: value}
    if key in EPISODE_FIELDS:
        first = basis.training({})
        changed["max_episodes"] = first.planned_steps * first.episodes_per_step
    return changed


def _planned(basis: Basis, runs: Sequence[CampaignRun], change: Change) -> Planned:
    base = next(one for one in runs if one.run_id == change.base_run)
    overrides = _overrides(basis, base, change.key, change.to)
    config = basis.training(overrides)
    why = {**base.why, change.key: f"{change.kind.replace('_', ' ')}, {change.before:g} → {change.to:g}"}
    if change.key in EPISODE_FIELDS:
        why["max_episodes"] = "as many episodes as the first run"
    return Planned(
        number=len(runs) + 1,
        change=change,
        overrides=overrides,
        why=why,
        episodes=config.planned_steps * config.episodes_per_step,
    )
