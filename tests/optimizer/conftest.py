"""A workspace, and launcher and trial workers that run the fake worker."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.home import Home
from optimizer.patch_store import PatchRecord
from optimizer.round_types import Answer
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher

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
