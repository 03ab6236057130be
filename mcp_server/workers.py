"""Which command is a worker."""

import json
import os
from typing import Any

from trainer.runs.errors import RunError

WORKER_VARIABLE = "MCP_EVO_WORKER"
"""Replaces the worker's command line (a JSON list): for tests and for workers in containers."""


def worker_override() -> tuple[str, ...]:
    """The worker's command where `MCP_EVO_WORKER` replaces it. Raises RunError for anything but a list."""
    text = os.environ.get(WORKER_VARIABLE)
    if not text:
        return ()
    try:
        parts: Any = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        raise RunError(
            f'${WORKER_VARIABLE} must be a JSON list of texts such as ["python", "-P", "-m", "trainer.worker"].'
        )
    return tuple(parts)
