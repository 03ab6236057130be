"""Where real sessions lie, for tests that check against them; they are no part of the product."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent

CORPUS = Path(os.environ.get("MCP_EVO_CORPUS") or REPOSITORY.parent / "shared" / "corpus")

MADE_UP = REPOSITORY / "tests" / "data" / "trajectories"

MISSING = f"no corpus of real sessions at {CORPUS}: set MCP_EVO_CORPUS to its folder"


def files(pattern: str) -> list[Path]:
    """Files of the corpus; none where it is absent."""
    return sorted(CORPUS.glob(pattern)) if CORPUS.is_dir() else []
