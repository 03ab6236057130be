"""Each detector on a made-up session where its rule holds and on one where it nearly does."""

import json
from typing import Any

import pytest
from analysis_helpers import DATA, made_up, view_of

from mcp_server.tools import all_specs
from optimizer.analyze.detectors import (
    DETECTORS,
    abandoned_run,
    config_not_launched,
    data_missing,
    detect_all,
    failing_calls,
    launch_crash,
    loss_of_focus,
    metric_mixup,
    not_like_for_like,
    orchestrator_skipped,
    skill_not_followed,
    training_facts,
    unverified_claim,
    wasted_waiting,
)
from optimizer.analyze.detectors.launch_crash import CrashClass, classify
from optimizer.analyze.settings import RunSettings
from optimizer.analyze.view import View
from optimizer.events import parse
from optimizer.types import EventEvidence, Finding
from skill_bank.bank import SkillBank

MODULES = {
    "abandoned_run": abandoned_run,
    "config_not_launched": config_not_launched,
    "data_missing": data_missing,
    "failing_calls": failing_calls,
    "launch_crash": launch_crash,
    "loss_of_focus": loss_of_focus,
    "metric_mixup": metric_mixup,
    "not_like_for_like": not_like_for_like,
    "orchestrator_skipped": orchestrator_skipped,
    "skill_not_followed": skill_not_followed,
    "training_facts": training_facts,
    "unverified_claim": unverified_claim,
    "wasted_waiting": wasted_waiting,
}

EXPECTED: dict[str, list[tuple[str, list[int], list[str]]]] = {
    "abandoned_run": [("abandoned_run", [1, 2], ["run_41", "looked at 1 time(s)", "no event shows its end"])],
    "config_not_launched": [
        ("config_not_launched", [1, 2], ["seed 7 in the configuration", "not in the launched command"]),
        ("config_not_launched", [1, 2], ["learning_rate 1e-05 was launched as optim.lr 3e-5"]),
    ],
    "data_missing": [
        ("data_missing", [1, 2], ["reward_trend (1×)", "perf_stats (1×)"]),
        ("data_missing", [3, 4], ["no held-out number of run_41 was found in the events"]),
    ],
    "failing_calls": [("repeated_failing_call", [1, 3], ["failed 2 times in a row", "prepare.py"])],
    "launch_crash": [
        ("launch_crash", [2], ["(missing module)", "No module named 'datasets'"]),
        ("launch_crash", [4], ["run_41, launch 2,", "(out of memory)"]),
        ("launch_crash", [6], ["launch 3", "(divisibility)"]),
        ("launch_crash", [8], ["launch 4", "(killed)"]),
    ],
    "loss_of_focus": [("loss_of_focus", [3, 4], ["rllm-monitor", "navbar_layout.py", "colour_picker.py"])],
    "metric_mixup": [
        ("metric_mixup", [1, 2], ["0.7183 is a training number"]),
        ("metric_mixup", [3, 4], ["the field reward holds two metrics", "0.7183", "0.5474"]),
    ],
    "not_like_for_like": [("not_like_for_like", [1, 2, 3], ["run_a_r1 and run_a_r2", "generations 8 → 16"])],
    "orchestrator_skipped": [("orchestrator_skipped", [1, 2, 3], ["rllm-train, which leads them, was not"])],
    "skill_not_followed": [("skill_not_followed", [0, 1, 2, 3], ["rllm-monitor, rllm-analyze were not opened"])],
    "training_facts": [
        ("still_rising", [3], ["0.6120, 0.6750, 0.7010", "split train"]),
        ("zero_reward_at_cap", [1], ["0 in 2 of 4 steps", "192", "a co-occurrence in 4 steps, not a cause"]),
        ("gradient_norm_high", [2], ["71.2500", "145.0000"]),
    ],
    "unverified_claim": [("unverified_claim", [2], ["0.8137", "61.25"])],
    "wasted_waiting": [("wasted_waiting", [1, 2, 3], ["looked 3 times over 40 s", "saw the same each time"])],
}


def lines_of(finding: Finding) -> list[int]:
    return [one.line for one in finding.evidence if isinstance(one, EventEvidence)]


def test_every_detector_has_its_two_sessions() -> None:
    assert set(MODULES) == set(EXPECTED)
    assert {module.detect for module in MODULES.values()} == set(DETECTORS)
    for name in MODULES:
        assert (DATA / f"{name}_yes.jsonl").exists()
        assert (DATA / f"{name}_no.jsonl").exists()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_detector_finds_what_its_rule_says(name: str) -> None:
    found = MODULES[name].detect(made_up(f"{name}_yes"))
    assert [(one.kind, lines_of(one)) for one in found] == [(kind, lines) for kind, lines, _ in EXPECTED[name]]
    for finding, (_, _, parts) in zip(found, EXPECTED[name], strict=True):
        for part in parts:
            assert part in finding.what
        assert 0 < finding.confidence <= 1
        assert finding.lever is None


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_detector_is_silent_where_its_rule_does_not_hold(name: str) -> None:
    assert MODULES[name].detect(made_up(f"{name}_no")) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_each_says_what_it_needs_and_does_not_claim(name: str) -> None:
    text = MODULES[name].__doc__ or ""
    for word in ("Rule", "Needs:", "Does not claim:"):
        assert word in text, f"{name} does not say {word}"


def test_numbers_come_with_n() -> None:
    for name in MODULES:
        for finding in MODULES[name].detect(made_up(f"{name}_yes")):
            for metric in finding.metrics:
                assert metric.n is not None or metric.name in ("Grad norm", "validation"), (name, metric)


def test_findings_are_the_same_each_time_and_in_order_of_confidence() -> None:
    first, second = (detect_all(made_up("launch_crash_yes")) for _ in range(2))
    assert first == second
    assert [one.confidence for one in first] == sorted((one.confidence for one in first), reverse=True)
    assert len({one.id for one in first}) == len(first)


@pytest.mark.parametrize(
    ("kind", "inner", "message", "expected"),
    [
        ("ModuleNotFoundError", None, "No module named 'x'", CrashClass.MISSING_MODULE),
        ("torch.OutOfMemoryError", None, "CUDA out of memory", CrashClass.OUT_OF_MEMORY),
        ("ray.exceptions.RayTaskError", "OutOfMemoryError", "ray::Worker", CrashClass.OUT_OF_MEMORY),
        ("ValueError", None, "No available memory for the cache blocks", CrashClass.OUT_OF_MEMORY),
        ("AssertionError", None, "4 % 32 != 0", CrashClass.DIVISIBILITY),
        ("ValueError", None, "must be divisible by 8", CrashClass.DIVISIBILITY),
        ("KeyError", None, "divisible", CrashClass.OTHER),
        ("FileNotFoundError", None, "[Errno 2]", CrashClass.MISSING_FILE),
        ("RuntimeError", None, "worker is killed by signal: Killed", CrashClass.KILLED),
        ("ZeroDivisionError", None, "division by zero", CrashClass.OTHER),
    ],
)
def test_classes_of_exceptions(kind: str, inner: str | None, message: str, expected: CrashClass) -> None:
    assert classify(kind, inner, message) is expected


def evaluated(run: str, split: str, n: int, *, nested: bool) -> dict[str, Any]:
    """A call that shows an evaluation, as our tools answer or as a shell prints the run's document."""
    document = {"run_id": run, "eval": {"after": {"metric": "success", "split": split, "n": n, "mean": 0.5}}}
    if nested:
        return {"tool_name": "mcp__evo__monitor_run", "tool_response": {"text": "done", "structuredContent": document}}
    return {"tool_name": "Bash", "tool_response": {"stdout": json.dumps(document), "stderr": ""}}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([("test", 50)], [("test", 200)], ["problems evaluated on split test 50 → 200"]),
        ([("test", 50)], [("test", 50)], []),
        ([("test", 50)], [("validation", 200)], []),  # nothing is known of the same split
        ([("test", 50), ("test", 200)], [("test", 200)], []),  # there is a comparison that is like for like
        ([("test", 50)], [], []),
    ],
)
def test_runs_evaluated_on_different_numbers_of_problems(
    first: list[tuple[str, int]], second: list[tuple[str, int]], told: list[str]
) -> None:
    shown = [evaluated("run_71", *one, nested=True) for one in first]
    shown += [evaluated("run_72", *one, nested=False) for one in second]
    report = {"tool_name": "Write", "tool_input": {"file_path": "r.md", "content": "run_72 is better than run_71"}}
    start = {"tool_name": "Bash", "tool_response": {"stdout": "Run ID: run_71\nRun ID: run_72"}}
    common = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_input": {}, "tool_response": {"ok": True}}
    lines = [{**common, **one} for one in (start, *shown, report)]
    events = [parse(json.dumps(line).encode(), number) for number, line in enumerate(lines)]
    found = not_like_for_like.detect(view_of("s", events))
    assert [one.what for one in found] == [f"run_71 and run_72 are compared and are not alike: {text}" for text in told]
    for one in found:
        assert {event.line for event in one.evidence if isinstance(event, EventEvidence)} == {1, 2, 3}


def test_evaluations_of_different_sizes_are_seen_in_settings_too() -> None:
    settings = RunSettings()
    for run, n in (("run_71", 64), ("run_72", 128)):
        script = f"python -m lab.train optim.lr=1e-5 trainer.total_epochs=3 data.val_max_samples={n}"
        event = {
            "session_id": "s",
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_response": {"ok": True},
            "tool_input": {"file_path": f"out/runs/{run}/run_train.sh", "content": script},
        }
        settings.take(parse(json.dumps(event).encode(), n), "", {"run_71", "run_72"})
    differing = settings.between("run_71", "run_72")
    assert [(name, one.text, other.text) for name, one, other in differing] == [("validation_problems", "64", "128")]


def skill_session(*tools: tuple[str, dict[str, Any]], ended: bool = True) -> View:
    """A session that works by rllm-run: these calls, then the end of the turn."""
    lines: list[dict[str, Any]] = [
        {"hook_event_name": "PostToolUse", "tool_name": "Skill", "tool_input": {"skill": "rllm-run"}}
    ]
    lines += [{"hook_event_name": "PostToolUse", "tool_name": name, "tool_input": given} for name, given in tools]
    if ended:
        lines.append({"hook_event_name": "Stop"})
    events = [
        parse(json.dumps({"session_id": "s", "tool_response": {"ok": 1}, **line}).encode(), number)
        for number, line in enumerate(lines)
    ]
    view = view_of("s", events)
    view.steps = {"rllm-run": ("start_training",), "rllm-monitor": ("monitor_run",)}
    return view


def test_a_skill_whose_tool_was_not_called_is_told() -> None:
    (found,) = skill_not_followed.detect(skill_session(("monitor_run", {}), ("Read", {"file_path": "/b"})))
    assert found.kind == "skill_not_followed"
    assert "start_training, which it declares as its step, was not called" in found.what
    assert [one.line for one in found.evidence] == [0, 2]
    assert (found.metrics[0].value, found.metrics[0].n) == (0.0, 1)


@pytest.mark.parametrize(
    "view",
    [
        skill_session(("start_training", {"request": "x"})),
        skill_session(("mcp__evo__start_training", {"request": "x"})),
        skill_session(("Bash", {"command": "mcp-evo train '64 problems'"})),
        skill_session(("monitor_run", {}), ended=False),
        skill_session(("Read", {"file_path": "/a"})),  # none of our tools: a skill of the same name, but not ours
    ],
)
def test_where_the_step_was_taken_or_may_have_been_nothing_is_told(view: View) -> None:
    assert skill_not_followed.detect(view) == []


def test_the_shipped_bank_declares_steps_that_are_tools() -> None:
    bank = SkillBank.shipped()
    declared = {tool for name in bank.skills() for tool in bank.steps(name)}
    assert {"start_training", "monitor_run", "analyze_run", "propose_patch"} <= declared
    assert declared <= {tool.__name__ for spec in all_specs() for tool in [spec.function]}
