"""The training step of a campaign: its run is made, followed, resumed where it was broken off, and recorded."""

import time
from pathlib import Path
from typing import Any

from optimizer.analyze.levers import LeverTable
from optimizer.analyze.runs import analyse_run
from optimizer.campaign.store import CampaignStore
from optimizer.campaign.types import (
    Campaign,
    CampaignError,
    CampaignProgress,
    CampaignRun,
    CampaignState,
    CampaignWatcher,
    Choice,
)
from optimizer.home import Home
from trainer.models.catalog import resolve_model
from trainer.runs import supervise
from trainer.runs.findings import Thresholds
from trainer.runs.launch import LocalLauncher, follow, start_run
from trainer.runs.registry import Run
from trainer.runs.resume import resume_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState
from trainer.settings import Resolved

BROKEN_OFF = frozenset({"killed", "crashed", "lost", "restart", "incomplete"})
"""Failures that say nothing about the configuration: the run is resumed from its newest checkpoint."""

LEARNING_FAILURES = frozenset({"nonfinite", "oom"})
"""Failures that are results: the configuration is at fault, and the campaign decides with that."""

MAX_STANDSTILLS = 3
"""Times in a row that a run may break off without having got further; then a person has to look."""

BUDGET = "budget"
"""Stop reason of a run whose campaign has spent its minutes."""

ANOMALY = "anomaly: "
"""Begins the stop reason of a run that a critical anomaly ended (`auto_stop`)."""


class CampaignTraining:
    """Trains for one campaign."""

    def __init__(self, home: Home, watch: CampaignWatcher, launcher: LocalLauncher) -> None:
        self.home = home
        self.watch = watch
        self.launcher = launcher
        self.store = CampaignStore(home.root)

    def run(self, campaign: Campaign) -> Campaign:
        """Takes the planned run to its end and records it. Raises CampaignError, RunError, KeyboardInterrupt."""
        standstills, reached = 0, -1
        while True:
            current = campaign.runs[-1]
            directory = self._directory(current.run_id)
            if not directory.document_path.exists():
                self._make(campaign, current)
            elif (document := supervise.reconcile(directory)).state.is_final and _may_resume(document):
                campaign = self._add_part(campaign, document)
                continue
            asked_before = directory.stop_reason() is not None  # by an interrupted process, not while we look
            document = self._follow(campaign, directory)
            if is_result(document):
                return self._record(campaign, directory, document)
            if document.state is RunState.STOPPED and asked_before:
                continue
            if document.state is RunState.FAILED and document.failure and document.failure.kind in BROKEN_OFF:
                standstills = standstills + 1 if document.step <= reached else 1
                reached = max(reached, document.step)
                if standstills < MAX_STANDSTILLS:
                    continue
            raise CampaignError(self._why_it_waits(campaign, document))

    def _directory(self, run_id: str) -> RunDirectory:
        return RunDirectory(self.home.workspace.runs / run_id)

    def _make(self, campaign: Campaign, current: CampaignRun) -> None:
        """The directory of the newest part, which the campaign names already."""
        if len(current.parts) == 1:
            start_run(
                self.home.workspace,
                resolved_run(campaign, current),
                launcher=self.launcher,
                run_id=current.run_id,
                request=campaign.request.request,
                session=campaign.request.session,
                skill_versions=campaign.basis.skill_versions,
                **_marks(campaign, current),
            )
            return
        before = self._directory(current.parts[-2])
        resume_run(
            self.home.workspace,
            Run(before, before.read_document()),
            run_id=current.run_id,
            **_marks(campaign, current),
        )
        self.launcher.tick(self.home.workspace, lock_timeout_s=10.0)

    def _add_part(self, campaign: Campaign, document: RunDocument) -> Campaign:
        """Names the run that goes on where a broken one ended, before it exists."""
        current = campaign.runs[-1]
        name = f"{current.parts[0]}-part{len(current.parts) + 1}"
        ended = document.failure.kind if document.failure is not None else document.stop_reason or str(document.state)
        reason = f"{current.run_id} was broken off at step {document.step} ({ended}); {name} goes on with it"
        moved = self.store.move(
            campaign,
            CampaignState.PLANNED,
            runs=[*campaign.runs[:-1], current.model_copy(update={"parts": [*current.parts, name]})],
            choices=[*campaign.choices, Choice(after_run=current.run_id, action="resume", reason=reason)],
        )
        self.watch(CampaignProgress("resumed", moved, text=reason))
        return moved

    def _follow(self, campaign: Campaign, directory: RunDirectory) -> RunDocument:
        document = directory.read_document()
        try:
            for update in follow(self.home.workspace, directory, launcher=self.launcher):
                document = update.document
                self.watch(CampaignProgress("run", campaign, update=update))
                if document.state.is_final:
                    break
                if self._out_of_time(campaign, document):
                    supervise.stop_run(directory, reason=BUDGET)
        except KeyboardInterrupt:
            supervise.stop_run(directory)
            raise
        return document

    def _out_of_time(self, campaign: Campaign, document: RunDocument) -> bool:
        limit = campaign.request.max_seconds
        if limit is None or document.started_at is None:
            return False
        earlier = sum(one.seconds for one in campaign.finished)
        parts = [self._directory(one) for one in campaign.runs[-1].parts[:-1]]
        earlier += sum(one.read_document().seconds or 0.0 for one in parts if one.document_path.exists())
        return earlier + (time.time() - document.started_at) >= limit

    def _record(self, campaign: Campaign, directory: RunDirectory, document: RunDocument) -> Campaign:
        """The run is over: what came out of it goes into the campaign."""
        current = campaign.runs[-1]
        config = directory.read_config()
        documents = [self._directory(one).read_document() for one in current.parts]
        thresholds = Thresholds.from_policy(campaign.basis.thresholds)
        findings = analyse_run(directory, LeverTable(campaign.basis.decisions), thresholds)
        done = current.model_copy(
            update={
                "state": str(document.state),
                "stop_reason": document.stop_reason,
                "failure": document.failure,
                "eval": {name: document.eval[name] for name in ("before", "after") if name in document.eval},
                "findings": findings,
                "steps": document.step,
                "episodes": document.step * config.episodes_per_step,
                "seconds": round(sum(one.seconds or 0.0 for one in documents), 3),
            }
        )
        moved = self.store.move(campaign, CampaignState.TRAINED, runs=[*campaign.runs[:-1], done])
        self.watch(CampaignProgress("trained", moved))
        return moved

    def _why_it_waits(self, campaign: Campaign, document: RunDocument) -> str:
        go_on = f"Go on with `mcp-evo train --auto --resume {campaign.campaign_id}`"
        if document.failure is None:
            asked = document.stop_reason or "asked"
            return f"run {document.run_id} is {document.state} ({asked}), so the campaign waits. {go_on}"
        return f"run {document.run_id} failed ({document.failure.kind}): {document.failure.message} Then: {go_on}"


def is_result(document: RunDocument) -> bool:
    """Whether the end of a run is an outcome to decide on, not an accident."""
    if document.state is RunState.FINISHED:
        return True
    if document.state is RunState.STOPPED:
        reason = document.stop_reason or ""
        return reason == BUDGET or reason.startswith(ANOMALY)
    return document.failure is not None and document.failure.kind in LEARNING_FAILURES


def _may_resume(document: RunDocument) -> bool:
    """Whether a run that is over goes on: broken off, or stopped or failed in a way that a person may have mended."""
    return not is_result(document)


def resolved_run(campaign: Campaign, current: CampaignRun) -> Resolved:
    """Configuration and provenance of a run of the campaign."""
    basis, name = campaign.basis, campaign.campaign_id
    config = basis.training(current.overrides)
    provenance = dict(basis.provenance)
    for key in current.overrides:
        detail = f"campaign {name}, run {current.number}: {current.why[key]}"
        provenance[key] = {"source": "override", "detail": detail, "campaign": name}
    return Resolved(
        config=config,
        provenance=provenance,
        model=resolve_model(config.model, Path(campaign.request.folder)),
        profile=campaign.request.profile,
        context=basis.context,
    )


def _marks(campaign: Campaign, current: CampaignRun) -> dict[str, Any]:
    """Fields of a run document that say which campaign it belongs to."""
    return {"campaign": campaign.campaign_id, "campaign_run": current.number}
