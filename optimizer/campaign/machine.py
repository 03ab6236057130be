"""A campaign carried on: decide, ask, train, record, until it is closed. A state machine that survives being killed.

Every step writes what it is about to use (run id, settings) before it uses it, and looks for what is there already
before it makes anything; so a campaign that was killed goes on where it was and trains nothing twice.
"""

from collections.abc import Callable
from typing import Literal

from optimizer.audit import current_user
from optimizer.campaign.confirm import Confirmer, confirm, why_not
from optimizer.campaign.decide import best_of, decide
from optimizer.campaign.store import CampaignStore
from optimizer.campaign.training import CampaignTraining
from optimizer.campaign.types import (
    Campaign,
    CampaignError,
    CampaignProgress,
    CampaignRun,
    CampaignState,
    CampaignVerdict,
    CampaignWatcher,
    Choice,
    Confirmation,
    Consent,
)
from optimizer.home import Home
from optimizer.ids import content_id
from optimizer.round_types import Answer
from trainer.runs.launch import LocalLauncher

CampaignApprover = Callable[[Campaign], Answer]
"""Asks a person about the next run (`campaign.next`)."""


def carry_on(
    home: Home,
    campaign_id: str,
    approver: CampaignApprover,
    watch: CampaignWatcher,
    *,
    launcher: LocalLauncher | None = None,
    confirmer: Confirmer = confirm,
) -> Campaign:
    """Takes a campaign on until it is closed or waits for a person; a closed one is returned as it is.

    Raises CampaignError where it cannot go on (and says how to take it up again), RunError, KeyboardInterrupt.
    """
    store = CampaignStore(home.root)
    name = store.read(campaign_id).campaign_id
    with store.carrying_on(name):
        runner = _Runner(home, store, approver, watch, launcher or LocalLauncher(), confirmer)
        return runner.run(store.read(name))


class _Runner:
    """Takes one campaign from state to state; its process holds the campaign's lock."""

    def __init__(
        self,
        home: Home,
        store: CampaignStore,
        approver: CampaignApprover,
        watch: CampaignWatcher,
        launcher: LocalLauncher,
        confirmer: Confirmer,
    ) -> None:
        self.home = home
        self.store = store
        self.approver = approver
        self.watch = watch
        self.confirmer = confirmer
        self.training = CampaignTraining(home, watch, launcher)

    def run(self, campaign: Campaign) -> Campaign:
        steps = {
            CampaignState.CREATED: self._decide,
            CampaignState.TRAINED: self._decide,
            CampaignState.AWAITING_APPROVAL: self._ask,
            CampaignState.PLANNED: self.training.run,
            CampaignState.ENDED: self._confirm,
        }
        while campaign.state is not CampaignState.CLOSED:
            waited = campaign.state is CampaignState.AWAITING_APPROVAL
            campaign = steps[campaign.state](campaign)
            if waited and campaign.state is CampaignState.AWAITING_APPROVAL:
                return campaign
        self.watch(CampaignProgress("closed", campaign))
        return campaign

    def _decide(self, campaign: Campaign) -> Campaign:
        decision = decide(campaign.request, campaign.basis, campaign.runs)
        planned = decision.planned
        after = campaign.runs[-1].run_id if campaign.runs else None
        action: Literal["start", "change", "end"] = "end"
        if planned is not None:
            action = "start" if planned.change is None else "change"
        choice = Choice(after_run=after, action=action, reason=decision.reason, considered=list(decision.considered))
        campaign = campaign.model_copy(update={"choices": [*campaign.choices, choice], "next": planned})
        if planned is None:
            assert decision.verdict is not None
            moved = self._end(campaign, decision.verdict, decision.reason)
        elif campaign.request.ask:
            moved = self.store.move(campaign, CampaignState.AWAITING_APPROVAL)
        else:
            moved = plan_run(self.store, campaign)
        self.watch(CampaignProgress("decided", moved, text=decision.reason))
        return moved

    def _ask(self, campaign: Campaign) -> Campaign:
        answer = self.approver(campaign)
        if answer.decision == "later":
            return campaign
        return answer_campaign(self.home, self.store, campaign, answer)

    def _end(self, campaign: Campaign, verdict: CampaignVerdict, reason: str) -> Campaign:
        return end_campaign(self.store, campaign, verdict, reason)

    def _confirm(self, campaign: Campaign) -> Campaign:
        confirmation: Confirmation | None = None
        if campaign.best_run is not None:
            if why_not(self.home, campaign) is None:
                self.watch(CampaignProgress("confirming", campaign))
            confirmation = self.confirmer(self.home, campaign)
        return self.store.move(campaign, CampaignState.CLOSED, confirmation=confirmation)


def plan_run(store: CampaignStore, campaign: Campaign) -> Campaign:
    """The proposed run becomes the next one, with its id."""
    planned = campaign.next
    assert planned is not None
    made = CampaignRun(
        number=planned.number,
        parts=[f"{campaign.campaign_id}-r{planned.number}"],
        change=planned.change,
        overrides=planned.overrides,
        why=planned.why,
    )
    return store.move(campaign, CampaignState.PLANNED, runs=[*campaign.runs, made], next=None)


def end_campaign(store: CampaignStore, campaign: Campaign, verdict: CampaignVerdict, reason: str) -> Campaign:
    """No further run: verdict, reason and the best run are written down."""
    best = best_of(campaign.runs)
    return store.move(
        campaign,
        CampaignState.ENDED,
        verdict=verdict,
        reason=reason,
        next=None,
        best_run=None if best is None else best.run_id,
    )


def digest_of(campaign: Campaign) -> str:
    """What a consent is bound to: this campaign's next run with exactly these settings."""
    planned = campaign.next
    if planned is None:
        raise CampaignError(f"campaign {campaign.campaign_id} is {campaign.state}: no run waits for a person")
    config = campaign.basis.training(planned.overrides).model_dump_json()
    return content_id(campaign.campaign_id, planned.number, config, length=64)


def answer_campaign(home: Home, store: CampaignStore, campaign: Campaign, answer: Answer) -> Campaign:
    """Records what a person said about the next run, in the campaign and in the audit log.

    The caller holds the campaign's lock and has made sure that a person decided. Raises CampaignError where no run
    waits.
    """
    digest = digest_of(campaign)
    assert campaign.next is not None
    number = campaign.next.number
    decision: Literal["approve", "reject"] = "approve" if answer.decision == "approve" else "reject"
    home.audit.append(
        "approved" if decision == "approve" else "rejected",
        channel=answer.channel,
        campaign_id=campaign.campaign_id,
        campaign_run=number,
        result_digest=digest,
        reason=answer.reason,
        **answer.origin.fields(),
    )
    consent = Consent(
        number=number,
        decision=decision,
        channel=answer.channel,
        reason=answer.reason,
        user=current_user(),
        token=answer.origin.token,
        client=answer.origin.client,
    )
    campaign = campaign.model_copy(update={"consents": [*campaign.consents, consent]})
    if decision == "approve":
        return plan_run(store, campaign)
    reason = f"run {number} was refused by a person: {answer.reason or 'no reason given'}"
    choice = Choice(after_run=campaign.runs[-1].run_id if campaign.runs else None, action="end", reason=reason)
    campaign = campaign.model_copy(update={"choices": [*campaign.choices, choice]})
    return end_campaign(store, campaign, CampaignVerdict.REFUSED, reason)
