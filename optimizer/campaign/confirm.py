"""The best run of a campaign on fresh problems: the one number that nothing was chosen by.

The runs of a campaign are tested on one and the same set of problems, and that set decides when it ends and which run
is called the best. The best of several measured values is too high on average, the more so the more runs there were
(winner's curse). So the best run is evaluated once more, on problems and random streams of a seed that no run used.
"""

from collections.abc import Callable
from pathlib import Path

from optimizer.campaign.types import Campaign, CampaignError, Confirmation, Holds
from optimizer.home import Home
from optimizer.ids import content_id
from trainer.evaluation.folder import EvaluationFolder, evaluations_of, start_evaluation, stop_evaluation, wait_for
from trainer.evaluation.plan import Wishes, plan_evaluation
from trainer.evaluation.types import Standing
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval

PROBLEMS = 256
"""Fresh problems at least: a standard error of .019 at success .9."""

ATTEMPTS = 3
"""Evaluations that may be killed before a person has to look."""

Confirmer = Callable[[Home, Campaign], Confirmation]
"""Evaluates the campaign's best run on fresh problems."""


def fresh_seed(campaign: Campaign) -> int:
    """A seed that no run of the campaign has; the same one each time it is asked for."""
    seed = int(content_id("confirm", campaign.campaign_id, campaign.created_at, length=8), 16) % 2**31
    return seed if seed != campaign.basis.config["seed"] else (seed + 1) % 2**31


def why_not(home: Home, campaign: Campaign) -> str | None:
    """Why the best run cannot be confirmed; None: it can."""
    assert campaign.best_run is not None
    if not campaign.request.confirm:
        return "not confirmed on fresh problems: that was not wanted"
    if campaign.basis.config["data"] is not None:
        return (
            "not confirmed on fresh problems: they come from a file, whose test problems have all been used. The best "
            "of several runs on them is too high on average"
        )
    if not (RunDirectory(home.workspace.runs / campaign.best_run).model_folder / "config.json").is_file():
        return f"not confirmed on fresh problems: run {campaign.best_run} has no trained model"
    return None


def confirm(home: Home, campaign: Campaign) -> Confirmation:
    """The confirmation of the best run. An evaluation that was begun before is taken up.

    Raises CampaignError where the evaluation fails, KeyboardInterrupt.
    """
    assert campaign.best_run is not None
    reason = why_not(home, campaign)
    if reason is not None:
        return Confirmation(run_id=campaign.best_run, sentence=reason)
    seed = fresh_seed(campaign)
    folder, standing = _evaluation(home, campaign, seed)
    result = standing.result
    assert result is not None
    found = {one.name: one.splits["test"] for one in result.subjects}
    trained, base = (_plain(found[name]) for name in ("trained", "base"))
    holds = verdict_of(campaign.request.target, trained)
    return Confirmation(
        run_id=campaign.best_run,
        evaluation_id=folder.path.name,
        seed=seed,
        eval=trained,
        base=base,
        holds=holds,
        sentence=sentence_of(campaign, trained, base, holds),
    )


def _evaluation(home: Home, campaign: Campaign, seed: int) -> tuple[EvaluationFolder, Standing]:
    """The finished evaluation; one that a killed process left unfinished is begun anew under the next name."""
    standing: Standing | None = None
    for attempt in range(1, ATTEMPTS + 1):
        name = f"{campaign.campaign_id}-confirm{attempt}"
        folder = EvaluationFolder(evaluations_of(home.workspace) / name)
        if not folder.plan_path.exists():
            folder = _start(home, campaign, name, seed)
        try:
            standing = wait_for(folder)
        except KeyboardInterrupt:
            stop_evaluation(folder)
            raise
        if standing.state == "finished":
            return folder, standing
        if standing.failure is not None and standing.failure.kind != "killed":
            break
    failure = None if standing is None else standing.failure
    said = "its process is gone" if failure is None else f"{failure.kind}: {failure.message}"
    raise CampaignError(
        f"the best run {campaign.best_run} could not be evaluated on fresh problems ({said}). Everything else is "
        f"complete: `mcp-evo campaigns show {campaign.campaign_id}`; without it: --resume {campaign.campaign_id} "
        "--no-confirm"
    )


def _start(home: Home, campaign: Campaign, name: str, seed: int) -> EvaluationFolder:
    assert campaign.best_run is not None
    n = max(PROBLEMS, int(campaign.basis.config["test_problems"]))
    wishes = Wishes(n=n, seeds=(seed,))
    plan = plan_evaluation(home.workspace, campaign.best_run, wishes, folder=Path(campaign.request.folder))
    return start_evaluation(home.workspace, plan.model_copy(update={"evaluation_id": name}))


def _plain(result: Eval) -> Eval:
    """Without what only an evaluation's own report shows."""
    return Eval(**{name: result.model_dump()[name] for name in Eval.model_fields})


def verdict_of(target: float | None, result: Eval) -> Holds | None:
    """confirmed: the rate is at least the target; open: its interval reaches it; refuted: neither. None: no target."""
    if target is None:
        return None
    if result.mean >= target:
        return "confirmed"
    return "open" if result.ci95[1] >= target else "refuted"


def sentence_of(campaign: Campaign, result: Eval, base: Eval, holds: Holds | None) -> str:
    """The confirmation for people."""
    low, high = result.ci95
    said = {
        "confirmed": f" The target of {campaign.request.target} stands.",
        "open": f" The target of {campaign.request.target} lies inside the interval: more problems would tell.",
        "refuted": f" The target of {campaign.request.target} is not met.",
        None: "",
    }[holds]
    return (
        f"On {result.n} fresh test problems run {campaign.best_run} has success {result.mean:.3f} "
        f"[{low:.3f}, {high:.3f}], the start model {base.mean:.3f}.{said}"
    )
