"""The experience benchmark: what a placebo is, what counts as reached, what is refused, what is run again."""

import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not part of the installed package

from benchmarks.common import BenchmarkError
from benchmarks.evolution import paired_interval
from benchmarks.experience import effect_text, training_table, uplift_table
from benchmarks.experience_modes import CYCLES, SAMPLES, digest_of, modes, modes_config, steps_of
from benchmarks.experience_training import (
    CREDITS,
    EIGHTH,
    HALF,
    NONE,
    OWN,
    SETTINGS,
    credit_config,
    episodes_until,
    training_config,
)
from benchmarks.experience_uplift import Shown, effect_of, fill_config, leaks_refused, placebo_for, uplift
from benchmarks.kept_runs import KeptRuns, copy_pool, finished
from trainer.envs.base import Split
from trainer.envs.house_rules import HouseRules, fixed_houses
from trainer.experience.leaks import guarded_rows
from trainer.experience.mixing import guided_rows
from trainer.experience.pool import ExperiencePool
from trainer.experience.records import Evidence, ExperienceRecord
from trainer.runs.registry import config_hash
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

MINE = Shown(house=123, text="In house 123 …", tokens=40, advice=("use x + y",))


def test_a_placebo_is_about_another_house_and_equally_long() -> None:
    others = [
        MINE,
        Shown(123, "same house", 40, ("use x * y",)),
        Shown(321, "too long", 45, ("use x * y",)),
        Shown(321, "two lessons", 40, ("use x * y", "use x - y")),
        Shown(321, "fits", 44, ("use x * y",)),
        Shown(555, "fits as well", 36, ("use x + y",)),
    ]
    drawn = {placebo_for(MINE, others, random.Random(seed)) for seed in range(50)}
    assert drawn == {others[4], others[5]}
    assert placebo_for(MINE, others[:4], random.Random(1)) is None
    assert placebo_for(MINE, others, random.Random(7)) == placebo_for(MINE, others, random.Random(7))


def test_houses_of_pairs_differ_and_those_of_old_stay() -> None:
    assert fixed_houses(4) == fixed_houses(8)[:4]
    assert fixed_houses(4, 1) != fixed_houses(4, 2) != fixed_houses(4)
    rows = HouseRules.tasks(Split.TEST, 30, 1, houses="fixed", count=4, shuffle=3)
    assert {row["house"] for row in rows} <= set(fixed_houses(4, 3))
    again = HouseRules.tasks(Split.TRAIN, 5, 1, houses="fixed", count=2)
    assert again == HouseRules.tasks(Split.TRAIN, 5, 1, houses="fixed", count=2, shuffle=0)


def test_interval_of_pairs() -> None:
    # mean 2, standard deviation 1, t(0.975; 2) = 4.302653, / sqrt(3)
    one = effect_of(paired_interval([1.0, 2.0, 3.0]), 3)
    assert one == {"effect": 2.0, "ci95": [-0.4841, 4.4841], "pairs": 3}
    assert effect_text(one) == "+2.00 (-0.48 to 4.48)"


def test_a_goal_is_reached_by_two_validations_together() -> None:
    assert episodes_until([(64, 0.1), (128, 0.7), (192, 0.2), (256, 0.6)], 0.5) is None
    assert episodes_until([(64, 0.1), (128, 0.3), (192, 0.7), (256, 0.9)], 0.5) == 192
    assert episodes_until([(64, 0.9)], 0.5) is None


def test_records_that_tell_a_test_problem_are_refused(tmp_path: Path) -> None:
    tests = HouseRules.tasks(Split.TEST, 64, 5, houses="fixed", count=4)
    guarded, open_to_all = tmp_path / "guarded.db", tmp_path / "open.db"
    with ExperiencePool(guarded, create=True) as pool:
        pool.protect(guarded_rows(tests, "run:test"))
    ExperiencePool(open_to_all, create=True).close()
    assert leaks_refused(guarded, tests) == {"offered": 128, "refused": 128}
    assert leaks_refused(open_to_all, tests)["refused"] == 0
    assert sorted(one.name for one in tmp_path.glob("*.db")) == ["guarded.db", "open.db"]


def test_a_pool_is_copied_with_what_its_log_holds(tmp_path: Path) -> None:
    with ExperiencePool(tmp_path / "a.db", create=True) as pool:
        pool.add(ExperienceRecord("In house 123, what is x @ y?", "use calculate with x + y"))
        copy_pool(tmp_path / "a.db", tmp_path / "new" / "b.db")
    with ExperiencePool(tmp_path / "new" / "b.db") as copy:
        assert [one.content for one in copy.store.iterate()] == ["use calculate with x + y"]


def test_arms_differ_in_their_experience_only() -> None:
    for setting in SETTINGS.values():
        plain = [training_config(arm, 3, setting).model_copy(update={"experience": None}) for arm in setting.arms]
        assert len({one.model_dump_json() for one in plain}) == 1
        assert (plain[0].env_args["count"], plain[0].num_generations) == (setting.houses, setting.shape[1])
        own = training_config(OWN, 3, setting).experience
        assert own is not None
        assert sum(guided_rows(own.train_rollout_mode, own.rollout_ratio, setting.shape[1], 1, 1, 0)) == 1
    names = {one.name(arm, 3) for one in SETTINGS.values() for arm in one.arms}
    assert len(names) == sum(len(one.arms) for one in SETTINGS.values())
    configs = {arm: training_config(arm, 3, SETTINGS["houses"]) for arm in SETTINGS["houses"].arms}
    assert configs[NONE].experience is None
    sections = [one for arm in (HALF, EIGHTH, OWN) if (one := configs[arm].experience) is not None]
    assert [(one.strips, one.updates, one.rollout_ratio) for one in sections] == [
        (True, False, 0.5),
        (True, False, 0.125),
        (True, True, 0.125),
    ]
    assert len({one.pool for one in sections}) == 3
    credits = [credit_config("calculator", scheme, 3) for scheme in CREDITS]
    assert len({one.model_copy(update={"step_credit": "off"}).model_dump_json() for one in credits}) == 1


def test_every_mode_is_a_configuration_with_a_pool_of_its_own() -> None:
    configs = [modes_config(mode, 1) for mode in (*CYCLES, *SAMPLES)]
    pools = [one.experience.pool for one in configs if one.experience is not None]
    assert len(set(pools)) == len(configs) == 9


def test_steps_at_which_a_pool_was_written() -> None:
    of = [Evidence("r", "4/0/1"), Evidence("other", "9/0/1"), Evidence("r", "0/2/3"), Evidence("r", "")]
    assert steps_of([ExperienceRecord("a", "b", evidence=tuple(of))], "r") == [0, 4]


def test_digest_is_that_of_the_values(tmp_path: Path) -> None:
    for name, kind, value in (("a", "float16", 0.5), ("b", "float32", 0.5), ("c", "float32", 0.25)):
        (tmp_path / name).mkdir()
        save_file({"w": np.full((2, 3), value, dtype=kind)}, tmp_path / name / "model.safetensors")
    assert digest_of(tmp_path / "a") == digest_of(tmp_path / "b") != digest_of(tmp_path / "c")


def test_what_was_finished_is_not_run_again(tmp_path: Path) -> None:
    config, other = fill_config(1), fill_config(2)
    (tmp_path / "runs").mkdir()
    directory = RunDirectory(tmp_path / "runs" / "one")
    directory.create(RunDocument(run_id="one", created_at=time.time(), config_hash=config_hash(config)), config)
    assert not finished(directory, config)
    directory.finish(RunState.FINISHED)
    assert finished(directory, config)
    assert not finished(directory, other)
    with KeptRuns(tmp_path, print) as runs:
        assert runs.run({"one": config})["one"].path == directory.path


def test_tables_show_what_was_measured() -> None:
    effect = {"effect": 0.25, "ci95": [0.125, 0.375], "pairs": 4}
    found = {
        **effect,
        "against_placebo": effect,
        "placebo_against_plain": {"effect": 0.0, "ci95": [-0.01, 0.01], "pairs": 4},
        "success": {"plain": 0.05, "guided": 0.3, "placebo": 0.05},
        "coverage": 0.5,
        "leaks": {"offered": 8, "refused": 7},
    }
    assert "| lessons against none | +0.25 (0.12 to 0.38) |" in uplift_table(found)
    assert "7 of 8" in uplift_table(found)
    arm = {"reached": 1, "of": 2, "episodes_to_goal": 512.0, "mean": 0.25, "last": 0.5}
    effects = dict.fromkeys(("episodes_to_goal", "mean", "last", "episodes_to_goal_with_filling"), effect)
    told = training_table(
        {
            "goal": 0.4,
            "episodes": 1024,
            "arms": dict.fromkeys((NONE, HALF, OWN), arm),
            "houses": 4,
            "shape": [4, 8],
            "differences": {
                HALF: effects,
                OWN: {key: one for key, one in effects.items() if key != "episodes_to_goal_with_filling"},
            },
            "filling_episodes": 900,
        }
    )
    assert "| none | 1 of 2 | 512 |  | 0.250 |" in told
    assert told.endswith("Filling took 900 episodes; counted in: half +0 (0 to 0).")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_small_measurements_end_to_end(tmp_path: Path) -> None:
    with KeptRuns(tmp_path, print) as runs:
        found = uplift(runs, (1, 2), {seed: fill_config(seed, 2, 8, 32) for seed in (1, 2)})
        rows = modes(runs, 1, max_steps=2, problems=8, test_problems=8)
    assert found["pairs"] == 2
    assert found["leaks"] == {"offered": 128, "refused": 128}
    by_mode = {row["mode"]: row for row in rows}
    assert list(by_mode) == [*CYCLES, *SAMPLES]
    assert by_mode["no_pool"]["rows"] == 0
    assert not by_mode["init_only"]["model_changed"]
    assert by_mode["init_only"]["written_at"] == [0]
    assert by_mode["existing_train"]["rows"] == by_mode["existing_train"]["rows_before"] > 0
    assert by_mode["existing_train"]["written_at"] == []
    assert by_mode["init_train_update"]["written_at"] == [0, 2]
    assert by_mode["ec"]["stripped"] == 0
    assert by_mode["ei"]["stripped"] == by_mode["ei"]["guided"]
    with pytest.raises(BenchmarkError, match="gave no result"), KeptRuns(tmp_path, print) as runs:
        runs.run({"broken": fill_config(1).model_copy(update={"data": "nowhere.jsonl"})})
