"""A workspace folder, both protocol eras, and a worker that trains nothing, as in the tests of the server."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "server"))  # its helpers are ours, too

from server_fixtures import anyio_backend, era, fake_worker, root

__all__ = ["anyio_backend", "era", "fake_worker", "root"]
