"""The `experience:` section: the published block, presets, what is unused or contradictory, drawn shares."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import ConfigError, TrainingConfig
from trainer.experience.manager import PRESETS, ExperienceConfig, RolloutMode, SampleMode
from trainer.experience.mixing import guided_rows, guided_share, kept_tasks
from trainer.settings import resolve

EXAMPLE = Path(__file__).parents[2] / "examples" / "experience.yaml"

ARTICLE = """
exp_manager:
  val_rollout_mode: woexp
  train_rollout_mode: mixed
  rollout_ratio: 0.5
  train_sample_mode: alldiscard
  init_exp_before_training: True
  reme:
    base_url: http://127.0.0.1:8001
    workspace_id: default
    enable_summarizer: True
    enable_context_generator: True
    retrieve_top_k: 3
"""

PUBLISHED = """
exp_manager:
  val_rollout_mode: "woexp"
  train_rollout_mode: "mixed"
  rollout_ratio: 0.5
  train_sample_mode: "alldiscard"
  train_sample_keepratio: 0.0
  experience_template: "\\n\\nSome Related Experience to help you to complete the task:<EXP>{}</EXP>\\n\\n"
  init_exp_before_training: True
  init_exp_only: False
  summary_batch_size: 8
  reme:
    base_url: "http://127.0.0.1:8001"
    workspace_id: "houses"
    enable_summarizer: True
    enable_context_generator: True
    retrieve_top_k: 3
    updated_freq: 0
    off_cliprange_high: 1.0
"""


@pytest.mark.parametrize(("text", "pool", "high"), [(ARTICLE, "default", 0.6), (PUBLISHED, "houses", 1.0)])
def test_the_published_block_loads_unchanged(tmp_path: Path, text: str, pool: str, high: float) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    config = resolve(config_file=path).config
    found = config.experience
    assert found is not None
    assert (found.train_rollout_mode, found.val_rollout_mode) == (RolloutMode.MIXED, RolloutMode.WOEXP)
    assert (found.rollout_ratio, found.train_sample_mode, found.retrieve_top_k) == (0.5, SampleMode.ALLDISCARD, 3)
    assert found.init_exp_before_training
    assert found.enable_summarizer
    assert found.enable_context_generator
    assert (found.reme_url, found.pool, found.off_clip_high) == ("http://127.0.0.1:8001", pool, high)
    assert TrainingConfig.model_validate_json(config.model_dump_json()) == config


def test_the_example_resolves_without_a_service() -> None:
    found = resolve(config_file=EXAMPLE)
    assert found.config.experience is not None
    assert found.config.experience.reme_url is None
    assert found.config.learns_from_experience
    assert not found.unknown


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_together_and_survive_a_file(name: str) -> None:
    config = TrainingConfig.model_validate({"experience": name})
    assert config.experience is not None
    assert config.experience.active == (name != "no_pool")
    assert TrainingConfig.model_validate_json(config.model_dump_json()) == config


def test_the_six_life_cycles_by_their_published_switches() -> None:
    """(updated_freq, init_exp_only, init_exp_before_training, enable_context_generator); -1: any but 0."""
    table = {
        "no_pool": (0, False, False, False),
        "init_only": (0, True, True, False),
        "init_train": (0, False, True, True),
        "init_train_update": (-1, False, True, True),
        "existing_train": (0, False, False, True),
        "existing_train_update": (-1, False, False, True),
    }
    for name, (frequency, only, init, generator) in table.items():
        one = ExperienceConfig.model_validate({"preset": name})
        assert (one.init_exp_only, one.init_exp_before_training, one.enable_context_generator) == (
            only,
            init,
            generator,
        ), name
        assert (one.updated_freq != 0) == (frequency != 0), name
        assert one.updates == (frequency != 0), name


@pytest.mark.parametrize(("size", "few", "half"), [(2, 1, 1), (4, 1, 2), (8, 1, 4), (16, 2, 8), (32, 4, 16)])
def test_presets_show_lessons_to_few_and_the_published_ones_to_half(size: int, few: int, half: int) -> None:
    for name in PRESETS:
        one = ExperienceConfig.model_validate({"preset": name})
        found = sum(guided_rows(one.train_rollout_mode, one.rollout_ratio, size, 1, 0, 0))
        if name in ("ec", "ei", "het"):
            assert found == half, name
        elif name == "all":
            assert found == size - 1
        else:
            assert found == (0 if name in ("no_pool", "init_only") else few), name


def test_off_is_no_section_at_all() -> None:
    for value in (False, "off", None, {"preset": "off"}):
        assert TrainingConfig.model_validate({"experience": value}) == TrainingConfig()


BASE: dict[str, Any] = {"train_rollout_mode": "mixed", "rollout_ratio": 0.5, "enable_context_generator": True}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"rollout_ratio": 0.5}, ["rollout_ratio 0.5", "train_rollout_mode woexp"]),
        ({"train_rollout_mode": "mixed"}, ["enable_context_generator", "train_rollout_mode mixed"]),
        (BASE | {"updated_freq": 3}, ["updated_freq 3", "enable_summarizer"]),
        (BASE | {"enable_summarizer": True}, ["enable_summarizer", "updated_freq 0"]),
        (BASE | {"train_sample_keepratio": 0.3}, ["train_sample_keepratio 0.3", "hybrid"]),
        (BASE | {"init_exp_only": True}, ["init_exp_only", "init_exp_before_training"]),
        (BASE | {"train_sample_mode": "allkeep", "off_clip_high": 0.9}, ["off_clip_high 0.9"]),
        (BASE | {"off_clip_high": 2.5}, ["off_dual_clip 3", "3.5"]),
        (BASE | {"init_deadline_s": 5.0}, ["init_deadline_s"]),
        (BASE | {"reme": {"enable_context_generator": False}}, ["enable_context_generator", "twice"]),
        (BASE | {"experience_template": "Use {}"}, ["experience_template"]),
        ({"enable_context_generator": True}, ["enable_context_generator", "woexp"]),
        ({"val_rollout_mode": "all"}, ["val_rollout_mode all", "enable_context_generator"]),
        ({"preset": "ec", "train_sample_mode": "hybrid"}, ["train_sample_mode 'hybrid'", "preset ec"]),
        ({"preset": "init_trian"}, ["init_trian", "init_train"]),
        ({"preset": "mixed", "retrieve_topk": 3}, ["retrieve_topk", "retrieve_top_k"]),
    ],
)
def test_unused_and_contradictory_keys_are_errors_that_name_them(
    tmp_path: Path, section: dict[str, Any], words: list[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"experience": section}))
    with pytest.raises(ConfigError) as caught:
        resolve(config_file=path)
    for word in words:
        assert word in str(caught.value)


def test_a_command_line_changes_one_key_of_a_file() -> None:
    found = resolve(config_file=EXAMPLE, overrides=["experience.rollout_ratio=0.25"]).config.experience
    assert found is not None
    assert (found.rollout_ratio, found.train_rollout_mode, found.pool) == (0.25, RolloutMode.MIXED, "default")
    assert resolve("without experience", config_file=EXAMPLE).config.experience is None


@pytest.mark.parametrize("loss", ["gspo", "cispo"])
def test_losses_without_a_clip_range_of_tokens_are_refused_for_stripped_rows(loss: str) -> None:
    with pytest.raises(ConfigError, match=loss):
        resolve(overrides=[f"loss_type={loss}", "experience=ei"])
    assert resolve(overrides=[f"loss_type={loss}", "experience=ec"]).config.experience is not None


@given(st.integers(2, 32), st.floats(0, 1), st.integers(0, 99), st.integers(0, 99))
def test_a_group_always_keeps_a_control(size: int, ratio: float, seed: int, task: int) -> None:
    rows = guided_rows(RolloutMode.MIXED, ratio, size, seed, task, 0)
    assert sum(rows) == (min(max(round(size * ratio), 1), size - 1) if ratio else 0)
    assert rows == guided_rows(RolloutMode.MIXED, ratio, size, seed, task, 0)
    assert sum(guided_rows(RolloutMode.ALL, 0.0, size, seed, task, 0)) == size - 1
    assert not any(guided_rows(RolloutMode.WOEXP, 1.0, size, seed, task, 0))


def test_tasks_are_kept_by_share_and_drawn_anew_for_each_step() -> None:
    assert kept_tasks(SampleMode.ALLDISCARD, 1.0, 8, 1, 1) == frozenset()
    assert kept_tasks(SampleMode.ALLKEEP, 0.0, 8, 1, 1) == frozenset(range(8))
    drawn = [kept_tasks(SampleMode.HYBRID, 0.4, 8, 1, step) for step in range(20)]
    assert {len(one) for one in drawn} == {3}  # int(8 · 0.4)
    assert len(set(drawn)) > 5
    assert len(guided_share(RolloutMode.MIXED, 0.25, 32, 1)) == 8
