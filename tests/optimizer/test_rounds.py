"""Whole rounds on the fake worker: real processes, real files, no training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import say_later, say_no, say_yes, spoil

from optimizer.approvals import ApprovalError, Channel, StaleApproval
from optimizer.evolve import evolve, new_request, resume
from optimizer.explain import ExplainError, explain
from optimizer.home import Home
from optimizer.patch_store import Stage
from optimizer.promote import approve, promote, roll_back, take_back
from optimizer.round_store import RoundStore
from optimizer.round_types import Progress, Round, RoundState
from optimizer.stage import built
from optimizer.trial.plan import PLANS, TrialPlan
from optimizer.trial.pooled import PooledArms
from skill_bank.bank import SkillBank
from skill_bank.types import BankError
from trainer.config import ConfigError
from trainer.runs.launch import LocalLauncher

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"

Runners = Callable[[Path, bool], PooledArms]


@pytest.fixture
def run(home: Home, launcher: LocalLauncher, runners: Runners) -> Callable[..., dict[str, Any]]:
    def go(approver: Any = say_yes, watch: Any = None, **fields: Any) -> dict[str, Any]:
        values = {"rounds": 2, "profile": "original", "seed": 5, "plan": "quick", **fields}
        request = new_request(home, values.pop("text", REQUEST), evolution="evolve-1", **values)
        return evolve(home, request, approver, watch or (lambda one: None), launcher=launcher, runners=runners)

    return go


def test_two_rounds_from_the_plain_base(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    seen: list[Progress] = []
    result = run(watch=seen.append)
    first, second = result["rounds"]
    # the contract of the output
    assert {"round", "skill_version", "run_id", "eval", "patch_id", "verdict", "patches"} <= set(first)
    (patch,) = first["patches"]
    assert {"patch_id", "stage", "verdict", "effect", "ci95", "pairs"} <= set(patch)
    assert first["findings"][0] == "learning_rate_too_low"
    assert first["lever"] == "learning_rate_too_low: learning_rate 1e-05 → 0.0003"
    assert (first["verdict"], patch["stage"], first["patch_id"]) == ("better", "active", patch["patch_id"])
    assert patch["ci95"][0] > 0
    assert patch["pairs"] in (4, 8)
    assert second["skill_version"] == first["version_after"] == "rllm-config@2"
    assert second["eval"]["after"]["mean"] > first["eval"]["after"]["mean"] + 0.3
    assert second["eval"]["before"]["mean"] == first["eval"]["before"]["mean"]
    assert second["patches"] == []
    assert "last round" in second["note"] or "nothing to try" in second["note"]
    json.dumps(result)
    assert {"round", "run", "findings", "proposed", "trial", "promoted", "closed"} <= {one.kind for one in seen}
    # approval and audit
    entries = home.audit.entries()
    assert [(one["kind"], one["channel"]) for one in entries] == [
        ("approved", "unattended"),
        ("promoted", "unattended"),
    ]
    assert home.audit.verify().ok
    # the run says which patch set the value, and the session that launched it
    run_two = home.workspace.runs / second["run_id"] / "run.json"
    document_two = json.loads(run_two.read_text())
    assert document_two["provenance"]["learning_rate"]["patch"] == first["patch_id"]
    assert document_two["session"] == "evolve-1"
    assert document_two["round"] == 2
    # trajectories: training under rllm, optimising under traj
    layers = {(one.skill, one.layer) for one in home.segments.update("evolve-1")}
    assert {("rllm-config", "rllm"), ("rllm-analyze", "rllm"), ("traj-optimize", "traj")} <= layers
    report = home.reports.read(home_round(home, 1).report_id or "")
    assert report.findings[0].metrics
    assert any(metric.standard_error for metric in report.findings[0].metrics)
    assert (home.root / "reports" / "rllm" / f"{report.report_id}.md").read_text().startswith("# Report")


def home_round(home: Home, number: int) -> Round:
    return RoundStore(home.root).read(number)


def test_a_line_is_explained_too(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    patch = run(rounds=1)["rounds"][0]["patch_id"]
    lines = built(home.bank, "rllm-config", "original").files["SKILL.md"].decode().split("\n")
    ours = next(number for number, line in enumerate(lines, start=1) if "`learning_rate` is raised" in line)
    kinds = [one["kind"] for one in explain(home, f"rllm-config:{ours}", "original")["chain"]]
    assert kinds == ["line", "patch", "approval", "trial", "finding", "run", "event", "event", "event"]
    assert explain(home, f"rllm-config:{ours}", "original")["chain"][1]["id"] == patch
    title = next(number for number, line in enumerate(lines, start=1) if line == "# rllm-config")
    assert [one["kind"] for one in explain(home, f"rllm-config:{title}")["chain"]] == ["line", "base"]
    with pytest.raises(ExplainError, match="there is no line 99999"):
        explain(home, "rllm-config:99999")


def test_other_models_and_the_default_are_untouched(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    contexts = [
        {"params": 494_000_000, "model": "qwen-0.5b", "env": "calculator", "difficulty": "mixed", "lora": True},
        {"params": 1_000_000, "model": "tiny", "env": "lookup", "difficulty": "mixed", "lora": False},
    ]
    before = [home.bank.resolve("rllm-config", one, "original").to_json() for one in contexts]
    default = home.bank.policy("rllm-config").to_bytes()
    result = run(rounds=1)
    assert result["rounds"][0]["patch_id"] is not None
    assert [home.bank.resolve("rllm-config", one, "original").to_json() for one in contexts] == before
    assert home.bank.policy("rllm-config").to_bytes() == default


def test_from_the_tuned_default_nothing_is_promoted(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    result = run(profile=None)
    assert [one["patch_id"] for one in result["rounds"]] == [None]
    assert "nothing to try" in result["stopped"]
    assert home.audit.entries() == []
    assert home.patches.ids() == []


BAD = {
    "learning_rate_too_low": ("learning_rate", 9e-6),
    "learning_rate_too_high": ("learning_rate", 9e-3),
    "no_diversity": ("temperature", 0.1),
    "truncation": ("max_completion_tokens", 24),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_a_bad_base_is_recognised_and_mended(home: Home, run: Callable[..., dict[str, Any]], kind: str) -> None:
    key, value = BAD[kind]
    spoil(home, key, value, kind)
    result = run(profile=None, text=f"{REQUEST}, 16 steps")
    first = result["rounds"][0]
    assert first["findings"][0] == kind
    assert first["lever"].startswith(f"{kind}: {key} ")
    assert first["verdict"] == "better"
    assert result["rounds"][1]["eval"]["after"]["mean"] > first["eval"]["after"]["mean"]


def test_a_value_of_the_request_is_no_lever(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    result = run(text=f"{REQUEST}, learning rate 1e-5")
    (only,) = result["rounds"]
    assert only["findings"][0] == "learning_rate_too_low"
    assert only["patches"] == []
    assert "the request text fixed it" in only["note"]


def test_several_candidates_are_screened_first(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    result = run(rounds=1, candidates=3)
    (only,) = result["rounds"]
    assert len(only["patches"]) == 3
    current = home_round(home, 1)
    assert current.screening is not None
    assert len(current.screening) == 3
    assert current.chosen == max(current.screening, key=lambda one: current.screening[one])  # type: ignore[index]
    stages = {one["patch_id"]: one["stage"] for one in only["patches"]}
    assert stages.pop(current.chosen) == "active"
    assert set(stages.values()) == {"archived"}
    # screening and trial share no seed
    screening = home.trials / "screening-round-000001" / "screening.jsonl"
    screened = {json.loads(line)["seed"] for line in screening.read_text().splitlines()}
    tried = {json.loads(line)["seed"] for line in (home.trials / (current.trial_id or "") / "pairs.jsonl").open()}
    assert not screened & tried
    assert len(screened) == 4


def test_a_promising_patch_goes_first_in_the_next_round(
    home: Home, run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a first look that nothing passes, so that a budget of four pairs ends undecided
    strict = TrialPlan(name="quick", looks=(4, 8), levels=(1e-12, 0.02), planned_sd=1.0)
    monkeypatch.setitem(PLANS, "quick", strict)
    result = run(rounds=3, max_pairs=4)
    first, second, third = result["rounds"]
    assert (first["verdict"], first["patches"][0]["reason"], first["patch_id"]) == ("inconclusive", "promising", None)
    assert (first["patches"][0]["stage"], first["patches"][0]["pairs"]) == ("tried", 4)
    # the trial of the first round went on in the second
    assert second["patch_id"] == second["patches"][0]["patch_id"] == first["patches"][0]["patch_id"]
    assert second["verdict"] == "better"
    assert second["patches"][0]["pairs"] == 8
    assert len(home.patches.read(second["patch_id"]).trials) == 1
    assert third["eval"]["after"]["mean"] > second["eval"]["after"]["mean"]


def test_a_refusal_is_remembered_and_the_next_round_tries_another_value(
    home: Home, run: Callable[..., dict[str, Any]]
) -> None:
    result = run(approver=say_no, rounds=2, final_trial=True)
    first, second = result["rounds"]
    assert first["patch_id"] is None
    assert first["verdict"] == "better"
    assert [one["stage"] for one in first["patches"]] == ["rejected"]
    assert second["run_id"] == first["run_id"]  # nothing changed, so the run stands
    assert second["patches"][0]["patch_id"] != first["patches"][0]["patch_id"]
    assert len(home.patches.rejected()) == 2
    assert {one.why for one in home.patches.rejected()} == {"refused by a person: I do not trust it"}
    assert (
        home.bank.policy("rllm-config", "original")
        .resolve({"params": 1_000_000, "env": "calculator"})
        .require("learning_rate.default")
        == 1e-5
    )


def test_waiting_for_approval_and_going_on(
    home: Home, run: Callable[..., dict[str, Any]], launcher: LocalLauncher, runners: Runners
) -> None:
    waiting = run(approver=say_later)
    assert waiting["awaiting"] is not None
    (only,) = waiting["rounds"]
    assert only["state"] == "awaiting_approval"
    approve(home, waiting["awaiting"], Channel.TERMINAL)
    promote(home, waiting["awaiting"])
    result = resume(home, None, say_later, lambda one: None, launcher=launcher, runners=runners)
    first, second = result["rounds"]
    assert first["patch_id"] == waiting["awaiting"]
    assert second["eval"]["after"]["mean"] > first["eval"]["after"]["mean"]


class Killed(BaseException):
    pass


QUICK_KILLS = [(RoundState.TRAINED, False), (RoundState.PROPOSED, True), (RoundState.CLOSED, True)]
EVERY_KILL = [(state, before) for state in RoundState for before in (False, True)]


@pytest.mark.parametrize(
    ("state", "before"),
    [pytest.param(*one, marks=() if one in QUICK_KILLS else pytest.mark.slow) for one in EVERY_KILL],
)
def test_killed_and_taken_up_again(
    home: Home,
    run: Callable[..., dict[str, Any]],
    launcher: LocalLauncher,
    runners: Runners,
    monkeypatch: pytest.MonkeyPatch,
    state: RoundState,
    before: bool,
) -> None:
    real = RoundStore.move
    armed = [True]

    def move(self: RoundStore, current: Round, to: RoundState, **fields: Any) -> Round:
        hit = armed[0] and to is state
        if hit:
            armed[0] = False
        if hit and before:
            raise Killed
        moved = real(self, current, to, **fields)
        if hit:
            raise Killed
        return moved

    monkeypatch.setattr(RoundStore, "move", move)
    try:
        run()
    except Killed:
        pass
    result = resume(home, "evolve-1", say_yes, lambda one: None, launcher=launcher, runners=runners)
    first, second = result["rounds"]
    # what an undisturbed evolution with these seeds gives
    assert (first["lever"], first["verdict"]) == ("learning_rate_too_low: learning_rate 1e-05 → 0.0003", "better")
    assert [one["stage"] for one in first["patches"]] == ["active"]
    assert second["eval"]["after"]["mean"] > first["eval"]["after"]["mean"] + 0.3
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "promoted"]
    assert home.patches.ids() == [first["patch_id"]]
    calls = [one.call_id for one in home.trajectories.read("evolve-1").events]
    assert len(calls) == len(set(calls))


def test_a_stopped_run_is_made_again(
    home: Home, run: Callable[..., dict[str, Any]], launcher: LocalLauncher, runners: Runners
) -> None:
    def interrupt(one: Progress) -> None:
        if one.kind == "run":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(watch=interrupt)
    result = resume(home, None, say_yes, lambda one: None, launcher=launcher, runners=runners)
    assert result["rounds"][0]["run_id"] in ("evolve-1-r1", "evolve-1-r1-again2")
    assert result["rounds"][0]["verdict"] == "better"


def test_a_used_approval_does_not_promote_again(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    patch = run(rounds=1)["rounds"][0]["patch_id"]
    version = take_back(home, patch, channel=Channel.TERMINAL, reason="test")
    assert version == "rllm-config@3"
    assert home.patches.read(patch).stage is Stage.ARCHIVED
    with pytest.raises(ApprovalError, match="used already"):
        promote(home, patch)
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "promoted", "rolled_back", "refused"]


def test_a_promotion_killed_before_it_compiled_is_finished_by_the_next_one(
    home: Home, run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = run(approver=say_later)["awaiting"]
    approve(home, waiting, Channel.TERMINAL)
    whole = SkillBank.compile

    def dies(bank: SkillBank, *arguments: Any, **named: Any) -> Any:
        if str(named.get("reason")).startswith("promote"):
            raise Killed
        return whole(bank, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(SkillBank, "compile", dies)
        with pytest.raises(Killed):
            promote(home, waiting)
    assert waiting in home.bank.patches("rllm-config")
    promotion = promote(home, waiting)
    assert promotion.version == home.bank.version("rllm-config").label
    assert home.patches.read(waiting).stage is Stage.ACTIVE
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "promoted"]


def test_rolling_back_a_version_archives_its_patches(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    before = home.bank.policy("rllm-config", "original").to_bytes()
    patch = run(rounds=1)["rounds"][0]["patch_id"]
    roll_back(home, "rllm-config", 1, channel=Channel.TERMINAL, reason="test")
    assert home.bank.policy("rllm-config", "original").to_bytes() == before
    assert home.patches.read(patch).stage is Stage.ARCHIVED
    assert home.audit.verify().ok


def test_a_hand_edited_patch_is_not_promoted(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    waiting = run(approver=say_later)["awaiting"]
    approve(home, waiting, Channel.TERMINAL)
    path = home.bank.root / home.bank.patches("rllm-config")[waiting].file
    path.write_text(path.read_text().replace("3.0e-04", "2.9e-03"))
    with pytest.raises(ApprovalError, match="the patch changed"):
        promote(home, waiting)
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    base.write_text(base.read_text().replace("# rllm-config", "# rllm-config, changed"))
    with pytest.raises(ApprovalError, match="the patch changed"):  # re-based it would be asked about under a false flag
        promote(home, waiting)
    assert home.audit.entries()[-1]["kind"] == "refused"


def test_an_approved_patch_whose_base_moved_is_rebased_and_asked_about_again(
    home: Home, run: Callable[..., dict[str, Any]], launcher: LocalLauncher, runners: Runners
) -> None:
    waiting = run(approver=say_later)["awaiting"]
    approve(home, waiting, Channel.TERMINAL)
    before = home.patches.read(waiting)
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    base.write_text(base.read_text().replace("# rllm-config", "# rllm-config, changed"))
    with pytest.raises(StaleApproval, match=r"the skill changed since it was approved.*mcp-evo approve"):
        promote(home, waiting)
    record = home.patches.read(waiting)
    assert record.stage is Stage.TRIED
    assert (record.verdict, record.effect) == (before.verdict, before.effect)
    assert record.base_digest != before.base_digest
    assert record.base_digest == built(home.bank, "rllm-config", "original").digest
    # the trial keeps the base it was run on
    plan = json.loads((home.trials / record.trials[-1] / "plan.json").read_text())
    assert plan["base_digest"] == before.base_digest
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "refused"]
    # asked again, the round goes on
    result = resume(home, None, say_yes, lambda one: None, launcher=launcher, runners=runners)
    assert result["rounds"][0]["patch_id"] == waiting
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "refused", "approved", "promoted"]


def test_a_round_whose_approved_patch_went_stale_waits_again(
    home: Home, run: Callable[..., dict[str, Any]], launcher: LocalLauncher, runners: Runners
) -> None:
    waiting = run(approver=say_later)["awaiting"]
    approve(home, waiting, Channel.TERMINAL)
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    base.write_text(base.read_text().replace("# rllm-config", "# rllm-config, changed"))
    seen: list[Progress] = []
    result = resume(home, None, say_later, seen.append, launcher=launcher, runners=runners)
    assert result["awaiting"] == waiting
    assert any("the skill changed" in one.text for one in seen)


def test_what_cannot_start_writes_nothing(home: Home, run: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(BankError, match=r"there is no profile 'orginal'. There are: original"):
        run(profile="orginal")
    with pytest.raises(ConfigError):
        run(text="train the tiny calculator agent, batch 128, 64 problems")
    assert RoundStore(home.root).numbers() == []
    assert not list((home.root / "rounds").glob("*.json"))


def test_rounds_sort_as_numbers(home: Home) -> None:
    store = RoundStore(home.root)
    for position in range(1, 13):
        store.create("evolve-x", position, request="x", run_id="r", trial_seed=1)
    assert [one.round for one in store.all()] == list(range(1, 13))
