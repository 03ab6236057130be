"""A run by its parts: levels, shifts and epochs worked out by hand, and no shift where there is none."""

import json
import math
import random
from typing import Any

import pytest
from run_helpers import MakeRun

from trainer.config import TrainingConfig
from trainer.runs.report import build_report, report_lines, run_json
from trainer.runs.review import Attempts, ShiftKind, review
from trainer.runs.review_files import review_of
from trainer.runs.samples import sample_episodes


def rows(values: dict[str, list[float]]) -> list[dict[str, Any]]:
    length = len(next(iter(values.values())))
    return [{"step": at + 1, **{name: series[at] for name, series in values.items()}} for at in range(length)]


def test_quarters_by_hand() -> None:
    found = review(rows({"reward_mean": [0.0, 0.2, 0.4, 0.4, 0.5, 0.7, 0.8, 1.0]}), [(2, 0.1), (3, 0.3), (4, 0.35)])
    assert [(one.name, one.first_step, one.last_step) for one in found.quarters] == [
        ("quarter 1", 1, 2),
        ("quarter 2", 3, 4),
        ("quarter 3", 5, 6),
        ("quarter 4", 7, 8),
    ]
    first = found.quarters[0].levels["reward_mean"]
    assert first.mean == pytest.approx(0.1)
    assert first.error == pytest.approx(0.1)  # values 0 and 0.2: deviation sqrt(0.02), divided by sqrt(2)
    assert [one.validation for one in found.quarters] == [0.1, 0.35, None, None]
    assert "entropy" not in found.quarters[0].levels  # missing is never zero
    assert found.epochs == ()
    assert found.shifts == ()


def test_a_run_of_seven_steps_has_no_quarters() -> None:
    assert review(rows({"reward_mean": [0.5] * 7})).quarters == ()


def test_epochs_are_passes_over_the_problems() -> None:
    found = review(rows({"reward_mean": [0.1] * 5 + [0.3] * 5 + [0.5] * 2}), steps_per_epoch=5)
    assert [(one.name, one.first_step, one.last_step) for one in found.epochs] == [
        ("epoch 1", 1, 5),
        ("epoch 2", 6, 10),
        ("epoch 3", 11, 12),
    ]
    assert found.epochs[2].levels["reward_mean"].mean == pytest.approx(0.5)
    assert review(rows({"reward_mean": [0.1] * 5}), steps_per_epoch=5).epochs == ()


def test_forgetting_is_told_with_its_size() -> None:
    wave = [0.01, -0.01]
    series = [0.2 + wave[at % 2] for at in range(8)] + [0.8 + wave[at % 2] for at in range(16)]
    series += [0.5 + wave[at % 2] for at in range(8)]
    (shift,) = review(rows({"reward_mean": series})).shifts
    assert shift.kind is ShiftKind.FORGETTING
    assert (round(shift.before, 6), round(shift.after, 6)) == (0.8, 0.5)
    # deviation of +-0.01 over 8 values: sqrt(8 * 1e-4 / 7) / sqrt(8) = 0.00378; two such parts: 0.00535
    assert shift.error == pytest.approx(math.sqrt(2 * 1e-4 / 7))
    assert "0.80 in quarter 2 to 0.50" in shift.sentence


def test_form_and_length_drift_by_direction() -> None:
    steady = {"reward_mean": [0.5] * 16}
    worse = review(rows({**steady, "parse_ok_rate": [1.0] * 12 + [0.7] * 4})).shifts
    better = review(rows({**steady, "truncated_rate": [0.3] * 4 + [0.0] * 12})).shifts
    longer = review(rows({**steady, "completion_mean": [50.0] * 4 + [60.0] * 8 + [80.0] * 4})).shifts
    assert [one.kind for one in worse] == [ShiftKind.FORMAT_DRIFT]
    assert "calls that can be read went 1.00 → 0.70" in worse[0].sentence
    assert [one.kind for one in better] == [ShiftKind.FORMAT_LEARNED]
    assert [one.kind for one in longer] == [ShiftKind.LENGTH_DRIFT]
    assert "× 1.60" in longer[0].sentence
    assert review(rows({**steady, "parse_ok_rate": [1.0] * 12 + [0.97] * 4})).shifts == ()  # too small to matter


def test_noise_alone_shifts_seldom() -> None:
    """400 runs of 32 steps without any change; seven measures of 2.7 standard errors each, with 14 degrees of freedom
    (t instead of normal: 1.7 % each), one fall from the best of three."""
    source = random.Random(5)
    alarms = 0
    for _ in range(400):
        names = ("reward_mean", "parse_ok_rate", "tool_call_rate", "finish_rate", "truncated_rate", "repetition_rate")
        series = {name: [source.gauss(0.5, 0.1) for _ in range(32)] for name in names}
        alarms += bool(review(rows(series)).shifts)
    assert alarms <= 0.2 * 400


def test_epochs_paired_by_problem() -> None:
    """Problems 0 to 3, epoch 1 then 2: 1 → 0, 0 → 1, 0.5 → 0.75, 1 → 1; mean change 0.0625, deviations by hand."""
    before, after = [1.0, 0.0, 0.5, 1.0], [0.0, 1.0, 0.75, 1.0]
    attempts = [Attempts(at, 0, f"problem {at}", reward) for at, reward in enumerate(before)]
    attempts += [Attempts(at, 1, f"problem {at}", reward) for at, reward in enumerate(after)]
    attempts += [Attempts(9, 1, "only once", 1.0)]
    (found,) = review([], attempts=attempts).revisits
    changes = [-1.0, 1.0, 0.25, 0.0]
    variance = sum((one - 0.0625) ** 2 for one in changes) / 3
    assert (found.first, found.second, found.problems, found.learned) == (1, 2, 4, 1)
    assert found.forgotten == ("problem 0",)
    assert found.difference == pytest.approx(0.0625)
    assert found.error == pytest.approx(math.sqrt(variance / 4))
    assert "1 learned, 1 known problem(s) lost" in found.sentence


def line(task: int, occurrence: int, reward: float, group: int = 0, **more: Any) -> dict[str, Any]:
    conversation = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": f"problem {task}"},
        {"role": "assistant", "content": more.pop("text", "done")},
    ]
    plain = {"task": task, "occurrence": occurrence, "reward": reward, "group": group, "messages": conversation}
    usual = {"prompt": f"problem {task}", "stop_reason": "finished", "turns": 2, "tool_calls": 1, "valid": True}
    return plain | usual | {"completion_ids": [1] * 20} | more


def write(directory: Any, step: int, lines: list[dict[str, Any]]) -> None:
    directory.episodes_folder.mkdir(exist_ok=True)
    directory.episode_path(step).write_text("".join(json.dumps({"step": step, **one}) + "\n" for one in lines))


def test_a_run_directory_is_reviewed_with_its_episodes(make_run: MakeRun) -> None:
    directory = make_run("epochs")
    config = TrainingConfig(problems=8, batch_size=1, epochs=2)
    directory.config_path.write_text(config.model_dump_json())
    for step in range(1, 17):
        epoch, task = divmod(step - 1, 8)
        directory.append_metrics({"step": step, "reward_mean": 0.5, "parse_ok_rate": 1.0})
        write(directory, step, [line(task, epoch, float(epoch)), line(task, epoch, float(epoch), valid=False)])
    found = review_of(directory)
    assert [one.name for one in found.epochs] == ["epoch 1", "epoch 2"]
    (pair,) = found.revisits
    assert (pair.problems, pair.difference, pair.error, pair.learned) == (8, 1.0, 0.0, 8)
    text = "\n".join(report_lines(build_report(directory)))
    assert "quarter 4, 13–16" in text
    assert "Epoch 1 to 2, 8 problems met in both: reward +1.00" in text
    document = run_json(directory)["review"]
    assert document["quarters"][0]["levels"]["reward_mean"] == [0.5, 0.0]
    assert document["revisits"][0]["learned"] == 8


ODD: list[tuple[dict[str, Any], str]] = [
    ({"reward": 1.0, "tool_calls": 0}, "odd: rewarded without a tool call"),
    ({"reward": 1.0, "stop_reason": "max_tokens"}, "odd: rewarded although it ended by max_tokens"),
    ({"reward": 1.0, "parse_errors": 2}, "odd: rewarded in spite of 2 unreadable call(s)"),
    ({"reward": 1.0, "completion_ids": [1] * 200}, "odd: 200 tokens where 21 are usual"),
    ({"reward": 0.0}, "odd: the only failure of its group"),
]


@pytest.mark.parametrize(("how", "label"), ODD, ids=[one[1] for one in ODD])
def test_the_odd_one_is_found_and_says_why(make_run: MakeRun, how: dict[str, Any], label: str) -> None:
    directory = make_run("odd")
    tokens = iter([19, 21, 20, 18, 22, 20, 19, 21])  # best (18) and worst (19) left out, the median is 21
    usual = [
        line(1, 0, float(at < 6), group=at // 6, completion_ids=[1] * next(tokens), text=f"no. {at}") for at in range(8)
    ]
    strange = line(2, 0, 1.0, group=0, text="strange")
    write(directory, 1, [*usual, strange | how])
    samples = {one.label: one for one in sample_episodes(directory)}
    assert set(samples) == {"best", "worst", label}
    assert samples[label].messages[-1] == ("assistant", "strange")
    assert samples["best"].reward == 1.0
    assert samples["worst"].reward == 0.0


def test_samples_of_a_run_where_all_is_alike(make_run: MakeRun) -> None:
    directory = make_run("alike")
    assert sample_episodes(directory) == []
    write(directory, 1, [line(0, 0, 0.0) for _ in range(4)])
    assert [one.label for one in sample_episodes(directory)] == ["best"]
    write(directory, 9, [line(0, 0, 1.0) for _ in range(4)])
    assert [one.label for one in sample_episodes(directory)] == ["a failure at the start", "best"]
