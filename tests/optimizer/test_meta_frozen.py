"""A round keeps the optimiser's policy that it began with, and a lever that failed too often is left alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import say_yes

from optimizer.evolve import begin_round, go_on, new_request
from optimizer.home import Home
from optimizer.meta.frozen import policy_kept, policy_to_keep
from optimizer.meta.levers import failures_in_a_row, lever_of, place_of
from optimizer.patch_store import PatchKind, PatchRecord, PolicyChange, Stage
from optimizer.round_store import RoundStore
from optimizer.round_types import RoundState
from optimizer.trial.folder import TrialFolder
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"


def set_policy(home: Home, old: str, new: str) -> None:
    """Changes the optimiser's policy as a promoted meta patch would."""
    base = home.bank.root / "traj" / "traj-optimize" / "base.md"
    text = base.read_text(encoding="utf-8")
    assert old in text
    base.write_text(text.replace(old, new), encoding="utf-8")
    home.bank.compile("traj-optimize")


def test_a_policy_promoted_within_a_round_holds_from_the_next_one(
    home: Home, launcher: LocalLauncher, runners: Callable[[Path, bool], PooledArms]
) -> None:
    workers = {"launcher": launcher, "runners": runners}
    request = new_request(home, REQUEST, 2, "original", evolution="evolve-1", seed=5, final_trial=True)
    first = begin_round(home, request)
    version = first.optimizer_version
    set_policy(home, "trial_plan: {default: default,", "trial_plan: {default: quick,")
    assert home.policy_of("traj-optimize").require("trial_plan.default") == "quick"
    assert policy_kept(home, first).require("trial_plan.default") == "default"
    closed = go_on(home, first.round, RoundState.CLOSED, say_yes, lambda one: None, **workers)  # type: ignore[arg-type]
    assert closed.trial_id is not None
    assert TrialFolder(home.trials / closed.trial_id).spec().plan.name == "default"
    assert closed.optimizer_version == version
    loads = [
        one.response["version"]
        for one in home.trajectories.read("evolve-1").events
        if one.tool == "load_skill" and one.input["name"] == "traj-optimize"
    ]
    assert loads == [version]
    second = begin_round(home, request, evolution="evolve-1")
    assert policy_kept(home, second).require("trial_plan.default") == "quick"
    assert second.optimizer_version != version


def test_a_round_written_without_a_policy_uses_the_live_one(home: Home) -> None:
    store = RoundStore(home.root)
    old = store.create("evolve-x", 1, request="x", run_id="r", trial_seed=1)
    assert policy_kept(home, old).values == home.policy_of("traj-optimize").values
    new = store.create("evolve-x", 2, request="x", run_id="r", trial_seed=1, **policy_to_keep(home))
    assert policy_kept(home, store.read(new.round)).values == home.policy_of("traj-optimize").values


SCOPE = {"params": "<10M", "env": "calculator"}


def record(number: int, verdict: str | None, stage: Stage, after: float = 3e-4, env: str = "calculator") -> PatchRecord:
    return PatchRecord(
        patch_id=f"{number:03d}-x",
        skill="rllm-config",
        group="rllm",
        layer="traj",
        section="sizes",
        kind=PatchKind.POLICY,
        description="",
        scope={**SCOPE, "env": env},
        changes=[PolicyChange(key="learning_rate.default", before=1e-4, after=after)],
        effect_hash=str(number),
        base_digest="a",
        result_digest="b",
        verdict=verdict,
        stage=stage,
    )


@pytest.mark.parametrize(
    ("stages", "failures"),
    [
        ([], 0),
        ([("worse", Stage.REJECTED), ("inconclusive", Stage.REJECTED)], 2),
        ([("worse", Stage.REJECTED), ("better", Stage.ACTIVE), ("worse", Stage.REJECTED)], 1),
        ([("worse", Stage.REJECTED), ("better", Stage.REJECTED)], 0),  # a person's refusal is no failed trial
        ([("inconclusive", Stage.TRIED), (None, Stage.STAGED)], 0),  # neither decided nor rejected
    ],
)
def test_failures_in_a_row(stages: list[tuple[str | None, Stage]], failures: int) -> None:
    records = [record(number, verdict, stage) for number, (verdict, stage) in enumerate(stages)]
    others = [record(50, "worse", Stage.REJECTED, env="lookup"), record(51, "worse", Stage.REJECTED, after=1e-5)]
    assert failures_in_a_row([*records, *others], "learning_rate up", place_of(SCOPE, None)) == failures
    assert {lever_of(one) for one in others} == {"learning_rate up", "learning_rate down"}


def test_a_round_leaves_a_lever_alone_that_failed_too_often(
    home: Home, launcher: LocalLauncher, runners: Callable[[Path, bool], PooledArms]
) -> None:
    set_policy(home, "max_patches_per_round: 3", "max_patches_per_round: 3\nlever_patience: 1")
    scope = {"params": "<10M", "env": "calculator"}
    failed = record(900, "worse", Stage.REJECTED, after=9e-4)
    home.patches.write(failed.model_copy(update={"scope": scope, "profile": "original"}))
    request = new_request(home, REQUEST, 1, "original", evolution="evolve-1", seed=5)
    begun = begin_round(home, request)
    closed = go_on(home, begun.round, RoundState.CLOSED, say_yes, lambda one: None, launcher=launcher, runners=runners)
    assert (closed.state, closed.candidates) == (RoundState.CLOSED, [])
    assert closed.note is not None
    assert "learning_rate up failed 1 times in a row here" in closed.note
