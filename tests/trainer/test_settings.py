"""Precedence, provenance, amounts, safe ranges, and errors that say what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skill_bank.policy import Assignment, CompiledPolicy, Origin
from trainer.config import ConfigError, TrainingConfig
from trainer.settings import PROFILES, parse_override, resolve

BASE = Origin("rllm-config", "sizes", "base", "rllm/rllm-config/base.md", 10)
PATCH = Origin("rllm-config", "sizes", "001-faster", "rllm/rllm-config/patches/001-faster.md", 12)


def policy(*rows: tuple[str, Any, dict[str, Any] | None, Origin]) -> CompiledPolicy:
    return CompiledPolicy("rllm-config", tuple(Assignment(*row) for row in rows))


POLICY = policy(
    ("learning_rate.default", 5e-4, {"params": "<10M"}, BASE),
    ("learning_rate.min", 1e-5, {"params": "<10M"}, BASE),
    ("learning_rate.max", 3e-3, {"params": "<10M"}, BASE),
    ("learning_rate.default", 1e-6, {"params": ">=300M"}, BASE),
    ("temperature.default", 0.9, None, BASE),
    ("epochs.default", 3, None, BASE),
    ("batch_size", 2, {"env": "lookup"}, PATCH),
    ("monitoring.window", 5, None, BASE),
)


def test_each_source_beats_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("learning_rate: 2.0e-4\ntemperature: 0.5\nbatch_size: 6\nseed: 9\n")
    resolved = resolve("lr 1e-4, seed 3", ["learning_rate=3e-4", "temperature=0.6"], file, POLICY)
    config = resolved.config
    assert (config.learning_rate, config.seed) == (1e-4, 3)  # request
    assert config.temperature == 0.6  # --set
    assert config.batch_size == 6  # file
    assert config.epochs == 3  # policy
    assert config.num_generations == 4  # default
    sources = {name: resolved.provenance[name]["source"] for name in TrainingConfig.model_fields}
    assert sources["learning_rate"] == "request"
    assert sources["temperature"] == "set"
    assert sources["batch_size"] == "config"
    assert sources["epochs"] == "policy"
    assert sources["num_generations"] == "default"
    assert resolved.provenance["learning_rate"]["detail"] == "lr 1e-4"
    assert resolved.provenance["batch_size"]["detail"] == str(file)


def test_policy_says_which_patch_set_a_value_and_depends_on_the_model() -> None:
    small = resolve("tiny lookup agent", policy=POLICY)
    assert small.config.learning_rate == 5e-4
    assert small.config.batch_size == 2
    assert small.provenance["batch_size"]["patch"] == "001-faster"
    assert small.provenance["learning_rate"]["when"] == {"params": "<10M"}
    large = resolve("qwen-0.5b", policy=POLICY)
    assert large.config.learning_rate == 1e-6
    assert large.config.batch_size == 4
    assert large.context["params"] == 494_032_768


def test_an_agents_overrides_are_told_from_a_persons() -> None:
    resolved = resolve(overrides={"learning_rate": 1e-4}, override_source="override")
    assert resolved.provenance["learning_rate"]["source"] == "override"


@pytest.mark.parametrize(
    ("request_text", "overrides", "expected"),
    [
        ("tiny", [], (3.0, None, None)),  # policy's amount
        ("100 steps", [], (None, 100, None)),  # beats policy's epochs altogether
        ("2 epochs", [], (2.0, None, None)),
        ("512 episodes", [], (None, None, 512)),
        ("tiny", ["max_steps=7"], (None, 7, None)),
        ("2 epochs", ["max_steps=7"], (2.0, 7, None)),  # both were asked for on the command line: the smaller one holds
        ("quick test", [], (None, 10, None)),
    ],
)
def test_amounts_go_together(
    request_text: str, overrides: list[str], expected: tuple[float | None, int | None, int | None]
) -> None:
    config = resolve(request_text, overrides, policy=POLICY).config
    assert (config.epochs, config.max_steps, config.max_episodes) == expected


def test_the_command_lines_amount_replaces_the_files(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("epochs: 2\n")
    config = resolve("100 steps", config_file=file).config
    assert (config.epochs, config.max_steps, config.planned_steps) == (None, 100, 100)
    assert resolve("tiny", config_file=file, policy=POLICY).config.epochs == 2


def test_a_value_outside_the_safe_range_is_used_and_warned_about() -> None:
    resolved = resolve("tiny, lr 9e-3", policy=POLICY)
    assert resolved.config.learning_rate == 9e-3
    (warning,) = resolved.warnings
    for part in ("learning_rate", "0.009", "1e-05", "0.003", "tiny"):
        assert part in warning
    assert resolve("tiny, lr 1e-3", policy=POLICY).warnings == ()


def test_words_that_were_not_understood_become_warnings() -> None:
    resolved = resolve("train tiny on purple elephants")
    assert [span.text for span in resolved.unknown] == ["purple elephants"]
    assert any("purple elephants" in warning for warning in resolved.warnings)


def test_the_original_profile_replaces_defaults_and_the_base_but_not_patches() -> None:
    plain = resolve("tiny", profile="original").config
    for name, value in PROFILES["original"].items():
        assert getattr(plain, name) == value
    patched = resolve(
        "tiny",
        policy=policy(("learning_rate.default", 2e-4, None, PATCH), ("temperature.default", 0.9, None, BASE)),
        profile="original",
    )
    assert patched.config.learning_rate == 2e-4
    assert patched.config.temperature == 0.7
    assert patched.provenance["temperature"]["detail"] == "profile original"
    assert resolve("tiny, temperature 1.2", profile="original").config.temperature == 1.2


def test_a_policy_compiled_with_the_profile_is_taken_as_it_is() -> None:
    compiled = CompiledPolicy("rllm-config", (Assignment("temperature.default", 0.65, None, BASE),), profile="original")
    assert resolve("tiny", policy=compiled, profile="original").config.temperature == 0.65


@pytest.mark.parametrize(
    ("kwargs", "parts"),
    [
        ({"request": "reward >= 90"}, ["target_reward", "90", "reward >= 90", "at most 1", "0.9", "90%"]),
        ({"overrides": ["learningrate=3"]}, ["learningrate", "learning_rate", "--set"]),
        ({"overrides": ["learning_rate=5"]}, ["learning_rate 5", "at most 1", "--set"]),
        ({"overrides": ["num_generations=1"]}, ["num_generations 1", "at least 2"]),
        ({"overrides": ["difficulty=mixd"]}, ["mixd", "simple | mixed | hard", "Did you mean mixed"]),
        ({"overrides": ["lora=maybe"]}, ["lora", "maybe", "true or false or null"]),
        ({"overrides": ["seed"]}, ["key=value"]),
        ({"overrides": ["seed=1", "seed=2"]}, ["seed is set twice", "1", "2"]),
        ({"request": "batch 8, 4 problems"}, ["batch_size 8", "(4)", "batch_size <= 4", "problems >= 8"]),
        ({"overrides": ["max_episodes=3"]}, ["max_episodes 3", "4 problems x num_generations 4 = 16", "at least 16"]),
        ({"request": "qwen-9b"}, ["unknown model 'qwen-9b'", "tiny"]),
        ({"overrides": ["env=calculater"]}, ["calculater", "Did you mean calculator", "python:module:Class"]),
        ({"overrides": ["env=python:x"]}, ["python:module:Class"]),
        ({"overrides": ["data=/no/such/file.jsonl"]}, ["/no/such/file.jsonl", "no file"]),
        ({"config_file": Path("/no/such.yaml")}, ["/no/such.yaml", "no such file"]),
        ({"profile": "orginal"}, ["orginal", "Did you mean original"]),
        ({"overrides": ["model=3"]}, ["model", "3"]),
    ],
)
def test_bad_input_is_one_clear_error(kwargs: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(**kwargs)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("learning_rat: 1\n", "Did you mean learning_rate"),
        ("- 1\n", "must hold `key: value` lines"),
        ("a: [1\n", "not valid YAML"),
        ("learning_rate: fast\n", "learning_rate 'fast'"),
        ("\x00", "not valid YAML"),
    ],
)
def test_a_bad_config_file_is_named(tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        resolve(config_file=file)
    assert part in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_empty_config_file_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("# nothing yet\n")
    assert resolve(config_file=file).config == TrainingConfig()


def test_a_batch_that_nobody_asked_for_fits_a_small_training_set() -> None:
    resolved = resolve("2 problems")
    assert resolved.config.batch_size == 2
    assert any("batch_size lowered from 4 to 2" in warning for warning in resolved.warnings)


def test_paths_are_stored_absolute_and_relative_to_where_they_were_written(tmp_path: Path) -> None:
    beside = tmp_path / "project"
    beside.mkdir()
    (beside / "tasks.jsonl").write_text("".join(f'{{"prompt": "q{i}"}}\n' for i in range(5)))
    (beside / "mine").mkdir()
    (beside / "mine" / "config.json").write_text("{}")
    file = beside / "c.yaml"
    file.write_text("data: tasks.jsonl\nenv: 'python:my_env:MyEnv'\nmodel: mine\n")
    config = resolve(config_file=file, folder=tmp_path).config
    assert config.data == str(beside / "tasks.jsonl")
    assert config.folder == str(beside)
    assert config.model == str(beside / "mine")
    spoken = resolve("env=python:my_env:MyEnv", folder=tmp_path).config
    assert spoken.folder == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a=0.5", ("a", 0.5)),
        ("a=true", ("a", True)),
        ("a=null", ("a", None)),
        ("a=", ("a", "")),
        ("a=b=c", ("a", "b=c")),
        ("--max-steps=3", ("max_steps", 3)),
        ("a=[1, 2]", ("a", [1, 2])),
    ],
)
def test_overrides_are_yaml(text: str, expected: tuple[str, Any]) -> None:
    assert parse_override(text) == expected


def test_dotted_overrides_reach_into_mappings() -> None:
    overrides = ["env=house_rules", "env_args.count=2", "env_args.houses=fixed", "columns.prompt=question"]
    config = resolve(overrides=overrides).config
    assert config.env_args == {"count": 2, "houses": "fixed"}
    assert config.columns == {"prompt": "question"}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "learning_rate": st.floats(1e-8, 1e-1),
            "batch_size": st.integers(1, 64),
            "num_generations": st.integers(2, 64),
            "temperature": st.floats(0.1, 2.0),
            "max_steps": st.integers(1, 10_000),
            "seed": st.integers(0, 2**31 - 1),
            "loss_type": st.sampled_from(["grpo", "dapo", "dr_grpo", "bnpo"]),
            "lora": st.sampled_from([True, False, None]),
        },
    )
)
@settings(max_examples=60, deadline=None)
def test_set_config_and_mapping_say_the_same(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    file = tmp_path_factory.mktemp("c") / "c.yaml"
    file.write_text(yaml.safe_dump(values))
    texts = [f"{name}={yaml.safe_dump(value).splitlines()[0]}" for name, value in values.items()]
    by_file, by_set, by_mapping = resolve(config_file=file), resolve(overrides=texts), resolve(overrides=values)
    assert by_file.config == by_set.config == by_mapping.config == TrainingConfig.model_validate(values)
    again = TrainingConfig.model_validate(by_set.config.model_dump(mode="json"))
    assert again == by_set.config


def test_a_misspelt_environment_is_refused_not_replaced_by_another() -> None:
    with pytest.raises(ConfigError, match=r'"house_ruls" in the request is no environment. Did you mean house_rules'):
        resolve("train tiny on house_ruls, 16 problems")


def test_a_setting_that_the_request_overrules_is_said() -> None:
    resolved = resolve("tiny calculator, seed 1", ["seed=2"])
    assert resolved.config.seed == 1
    assert "set seed=2 has no effect: the request says 1" in resolved.warnings
