"""`mcp-evo init`: what it writes is valid, complete and trains as it stands."""

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_server.cli.init import GROUPS, config_text, tasks_text
from trainer.config import TrainingConfig
from trainer.settings import resolve


def test_three_files_and_a_workspace(quick_cli: Any) -> None:
    done = quick_cli.run("init", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["files"] == ["config.yaml", "my_env.py", "tasks.jsonl"]
    for name in document["files"]:
        assert (quick_cli.folder / name).is_file()
    assert (quick_cli.workspace / ".gitignore").read_text() == "*\n"
    assert "train --config config.yaml" in document["next"]


def test_nothing_is_overwritten_without_force(quick_cli: Any) -> None:
    (quick_cli.folder / "my_env.py").write_text("mine")
    done = quick_cli.run("init")
    assert done.returncode == 1
    assert "my_env.py" in done.stderr
    assert not (quick_cli.folder / "config.yaml").exists()
    assert (quick_cli.folder / "my_env.py").read_text() == "mine"
    assert quick_cli.run("init", "--force").returncode == 0
    assert "class MyEnv" in (quick_cli.folder / "my_env.py").read_text()


def test_the_configuration_resolves_and_its_comments_are_true(quick_cli: Any) -> None:
    quick_cli.run("init", "own")
    file = quick_cli.folder / "own" / "config.yaml"
    config = resolve(config_file=file).config
    assert config.env == "python:my_env:MyEnv"
    assert config.folder == str(quick_cli.folder / "own")
    assert config.data == str(quick_cli.folder / "own" / "tasks.jsonl")
    uncommented = [line.removeprefix("# ") if _is_setting(line) else line for line in config_text().splitlines()]
    every = yaml.safe_load("\n".join(uncommented))
    assert set(every) == {name for _, names in GROUPS for name in names}
    defaults = TrainingConfig().model_dump(mode="json")
    for name, value in every.items():
        if name not in ("env", "data", "max_steps", "target_reward"):
            assert value == defaults[name], name


def _is_setting(line: str) -> bool:
    name, colon, _ = line.removeprefix("# ").partition(":")
    return line.startswith("# ") and bool(colon) and name in TrainingConfig.model_fields


def test_the_tasks_are_different_and_their_answers_right() -> None:
    rows = [json.loads(line) for line in tasks_text().splitlines()]
    assert len({row["prompt"] for row in rows}) == len(rows) >= 100
    module = load_environment()
    for row in rows:
        expression = row["prompt"].removeprefix("What is ").removesuffix("?")
        assert str(eval(expression, {"__builtins__": {}})) == row["answer"]
        assert str(module.value_of(expression)) == row["answer"]


def load_environment() -> Any:
    path = Path(__file__).parents[2] / "mcp_server" / "cli" / "templates" / "my_env.py"
    spec = importlib.util.spec_from_file_location("written_env", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_environment_grades_and_refuses_what_is_no_arithmetic() -> None:
    module = load_environment()

    def play(*calls: tuple[str, str], answer: str = "7") -> float:
        environment = module.MyEnv()
        environment.reset(answer=answer, anything="else")
        for name, argument in calls:
            getattr(environment, name)(argument)
        return float(environment.get_reward())

    assert play(("calculate", "3+4"), ("finish", "7")) == 1.0
    assert play(("calculate", "1+1"), ("calculate", "3+4"), ("finish", " 7 ")) == 0.9
    assert play(("finish", "8")) == 0.0
    assert play(("calculate", "3+4")) == 0.0
    for text in ("__import__('os')", "2**9", "a", "1.5", "(1)", ""):
        if text == "(1)":
            assert module.value_of(text) == 1
        else:
            with pytest.raises((ValueError, SyntaxError)):
                module.value_of(text)


def test_the_environment_meets_the_contract() -> None:
    from trainer.envs.base import EnvironmentSpec

    spec = EnvironmentSpec.of("my_env", load_environment().MyEnv)
    assert spec.tools == ("calculate", "finish")
    assert ast.parse((Path(__file__).parents[2] / "mcp_server/cli/templates/my_env.py").read_text())
