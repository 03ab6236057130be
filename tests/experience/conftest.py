"""A pool of its own for each test; the in-memory client of the server's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.experience.pool import ExperiencePool

sys.path.append(str(Path(__file__).parents[1] / "server"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ExperiencePool]:
    with ExperiencePool(tmp_path / "lessons.db", create=True) as one:
        yield one
