"""Trials of monitor patches by replay: the decision by hand-made counts, and whole trials through the one door."""

import json
from typing import Any

import pytest

from optimizer.home import Home
from optimizer.patch_store import PatchError, Stage
from optimizer.stage import Proposal, stage
from optimizer.trial.plan import DEFAULT
from optimizer.trial.replay import (
    Replayed,
    changed_sections,
    context_inside,
    counted,
    decide_replay,
    faults_for,
    known_outcome,
    sign_p,
)
from optimizer.trial.run import finish_trial
from optimizer.trial.types import Decision, Reason, TrialVerdict
from optimizer.tryout import policies, prepare_trial, try_patch
from trainer.runs.simulate_faults import FAULTS
from trainer.runs.types import Eval, RunDocument, RunState


def rows_of(
    *, both: int = 0, gained: int = 0, lost: int = 0, missed: int = 0, more: int = 0, fewer: int = 0, calm: int = 9
) -> list[Replayed]:
    made: list[Replayed] = []
    for count, bad, base, patched in (
        (both, True, True, True),
        (gained, True, False, True),
        (lost, True, True, False),
        (missed, True, False, False),
        (more, False, False, True),
        (fewer, False, True, False),
        (calm, False, False, False),
    ):
        made += [Replayed(name="stall" if bad else "healthy", bad=bad, base=base, patched=patched)] * count
    return made


def test_the_sign_test_by_hand() -> None:
    assert sign_p(0, 3) == 1.0
    assert sign_p(5, 0) == pytest.approx(1 / 32)
    assert sign_p(6, 0) == pytest.approx(1 / 64)
    assert sign_p(8, 1) == pytest.approx((9 + 1) / 512)  # C(9,8) + C(9,9) of 2^9
    assert sign_p(3, 3) == pytest.approx((20 + 15 + 6 + 1) / 64)


@pytest.mark.parametrize(
    ("rows", "verdict", "reason"),
    [
        (rows_of(both=10, gained=6), TrialVerdict.BETTER, None),
        (rows_of(both=10, gained=5), TrialVerdict.INCONCLUSIVE, Reason.NO_WORTHWHILE_GAIN),  # 1/32 is not enough
        (rows_of(both=10, gained=9, lost=1), TrialVerdict.BETTER, None),  # 11/1024
        (rows_of(both=10, gained=9, more=1), TrialVerdict.INCONCLUSIVE, Reason.NO_WORTHWHILE_GAIN),
        (rows_of(both=10, gained=9, more=1, fewer=1), TrialVerdict.BETTER, None),
        (rows_of(both=10, fewer=6), TrialVerdict.BETTER, None),
        (rows_of(both=10, fewer=6, lost=1), TrialVerdict.INCONCLUSIVE, Reason.NO_WORTHWHILE_GAIN),
        (rows_of(both=10, lost=6), TrialVerdict.WORSE, None),
        (rows_of(both=10, more=6, gained=2), TrialVerdict.WORSE, None),
        (rows_of(both=10, missed=4), TrialVerdict.INCONCLUSIVE, Reason.ARMS_IDENTICAL),
    ],
)
def test_decisions(rows: list[Replayed], verdict: TrialVerdict, reason: Reason | None) -> None:
    decision = decide_replay(rows)
    assert (decision.verdict, decision.reason) == (verdict, reason), decision.say


def test_the_effect_is_the_difference_in_recall() -> None:
    # 20 failing runs, 6 gained, 1 lost: effect .25; 4 of 15 healthy ones with an alarm before, 1 after
    rows = rows_of(both=10, gained=6, lost=1, missed=3, fewer=4, more=1, calm=10)
    summary = decide_replay(rows).summary
    assert summary is not None
    assert (summary.pairs, summary.effect) == (20, pytest.approx(0.25))
    # differences: six 1, one -1, thirteen 0: sum of squares 7, less 20 x .25² = 5.75, over 19, root: .550120
    assert summary.sd == pytest.approx(0.550120, abs=1e-6)
    assert (summary.collapses_base.count, summary.collapses_patched.count, summary.collapses_base.n) == (4, 1, 15)
    counts = counted(rows)
    assert (counts.gained, counts.lost, counts.more_false, counts.fewer_false) == (6, 1, 1, 4)


def test_a_replay_without_one_kind_says_nothing() -> None:
    with pytest.raises(ValueError, match="failing and healthy"):
        decide_replay(rows_of(both=3, calm=0))


def test_a_situation_inside_a_scope() -> None:
    assert context_inside({"params": "<10M", "env": "lookup"})["params"] == 1_000_000
    assert context_inside({"params": "300M-2B"})["params"] == 300_000_000
    assert context_inside({"env": "lookup"})["env"] == "lookup"


def document_of(
    state: RunState, before: tuple[float, float] | None = None, after: tuple[float, float] | None = None
) -> RunDocument:
    evals = {
        name: Eval(metric="success", split="test", n=128, mean=sum(ci) / 2, ci95=ci)
        for name, ci in (("before", before), ("after", after))
        if ci is not None
    }
    return RunDocument(run_id="a", created_at=0, state=state, eval=evals)


def test_only_outcomes_beyond_doubt_are_known() -> None:
    learned = document_of(RunState.FINISHED, (0.2, 0.3), (0.8, 0.9))
    assert known_outcome(learned, []) is False
    assert known_outcome(document_of(RunState.FINISHED, (0.2, 0.4), (0.3, 0.5)), []) is None
    assert known_outcome(document_of(RunState.STOPPED), []) is None
    falling = [{"reward_mean": value, "episodes": 64} for value in (0.2, 0.8, 0.1)]
    assert known_outcome(document_of(RunState.FINISHED, (0.2, 0.3), (0.1, 0.2)), falling) is True


def staged(home: Home, body: str, section: str) -> str:
    proposal = Proposal(
        skill="rllm-monitor",
        section=section,
        body=f"Another threshold.\n\n```yaml policy\n{body}\n```",
        description="another threshold",
        slug="threshold",
        scope={},
        context={"params": 1_000_000, "model": "tiny", "env": "calculator", "difficulty": "mixed"},
    )
    return stage(home.bank, home.patches, proposal).patch_id


class NoTraining:
    def run(self, jobs: Any, cancelled: Any) -> Any:
        raise AssertionError("a replay trains nothing")


def tried(home: Home, patch_id: str) -> Decision:
    folder = prepare_trial(home, patch_id, DEFAULT, seed=3)
    return finish_trial(try_patch(home, folder, NoTraining()))


def test_a_blinded_detector_is_worse_and_remembered(home: Home) -> None:
    patch_id = staged(home, "no_diversity: {unique_share: 0.0}", "signal")
    base, patched = policies(home, home.patches.read(patch_id))
    assert changed_sections(base, patched) == {"no_diversity"}
    assert {one.detector for one in faults_for({"no_diversity"})} == {"no_diversity"}
    assert faults_for({"warmup"}) == list(FAULTS)
    decision = tried(home, patch_id)
    assert decision.verdict is TrialVerdict.WORSE, decision.say
    record = home.patches.read(patch_id)
    assert (record.stage, record.verdict) == (Stage.REJECTED, "worse")
    assert record.effect is not None
    assert record.effect < -0.4
    rows = (home.trials / record.trials[0] / "replayed.jsonl").read_text().splitlines()
    assert {json.loads(row)["name"] for row in rows} == {"no_diversity", "healthy"}
    with pytest.raises(PatchError, match="rejected before"):
        staged(home, "no_diversity: {unique_share: 0.0}", "signal")


def test_a_mended_detector_is_better(home: Home) -> None:
    base = home.bank.root / "rllm" / "rllm-monitor" / "base.md"
    text = base.read_text(encoding="utf-8")
    assert "unique_share: 0.5" in text
    base.write_text(text.replace("unique_share: 0.5", "unique_share: 0.01"), encoding="utf-8")
    home.bank.compile("rllm-monitor")
    decision = tried(home, staged(home, "no_diversity: {unique_share: 0.5}", "signal"))
    assert decision.verdict is TrialVerdict.BETTER, decision.say
    assert decision.summary is not None
    assert decision.summary.collapses_patched.count <= decision.summary.collapses_base.count


def test_a_threshold_that_changes_no_alarm_has_no_effect(home: Home) -> None:
    decision = tried(home, staged(home, "stall: {seconds: 121.0}", "process"))
    assert (decision.verdict, decision.reason) == (TrialVerdict.INCONCLUSIVE, Reason.ARMS_IDENTICAL), decision.say
