"""A meta trial on disk: `trials/<id>/` with plan.json, both policies and `recorded.jsonl`, which is all it needs.

Opportunities are frozen when the trial is made: what is recorded later changes nothing of it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from optimizer.home import Home
from optimizer.meta.judge import MIN_RESERVE, decide_meta, not_enough, plan_for
from optimizer.meta.recorded import opportunities, recorded_trials, split_families
from optimizer.meta.simulate import REPETITIONS, Replayer
from optimizer.meta.types import META, MetaSpec, Opportunity, OptimizerPolicy
from optimizer.patch_store import PatchRecord
from optimizer.trial.arms import TrialCancelled, TrialError
from optimizer.trial.folder import TrialFolder, TrialSpec
from optimizer.trial.run import never
from optimizer.trial.types import Decision, Reason
from skill_bank.files import read_json, read_json_lines, write_json_atomic, write_text_atomic
from skill_bank.policy import CompiledPolicy

META_SKILL = "meta-loop"
RECORDED = "recorded.jsonl"


def create(home: Home, spec: TrialSpec, base: CompiledPolicy, patched: CompiledPolicy) -> TrialFolder:
    """Makes the folder of a meta trial over what is recorded now; `spec` gives its ids, digests and seed."""
    trials = recorded_trials(home)
    analysed, reserve = split_families(trials)
    kept = [one for one in opportunities(home, trials) if one.family in reserve]
    text = "".join(f"{one.model_dump_json()}\n" for one in kept)
    full = MetaSpec(
        **spec.model_dump(exclude={"kind", "plan"}),
        kind=META,
        plan=plan_for(len(kept), spec.attempt),
        recorded=len(trials),
        needed=home.policy_of(META_SKILL).require("min_recorded_trials"),
        analysed=analysed,
        reserve=reserve,
        repetitions=REPETITIONS,
        recorded_digest=_digest(text),
    )
    path = home.trials / spec.trial_id
    path.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path / RECORDED, text)
    return TrialFolder.create(home.trials, full, base, patched)


def spec_of(folder: TrialFolder) -> MetaSpec:
    """The plan of a meta trial."""
    return MetaSpec.model_validate(read_json(folder.path / "plan.json"))


def attempts_counted(home: Home, record: PatchRecord) -> int:
    """Trials of the patch that tested something: one that found too little recorded did not."""
    decisions = [TrialFolder(home.trials / one).decision() for one in record.trials]
    return sum(one is None or one.reason is not Reason.NOT_ENOUGH_EVIDENCE for one in decisions)


def run(folder: TrialFolder, cancelled: Callable[[], bool] = never) -> Decision:
    """The decision of the trial: the same bytes in its folder give the same decision.

    Raises TrialCancelled, and TrialError where `recorded.jsonl` is not the one its plan names.
    """
    spec = spec_of(folder)
    if spec.recorded < spec.needed:
        return not_enough(spec.recorded, spec.needed)
    found = _read(folder.path / RECORDED, spec)
    if len(found) < MIN_RESERVE:
        return not_enough(spec.recorded, spec.needed, _too_few(spec, len(found)))
    base, patched = (_policy(one) for one in folder.policies())
    replayer = Replayer(found, spec.seed, cancelled)
    outcomes = [replayer.outcomes(one, spec.repetitions) for one in (base, patched)]
    if not all(outcomes):
        raise TrialCancelled(f"trial {spec.trial_id} was stopped; it begins anew")
    decision = decide_meta(outcomes[0], outcomes[1], spec.plan, spec.repetitions)
    write_json_atomic(
        folder.path / "replayed.json",
        {
            name: [one.model_dump(mode="json") for one in side]
            for name, side in zip(("base", "patched"), outcomes, strict=True)
        },
    )
    return decision


def _policy(policy: CompiledPolicy) -> OptimizerPolicy:
    return OptimizerPolicy.of(policy.resolve({}))


def _read(path: Path, spec: MetaSpec) -> list[Opportunity]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrialError(f"{path} cannot be read ({error}): try the patch again as a new trial") from error
    if _digest(text) != spec.recorded_digest:
        raise TrialError(f"{path} is not what the plan of {spec.trial_id} names: try the patch again as a new trial")
    return [Opportunity.model_validate(row) for _, row in read_json_lines(path).rows]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _too_few(spec: MetaSpec, found: int) -> str:
    if not spec.reserve:
        only = ", ".join(spec.analysed) or "none"
        return f"{spec.recorded} of {spec.needed} trials, all of one scenario family ({only}): none is left in reserve"
    return f"{found} of {MIN_RESERVE} in the reserve families ({', '.join(spec.reserve)})"
