"""Whole campaigns on the fake worker: real processes, real files, no training."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FAKE_WORKER

from optimizer.analyze.runs import analyse_run
from optimizer.campaign import machine, training
from optimizer.campaign.confirm import fresh_seed, verdict_of, why_not
from optimizer.campaign.machine import carry_on, digest_of
from optimizer.campaign.report import campaign_document, note_lines
from optimizer.campaign.start import create, new_request
from optimizer.campaign.store import CampaignStore
from optimizer.campaign.types import (
    Campaign,
    CampaignError,
    CampaignProgress,
    CampaignState,
    CampaignVerdict,
    Confirmation,
)
from optimizer.home import Home
from optimizer.round_types import Answer
from trainer.config import ConfigError
from trainer.runs.launch import LocalLauncher
from trainer.runs.retention import references
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, Failure, RunDocument, RunState

REQUEST = "train the tiny calculator agent on 64 mixed problems, seed 1"
STEPS = f"{REQUEST}, 32 steps"
STUBBORN = (sys.executable, "-P", str(Path(FAKE_WORKER[-1]).with_name("stubborn_worker.py")))


def never(campaign: Campaign) -> Answer:
    raise AssertionError("nobody is to be asked")


def confirmed(home: Home, campaign: Campaign) -> Confirmation:
    assert campaign.best_run is not None
    return Confirmation(run_id=campaign.best_run, sentence="stands in for an evaluation")


Start = Callable[..., Campaign]
Go = Callable[..., Campaign]


@pytest.fixture
def start(home: Home) -> Start:
    def begin(text: str = STEPS, **fields: Any) -> Campaign:
        values = {"campaign": "c", "profile": "original", "folder": str(home.root), **fields}
        return create(home, new_request(text, **values))

    return begin


@pytest.fixture
def go(home: Home, launcher: LocalLauncher) -> Go:
    def run(approver: Any = never, watch: Any = None, worker: Any = None, confirmer: Any = confirmed) -> Campaign:
        chosen = launcher if worker is None else LocalLauncher(command=worker)
        return carry_on(home, "c", approver, watch or (lambda one: None), launcher=chosen, confirmer=confirmer)

    return run


def document_of(home: Home, run_id: str) -> dict[str, Any]:
    return json.loads((home.workspace.runs / run_id / "run.json").read_text())


def config_of(home: Home, run_id: str) -> dict[str, Any]:
    return json.loads((home.workspace.runs / run_id / "config.json").read_text())


def test_from_the_plain_base_to_the_target(home: Home, start: Start, go: Go) -> None:
    bank = home.bank.policy("rllm-config", "original").to_bytes()
    versions = {skill: home.bank.version(skill) for skill in home.bank.skills("rllm")}
    start(target=0.7)
    seen: list[CampaignProgress] = []
    campaign = go(watch=seen.append)
    assert (campaign.state, campaign.verdict) == (CampaignState.CLOSED, CampaignVerdict.TARGET_REACHED)
    first, second = campaign.runs
    assert (first.run_id, second.run_id, campaign.best_run) == ("c-r1", "c-r2", "c-r2")
    change = second.change
    assert change is not None
    assert (change.key, change.before, change.to) == ("learning_rate", 1e-5, 3e-4)
    assert second.success is not None
    assert second.success.mean >= 0.7
    # nothing but the change differs, and the run says who decided it
    one, two = config_of(home, "c-r1"), config_of(home, "c-r2")
    assert {key: (one[key], two[key]) for key in one if one[key] != two[key]} == {"learning_rate": (1e-5, 3e-4)}
    origin = document_of(home, "c-r2")["provenance"]["learning_rate"]
    assert origin["source"] == "override"
    assert origin["detail"] == "campaign c, run 2: learning rate too low, 1e-05 → 0.0003"
    assert document_of(home, "c-r1")["provenance"]["learning_rate"]["source"] == "policy"
    assert (document_of(home, "c-r2")["campaign"], document_of(home, "c-r2")["campaign_run"]) == ("c", 2)
    # so it is no evidence for or against a patch, and no skill was touched
    directory = RunDirectory(home.workspace.runs / "c-r2")
    assert all(
        found.blocked is not None
        for found in analyse_run(directory, home.lever_table())
        if found.lever is not None and found.lever.key == "learning_rate"
    )
    assert home.bank.policy("rllm-config", "original").to_bytes() == bank
    assert {skill: home.bank.version(skill) for skill in home.bank.skills("rllm")} == versions
    assert home.patches.ids() == []
    assert {one.kind for one in seen} == {"run", "trained", "decided", "closed"}
    assert [one.action for one in campaign.choices] == ["start", "change", "end"]


def test_the_document(home: Home, start: Start, go: Go) -> None:
    start(target=0.7)
    document = json.loads(json.dumps(campaign_document(go())))
    assert {"campaign_id", "state", "verdict", "runs", "best_run"} <= set(document)
    assert (document["state"], document["verdict"]) == ("closed", "target_reached")
    first, second = document["runs"]
    assert first["change"] is None
    assert {"key", "from", "to", "reason"} <= set(second["change"])
    assert (second["change"]["from"], second["change"]["to"]) == (1e-5, 3e-4)
    for run in (first, second):
        for when in ("before", "after"):
            assert {"metric", "split", "n", "mean", "ci95"} <= set(run["eval"][when])
            assert run["eval"][when]["split"] == "test"
    assert second["eval"]["before"] == first["eval"]["before"]  # the same problems and streams
    text = "\n".join(note_lines(CampaignStore(home.root).read("c")))
    for part in ("By rllm-analyze@1", "1e-05 → 0.0003", "target reached", "the best of 2 on the same problems"):
        assert part in text


def test_a_target_met_at_once(home: Home, start: Start, go: Go) -> None:
    start(target=0.3)
    campaign = go()
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    assert [one.run_id for one in campaign.runs] == ["c-r1"]
    assert campaign.confirmation is not None
    again = go()  # a closed one is shown as it is
    assert again == campaign
    assert len(list(home.workspace.runs.glob("c-*/"))) == 1


def test_three_runs_without_improvement(start: Start, go: Go) -> None:
    start(target=0.9, max_runs=9)
    campaign = go(worker=STUBBORN)
    assert campaign.verdict is CampaignVerdict.NO_IMPROVEMENT
    assert len(campaign.runs) == 4
    tried = [one.change.to for one in campaign.runs if one.change is not None]
    assert len(set(tried)) == 3
    assert campaign.best_run == "c-r1"


def test_the_budget_of_runs(start: Start, go: Go) -> None:
    start(target=0.9, max_runs=2)
    campaign = go(worker=STUBBORN)
    assert (campaign.verdict, len(campaign.runs)) == (CampaignVerdict.BUDGET_SPENT, 2)


def test_the_budget_of_episodes(start: Start, go: Go) -> None:
    with pytest.raises(CampaignError, match="less than one run, which takes up to 256"):
        start(target=0.9, max_episodes=255)
    start(target=0.9, max_episodes=600)  # 32 steps of 2 x 4 = 256 a run
    campaign = go(worker=STUBBORN)
    assert (campaign.verdict, len(campaign.runs)) == (CampaignVerdict.BUDGET_SPENT, 2)
    assert sum(one.episodes for one in campaign.runs) == 512


def test_the_budget_of_minutes_ends_a_run(home: Home, start: Start, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    home.workspace.config_path.write_text("child_environment: [FAKE_*]\n")
    monkeypatch.setenv("FAKE_STEP_S", "0.2")
    start(target=0.9, max_seconds=1.0)
    began = time.monotonic()
    campaign = go()
    assert time.monotonic() - began < 20
    assert campaign.verdict is CampaignVerdict.BUDGET_SPENT
    (only,) = campaign.runs
    assert (only.state, only.stop_reason) == ("stopped", "budget")
    assert 0 < only.steps < 32
    assert campaign.best_run is None
    assert campaign.confirmation is None


def test_nothing_left_when_the_request_fixed_the_lever(start: Start, go: Go) -> None:
    start(f"{STEPS}, learning rate 1e-5", target=0.9)
    campaign = go()
    assert (campaign.verdict, len(campaign.runs)) == (CampaignVerdict.NOTHING_LEFT, 1)
    assert campaign.reason is not None
    assert "the request text fixed it" in campaign.reason


def test_an_agents_override_is_fixed_too(start: Start, go: Go) -> None:
    start(target=0.9, overrides={"learning_rate": 1e-5}, override_source="override")
    campaign = go()
    assert campaign.verdict is CampaignVerdict.NOTHING_LEFT
    assert "override fixed it" in (campaign.reason or "")


# The target


def test_a_goal_of_the_request_is_the_target(home: Home, start: Start) -> None:
    campaign = start(f"{STEPS}, reward >= 0.8")
    assert campaign.request.target == 0.8
    assert campaign.basis.config["target_reward"] == 0.8
    with pytest.raises(ConfigError, match="two targets"):
        start(f"{STEPS}, reward >= 0.8", target=0.9, campaign="d")
    assert CampaignStore(home.root).ids() == ["c"]


def test_a_target_beside_the_request_raises_the_goal_of_the_runs(start: Start) -> None:
    campaign = start(target=0.9)
    assert campaign.basis.config["target_reward"] == 0.927
    origin = campaign.basis.provenance["target_reward"]
    assert origin["source"] == "override"
    assert "one standard error of a test of 128" in origin["detail"]


def test_without_a_target_it_goes_on_while_something_can_be_changed(start: Start, go: Go) -> None:
    campaign = start()
    assert campaign.basis.config["target_reward"] is None
    campaign = go()
    assert campaign.verdict in (CampaignVerdict.NOTHING_LEFT, CampaignVerdict.NO_IMPROVEMENT)
    assert len(campaign.runs) >= 2


def test_a_patch_promoted_meanwhile_changes_nothing(home: Home, start: Start, go: Go) -> None:
    start(target=0.7, profile=None)
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    base.write_text(base.read_text().replace("temperature: {default: 1.0", "temperature: {default: 0.9"))
    home.bank.compile("rllm-config")
    assert home.bank.resolve("rllm-config", {}).require("temperature.default") == 0.9
    campaign = go()
    assert {config_of(home, one.run_id)["temperature"] for one in campaign.runs} == {1.0}


# A person is asked


def test_approve_mode_yes(home: Home, start: Start, go: Go) -> None:
    start(f"{STEPS}, approve mode", target=0.7)
    asked: list[tuple[int, Any]] = []

    def yes(campaign: Campaign) -> Answer:
        assert campaign.next is not None
        assert not (home.workspace.runs / f"c-r{campaign.next.number}").exists()
        asked.append((campaign.next.number, campaign.next.change))
        return Answer("approve", "terminal")

    campaign = go(approver=yes)
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    assert [number for number, _ in asked] == [1, 2]
    assert asked[0][1] is None
    assert asked[1][1].to == 3e-4
    assert [(one.number, one.decision, one.channel) for one in campaign.consents] == [
        (1, "approve", "terminal"),
        (2, "approve", "terminal"),
    ]
    entries = home.audit.entries()
    assert [(one["kind"], one["campaign_id"], one["campaign_run"]) for one in entries] == [
        ("approved", "c", 1),
        ("approved", "c", 2),
    ]
    assert home.audit.verify().ok


def test_approve_mode_no(home: Home, start: Start, go: Go) -> None:
    start(target=0.7, ask=True)
    answers = iter([Answer("approve", "terminal"), Answer("reject", "terminal", "too bold")])
    campaign = go(approver=lambda one: next(answers))
    assert (campaign.state, campaign.verdict) == (CampaignState.CLOSED, CampaignVerdict.REFUSED)
    assert campaign.reason == "run 2 was refused by a person: too bold"
    assert [one.run_id for one in campaign.runs] == ["c-r1"]
    assert not (home.workspace.runs / "c-r2").exists()
    assert [one["kind"] for one in home.audit.entries()] == ["approved", "rejected"]


def test_approve_mode_later_waits_and_goes_on(home: Home, start: Start, go: Go) -> None:
    start(target=0.7, ask=True)
    waiting = go(approver=lambda one: Answer("later", "terminal"))
    assert (waiting.state, waiting.runs) == (CampaignState.AWAITING_APPROVAL, [])
    digest = digest_of(waiting)
    assert go(approver=lambda one: Answer("later", "terminal")).next == waiting.next
    store = CampaignStore(home.root)
    with store.carrying_on("c"):
        machine.answer_campaign(home, store, store.read("c"), Answer("approve", "terminal"))
    second = go(approver=lambda one: Answer("later", "terminal"))
    assert [one.run_id for one in second.runs] == ["c-r1"]
    assert second.state is CampaignState.AWAITING_APPROVAL
    assert second.next is not None
    assert second.next.number == 2
    assert digest_of(second) != digest
    assert home.audit.entries()[0]["result_digest"] == digest
    with pytest.raises(CampaignError, match="no run waits"):
        digest_of(second.model_copy(update={"next": None}))


# Killed and taken up again


class Killed(BaseException):
    pass


EVERY_KILL = [(state, before) for state in ("planned", "trained", "ended", "closed") for before in (False, True)]


@pytest.mark.parametrize(("state", "before"), EVERY_KILL)
def test_killed_between_two_steps(
    home: Home, start: Start, go: Go, monkeypatch: pytest.MonkeyPatch, state: str, before: bool
) -> None:
    """Killed just before or just after a state is written, the first two times it is reached."""
    start(target=0.7)
    real_move, kills = CampaignStore.move, {"left": 2}

    def move(self: CampaignStore, campaign: Campaign, to: CampaignState, **fields: Any) -> Campaign:
        if to != state or kills["left"] == 0:
            return real_move(self, campaign, to, **fields)
        kills["left"] -= 1
        if not before:
            real_move(self, campaign, to, **fields)
        raise Killed

    monkeypatch.setattr(CampaignStore, "move", move)
    for _ in range(3):
        try:
            campaign = go()
            break
        except Killed:
            continue
    assert kills["left"] < 2
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    assert [one.parts for one in campaign.runs] == [["c-r1"], ["c-r2"]]
    assert sorted(path.name for path in home.workspace.runs.glob("c-*/")) == ["c-r1", "c-r2"]
    change = campaign.runs[1].change
    assert change is not None
    assert (change.key, change.to) == ("learning_rate", 3e-4)
    assert [one.action for one in campaign.choices] == ["start", "change", "end"]


def test_a_killed_run_is_resumed(home: Home, start: Start, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    home.workspace.config_path.write_text("child_environment: [FAKE_*]\n")
    start(target=0.7)
    lives = {"left": 1}
    real = LocalLauncher.start

    def start_once(self: LocalLauncher, *arguments: Any) -> Any:
        os.environ["FAKE_DIE_AT_STEP"] = "5" if lives["left"] else "0"
        lives["left"] -= 1 if lives["left"] else 0
        return real(self, *arguments)

    monkeypatch.setattr(LocalLauncher, "start", start_once)
    monkeypatch.setenv("FAKE_DIE_AT_STEP", "0")
    seen: list[str] = []
    campaign = go(watch=lambda one: seen.append(one.kind))
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    first, second = campaign.runs
    assert (first.parts, first.run_id) == (["c-r1", "c-r1-part2"], "c-r1-part2")
    assert second.parts == ["c-r2"]
    assert document_of(home, "c-r1")["state"] == "failed"
    assert document_of(home, "c-r1-part2")["parent_run"] == "c-r1"
    assert document_of(home, "c-r1-part2")["campaign"] == "c"
    assert second.change is not None
    assert second.change.base_run == "c-r1-part2"
    assert "resumed" in seen
    assert [one.action for one in campaign.choices] == ["start", "resume", "change", "end"]


def test_a_run_that_breaks_off_again_and_again_waits_for_a_person(
    home: Home, start: Start, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.workspace.config_path.write_text("child_environment: [FAKE_*]\n")
    monkeypatch.setenv("FAKE_DIE_AT_STEP", "5")
    start(target=0.7)
    with pytest.raises(CampaignError, match="--auto --resume c"):
        go()
    waiting = CampaignStore(home.root).read("c")
    assert waiting.state is CampaignState.PLANNED
    assert len(waiting.runs[0].parts) == training.MAX_STANDSTILLS
    monkeypatch.setenv("FAKE_DIE_AT_STEP", "0")
    campaign = go()
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    assert len(campaign.runs[0].parts) == training.MAX_STANDSTILLS + 1


def test_only_one_process_carries_it_on(home: Home, start: Start, go: Go) -> None:
    start(target=0.7)
    store = CampaignStore(home.root)
    with store.carrying_on("c"):
        assert store.is_carried_on("c")
        with pytest.raises(CampaignError, match="carried on by another process"):
            go()
    assert not store.is_carried_on("c")


# The rest


def test_runs_of_a_campaign_are_not_pruned(home: Home, start: Start, go: Go) -> None:
    start(target=0.3)
    go()
    assert list(references(home.workspace, {"c-r1"})) == [("campaigns/c.json", "c-r1")]


def test_names(home: Home, start: Start) -> None:
    store = CampaignStore(home.root)
    with pytest.raises(CampaignError, match="there are no campaigns yet"):
        store.read("latest")
    start()
    with pytest.raises(CampaignError, match="exists already"):
        start()
    with pytest.raises(CampaignError, match="There are: c"):
        store.read("d")
    with pytest.raises(CampaignError, match="too long"):
        new_request("x", campaign="a" * 49)
    assert store.read("latest").campaign_id == "c"
    assert not store.exists("../c")
    (store.root / "torn.json").write_text("{")
    assert store.ids() == ["torn", "c"]
    assert store.read("latest").campaign_id == "c"
    with pytest.raises(CampaignError, match=r"torn\.json cannot be read"):
        store.read("torn")


def test_what_can_be_confirmed(home: Home, start: Start, go: Go) -> None:
    start(target=0.3)
    campaign = go()
    assert "no trained model" in (why_not(home, campaign) or "")
    (home.workspace.runs / "c-r1" / "model").mkdir()
    (home.workspace.runs / "c-r1" / "model" / "config.json").write_text("{}")
    assert why_not(home, campaign) is None
    from_a_file = campaign.basis.model_copy(update={"config": {**campaign.basis.config, "data": "/x.jsonl"}})
    assert "from a file" in (why_not(home, campaign.model_copy(update={"basis": from_a_file})) or "")
    assert fresh_seed(campaign) == fresh_seed(campaign) != campaign.basis.config["seed"]


@pytest.mark.parametrize(
    ("target", "mean", "high", "said"),
    [(0.9, 0.9, 0.93, "confirmed"), (0.9, 0.88, 0.91, "open"), (0.9, 0.8, 0.85, "refuted"), (None, 0.8, 0.85, None)],
)
def test_what_a_confirmation_says(target: float | None, mean: float, high: float, said: str | None) -> None:
    assert verdict_of(target, Eval(split="test", n=256, mean=mean, ci95=(0.5, high))) == said


def test_a_run_that_an_interrupted_process_asked_to_stop_goes_on(
    home: Home, start: Start, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C twice: the process is gone before the run has ended; taking the campaign up again waits and resumes."""
    home.workspace.config_path.write_text("child_environment: [FAKE_*]\n")
    monkeypatch.setenv("FAKE_STEP_S", "0.3")
    start(target=0.7)
    directory = RunDirectory(home.workspace.runs / "c-r1")

    def interrupt(step: CampaignProgress) -> None:
        if step.update is not None and step.update.metrics:
            directory.request_stop()
            raise Killed

    with pytest.raises(Killed):
        go(watch=interrupt)
    monkeypatch.setenv("FAKE_STEP_S", "0")
    campaign = go()
    assert campaign.verdict is CampaignVerdict.TARGET_REACHED
    assert campaign.runs[0].parts == ["c-r1", "c-r1-part2"]


@pytest.mark.parametrize(
    ("state", "word", "result"),
    [
        (RunState.FINISHED, "target", True),
        (RunState.STOPPED, "budget", True),
        (RunState.STOPPED, "anomaly: truncation", True),
        (RunState.STOPPED, "user", False),
        (RunState.STOPPED, "SIGTERM", False),
        (RunState.FAILED, "nonfinite", True),
        (RunState.FAILED, "oom", True),
        (RunState.FAILED, "killed", False),
        (RunState.FAILED, "disk_full", False),
        (RunState.LOST, "restart", False),
    ],
)
def test_which_ends_of_a_run_are_results(state: RunState, word: str, result: bool) -> None:
    """The others are accidents: the run goes on from its checkpoint, by itself or after somebody has looked."""
    broken = state in (RunState.FAILED, RunState.LOST)
    document = RunDocument(
        run_id="r",
        state=state,
        created_at=0.0,
        stop_reason=None if broken else word,
        failure=Failure(kind=word, message="m") if broken else None,
    )
    assert training.is_result(document) is result
