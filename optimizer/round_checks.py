"""The fresh-looks step of a round: what earlier rounds promoted is measured again, each patch once."""

from collections.abc import Callable

from optimizer.home import Home
from optimizer.patch_store import PatchRecord, Stage
from optimizer.recheck import PAIRS, FreshCheck, fresh_check
from optimizer.recorder import Recorder
from optimizer.round_store import RoundStore
from optimizer.round_types import EvolveRequest, Progress, Round, RoundState, Watcher
from optimizer.trial.arms import ArmRunner
from optimizer.trial.folder import TrialFolder
from optimizer.trial.screen import ScreenRow, screen
from optimizer.tryout import REPLAY, resolver


class FreshLooks:
    """Runs fresh pairs for the rounds of one evolution."""

    def __init__(
        self,
        home: Home,
        request: EvolveRequest,
        recorder: Recorder,
        watch: Watcher,
        runner: Callable[[], ArmRunner],
        cancelled: Callable[[], bool],
    ) -> None:
        self.home = home
        self.request = request
        self.recorder = recorder
        self.watch = watch
        self.runner = runner
        self.cancelled = cancelled
        self.rounds = RoundStore(home.root)

    def run(self, current: Round) -> Round:
        """Looks at every patch that waits for it. Raises TrialError, TrialCancelled; finished pairs are kept."""
        checks = [self._look(current, record).model_dump(mode="json") for record in self._waiting(current)]
        known = [one.fresh for one in self._looked_at_in(current) if one.fresh is not None]
        done = {one["patch_id"] for one in checks}
        checks = [one for one in known if one["patch_id"] not in done] + checks
        return self.rounds.move(current, RoundState.CHECKED, checks=checks)

    def _look(self, current: Round, record: PatchRecord) -> FreshCheck:
        folder = self._trial(record)
        spec = folder.spec()
        base, patched = folder.policies()
        self.watch(Progress("checking", current, patches=(record,)))
        rows: tuple[ScreenRow, ...] = ()
        steps = screen(
            self.home.trials / f"fresh-{record.patch_id}"[:64],
            spec.scenarios,
            base,
            {record.patch_id: patched},
            resolver(spec.plan),
            self.runner(),
            pairs=PAIRS,
            seed=current.trial_seed,
            stream="fresh",
            cancelled=self.cancelled,
        )
        for step in steps:
            rows = step.rows
        check = fresh_check(record, rows, spec.plan, current.round)
        self.home.patches.move(record.patch_id, record.stage, check.say, fresh=check.model_dump(mode="json"))
        self.recorder.call(
            f"r{current.round}-check-{record.patch_id}",
            "check_patch",
            {"patch_id": record.patch_id},
            check.model_dump(mode="json"),
        )
        self.watch(Progress("checked", current, patches=(record,), check=check))
        return check

    def _waiting(self, current: Round) -> list[PatchRecord]:
        """Patches that earlier rounds of this evolution promoted after a trial, in force and not looked at since."""
        if not self.request.fresh_check:
            return []
        return [
            one
            for one in self._promoted_before(current)
            if one.stage is Stage.ACTIVE and one.fresh is None and one.effect is not None and self._was_trained(one)
        ]

    def _was_trained(self, record: PatchRecord) -> bool:
        """Whether its trial is there and was one of paired training."""
        folder = self._trial(record)
        return folder.exists and folder.spec().kind != REPLAY

    def _trial(self, record: PatchRecord) -> TrialFolder:
        """The trial that it was promoted on."""
        return TrialFolder(self.home.trials / (record.trials[-1] if record.trials else "none"))

    def _looked_at_in(self, current: Round) -> list[PatchRecord]:
        """Patches that this round had looked at when it was killed."""
        return [
            one
            for one in self._promoted_before(current)
            if one.fresh is not None and one.fresh.get("round") == current.round
        ]

    def _promoted_before(self, current: Round) -> list[PatchRecord]:
        return [
            self.home.patches.read(earlier.promoted)
            for earlier in self.rounds.of(current.evolution)
            if earlier.position < current.position and earlier.promoted is not None
        ]
