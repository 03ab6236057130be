"""The fixtures of tests that talk to the server."""

from server_fixtures import anyio_backend, era, fake_worker, root

__all__ = ["anyio_backend", "era", "fake_worker", "root"]
