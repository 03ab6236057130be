"""Trackers: refused where they are not installed, kept from costing a run, and their keys from everybody else."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer import reporting
from trainer.config import ConfigError, TrainingConfig
from trainer.runs.processes import child_environment
from trainer.settings import resolve

FAKE_WANDB = """
import json, os
run = None
config = type("Config", (dict,), {"update": lambda self, values, **_: None})()
def _write(**line):
    with open(os.environ["FAKE_TRACKER_LOG"], "a") as stream:
        stream.write(json.dumps(line) + "\\n")
class Run:
    name = id = "r"
    summary = {}
    url = ""
    def _label(self, **_): pass
def init(**arguments):
    global run
    if os.environ.get("FAKE_TRACKER_DOWN"):
        raise ConnectionError("no route to api.wandb.ai")
    run = Run()
    _write(init={k: v for k, v in arguments.items() if isinstance(v, str)}, mode=os.environ["WANDB_MODE"])
def finish():
    _write(finish=True)
def log(values, **_):
    _write(log={k: v for k, v in values.items() if isinstance(v, (int, float))})
"""


def test_names_are_read_as_people_write_them() -> None:
    assert TrainingConfig(report_to="wandb").report_to == ("wandb",)  # type: ignore[arg-type]
    assert TrainingConfig(report_to="wandb, trackio").report_to == ("wandb", "trackio")  # type: ignore[arg-type]
    assert TrainingConfig(report_to=["trackio"]).report_to == ("trackio",)  # type: ignore[arg-type]
    assert TrainingConfig(report_to="none").report_to == ()  # type: ignore[arg-type]
    assert TrainingConfig.model_validate(TrainingConfig(report_to=("wandb",)).model_dump(mode="json")).report_to == (
        "wandb",
    )
    with pytest.raises(ConfigError, match=r"tensorboard \| wandb \| trackio.*Did you mean wandb"):
        resolve(overrides={"report_to": "wand"})


@pytest.mark.parametrize("text", ["tiny, log to wandb", "tiny, report_to=wandb", "用 tiny 训练，记录到 wandb"])
def test_a_request_may_name_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("WANDB_API_KEY", "k")
    found = resolve(text)
    assert found.config.report_to == ("wandb",)
    assert found.unknown == ()


def test_one_that_is_not_installed_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install trackio"):
        resolve(overrides={"report_to": "trackio"})
    assert resolve(overrides={"report_to": "tensorboard"}).warnings == ()


def test_wandb_without_a_key_is_recorded_offline_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    config = TrainingConfig(report_to=("wandb",))
    bare = {"HOME": str(tmp_path)}
    assert "wandb sync" in reporting.check_trackers(config, bare)[0]
    assert reporting.wandb_mode({**bare, "WANDB_API_KEY": "k"}) == "online"
    assert reporting.wandb_mode({**bare, "WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}) == "disabled"
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert reporting.wandb_mode(bare) == "online"
    assert reporting.wandb_mode({**bare, "WANDB_BASE_URL": "https://wandb.example.org"}) == "offline"


def test_keys_reach_only_runs_that_report() -> None:
    parent = {"WANDB_API_KEY": "secret", "TRACKIO_SPACE_ID": "me/space", "HF_TOKEN": "hub"}
    plain, wandb, trackio = (TrainingConfig(report_to=names) for names in ((), ("wandb",), ("trackio",)))
    assert not set(parent) & set(child_environment(parent, more=reporting.variables(plain)))
    assert set(parent) & set(child_environment(parent, more=reporting.variables(wandb))) == {"WANDB_API_KEY"}
    assert set(parent) & set(child_environment(parent, more=reporting.variables(trackio))) == {"TRACKIO_SPACE_ID"}
    assert reporting.needs_hub_token(parent, trackio)
    assert not reporting.needs_hub_token({}, trackio)
    assert not reporting.needs_hub_token(parent, wandb)


@pytest.fixture
def tracked_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """tracked_run() trains two steps with a package `wandb` of ours and returns (run directory, what it was told)."""
    from test_worker import create

    from trainer.session import Session

    package = tmp_path / "packages" / "wandb"
    (package / "sdk" / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_WANDB)
    (package / "sdk" / "lib" / "config_util.py").write_text("class ConfigError(Exception): pass\n")
    log = tmp_path / "told.jsonl"
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("FAKE_TRACKER_LOG", str(log))
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR", "WANDB_INIT_TIMEOUT", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)  # both: what the worker sets is taken back at the end
    monkeypatch.setenv("HOME", str(tmp_path))

    def run() -> Any:
        directory = create(tmp_path, report_to=["wandb"], max_steps=2)
        session = Session(directory)
        session.run()
        session.conclude()
        return directory, [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    yield run
    for name in [one for one in sys.modules if one.partition(".")[0] == "wandb"]:
        del sys.modules[name]


def test_wandb_gets_trls_numbers_and_ours(tracked_run: Any) -> None:
    directory, told = tracked_run()
    assert told[0] == {"init": {"project": "mcp-evo", "name": "r1"}, "mode": "offline"}
    assert os.environ["WANDB_DIR"] == str(directory.path)
    assert told[-1] == {"finish": True}
    steps = {line["log"]["train/global_step"]: line["log"] for line in reversed(told[1:-1])}
    rows = {row["step"]: row for row in directory.metrics()}
    for step in (1, 2):
        assert steps[step]["train/episodes/reward_mean"] == pytest.approx(rows[step]["reward_mean"])
        assert steps[step]["train/loss"] == pytest.approx(rows[step]["loss"])
    validated = next(one["eval"]["mean"] for one in directory.events() if one["kind"] == "validation")
    assert steps[2]["train/success/validation"] == pytest.approx(validated)


def test_no_network_costs_the_curves_and_not_the_run(tracked_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TRACKER_DOWN", "1")
    directory, told = tracked_run()
    assert told == [{"finish": True}]
    assert directory.read_document().state == "finished"
    assert len(directory.metrics()) == 2
    warnings = [one["text"] for one in directory.events() if one["kind"] == "warning"]
    assert len(warnings) == 1, warnings
    assert "wandb failed at the start and is left out: ConnectionError: no route" in warnings[0]


def test_tensorboard_curves_are_there_without_being_asked_for(tmp_path: Path) -> None:
    from test_worker import create

    from trainer.session import Session

    directory = create(tmp_path, max_steps=2)
    session = Session(directory)
    session.run()
    session.conclude()
    files = list((directory.path / "tensorboard").iterdir())
    assert len(files) == 1
    data = files[0].read_bytes()
    for tag in (b"train/reward_mean", b"seconds/generate", b"success/validation"):
        assert tag in data
    assert len(data) <= 2 * directory.metrics_path.stat().st_size
