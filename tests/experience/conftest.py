"""A pool of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.experience.pool import ExperiencePool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ExperiencePool]:
    with ExperiencePool(tmp_path / "lessons.db", create=True) as one:
        yield one
