"""Findings about the optimiser from made-up records, one pattern at a time, and patches that follow by rule."""

import time
from collections.abc import Sequence

import pytest
from meta_records import FAILS, PAYS, add_trial

from optimizer.events import Event, EventKind
from optimizer.home import Home
from optimizer.layers import Layer
from optimizer.meta.findings import Records, findings_of
from optimizer.meta.propose import stage_best, wishes
from optimizer.meta.recorded import opportunities, recorded_trials
from optimizer.meta.types import OptimizerPolicy
from optimizer.meta.work import work_of_optimizer
from optimizer.patch_store import Stage
from optimizer.recorder import Recorder
from optimizer.round_store import RoundStore
from optimizer.round_types import RoundState
from optimizer.stage import EditBudget
from optimizer.trial.plan import DEFAULT, QUICK
from optimizer.types import Finding

NOW = OptimizerPolicy(plan="default", candidates=3, screening_pairs=4)


def found(home: Home, policy: OptimizerPolicy = NOW) -> dict[str, Finding]:
    records = Records(
        trials=recorded_trials(home),
        patches=home.patches.all(),
        rounds=RoundStore(home.root).all(),
        work=work_of_optimizer(home),
        policy=policy,
    )
    return {one.kind: one for one in findings_of(records)}


def extra(finding: Finding, name: str) -> object:
    return (finding.model_extra or {})[name]


def metric(finding: Finding, name: str) -> tuple[float, int | None]:
    one = next(one for one in finding.metrics if one.name == name)
    return one.value, one.n


def all_of(home: Home, series: Sequence[Sequence[float]], **fields: object) -> None:
    for number, pairs in enumerate(series, start=1):
        add_trial(home, number, pairs, **fields)  # type: ignore[arg-type]


def test_nothing_is_found_where_trials_pay(home: Home) -> None:
    assert found(home) == {}
    all_of(home, [PAYS] * 6)
    assert found(home) == {}


def test_wasted_trials_name_patches_trials_and_events(home: Home) -> None:
    # the third and fourth failure in a row are wasted; after the acceptance counting begins anew
    all_of(home, [FAILS, FAILS, FAILS, FAILS, PAYS, FAILS, FAILS])
    recorder = Recorder(home, "evolve-1")
    recorder.skill("skill", "traj-optimize", "traj-optimize@1")
    for number in (3, 4, 6):
        patch_id = f"{number:03d}-up-learning-rate"
        recorder.call(f"try-{number}", "try_patch", {"patch_id": patch_id}, {"trial_id": f"trial-{patch_id}-1"})
    finding = found(home)["wasted_trials"]
    assert extra(finding, "patches") == ["003-up-learning-rate", "004-up-learning-rate"]
    assert extra(finding, "trials") == ["trial-003-up-learning-rate-1", "trial-004-up-learning-rate-1"]
    assert [(one.session, one.line) for one in finding.evidence] == [("evolve-1", 1), ("evolve-1", 2)]  # type: ignore[union-attr]
    assert metric(finding, "wasted_share") == (pytest.approx(2 / 7), 7)
    assert metric(finding, "accepted_after_failures") == (1, 7)
    assert metric(finding, "episodes") == (2 * 4 * 2 * 640, 2)
    assert extra(finding, "move") == {"key": "lever_patience", "values": [2, 1, 3]}
    assert finding.layer == Layer.TRAJ
    # where policy bears two failures already, only less is suggested
    tight = found(home, NOW.model_copy(update={"lever_patience": 2}))["wasted_trials"]
    assert extra(tight, "move") == {"key": "lever_patience", "values": [1]}


def test_levers_that_never_pay(home: Home) -> None:
    all_of(home, [FAILS] * 3, key="max_turns")
    finding = found(home)["levers_that_never_pay"]
    assert "max_turns up (3)" in finding.what
    # Clopper and Pearson: 1 - .05^(1/3)
    assert metric(finding, "upper_bound")[0] == pytest.approx(1 - 0.05 ** (1 / 3))
    assert len(extra(finding, "trials")) == 3  # type: ignore[arg-type]


def test_verdicts_that_fresh_pairs_and_later_trials_contradict(home: Home) -> None:
    demoted = {"fresh": {"demote": True, "effect": -0.02}}
    futile = (0.01, -0.01, 0.0, 0.012)
    add_trial(home, 1, PAYS, plan=QUICK, **demoted)
    assert add_trial(home, 2, futile, plan=QUICK, after=3.0).reason == "no_worthwhile_gain"
    add_trial(home, 3, PAYS, plan=QUICK, after=4.0)  # within a factor of two of the value given up
    add_trial(home, 4, PAYS, plan=QUICK, after=9.0, fresh={"demote": False})
    finding = found(home)["early_stopping_errors"]
    assert extra(finding, "patches") == ["001-up-learning-rate", "002-up-learning-rate"]
    assert metric(finding, "contradicted_share") == (0.5, 4)
    assert (metric(finding, "better_contradicted")[0], metric(finding, "futile_contradicted")[0]) == (1, 1)
    assert extra(finding, "move") is None  # under the default plan, which is in force, there is no stricter one
    quick = found(home, NOW.model_copy(update={"plan": "quick"}))["early_stopping_errors"]
    assert extra(quick, "move") == {"key": "trial_plan.default", "values": ["default"]}


LATE = tuple(0.07 + (0.16 if index % 2 else -0.16) for index in range(24))
"""Mean .07, spread .16: neither better nor out of reach of .10 at any look."""


def test_late_looks_that_decide_nothing(home: Home) -> None:
    for number in (1, 2):
        decision = add_trial(home, number, LATE)
        assert (decision.verdict, decision.reason) == ("inconclusive", "promising"), decision.say
    add_trial(home, 3, PAYS)
    finding = found(home)["late_looks_decide_nothing"]
    assert metric(finding, "undecided_share") == (1.0, 2)
    assert extra(finding, "episodes") == 2 * 2 * 640 * (24 - 16)
    assert extra(finding, "move") == {"key": "trial_plan.default", "values": ["quick"]}


def test_screenings_whose_winner_is_rejected(home: Home) -> None:
    all_of(home, [FAILS, FAILS, PAYS])
    store = RoundStore(home.root)
    for number in (1, 2, 3):
        chosen = f"{number:03d}-up-learning-rate"
        current = store.create("evolve-1", number, request="x", run_id="r", trial_seed=1)
        store.move(current, RoundState.CLOSED, chosen=chosen, candidates=[chosen], screening={chosen: 0.2})
    finding = found(home)["screening_picks_wrong"]
    assert metric(finding, "rejected_winners") == (pytest.approx(2 / 3), 3)
    assert extra(finding, "move") == {"key": "screening_pairs", "values": [8, 6]}
    widest = found(home, NOW.model_copy(update={"screening_pairs": 8}))["screening_picks_wrong"]
    assert extra(widest, "move") == {"key": "max_patches_per_round", "values": [1]}


def test_repeated_rejects(home: Home) -> None:
    recorder = Recorder(home, "agent-1")
    recorder.skill("skill", "traj-optimize", "traj-optimize@1")
    why = "the same change was rejected before as 001-up-learning-rate (worse)"
    recorder.call("one", "propose_patch", {"skill": "rllm-config"}, {}, failed=why)
    recorder.call("two", "propose_patch", {"skill": "rllm-config"}, {}, failed="rllm-config has no section 'x'")
    add_trial(home, 1, PAYS, stage=Stage.REJECTED)  # better, and a person said no
    finding = found(home)["repeated_rejects"]
    assert [(one.session, one.line) for one in finding.evidence] == [("agent-1", 1)]  # type: ignore[union-attr]
    assert metric(finding, "refused_share") == (0.5, 2)
    assert metric(finding, "refused_by_person") == (1, 1)
    assert extra(finding, "move") is None


def test_only_the_work_of_the_layer_below_is_read(home: Home) -> None:
    call = {"kind": EventKind.TOOL_CALL, "tool": "try_patch", "input": {"patch_id": "001-x"}, "time": time.time()}
    home.trajectories.append(Event(session="free", **call))  # type: ignore[arg-type]
    recorder = Recorder(home, "meta-1")
    recorder.skill("skill", "meta-loop", "meta-loop@1")
    recorder.call("try", "try_patch", {"patch_id": "001-x"}, {})
    assert work_of_optimizer(home).calls == ()


def test_the_replay_ranks_what_findings_suggest(home: Home) -> None:
    all_of(home, [FAILS, FAILS, PAYS, FAILS, FAILS, FAILS, FAILS])
    ranked = wishes(list(found(home).values()), opportunities(home, recorded_trials(home)), NOW, seed=1)
    gains = {one.value: one.gain for one in ranked}
    trial = 4 * 2 * 640
    base = 0.30 / (7 * trial) * 10_000
    # patience 2 leaves the third trial out and with it the gain; 3 keeps it and ends after six trials
    assert gains == {
        3: pytest.approx(0.30 / (6 * trial) * 10_000 - base),
        2: pytest.approx(-base),
        1: pytest.approx(-base),
    }
    assert ranked[0].value == 3
    records, refusals = stage_best(home, ranked, limit=3, budget=EditBudget(), report_id=None)
    assert [one.changes[0].after for one in records] == [3]
    assert len(refusals) == 2
    assert all("gains nothing" in one for one in refusals)
    again, why = stage_best(home, ranked, limit=1, budget=EditBudget(), report_id=None)
    assert again == []
    assert "does the same" in why[0]


def test_the_quick_plan_saves_the_late_looks(home: Home) -> None:
    for number in (1, 2, 3):
        add_trial(home, number, LATE)
    add_trial(home, 4, PAYS)
    ranked = wishes(list(found(home).values()), opportunities(home, recorded_trials(home)), NOW, seed=1)
    (wish,) = [one for one in ranked if one.key == "trial_plan.default"]
    assert wish.value == "quick"
    assert wish.gain > 0
    (record,), _ = stage_best(home, [wish], limit=1, budget=EditBudget(), report_id=None)
    change = record.changes[0]
    assert (change.key, change.before, change.after) == ("trial_plan.default", "default", "quick")
    assert DEFAULT.max_pairs > QUICK.max_pairs
