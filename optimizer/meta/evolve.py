"""`mcp-evo evolve --layer meta`: analyse the optimiser's records, propose, try on recorded trials, ask a person.

Nothing trains. A round that was killed goes on where it was; a patch needs an approval of its own, and a standing
approval only counts where it is for layer `traj`. What is promoted holds for rounds that begin afterwards.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from filelock import FileLock, Timeout

from optimizer.analyze.report import Report
from optimizer.deciding import Outcome, decide_on
from optimizer.home import Home
from optimizer.layers import Layer
from optimizer.meta.findings import Records, findings_of
from optimizer.meta.frozen import OPTIMIZE_SKILL
from optimizer.meta.judge import not_enough
from optimizer.meta.propose import stage_best, wishes
from optimizer.meta.recorded import opportunities, recorded_trials, split_families
from optimizer.meta.rounds import MetaRound, MetaRounds
from optimizer.meta.trial import META_SKILL, spec_of
from optimizer.meta.types import OptimizerPolicy
from optimizer.meta.work import work_of_optimizer
from optimizer.patch_store import PatchRecord, Stage
from optimizer.promote import version_label
from optimizer.recorder import Recorder
from optimizer.round_store import RoundStore
from optimizer.round_types import Answer, Approver, RoundError, RoundState, patch_outcome
from optimizer.stage import EditBudget
from optimizer.trial.arms import ArmJob, TrialError
from optimizer.trial.folder import TrialFolder, pair_seed
from optimizer.trial.plan import DEFAULT
from optimizer.trial.run import finish_trial, never
from optimizer.trial.types import ArmResult, Decision, Reason, TrialVerdict
from optimizer.tryout import prepare_trial, try_patch
from optimizer.types import Finding


@dataclass(frozen=True)
class MetaProgress:
    """What a watcher is told."""

    kind: str
    """round | findings | proposed | decided | promoted | rejected | note | closed."""
    round: MetaRound
    findings: tuple[Finding, ...] = ()
    patches: tuple[PatchRecord, ...] = ()
    decision: Decision | None = None
    text: str = ""


MetaWatcher = Callable[[MetaProgress], None]


class _NoArms:
    """A meta trial replays: it has no arms to run."""

    def run(self, jobs: Sequence[ArmJob], cancelled: Callable[[], bool]) -> list[ArmResult]:
        raise TrialError("a patch of the optimiser's policy is tried on recorded trials, nothing is trained for it")


def evolve_meta(
    home: Home,
    approver: Approver,
    watch: MetaWatcher,
    *,
    rounds: int = 1,
    seed: int | None = None,
    cancelled: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Up to `rounds` rounds, an open one first, and the output document of `evolve`.

    Stops where nothing is left to try and where a person has to decide. Raises RoundError while another process runs
    meta rounds here, TrialCancelled; what was complete stays.
    """
    store = MetaRounds(home.root)
    store.root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(store.root / "running.lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RoundError("another process runs the meta layer of this workspace: wait for it") from error
    try:
        first = secrets.randbelow(2**31) if seed is None else seed
        done: list[MetaRound] = []
        for _ in range(rounds):
            trial_seed = pair_seed(first, "meta", len(store.numbers()) + 1)
            current = store.open_or_new(version_label(home, OPTIMIZE_SKILL), trial_seed)
            current = MetaRunner(home, approver, watch, store, cancelled).run(current)
            done.append(current)
            if current.state is not RoundState.CLOSED or (current.promoted is None and not current.candidates):
                break
        return document(home, done)
    finally:
        lock.release()


class MetaRunner:
    """Takes one meta round from state to state."""

    def __init__(
        self,
        home: Home,
        approver: Approver,
        watch: MetaWatcher,
        store: MetaRounds,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        self.home = home
        self.approver = approver
        self.watch = watch
        self.store = store
        self.cancelled = cancelled

    def run(self, current: MetaRound) -> MetaRound:
        """Takes the round on until it is closed or waits for a person."""
        self.recorder = Recorder(self.home, current.session)
        steps = {
            RoundState.CREATED: self._analyse,
            RoundState.ANALYSED: self._propose,
            RoundState.PROPOSED: self._try,
            RoundState.TRIED: self._decide,
            RoundState.AWAITING_APPROVAL: self._decide,
        }
        self.watch(MetaProgress("round", current))
        while current.state is not RoundState.CLOSED:
            current = steps[current.state](current)
            if current.state is RoundState.AWAITING_APPROVAL:
                return current
        self.watch(MetaProgress("closed", current))
        return current

    def _close(self, current: MetaRound, note: str | None = None, **fields: Any) -> MetaRound:
        self.recorder.turn_end("end")
        self.home.segments.update(current.session)
        outcome = [patch_outcome(self.home.patches.read(one)) for one in current.candidates]
        return self.store.move(current, RoundState.CLOSED, note=note or current.note, outcome=outcome, **fields)

    def _analyse(self, current: MetaRound) -> MetaRound:
        self.recorder.skill("skill", META_SKILL, version_label(self.home, META_SKILL))
        trials = recorded_trials(self.home)
        analysed, reserve = split_families(trials)
        work = work_of_optimizer(self.home)
        records = Records(
            trials=[one for one in trials if one.family in analysed],
            patches=[one for one in self.home.patches.all() if one.group == Layer.RLLM],
            rounds=RoundStore(self.home.root).all(),
            work=work,
            policy=OptimizerPolicy.of(self.home.policy_of(OPTIMIZE_SKILL)),
        )
        findings = findings_of(records)
        report = Report(
            report_id=f"meta-round-{current.round:06d}",
            layer=Layer.TRAJ,
            sessions=list(work.sessions),
            segments=work.segments,
            tool_calls=len(work.calls),
            findings=findings,
        )
        self.home.reports.write(report)
        needed = self.home.policy_of(META_SKILL).require("min_recorded_trials")
        kinds = [one.kind for one in findings]
        self.recorder.call(
            "analyze",
            "analyze_trajectories",
            {"layer": str(Layer.TRAJ)},
            {"report": report.report_id, "findings": kinds, "recorded_trials": len(trials), "needed": needed},
        )
        current = self.store.move(
            current,
            RoundState.ANALYSED,
            report_id=report.report_id,
            findings=kinds,
            recorded=len(trials),
            needed=needed,
            analysed=list(analysed),
            reserve=list(reserve),
        )
        self.watch(MetaProgress("findings", current, findings=tuple(findings)))
        return current

    def _propose(self, current: MetaRound) -> MetaRound:
        if current.recorded < current.needed:
            decision = not_enough(current.recorded, current.needed)
            self.watch(MetaProgress("decided", current, decision=decision))
            return self._close(current, decision.say, **_verdict_fields(decision))
        records, refusals = self._candidates(current)
        if not records:
            note = "; ".join(refusals) or "nothing to try: no finding suggests another value of the optimiser's policy"
            self.watch(MetaProgress("note", current, text=note))
            return self._close(current, note)
        names = [one.patch_id for one in records]
        self.recorder.call("propose", "propose_patch", {"report": current.report_id}, {"patches": names})
        current = self.store.move(current, RoundState.PROPOSED, candidates=names)
        self.watch(MetaProgress("proposed", current, patches=tuple(records)))
        return current

    def _candidates(self, current: MetaRound) -> tuple[list[PatchRecord], list[str]]:
        """(the patches of this round, the one to try first; why there are no others)."""
        waiting = [one for one in self.home.patches.all() if self._waits(one, current.recorded)]
        if waiting:
            return waiting[:1], []
        assert current.report_id is not None
        report = self.home.reports.read(current.report_id)
        trials = [one for one in recorded_trials(self.home) if one.family in current.analysed]
        policy = OptimizerPolicy.of(self.home.policy_of(OPTIMIZE_SKILL))
        wanted = wishes(report.findings, opportunities(self.home, trials), policy, current.trial_seed)
        limits = self.home.policy_of(META_SKILL)
        default = EditBudget()
        budget = EditBudget(
            limits.get("edit_budget.lines", default.lines), limits.get("edit_budget.policy_keys", default.policy_keys)
        )
        return stage_best(self.home, wanted, limit=1, budget=budget, report_id=current.report_id)

    def _waits(self, record: PatchRecord, recorded: int) -> bool:
        """Whether a patch of the optimiser's policy waits for a trial: staged, or more is recorded than when its trial
        found too little."""
        if record.skill != OPTIMIZE_SKILL or not record.changes:
            return False
        if record.stage is Stage.STAGED:
            return True
        if record.stage is not Stage.TRIED or not record.trials:
            return False
        folder = TrialFolder(self.home.trials / record.trials[-1])
        decision = folder.decision()
        if decision is None:
            return True
        more = recorded - spec_of(folder).recorded
        if decision.reason is Reason.NOT_ENOUGH_EVIDENCE:
            return more > 0
        return decision.more_pairs is not None and record.attempts < 2 and more >= decision.more_pairs

    def _try(self, current: MetaRound) -> MetaRound:
        assert current.chosen is not None
        if current.trial_id is None:
            current = self.store.move(current, RoundState.PROPOSED, trial_id=self._trial_of(current, current.chosen))
        assert current.trial_id is not None
        folder = TrialFolder(self.home.trials / current.trial_id)
        decision = finish_trial(try_patch(self.home, folder, _NoArms(), cancelled=self.cancelled))
        record = self.home.patches.read(folder.spec().patch_id)
        self.recorder.call(
            "try",
            "try_patch",
            {"patch_id": record.patch_id},
            {
                "trial_id": current.trial_id,
                "verdict": record.verdict,
                "effect": record.effect,
                "ci95": record.ci95,
                "pairs": record.pairs,
            },
        )
        self.watch(MetaProgress("decided", current, patches=(record,), decision=decision))
        return self.store.move(current, RoundState.TRIED, **_verdict_fields(decision))

    def _trial_of(self, current: MetaRound, patch_id: str) -> str:
        """A new trial of the patch; the one there is, where somebody tried it by hand while the round was down."""
        record = self.home.patches.read(patch_id)
        if record.trials and (record.verdict == TrialVerdict.BETTER or record.stage not in (Stage.STAGED, Stage.TRIED)):
            return record.trials[-1]
        return prepare_trial(self.home, patch_id, DEFAULT, seed=current.trial_seed).path.name

    def _decide(self, current: MetaRound) -> MetaRound:
        assert current.chosen is not None
        decided = decide_on(self.home, current.chosen, self.approver, self._record_answer)
        if decided.outcome is Outcome.NOT_BETTER:
            return self._close(current)
        if decided.outcome is Outcome.STALE:
            self.watch(MetaProgress("note", current, text=decided.text))
        if decided.outcome in (Outcome.LATER, Outcome.STALE):
            return self.store.move(current, RoundState.AWAITING_APPROVAL)
        record = decided.record
        if decided.outcome is Outcome.REFUSED:
            self.watch(MetaProgress("rejected", current, patches=(record,)))
        if decided.outcome in (Outcome.REFUSED, Outcome.REFUSED_ELSEWHERE):
            return self._close(current, "refused by a person")
        version = version_label(self.home, record.skill)
        current = self._close(current, promoted=record.patch_id, version_after=version)
        self.watch(MetaProgress("promoted", current, patches=(record,), text=version))
        return current

    def _record_answer(self, record: PatchRecord, answer: Answer) -> None:
        self.recorder.call(
            "review",
            "review_patch",
            {"patch_id": record.patch_id},
            {"decision": answer.decision, "channel": answer.channel, "reason": answer.reason},
        )


def _verdict_fields(decision: Decision) -> dict[str, Any]:
    return {
        "verdict": str(decision.verdict),
        "reason": None if decision.reason is None else str(decision.reason),
        "say": decision.say,
        "next_step": decision.next_step,
    }


def document(home: Home, rounds: Sequence[MetaRound]) -> dict[str, Any]:
    """The output document: the contract of `evolve`, with what a meta round knows beside it."""
    last = rounds[-1]
    stopped = last.note if last.state is RoundState.CLOSED and not last.candidates else None
    return {
        "layer": "meta",
        "evolution": last.session,
        "rounds": [round_document(home, one) for one in rounds],
        "stopped": stopped,
        "awaiting": last.chosen if last.state is RoundState.AWAITING_APPROVAL else None,
    }


def round_document(home: Home, current: MetaRound) -> dict[str, Any]:
    """One meta round for reports and `--json`. It trains nothing, so it has no run and no evaluation."""
    return {
        "round": current.round,
        "state": str(current.state),
        "layer": current.layer,
        "skill_version": current.optimizer_version,
        "run_id": None,
        "eval": {"before": None, "after": None},
        "findings": current.findings,
        "report_id": current.report_id,
        "recorded_trials": current.recorded,
        "needed_trials": current.needed,
        "families": {"analysed": current.analysed, "reserve": current.reserve},
        "patch_id": current.promoted,
        "verdict": current.verdict,
        "reason": current.reason,
        "say": current.say,
        "next_step": current.next_step,
        "version_after": current.version_after,
        "patches": current.outcome or [patch_outcome(home.patches.read(one)) for one in current.candidates],
        "note": current.note,
    }
