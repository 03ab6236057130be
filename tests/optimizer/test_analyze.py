"""Analysis: findings with evidence, numbers and levers from runs; failing and repeated calls from trajectories."""

from pathlib import Path
from typing import Any

import pytest

from optimizer.analyze.levers import LeverTable, weight
from optimizer.analyze.report import Report, ReportError, ReportStore, markdown
from optimizer.analyze.runs import actionable, analyse_run, blocked_by
from optimizer.analyze.thresholds import thresholds_from
from optimizer.analyze.trajectories import analyse_events
from optimizer.events import Event, EventKind
from optimizer.home import Home
from optimizer.segment.segmenter import Segmenter
from optimizer.types import Direction, EventEvidence, Finding, Lever, RunEvidence
from trainer.config import TrainingConfig
from trainer.runs.findings import DEFAULT_THRESHOLDS
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, RunDocument, RunState


def make_run(tmp_path: Path, provenance: dict[str, dict[str, Any]] | None = None) -> RunDirectory:
    """A flat run: reward .35 for 20 steps, groups that differ, entropy that stays."""
    directory = RunDirectory(tmp_path / "run-1")
    config = TrainingConfig(learning_rate=1e-6)
    evals = {
        name: Eval(split="test", n=128, mean=mean, ci95=(mean - 0.08, mean + 0.08))
        for name, mean in (("before", 0.35), ("after", 0.36))
    }
    document = RunDocument(
        run_id="run-1", state=RunState.FINISHED, created_at=0, eval=evals, provenance=provenance or {}
    )
    directory.create(document, config)
    for step in range(1, 21):
        directory.append_metrics(
            {
                "step": step,
                "episodes": 32,
                "reward_mean": 0.35 + 0.001 * (step % 3),
                "frac_zero_variance": 0.2,
                "entropy": 0.3,
                "grad_norm": 0.5,
                "truncated_rate": 0.0,
                "unique_completions": 0.9,
                "parse_ok_rate": 0.95,
                "tool_call_rate": 0.95,
                "finish_rate": 0.9,
            }
        )
    return directory


def test_a_finding_carries_everything(tmp_path: Path, home: Home) -> None:
    finding = analyse_run(make_run(tmp_path), home.lever_table(), home.thresholds())[0]
    assert finding.kind == "learning_rate_too_low"
    assert finding.lever is not None
    assert (finding.lever.key, finding.lever.direction, finding.lever.choices[0]) == ("learning_rate", "up", 30)
    assert finding.evidence == [RunEvidence(run_id="run-1", step=1), RunEvidence(run_id="run-1", step=20)]
    metrics = {one.name: one for one in finding.metrics}
    # n of a third of 20 steps: 6 steps of 32 episodes; error sqrt(.351 * .649 / 192) = .0344
    assert metrics["reward_first"].n == 192
    assert metrics["reward_first"].standard_error == pytest.approx(0.0344, abs=2e-4)
    # sqrt(.36 * .64 / 128) = .0424
    assert (metrics["success_after"].split, metrics["success_after"].n) == ("test", 128)
    assert metrics["success_after"].standard_error == pytest.approx(0.0424, abs=1e-4)
    assert actionable([finding]) == [finding]
    again = analyse_run(RunDirectory(tmp_path / "run-1"), home.lever_table(), home.thresholds())[0]
    assert again.id == finding.id


@pytest.mark.parametrize("source", ["request", "set", "override", "config"])
def test_what_policy_did_not_decide_is_no_lever(tmp_path: Path, home: Home, source: str) -> None:
    directory = make_run(tmp_path, {"learning_rate": {"source": source}})
    finding = analyse_run(directory, home.lever_table())[0]
    assert finding.kind == "learning_rate_too_low"  # it is still named
    assert finding.blocked is not None
    assert "is no lever here" in finding.blocked
    assert actionable([finding]) == []


def test_policy_and_default_may_be_moved() -> None:
    lever = Lever(key="temperature", direction=Direction.SET, choices=(1.0,))
    assert blocked_by(lever, {"temperature": {"source": "policy"}}) is None
    assert blocked_by(lever, {"temperature": {"source": "default"}}) is None
    assert blocked_by(lever, {}) is None
    assert blocked_by(lever, {"learning_rate": {"source": "request"}}) is None


def test_the_table_of_the_shipped_skill_is_usable(home: Home) -> None:
    table = home.lever_table()
    keys = {one.split(".")[0] for one in home.bank.policy("rllm-config").keys}
    for kind in table.decisions:
        lever = table.lever_for(kind)
        assert lever is not None
        assert lever.key in keys
        assert 0 < weight(lever) <= 1
    assert {
        "learning_rate_too_high",
        "learning_rate_too_low",
        "groups_too_easy",
        "groups_too_hard",
        "no_diversity",
    } < set(table.decisions)
    assert table.lever_for("healthy") is None
    assert LeverTable({}).lever_for("learning_rate_too_low") is None


def test_thresholds_follow_the_monitor(home: Home) -> None:
    policy = home.policy_of("rllm-monitor")
    thresholds = thresholds_from(policy)
    assert thresholds.environment_errors == policy.get("env_errors.warn")
    assert thresholds.unique == policy.get("no_diversity.unique_share")
    assert thresholds.collapse_peak == DEFAULT_THRESHOLDS.collapse_peak


def events(*steps: tuple[str, Any, str]) -> list[Event]:
    """(tool, input, outcome) behind a skill call in line 0."""
    first = Event(
        kind=EventKind.TOOL_CALL, session="s", tool="load_skill", input={"name": "rllm-run"}, outcome="ok", line=0
    )
    rest = [
        Event(
            kind=EventKind.TOOL_CALL,
            session="s",
            tool=tool,
            input=call_input,
            outcome=outcome,
            reason="boom" if outcome == "failed" else None,
            line=line,
        )
        for line, (tool, call_input, outcome) in enumerate(steps, start=1)
    ]
    return [first, *rest]


def analyse(*steps: tuple[str, Any, str]) -> list[Finding]:
    recorded = events(*steps)
    segmenter = Segmenter({"rllm-run": "rllm"}.get)
    segmenter.feed(recorded)
    return analyse_events(segmenter.state.segments, recorded)


def test_repeated_failing_call() -> None:
    run = ("Bash", {"command": "python train.py"}, "failed")
    look = ("Read", {"file_path": "a"}, "ok")
    (finding,) = analyse(run, look, run, run)
    assert finding.kind == "repeated_failing_call"
    assert finding.evidence == [EventEvidence(session="s", line=line) for line in (1, 3, 4)]
    assert "Bash failed 3 times in a row with the same input under rllm-run" in finding.what
    assert finding.layer == "rllm"


def test_a_success_in_between_ends_the_series() -> None:
    failing = ("Bash", {"command": "x"}, "failed")
    working = ("Bash", {"command": "x"}, "ok")
    (finding,) = analyse(failing, working, failing)
    assert finding.kind == "failing_call"
    metric = finding.metrics[0]
    # 2 of 3 calls of Bash: error sqrt(2/3 * 1/3 / 3) = .272
    assert (metric.name, metric.n) == ("failure_rate", 3)
    assert metric.value == pytest.approx(2 / 3)
    assert metric.standard_error == pytest.approx(0.272, abs=1e-3)


def test_different_inputs_are_no_series_and_success_is_no_finding() -> None:
    (finding,) = analyse(("Bash", {"command": "x"}, "failed"), ("Bash", {"command": "y"}, "failed"))
    assert finding.kind == "failing_call"
    assert analyse(("Bash", {"command": "grep x; echo failed"}, "ok"), ("Read", {}, "unknown")) == []


def test_reports(tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    findings = analyse(("Bash", {"command": "x"}, "failed"))
    store.write(Report(report_id="r-1", layer="rllm", sessions=["s"], findings=findings))
    assert store.read("r-1").findings == findings
    assert store.find(findings[0].id)[0].report_id == "r-1"
    text = (tmp_path / "reports" / "rllm" / "r-1.md").read_text()
    assert text == markdown(store.read("r-1"))
    for part in ("failing call", findings[0].id, "s:1", "± ", "n = 1"):
        assert part in text
    with pytest.raises(ReportError, match="There are: r-1"):
        store.read("r-2")
    with pytest.raises(ReportError, match="no report holds"):
        store.find("finding-x")
    with pytest.raises(ReportError, match="has no finding"):
        store.read("r-1").finding("finding-x")
