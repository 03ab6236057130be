"""One round of evolution: train, analyse, propose, try, ask, promote. A state machine that survives being killed.

Every step writes what it is about to use (run id, patch ids, trial id) before it uses it, and looks for what is there
already before it makes anything; so a round that was killed goes on where it was and does nothing twice.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from optimizer.analyze.report import Report
from optimizer.analyze.runs import actionable, analyse_run
from optimizer.analyze.trajectories import analyse_events
from optimizer.deciding import Outcome, decide_on
from optimizer.home import Home
from optimizer.meta.frozen import OPTIMIZE_SKILL, policy_kept
from optimizer.meta.levers import failures_in_a_row, lever_name, place_of
from optimizer.patch_store import PatchError, PatchRecord, Stage
from optimizer.promote import version_label
from optimizer.propose import proposals_for
from optimizer.recorder import Recorder
from optimizer.round_checks import FreshLooks
from optimizer.round_store import RoundStore
from optimizer.round_training import TrainingStep
from optimizer.round_types import (
    Answer,
    Approver,
    EvolveRequest,
    Progress,
    Round,
    RoundState,
    Watcher,
    patch_outcome,
)
from optimizer.stage import EditBudget, Proposal, stage
from optimizer.trial.arms import ArmRunner
from optimizer.trial.folder import TrialFolder
from optimizer.trial.plan import TrialPlan, plan_named
from optimizer.trial.pooled import pooled_arms
from optimizer.trial.run import Budget, finish_trial, never
from optimizer.trial.scenarios import Scenario, deciding, own_scenario
from optimizer.trial.screen import screen
from optimizer.trial.types import TrialVerdict
from optimizer.tryout import CONFIG_SKILL, best_candidate, policies, prepare_trial, resolver, try_patch
from optimizer.types import Finding, Lever
from skill_bank.types import PatchStatus
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import find_run
from trainer.runs.types import RunDocument

Runners = Callable[[Path, bool], AbstractContextManager[ArmRunner]]
"""Opens the workers of a round's trials: where they log, and whether their model needs hub tokens."""


class RoundRunner:
    """Takes rounds of one evolution from state to state."""

    def __init__(
        self,
        home: Home,
        request: EvolveRequest,
        approver: Approver,
        watch: Watcher,
        *,
        launcher: LocalLauncher | None = None,
        runners: Runners = pooled_arms,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        self.home = home
        self.request = request
        self.approver = approver
        self.watch = watch
        self.runners = runners
        self.cancelled = cancelled
        self.rounds = RoundStore(home.root)
        self.recorder = Recorder(home, request.evolution)
        self.training = TrainingStep(home, request, self.recorder, watch, launcher or LocalLauncher(), cancelled)
        self._stack: ExitStack | None = None
        self._runner: ArmRunner | None = None

    # The machine

    def run(self, current: Round, until: RoundState = RoundState.CLOSED) -> Round:
        """Takes the round on until it is closed, waits for a person or has reached `until`.

        Raises RoundError, TrialCancelled and others; what was complete stays.
        """
        steps = {
            RoundState.CREATED: self.training.run,
            RoundState.TRAINED: self._fresh_looks().run,
            RoundState.CHECKED: self._analyse,
            RoundState.ANALYSED: self._propose,
            RoundState.PROPOSED: self._choose,
            RoundState.SCREENED: self._try,
            RoundState.TRIED: self._decide,
            RoundState.AWAITING_APPROVAL: self._decide,
        }
        self.watch(Progress("round", current))
        with self._workers():
            while current.state not in (RoundState.CLOSED, until):
                current = steps[current.state](current)
                if current.state is RoundState.AWAITING_APPROVAL:
                    return current
        if current.state is not RoundState.CLOSED:
            return current
        self.watch(Progress("closed", current))
        return current

    @contextmanager
    def _workers(self) -> Iterator[None]:
        """The workers of trials, opened when the first is needed and ended with the round."""
        with ExitStack() as stack:
            self._stack = stack
            try:
                yield
            finally:
                self._stack = self._runner = None

    def _arm_runner(self) -> ArmRunner:
        if self._runner is None:
            assert self._stack is not None
            self._runner = self._stack.enter_context(
                self.runners(self.home.trials / "workers", self.training.resolved().model.needs_network)
            )
        return self._runner

    def _fresh_looks(self) -> FreshLooks:
        return FreshLooks(self.home, self.request, self.recorder, self.watch, self._arm_runner, self.cancelled)

    def _close(self, current: Round, note: str | None = None, **fields: Any) -> Round:
        key = f"r{current.round}-end"
        self.recorder.turn_end(key)
        self.home.segments.update(current.evolution)
        outcome = [patch_outcome(self.home.patches.read(one)) for one in current.candidates]
        return self.rounds.move(current, RoundState.CLOSED, note=note or current.note, outcome=outcome, **fields)

    # Analysis

    def _analyse(self, current: Round) -> Round:
        directory = find_run(self.home.workspace, current.run_id).directory
        document = directory.read_document()
        table, thresholds = self.home.lever_table(), self.home.thresholds()
        findings = analyse_run(directory, table, thresholds)
        if not current.agent:  # an agent of its own did its monitoring and analysis itself
            self._record_analysis(current, document, findings)
        session = current.session or current.evolution
        segments = [one for one in self.home.segments.update(session) if one.layer == "rllm"]
        first = 0 if current.agent else self._first_line(current)
        mine = [one for one in segments if current.run_id in one.runs or one.first_line >= first]
        findings += analyse_events(mine, self.home.trajectories.read(session).events)
        report = Report(
            report_id=f"report-{current.evolution}-r{current.position}"[:64],
            layer="rllm",
            sessions=[session],
            runs=[current.run_id],
            segments=len(mine),
            tool_calls=sum(one.tool_calls for one in mine),
            findings=findings,
        )
        self.home.reports.write(report)
        current = self.rounds.move(
            current, RoundState.ANALYSED, report_id=report.report_id, findings=[one.kind for one in findings]
        )
        self.watch(Progress("findings", current, findings=tuple(findings), evals=document.eval))
        return current

    def _first_line(self, current: Round) -> int:
        """Line of the round's first event in its session."""
        for event in self.home.trajectories.read(current.evolution).events:
            if event.call_id == f"r{current.round}-prompt":
                return event.line
        return 0

    def _record_analysis(self, current: Round, document: RunDocument, findings: list[Finding]) -> None:
        key, record = f"r{current.round}", self.recorder
        record.skill(f"{key}-skill-monitor", "rllm-monitor", version_label(self.home, "rllm-monitor"))
        ended = {"run_id": current.run_id, "state": str(document.state), "steps": document.step}
        record.call(
            f"{key}-monitor",
            "monitor_run",
            {"run_id": current.run_id},
            ended,
            run_id=current.run_id,
            failed=None if document.failure is None else document.failure.message,
            duration_s=document.seconds,
        )
        record.skill(f"{key}-skill-analyze", "rllm-analyze", version_label(self.home, "rllm-analyze"))
        found = [{"id": one.id, "kind": one.kind, "what": one.what} for one in findings]
        evals = {name: one.model_dump(mode="json") for name, one in document.eval.items()}
        record.call(
            f"{key}-analyze",
            "analyze_run",
            {"run_id": current.run_id},
            {"findings": found, "eval": evals},
            run_id=current.run_id,
        )
        record.turn_end(f"{key}-trained")

    # Proposing

    def _propose(self, current: Round) -> Round:
        assert current.report_id is not None
        report = self.home.reports.read(current.report_id)
        note = self._nothing_to_try(current, report.findings)
        if note is not None:
            self.watch(Progress("note", current, text=note))
            return self._close(current, note)
        self.recorder.skill(
            f"r{current.round}-skill-optimize",
            OPTIMIZE_SKILL,
            current.optimizer_version or version_label(self.home, OPTIMIZE_SKILL),
        )
        records, lever, refusals = self._stage_candidates(current, report.findings)
        if not records:
            note = "; ".join(refusals)
            self.watch(Progress("note", current, text=note))
            return self._close(current, note)
        self.recorder.call(
            f"r{current.round}-propose",
            "propose_patch",
            {"report": current.report_id, "finding": records[0].finding and records[0].finding["id"]},
            {"patches": [one.patch_id for one in records]},
        )
        current = self.rounds.move(
            current, RoundState.PROPOSED, candidates=[one.patch_id for one in records], lever=lever
        )
        self.watch(Progress("proposed", current, patches=tuple(records)))
        return current

    def _nothing_to_try(self, current: Round, findings: list[Finding]) -> str | None:
        """Why this round proposes nothing, or None."""
        if not actionable(findings):
            blocked = [one.blocked for one in findings if one.blocked is not None]
            return blocked[0] if blocked else f"nothing to try: {findings[0].what}"
        last = current.position == self.request.rounds
        if last and self.request.rounds > 1 and not self.request.final_trial:
            return "last round: no trial, since no round follows that would train with it (--final-trial runs one)"
        return None

    def _stage_candidates(
        self, current: Round, findings: list[Finding]
    ) -> tuple[list[PatchRecord], str | None, list[str]]:
        """(staged candidates of the first finding that has any, its lever in words, why others had none)."""
        adopted = [one for one in self.home.patches.all() if one.round == current.round and one.stage is Stage.STAGED]
        if adopted:  # staged before this round was killed
            return adopted, _lever_words(adopted[0]), []
        promising = self._promising(current)
        if promising is not None:
            return [promising], _lever_words(promising), []
        run = find_run(self.home.workspace, current.run_id)
        config = run.directory.read_config().model_dump(mode="json")
        policy = self.home.bank.policy(CONFIG_SKILL, current.profile)
        context = self.training.resolved().context
        limits = policy_kept(self.home, current)
        budget = EditBudget(limits.require("edit_budget.lines"), limits.require("edit_budget.policy_keys"))
        most = min(self.request.candidates or 1, limits.require("max_patches_per_round"))
        refusals: list[str] = []
        for finding in actionable(findings):
            assert finding.lever is not None
            try:
                proposals = proposals_for(
                    finding,
                    policy,
                    context,
                    config[finding.lever.key],
                    self.home.patches,
                    limit=most,
                    profile=current.profile,
                    report_id=current.report_id,
                    round_number=current.round,
                )
                self._check_patience(proposals[0], finding.lever, limits.get("lever_patience"))
            except PatchError as error:
                refusals.append(str(error))
                continue
            records = []
            for proposal in proposals:
                try:
                    records.append(self._staged(proposal) or stage(self.home.bank, self.home.patches, proposal, budget))
                except PatchError as error:
                    refusals.append(str(error))
            if records:
                return records, _lever_words(records[0]), refusals
        return [], None, refusals

    def _check_patience(self, proposal: Proposal, lever: Lever, patience: int | None) -> None:
        """Raises PatchError where policy gives a lever up: so many trials of it failed in a row in this scope."""
        if patience is None:
            return
        name = lever_name(lever.key, lever.direction)
        failed = failures_in_a_row(self.home.patches.all(), name, place_of(proposal.scope, proposal.profile))
        if failed >= patience:
            raise PatchError(f"{name} failed {failed} times in a row here: policy gives a lever {patience}")

    def _staged(self, proposal: Proposal) -> PatchRecord | None:
        """A patch that does the same and waits to be tried, staged by hand or in another evolution."""
        for record in self.home.patches.all():
            same = record.effect_hash == proposal.effect and record.profile == proposal.profile
            if same and record.stage is Stage.STAGED:
                return record
        return None

    def _promising(self, current: Round) -> PatchRecord | None:
        """A patch of this evolution whose trial was promising when its budget ended: it goes first."""
        for earlier in self.rounds.of(current.evolution):
            if earlier.position >= current.position or earlier.chosen is None or earlier.trial_id is None:
                continue
            record = self.home.patches.read(earlier.chosen)
            decision = TrialFolder(self.home.trials / earlier.trial_id).decision()
            if record.stage is Stage.TRIED and decision is not None and decision.more_allowed:
                return record
        return None

    # Trying

    def _own_scenario(self, current: Round) -> Scenario | None:
        run = find_run(self.home.workspace, current.run_id)
        params = run.document.parameters
        if params is None:
            return None
        config = run.directory.read_config().model_dump(mode="json")
        return own_scenario(config, params, run.document.provenance)

    def _plan(self, current: Round) -> TrialPlan:
        name = self.request.plan or policy_kept(self.home, current).require("trial_plan.default")
        return plan_named(name)

    def _choose(self, current: Round) -> Round:
        candidates = [self.home.patches.read(one) for one in current.candidates]
        if len(candidates) == 1:
            return self.rounds.move(current, RoundState.SCREENED, chosen=candidates[0].patch_id)
        effects = self._screen(current, candidates)
        chosen = best_candidate(list(effects.items()))
        for record in candidates:
            if record.patch_id != chosen and record.stage is Stage.STAGED:
                self.home.bank.set_status(record.skill, record.patch_id, PatchStatus.ARCHIVED)
                self.home.patches.move(record.patch_id, Stage.ARCHIVED, f"{chosen} was ahead in screening")
        return self.rounds.move(current, RoundState.SCREENED, chosen=chosen, screening=effects)

    def _screen(self, current: Round, candidates: list[PatchRecord]) -> dict[str, float]:
        plan = self._plan(current)
        first = candidates[0]
        base, _ = policies(self.home, first)
        patched = {one.patch_id: policies(self.home, one)[1] for one in candidates}
        steps = screen(
            self.home.trials / f"screening-round-{current.round:06d}",
            tuple(deciding(first.scope, self._own_scenario(current))),
            base,
            patched,
            resolver(plan),
            self._arm_runner(),
            pairs=policy_kept(self.home, current).require("screening_pairs"),
            seed=current.trial_seed,
            cancelled=self.cancelled,
        )
        effects: dict[str, float] = {}
        for step in steps:
            self.watch(Progress("screening", current, screening=step))
            effects = step.effects()
        return effects

    def _try(self, current: Round) -> Round:
        assert current.chosen is not None
        record = self.home.patches.read(current.chosen)
        if record.stage in (Stage.STAGED, Stage.TRIED) and record.verdict != TrialVerdict.BETTER:
            current, folder = self._trial_folder(current, record)
            most = self.request.max_pairs
            budget = Budget(
                None if most is None else most + (current.continued_from or 0),
                self.request.max_seconds,
            )
            steps = try_patch(self.home, folder, self._arm_runner(), budget=budget, cancelled=self.cancelled)
            finish_trial(steps, lambda step: self.watch(Progress("trial", current, trial=step)))
            record = self.home.patches.read(record.patch_id)
        self.recorder.call(
            f"r{current.round}-try",
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
        return self.rounds.move(current, RoundState.TRIED, verdict=record.verdict)

    def _trial_folder(self, current: Round, record: PatchRecord) -> tuple[Round, TrialFolder]:
        """The trial of this round: the one it began, the promising one it goes on with, or a new one."""
        if current.trial_id is not None:
            return current, TrialFolder(self.home.trials / current.trial_id)
        goes_on = record.stage is Stage.TRIED
        folder = prepare_trial(
            self.home,
            record.patch_id,
            self._plan(current),
            own=self._own_scenario(current),
            seed=current.trial_seed,
            more=goes_on,
        )
        pairs = len(folder.pairs(folder.spec())) if goes_on else None
        moved = self.rounds.move(current, RoundState.SCREENED, trial_id=folder.path.name, continued_from=pairs)
        return moved, folder

    # Deciding

    def _decide(self, current: Round) -> Round:
        assert current.chosen is not None
        decided = decide_on(
            self.home,
            current.chosen,
            self.approver,
            lambda record, answer: self._record_answer(current, record, answer),
        )
        if decided.outcome is Outcome.NOT_BETTER:
            return self._close(current)
        if decided.outcome is Outcome.STALE:
            self.watch(Progress("note", current, text=decided.text))
        if decided.outcome in (Outcome.LATER, Outcome.STALE):
            return self.rounds.move(current, RoundState.AWAITING_APPROVAL)
        record = decided.record
        if decided.outcome is Outcome.REFUSED:
            self.watch(Progress("rejected", current, patches=(record,)))
        if decided.outcome in (Outcome.REFUSED, Outcome.REFUSED_ELSEWHERE):
            return self._close(current, "refused by a person")
        version = version_label(self.home, record.skill)
        current = self._close(current, promoted=record.patch_id, version_after=version)
        self.watch(Progress("promoted", current, patches=(record,), text=version))
        return current

    def _record_answer(self, current: Round, record: PatchRecord, answer: Answer) -> None:
        self.recorder.call(
            f"r{current.round}-review",
            "review_patch",
            {"patch_id": record.patch_id},
            {"decision": answer.decision, "channel": answer.channel, "reason": answer.reason},
        )


def _lever_words(record: PatchRecord) -> str:
    moves = ", ".join(f"{one.key.removesuffix('.default')} {one.before} → {one.after}" for one in record.changes)
    kind = "" if record.finding is None else f"{record.finding['kind']}: "
    return f"{kind}{moves}"
