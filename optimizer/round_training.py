"""The training step of a round: its run is made, followed, repeated where it was broken off, or taken over."""

from collections.abc import Callable
from pathlib import Path

from optimizer.home import Home
from optimizer.promote import version_label
from optimizer.recorder import Recorder
from optimizer.round_store import RoundStore
from optimizer.round_types import EvolveRequest, Progress, Round, RoundError, RoundState, Watcher
from optimizer.tryout import CONFIG_SKILL
from trainer.runs import supervise
from trainer.runs.launch import LocalLauncher, follow, start_run
from trainer.runs.registry import list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.settings import Resolved, resolve

_RETRAIN = frozenset({"killed", "crashed", "lost", "restart", "incomplete", "launch"})
"""Failures that say nothing about the configuration: the run is made again when the round is taken up."""

_LEARNING_FAILURES = frozenset({"nonfinite", "oom"})
"""Failures that are findings."""


class TrainingStep:
    """Trains for the rounds of one evolution."""

    def __init__(
        self,
        home: Home,
        request: EvolveRequest,
        recorder: Recorder,
        watch: Watcher,
        launcher: LocalLauncher,
        cancelled: Callable[[], bool],
    ) -> None:
        self.home = home
        self.request = request
        self.recorder = recorder
        self.watch = watch
        self.launcher = launcher
        self.cancelled = cancelled
        self.rounds = RoundStore(home.root)

    def resolved(self) -> Resolved:
        """The configuration of the next run. Raises ConfigError."""
        request = self.request
        policy = self.home.bank.policy(CONFIG_SKILL, request.profile)
        return resolve(
            request=request.request,
            overrides=request.overrides,
            config_file=None if request.config_file is None else Path(request.config_file),
            policy=policy,
            profile=request.profile,
            folder=Path(request.folder),
        )

    def run(self, current: Round) -> Round:
        """Trains, or takes over what the training agent of the round trained."""
        if current.agent:
            return self._taken_over(current)
        resolved = self.resolved()
        versions = {skill: version_label(self.home, skill) for skill in self.home.bank.skills("rllm")}
        current, directory = self._run_directory(current, resolved)
        self.recorder.prompt(f"r{current.round}-prompt", f"round {current.round}: {current.request}")
        self.recorder.skill(f"r{current.round}-skill-config", CONFIG_SKILL, versions[CONFIG_SKILL])
        if not directory.document_path.exists():
            start_run(
                self.home.workspace,
                resolved,
                launcher=self.launcher,
                run_id=current.run_id,
                request=current.request,
                round=current.round,
                session=current.evolution,
                skill_versions=versions,
            )
        self.recorder.call(
            f"r{current.round}-start-{current.run_id}",
            "start_training",
            {"request": current.request, "profile": current.profile, "overrides": self.request.overrides},
            {"run_id": current.run_id, "config": resolved.config.model_dump(mode="json")},
            run_id=current.run_id,
        )
        document = self._follow(current, directory)
        self._check_run(document)
        return self.rounds.move(current, RoundState.TRAINED, skill_versions=versions)

    def _taken_over(self, current: Round) -> Round:
        """The run that an agent started for this round, followed to its end. Raises RoundError where there is none."""
        theirs = [
            one
            for one in list_runs(self.home.workspace)
            if one.document.round == current.round and one.document.created_at >= current.created_at
        ]
        if not theirs:
            raise RoundError(
                f"round {current.round} has no run yet: its training agent starts one with start_training("
                f'request="round={current.round} | …"). Launch it with `mcp-evo rounds launch`, or wait for it'
            )
        finished = [one for one in theirs if one.document.state is RunState.FINISHED]
        chosen = max(finished or theirs, key=lambda one: one.document.created_at)
        fields = {"run_id": chosen.document.run_id, "session": chosen.document.session}
        current = self.rounds.move(current, RoundState.CREATED, **fields)
        document = self._follow(current, chosen.directory)
        self._check_run(document)
        return self.rounds.move(current, RoundState.TRAINED, skill_versions=document.skill_versions)

    def _run_directory(self, current: Round, resolved: Resolved) -> tuple[Round, RunDirectory]:
        """The run of this round: the one it has, the one of the round before where nothing has changed since, or a
        new one where the one it has was broken off."""
        directory = RunDirectory(self.home.workspace.runs / current.run_id)
        if not directory.document_path.exists():
            same = self._unchanged_run(current, resolved)
            if same is None:
                return current, directory
            note = f"nothing changed since round {current.round - 1}: its run stands"
            current = self.rounds.move(current, RoundState.CREATED, run_id=same.run_id, note=note)
            self.watch(Progress("note", current, text=note))
            return current, same
        document = supervise.reconcile(directory)
        broken = document.state in (RunState.STOPPED, RunState.LOST) or (
            document.failure is not None and document.failure.kind in _RETRAIN
        )
        if not document.state.is_final or not broken:
            return current, directory
        stem, _, tail = current.run_id.rpartition("-again")
        again = int(tail) + 1 if stem and tail.isdigit() else 2
        current = self.rounds.move(current, RoundState.CREATED, run_id=f"{stem or current.run_id}-again{again}")
        return current, RunDirectory(self.home.workspace.runs / current.run_id)

    def _unchanged_run(self, current: Round, resolved: Resolved) -> RunDirectory | None:
        """The last round's run, if it had this very configuration: the same seed would only repeat it."""
        earlier = [one for one in self.rounds.of(current.evolution) if one.position == current.position - 1]
        if not earlier or earlier[0].promoted is not None:
            return None
        directory = RunDirectory(self.home.workspace.runs / earlier[0].run_id)
        if not directory.document_path.exists() or directory.read_config() != resolved.config:
            return None
        return directory

    def _follow(self, current: Round, directory: RunDirectory) -> RunDocument:
        document = directory.read_document()
        try:
            for update in follow(self.home.workspace, directory, launcher=self.launcher):
                document = update.document
                self.watch(Progress("run", current, update=update))
                if self.cancelled():
                    supervise.stop_run(directory)
        except KeyboardInterrupt:
            supervise.stop_run(directory)
            raise
        return document

    def _check_run(self, document: RunDocument) -> None:
        if document.state is RunState.FINISHED:
            return
        resume = f"go on with `mcp-evo evolve --resume {self.request.evolution}`"
        if document.failure is None:
            raise RoundError(f"run {document.run_id} ended as {document.state}: {resume}")
        if document.failure.kind not in _LEARNING_FAILURES:
            raise RoundError(f"run {document.run_id} failed: {document.failure.message} Then {resume}")
