"""The beginning of a campaign: from a request to what holds for all of its runs, checked and written down."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optimizer.analyze.levers import LEVER_SKILL, LeverTable
from optimizer.analyze.runs import blocked_by
from optimizer.campaign.decide import ANALYSIS_SKILL
from optimizer.campaign.store import CampaignStore
from optimizer.campaign.types import Basis, Campaign, CampaignError, CampaignRequest
from optimizer.home import Home
from optimizer.ids import check_id, stamped_id
from optimizer.promote import version_label
from trainer.config import ConfigError
from trainer.settings import Resolved, resolve

MAX_ID = 48
"""Characters of a campaign's id; those of its runs are longer and must still be ids."""

EXPLICIT = frozenset({"request", "set", "override", "config"})
"""Sources of a value that somebody asked for."""


def new_request(text: str, *, campaign: str | None = None, **fields: Any) -> CampaignRequest:
    """The request of a new campaign. Raises BadId, CampaignError for an id that is too long."""
    name = stamped_id("campaign", text) if campaign is None else check_id(campaign, "campaign")
    if len(name) > MAX_ID:
        raise CampaignError(f"campaign id {name!r} is too long: at most {MAX_ID} characters, its runs add some")
    return CampaignRequest(**{"folder": str(Path.cwd()), **fields, "campaign_id": name, "request": text})


def resolved_of(home: Home, request: CampaignRequest) -> Resolved:
    """What request, overrides, file and policy say about the first run. Raises ConfigError, BankError."""
    return resolve(
        request=request.request,
        overrides=request.overrides,
        config_file=None if request.config_file is None else Path(request.config_file),
        policy=home.bank.policy(LEVER_SKILL, request.profile),
        profile=request.profile,
        override_source=request.override_source,
        folder=Path(request.folder),
    )


def create(home: Home, request: CampaignRequest, resolved: Resolved | None = None) -> Campaign:
    """Writes the campaign down in state `created`.

    Raises ConfigError for what cannot be trained or aims at two targets, CampaignError for a budget that holds no run.
    """
    resolved = resolved_of(home, request) if resolved is None else resolved
    request, config, provenance = _with_target(request, resolved)
    if resolved.config.mode == "approve":
        request = request.model_copy(update={"ask": True})
    table = home.lever_table()
    versions = {skill: version_label(home, skill) for skill in home.bank.skills("rllm")}
    basis = Basis(
        config=config,
        provenance=provenance,
        context=resolved.context,
        skill_versions=versions,
        decisions=table.decisions,
        ranges=_ranges(home, request, resolved, table),
        fixed=_fixed(table, provenance),
        thresholds=asdict(home.thresholds()),
    )
    first = basis.training({})
    episodes = first.planned_steps * first.episodes_per_step
    if request.max_episodes is not None and request.max_episodes < episodes:
        raise CampaignError(
            f"the budget of {request.max_episodes:,} episodes is less than one run, which takes up to {episodes:,} "
            f"({first.planned_steps} steps of {first.episodes_per_step}). Raise it, or make the run shorter "
            "(--set max_steps=…)"
        )
    assert ANALYSIS_SKILL in versions
    campaign = Campaign(campaign_id=request.campaign_id, request=request, basis=basis)
    return CampaignStore(home.root).create(campaign)


def _with_target(
    request: CampaignRequest, resolved: Resolved
) -> tuple[CampaignRequest, dict[str, Any], dict[str, dict[str, Any]]]:
    """The one target of campaign and runs.

    A goal in the request (`reward >= 0.9`) is the campaign's target. A target given beside the request becomes the goal
    at which validation ends a run early, raised by one standard error of the test: a run that stops as soon as
    validation is satisfied misses the target on the test split now and then, and nothing would be left to change.
    """
    config = resolved.config.model_dump(mode="json")
    provenance = dict(resolved.provenance)
    goal = resolved.config.target_reward
    if goal is not None and provenance["target_reward"]["source"] in EXPLICIT:
        if request.target is not None and request.target != goal:
            raise ConfigError(
                f"two targets: the campaign's is {request.target:g}, and the request (or --set, --config) says "
                f"{goal:g}. Keep one of them."
            )
        return request.model_copy(update={"target": goal}), config, provenance
    target = request.target if request.target is not None else goal
    if target is None:
        return request, config, provenance
    raised = raised_goal(target, resolved.config.test_problems)
    config["target_reward"] = raised
    detail = (
        f"campaign {request.campaign_id}: target {target:g} plus one standard error of a test of "
        f"{resolved.config.test_problems} problems"
    )
    provenance["target_reward"] = {"source": "override", "detail": detail, "campaign": request.campaign_id}
    return request.model_copy(update={"target": target}), config, provenance


def raised_goal(target: float, n: int) -> float:
    """target + sqrt(target (1 − target) / n), at most 1, three digits."""
    return min(1.0, round(target + math.sqrt(target * (1 - target) / n), 3))


def _levers(table: LeverTable) -> set[str]:
    found = (table.lever_for(kind) for kind in table.decisions)
    return {one.key for one in found if one is not None}


def _ranges(
    home: Home, request: CampaignRequest, resolved: Resolved, table: LeverTable
) -> dict[str, tuple[float | None, float | None]]:
    policy = home.bank.policy(LEVER_SKILL, request.profile).resolve(dict(resolved.context))
    return {key: (policy.get(f"{key}.min"), policy.get(f"{key}.max")) for key in sorted(_levers(table))}


def _fixed(table: LeverTable, provenance: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Lever → why it may not be moved: the request, `--set`, a file or an agent's override decided it."""
    fixed = {}
    for kind in table.decisions:
        lever = table.lever_for(kind)
        why = None if lever is None else blocked_by(lever, provenance)
        if lever is not None and why is not None:
            fixed[lever.key] = why
    return fixed
