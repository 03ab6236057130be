"""A workspace, and launcher and trial workers that run the fake worker."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.home import Home
from optimizer.patch_store import PatchRecord
from optimizer.round_types import Answer
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher

# A test run in the background may inherit an ignored SIGINT, and would hand it on to the commands it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

FAKE_WORKER = (sys.executable, "-P", str(Path(__file__).parent.parent / "support" / "fake_worker.py"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "workspace")


@pytest.fixture
def launcher() -> LocalLauncher:
    return LocalLauncher(command=FAKE_WORKER)


@pytest.fixture
def runners() -> Callable[[Path, bool], PooledArms]:
    return lambda folder, tokens: PooledArms(folder, command=FAKE_WORKER, tokens=tokens)


def say_yes(record: PatchRecord, folder: Path) -> Answer:
    return Answer("approve", "unattended")


def say_no(record: PatchRecord, folder: Path) -> Answer:
    return Answer("reject", "terminal", "I do not trust it")


def say_later(record: PatchRecord, folder: Path) -> Answer:
    return Answer("later", "terminal")


def spoil(home: Home, key: str, value: float, kind: str = "") -> None:
    """Puts a bad value into the base of the live bank, as a bad default would stand there."""
    base = home.bank.root / "rllm" / "rllm-config" / "base.md"
    rule = (
        f"{key}:\n  - {{when: {{params: '<10M'}}, default: {value}, min: {min(value, 1e-6)}, max: {max(value, 3e-3)}}}"
    )
    if key != "learning_rate":
        rule = f"{key}:\n  - {{when: {{params: '<10M'}}, default: {value}, min: {value}}}"
    text = base.read_text()
    base.write_text(text.replace("<!-- /section:sizes -->", f"\n```yaml policy\n{rule}\n```\n<!-- /section:sizes -->"))
    home.bank.compile("rllm-config")
