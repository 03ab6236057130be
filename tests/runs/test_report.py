"""The closing report: every part it must have, from a run directory as a worker leaves it."""

import json

from run_helpers import MakeRun

from trainer.runs.launch import LocalLauncher, wait
from trainer.runs.report import build_report, eval_line, headline, report_lines, run_json
from trainer.runs.rundir import RunDirectory
from trainer.runs.samples import own_conversation
from trainer.runs.types import Eval, Failure, RunState, Verdict
from trainer.runs.workspace import Workspace


def episode(reward: float, text: str) -> dict[str, object]:
    return {
        "step": 1,
        "reward": reward,
        "stop_reason": "finished",
        "messages": [
            {"role": "system", "content": "Solve the task."},
            {"role": "user", "content": "What is 2 + 3?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"type": "function", "function": {"name": "calculate", "arguments": {"expression": text}}}
                ],
            },
            {"role": "tool", "name": "calculate", "content": "5"},
            {"role": "assistant", "content": "x" * 1000},
        ],
    }


def write_episodes(directory: RunDirectory, step: int, *rewards: float) -> None:
    directory.episodes_folder.mkdir(exist_ok=True)
    lines = [json.dumps(episode(reward, f"2+3 step {step}")) for reward in rewards]
    directory.episode_path(step).write_text("\n".join(lines) + "\n")


def test_a_finished_run(workspace: Workspace, launcher: LocalLauncher, make_run: MakeRun) -> None:
    directory = make_run("done", steps=8)
    write_episodes(directory, 1, 0.0, 1.0)
    write_episodes(directory, 8, 1.0, 0.0)
    directory.append_event("validation", step=5, eval={"mean": 0.75, "n": 64})
    directory.append_event("warning", text="experience: 8 of 8 attempts were played without")
    launcher.tick(workspace)
    wait(workspace, directory, launcher=launcher, timeout_s=30)
    report = build_report(directory)
    assert "  experience: 8 of 8 attempts were played without" in report_lines(report)
    assert [step for step, _ in report.reward] == list(range(1, 9))
    assert report.validation == ((5, 0.75),)
    assert [sample.label for sample in report.samples] == [
        "a failure at the start",
        "best",
        "worst",
    ]
    assert set(report.files) == {"run", "metrics", "episodes", "log"}
    text = "\n".join(report_lines(report, width=100))
    for part in (
        "done: finished, goal reached",
        "Mean training reward by step",
        "before  0.350 [0.270, 0.430] n=128",
        "after   0.950",
        "best validation 0.750 at step 5",
        "It learned: test success 0.35 → 0.95",
        "generate 60%, update 40%",
        "calculate(expression='2+3 step 1')",
        str(directory.path),
    ):
        assert part in text
    assert "Solve the task." not in text
    assert max(len(line) for line in text.split("\n")) < 420


def test_a_failed_run_shows_its_class_and_the_end_of_its_log(make_run: MakeRun) -> None:
    directory = make_run("bad")
    failure = Failure(
        kind="killed", message="the worker was killed (SIGKILL).", exit_code=-9, log_tail=["loading", "step 3"]
    )
    directory.finish(RunState.FAILED, failure=failure)
    lines = report_lines(build_report(directory))
    assert lines[0] == "bad: failed (killed): the worker was killed (SIGKILL)."
    assert lines[lines.index("Last lines of worker.log") + 1 :][:2] == ["  loading", "  step 3"]


def test_a_run_that_has_not_begun_has_a_report_too(make_run: MakeRun) -> None:
    report = build_report(make_run("new"))
    assert report.reward == ()
    assert report.samples == ()
    assert report_lines(report)[0] == "new: queued"


def test_the_split_of_a_test_result_leaves_out_what_was_not_measured() -> None:
    result = Eval(split="test", n=100, mean=0.5, ci95=(0.404, 0.596), parse_ok_rate=0.9, correct_given_valid_call=0.55)
    assert eval_line(result) == "0.500 [0.404, 0.596] n=100   (calls parsed 0.90, correct given a valid call 0.55)"


def test_headlines_for_every_end(make_run: MakeRun) -> None:
    stopped = make_run("s")
    stopped.finish(RunState.STOPPED, stop_reason="anomaly")
    assert headline(stopped.read_document()) == "s: stopped (anomaly)"
    finished = make_run("f")
    finished.finish(RunState.FINISHED, verdict=Verdict.GOAL_MISSED)
    assert headline(finished.read_document()) == "f: finished, goal missed"


def test_the_json_of_a_run_is_its_document_with_more(make_run: MakeRun) -> None:
    directory = make_run("j")
    directory.append_metrics({"step": 1, "reward_mean": 0.5})
    document = run_json(directory)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["run_id"] == "j"
    assert document["state"] == "queued"
    assert document["config"]["model"] == "tiny"
    assert document["findings"][0]["kind"] == "inconclusive"
    directory.config_path.unlink()
    assert "config.json" in run_json(directory)["report_error"]


def test_a_sample_begins_with_its_question_not_with_worked_examples() -> None:
    turns = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "What is 2 + 3?\n\nThe room is dark."},
        {"role": "assistant", "content": "5"},
    ]
    assert own_conversation(turns, "What is 2 + 3?") == turns[3:]
    assert own_conversation(turns, None) == turns
    assert own_conversation(turns, "What is 9 + 9?") == turns
