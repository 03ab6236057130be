"""Trying a patch: from a staged patch to a trial on disk, and from the trial's decision back to the patch.

What a trial decides: `better` waits for a person; `worse`, no worthwhile gain, identical arms and a veto reject the
patch and are remembered; promising and too noisy leave it tried, with a next step.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from optimizer.home import Home
from optimizer.meta import trial as meta_trial
from optimizer.meta.frozen import OPTIMIZE_SKILL
from optimizer.meta.types import META
from optimizer.patch_store import PatchError, PatchKind, PatchRecord, Stage
from optimizer.promote import dismiss
from optimizer.stage import built
from optimizer.trial.arms import ArmRunner, TrialCancelled
from optimizer.trial.folder import TrialFolder, TrialSpec
from optimizer.trial.plan import TrialPlan
from optimizer.trial.replay import decide_replay, replay
from optimizer.trial.run import Budget, TrialProgress, differing, never, run_trial
from optimizer.trial.scenarios import Scenario, deciding
from optimizer.trial.types import Decision, Reason, TrialVerdict
from skill_bank.files import write_json_atomic, write_text_atomic
from skill_bank.policy import CompiledPolicy
from trainer.config import TrainingConfig
from trainer.runs.detectors.policy import SKILL as MONITOR_SKILL
from trainer.settings import resolve

CONFIG_SKILL = "rllm-config"
"""The skill whose policy decides how a model trains."""

REPLAY = "replay"
"""Kind of a trial that judges recorded runs instead of training (patches of the monitor's thresholds)."""

REJECTING = frozenset({Reason.NO_WORTHWHILE_GAIN, Reason.VETOED, Reason.ARMS_IDENTICAL})
"""Reasons of an inconclusive verdict after which a patch is not tried again."""


def arm_config(scenario: Scenario, seed: int, policy: CompiledPolicy, plan: TrialPlan) -> TrainingConfig:
    """The configuration of an arm: the scenario and the trial fix their fields, policy decides the rest."""
    return resolve(overrides=scenario.overrides(seed, plan), policy=policy, profile=policy.profile).config


def resolver(plan: TrialPlan) -> Callable[[Scenario, int, CompiledPolicy], TrainingConfig]:
    """`arm_config` for one plan."""
    return lambda scenario, seed, policy: arm_config(scenario, seed, policy, plan)


def policies(home: Home, record: PatchRecord) -> tuple[CompiledPolicy, CompiledPolicy]:
    """The skill's policy without and with the patch, as they compile now. Raises PatchError for a patch of prose."""
    if record.kind is PatchKind.PROSE:
        raise PatchError(
            f"patch {record.patch_id} changes prose only: its effect is not measured. "
            f"Read it (`mcp-evo patches show {record.patch_id}`) and approve or reject it"
        )
    if record.skill not in (CONFIG_SKILL, MONITOR_SKILL, OPTIMIZE_SKILL):
        raise PatchError(
            f"patch {record.patch_id} changes the policy of {record.skill}, which decides nothing about how a model "
            f"trains or is watched: no trial can measure it. Read it, and approve it with --unproven and a --reason"
        )
    base = built(home.bank, record.skill, record.profile).policy
    patched = built(home.bank, record.skill, record.profile, record.patch_id).policy
    assert base is not None
    assert patched is not None
    return base, patched


def check_triable(record: PatchRecord) -> None:
    """Raises PatchError for a patch that is past trying."""
    if record.stage in (Stage.ACTIVE, Stage.ARCHIVED, Stage.REJECTED):
        raise PatchError(f"patch {record.patch_id} is {record.stage}: it is not tried again")
    if record.verdict == TrialVerdict.BETTER:
        raise PatchError(f"patch {record.patch_id} was tried and is better: approve it with `mcp-evo approve`")


def prepare_trial(
    home: Home,
    patch_id: str,
    plan: TrialPlan,
    *,
    own: Scenario | None = None,
    seed: int | None = None,
    more: bool = False,
) -> TrialFolder:
    """The folder of the patch's trial: a new one, or, while its plan has looks left, the one there is.

    `more` goes on with a trial that its budget ended. Raises PatchError, ScenarioError, BankError.
    """
    record = home.patches.read(patch_id)
    check_triable(record)
    latest = TrialFolder(home.trials / record.trials[-1]) if record.trials else None
    if latest is not None and latest.exists:
        decision = latest.decision()
        if decision is None or (more and not decision.final):
            return latest
        if not decision.final:
            raise PatchError(
                f"patch {patch_id} has a trial with looks left ({decision.say}): "
                f"go on with `mcp-evo patches try {patch_id} --more`"
            )
    if more:
        raise PatchError(f"patch {patch_id} has no trial with looks left: leave out --more to start a new one")
    return _new_trial(home, record, plan, own, seed)


def _new_trial(home: Home, record: PatchRecord, plan: TrialPlan, own: Scenario | None, seed: int | None) -> TrialFolder:
    base, patched = policies(home, record)
    of_optimizer = record.skill == OPTIMIZE_SKILL
    attempt = (meta_trial.attempts_counted(home, record) if of_optimizer else len(record.trials)) + 1
    if attempt > 2:
        raise PatchError(f"patch {record.patch_id} was tried twice: propose another value or lever")
    if of_optimizer:
        return _created(home, record, plan, attempt, (), {}, seed, kind=META)
    used = plan if attempt == 1 else plan.halved()
    if record.skill == MONITOR_SKILL:
        return _created(home, record, used, attempt, (), {}, seed, kind=REPLAY)
    scenarios = deciding(record.scope, own)
    names = set(differing(scenarios, base, patched, resolver(used)))
    kept = tuple(one for one in scenarios if one.name in names) or tuple(scenarios)
    left_out = {one.name: "both arms have the same configuration here" for one in scenarios if one not in kept}
    return _created(home, record, used, attempt, kept, left_out, seed)


def _created(
    home: Home,
    record: PatchRecord,
    plan: TrialPlan,
    attempt: int,
    scenarios: tuple[Scenario, ...],
    left_out: dict[str, str],
    seed: int | None,
    kind: str = "training",
) -> TrialFolder:
    """The trial's folder, entered in the patch."""
    base, patched = policies(home, record)
    without = built(home.bank, record.skill, record.profile)
    with_patch = built(home.bank, record.skill, record.profile, record.patch_id)
    spec = TrialSpec(
        trial_id=f"trial-{record.patch_id}-{len(record.trials) + 1}"[:64],
        patch_id=record.patch_id,
        skill=record.skill,
        attempt=attempt,
        plan=plan,
        scenarios=scenarios,
        left_out=left_out,
        kind=kind,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        scope=record.scope,
        profile=record.profile,
        base_digest=without.digest,
        patched_digest=with_patch.digest,
    )
    make = partial(meta_trial.create, home) if spec.kind == META else partial(TrialFolder.create, home.trials)
    folder = make(spec, base, patched)
    home.patches.move(
        record.patch_id,
        record.stage,
        f"trial {spec.trial_id} began",
        trials=[*record.trials, spec.trial_id],
        attempts=attempt,
        base_digest=without.digest,
        result_digest=with_patch.digest,
    )
    return folder


def try_patch(
    home: Home,
    folder: TrialFolder,
    runner: ArmRunner,
    *,
    budget: Budget | None = None,
    cancelled: Callable[[], bool] = never,
) -> Iterator[TrialProgress]:
    """Runs the trial in `folder`, telling each step; its decision is entered in the patch before it is told."""
    spec = folder.spec()
    if spec.kind == REPLAY:
        yield from _try_by_replay(home, folder, spec, cancelled)
        return
    if spec.kind == META:
        yield from _try_by_records(home, folder, spec, cancelled)
        return
    steps = run_trial(folder, resolver(spec.plan), runner, budget=budget, cancelled=cancelled)
    with closing(steps):  # type: ignore[type-var]  # a generator: leaving early must release the trial's lock
        for step in steps:
            if step.decision is not None:
                apply_decision(home, spec, step.decision)
            yield step


def _try_by_replay(
    home: Home, folder: TrialFolder, spec: TrialSpec, cancelled: Callable[[], bool]
) -> Iterator[TrialProgress]:
    """Judges recorded runs; a trial that was killed begins anew (it takes seconds) with the same seeds."""
    yield TrialProgress("start", spec, ())
    decision = folder.decision()
    if decision is None:
        base, patched = folder.policies()
        rows = list(replay(base, patched, spec.seed, home.workspace, cancelled, scope=spec.scope))
        if cancelled():
            yield TrialProgress("cancelled", spec, ())
            return
        lines = "".join(f"{row.model_dump_json()}\n" for row in rows)
        write_text_atomic(folder.path / "replayed.jsonl", lines)
        decision = decide_replay(rows)
        folder.write_decision(decision)
    apply_decision(home, spec, decision)
    yield TrialProgress("decided", spec, (), decision.summary, decision)


def _try_by_records(
    home: Home, folder: TrialFolder, spec: TrialSpec, cancelled: Callable[[], bool]
) -> Iterator[TrialProgress]:
    """Replays recorded trials under the optimiser's policy without and with the patch."""
    yield TrialProgress("start", spec, ())
    decision = folder.decision()
    if decision is None:
        try:
            decision = meta_trial.run(folder, cancelled)
        except TrialCancelled:
            yield TrialProgress("cancelled", spec, ())
            return
        folder.write_decision(decision)
    apply_decision(home, spec, decision)
    yield TrialProgress("decided", spec, (), decision.summary, decision)


def apply_decision(home: Home, spec: TrialSpec, decision: Decision) -> PatchRecord:
    """Enters a verdict in the patch: its stage, numbers and, where it is rejected, the memory. Safe to repeat."""
    summary = decision.summary
    fields: dict[str, Any] = {
        "verdict": str(decision.verdict),
        "reason": None if decision.reason is None else str(decision.reason),
        "effect": None if summary is None else summary.effect,
        "ci95": None if summary is None else summary.interval,
        "pairs": 0 if summary is None else summary.pairs,
    }
    record = home.patches.read(spec.patch_id)
    write_json_atomic(
        home.patches.folder(spec.patch_id) / "trial.json",
        {"trial_id": spec.trial_id, **decision.model_dump(mode="json")},
    )
    if record.stage not in (Stage.STAGED, Stage.TRIED):
        return record
    record = home.patches.move(spec.patch_id, Stage.TRIED, decision.say, **fields)
    if decision.verdict is TrialVerdict.WORSE or decision.reason in REJECTING:
        return dismiss(home, spec.patch_id, decision.say)
    return record


def trial_cost(spec: TrialSpec, seconds_per_pair: float | None) -> dict[str, Any]:
    """What a trial can cost at most: pairs, episodes and, where a pair was timed, minutes."""
    minutes = None if seconds_per_pair is None else round(seconds_per_pair * spec.plan.max_pairs / 60, 1)
    return {"pairs": spec.plan.max_pairs, "episodes": spec.max_episodes, "minutes": minutes}


def best_candidate(effects: Sequence[tuple[str, float]]) -> str:
    """The candidate with the largest effect; of equal ones the first."""
    return max(effects, key=lambda one: one[1])[0]
