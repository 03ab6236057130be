"""From a finding, or from an agent's own text, to a staged patch, as the tool asks for it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from optimizer.home import Home
    from optimizer.patch_store import PatchRecord
    from optimizer.stage import EditBudget

LIMITS_OF = {"traj": "traj-optimize", "meta": "meta-loop"}
"""Layer that proposes → skill whose policy bounds what it may propose."""


@dataclass(frozen=True)
class Situation:
    """The situation of a run: what a patch is made for."""

    run_id: str
    profile: str | None
    context: dict[str, Any]
    """Policy context: {params, model, env, difficulty, lora, device}, without what is not known."""
    config: dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """A patch that an agent wrote itself."""

    skill: str
    section: str
    body: str
    action: str = "append"
    scope: dict[str, Any] | None = None
    description: str | None = None
    run_id: str | None = None
    """Run whose situation and profile it is made for; None: the latest one, where there is one."""


def situation_of(home: "Home", run_id: str | None) -> Situation:
    """The situation of a run. Raises RunError, ConfigError."""
    from trainer.models.catalog import default_lora, resolve_model
    from trainer.runs.registry import find_run

    run = find_run(home.workspace, run_id)
    config = run.directory.read_config()
    model = resolve_model(config.model)
    params = model.params if model.params is not None else run.document.parameters
    context: dict[str, Any] = {
        "params": params,
        "model": model.name,
        "env": config.env,
        "difficulty": config.difficulty,
        "lora": config.lora if config.lora is not None else default_lora(params),
    }
    if config.device != "auto":
        context["device"] = config.device
    known = {key: value for key, value in context.items() if value is not None}
    return Situation(run.document.run_id, run.document.profile, known, config.model_dump(mode="json"))


def propose_from_finding(state: ServerState, finding_id: str) -> "PatchRecord":
    """Stages the most promising patch for a finding. Raises ReportError, PatchError, BankError, LayerError."""
    from optimizer.patch_store import PatchError
    from optimizer.propose import proposals_for
    from optimizer.stage import profile_of, stage

    home = state.home()
    report, finding = home.reports.find(finding_id)
    if finding.lever is None or finding.run_id is None:
        raise PatchError(
            f"finding {finding.id} ({finding.kind}) names no policy value to change. Write the patch yourself, with "
            "skill, section and body, or take a finding with a lever"
        )
    situation = situation_of(home, finding.run_id)
    skill = finding.lever.skill
    profile = profile_of(home.bank, skill, situation.profile)
    layer = state.acting_layer("traj")
    proposals = proposals_for(
        finding,
        home.bank.policy(skill, profile),
        situation.context,
        situation.config[finding.lever.key],
        home.patches,
        profile=profile,
        layer=layer,
        report_id=report.report_id,
    )
    return stage(home.bank, home.patches, proposals[0], budget_of(home, layer))


def propose_text(state: ServerState, draft: Draft) -> "PatchRecord":
    """Stages a patch that an agent wrote. Raises PatchError, BankError, LayerError, RunError."""
    from optimizer.stage import Proposal, profile_of, stage
    from skill_bank.types import PatchAction

    home = state.home()
    layer = state.acting_layer("meta" if home.bank.group_of(draft.skill) == "traj" else "traj")
    situation = _situation_or_none(home, draft.run_id)
    first_line = next((line for line in draft.body.splitlines() if line.strip()), "")
    proposal = Proposal(
        skill=draft.skill,
        section=draft.section,
        body=draft.body,
        description=draft.description or first_line.strip()[:120],
        slug="agent-" + draft.section[:40],
        layer=layer,
        action=PatchAction(draft.action),
        scope=draft.scope,
        profile=None if situation is None else profile_of(home.bank, draft.skill, situation.profile),
        context={} if situation is None else situation.context,
        source="agent",
    )
    return stage(home.bank, home.patches, proposal, budget_of(home, layer))


def _situation_or_none(home: "Home", run_id: str | None) -> Situation | None:
    """The situation of the run that is named, or of the latest one; None where nothing was ever trained."""
    from trainer.runs.registry import list_runs

    if run_id is None and not list_runs(home.workspace):
        return None
    return situation_of(home, run_id)


def budget_of(home: "Home", layer: str) -> "EditBudget":
    """How large a patch of this layer may be, by the policy of its own skill; the default where that says nothing."""
    from optimizer.stage import EditBudget

    policy = home.policy_of(LIMITS_OF[layer])
    default = EditBudget()
    return EditBudget(
        policy.get("edit_budget.lines", default.lines), policy.get("edit_budget.policy_keys", default.policy_keys)
    )
