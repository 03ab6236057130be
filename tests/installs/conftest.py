"""The programs of npm are fetched by what the conformance tests use."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "conformance"))
