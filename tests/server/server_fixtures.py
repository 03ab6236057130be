"""A workspace folder that does not exist yet, both protocol eras, and a worker that trains nothing."""

import json
from pathlib import Path

import pytest
from server_helpers import ERAS, FAKE_WORKER


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project" / ".mcp-evo"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in this process start the worker that trains nothing; no agent drives this shell."""
    monkeypatch.setenv("MCP_EVO_WORKER", json.dumps(FAKE_WORKER))
    for name in ("MCP_EVO_LAYER", "MCP_EVO_SESSION", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"):
        monkeypatch.delenv(name, raising=False)
