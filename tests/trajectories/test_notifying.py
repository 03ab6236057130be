"""Clients of both protocol eras are told when a run or a session changes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from index_helpers import append, fresh_home, hook_line
from mcp import Client, MCPError
from mcp_types import ResourceUpdatedNotification

from mcp_server.resources import notifying
from mcp_server.server import build_server
from optimizer.home import Home
from skill_bank.files import write_json_atomic

pytestmark = pytest.mark.anyio

WITHIN_S = 15.0
"""Much longer than it takes (half a second)."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(notifying, "START_S", 0.05)
    return fresh_home(tmp_path / "workspace")


async def test_a_client_that_listens(home: Home) -> None:
    wanted = ["evo://trajectories/a", "evo://runs/run-1"]
    async with (
        Client(build_server(home.root), mode="auto") as client,
        client.listen(resource_subscriptions=wanted) as events,
    ):
        with anyio.fail_after(WITHIN_S):
            await _until_watching(home)
            append(home.trajectories, "other", hook_line("other"))
            append(home.trajectories, "a", hook_line("a"))
            assert (await anext(aiter(events))).uri == "evo://trajectories/a"  # type: ignore[union-attr]
            folder = home.workspace.runs / "run-1"
            folder.mkdir()
            (folder / "metrics.jsonl").write_text('{"step": 1}\n')
            while (await anext(aiter(events))).uri != "evo://runs/run-1":  # type: ignore[union-attr]
                pass


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")  # the older era's way is what is tested
async def test_a_client_that_subscribes(home: Home) -> None:
    told: list[str] = []

    async def take(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            told.append(str(message.params.uri))

    async with Client(build_server(home.root), mode="legacy", message_handler=take) as client:
        await client.session.subscribe_resource("evo://trajectories/a")
        await client.session.subscribe_resource("evo://trajectories/a")
        await client.session.subscribe_resource("evo://trajectories/b")
        await client.session.unsubscribe_resource("evo://trajectories/b")
        with anyio.fail_after(WITHIN_S):
            await _until_watching(home)
            for name in ("b", "a"):
                append(home.trajectories, name, hook_line(name))
            while not told:
                await anyio.sleep(0.05)
        await anyio.sleep(0.3)
        assert set(told) == {"evo://trajectories/a"}, "only what was asked for"
        assert len(told) <= 2, "twice subscribed is once subscribed"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_what_changed_can_be_read(home: Home, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCP_EVO_LAYER", raising=False)
    append(home.trajectories, "a", hook_line("a"), hook_line("a", tool_response="Error: Exit code 1"))
    folder = home.workspace.runs / "run-1"
    folder.mkdir()
    document = {"run_id": "run-1", "state": "finished", "created_at": 1.0, "ended_at": 2.0}
    write_json_atomic(folder / "run.json", document)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    async with Client(build_server(home.root), mode=mode) as client:

        async def read(uri: str) -> dict[str, Any]:
            result = await client.read_resource(uri)
            return json.loads(result.contents[0].text)  # type: ignore[union-attr, no-any-return]

        seen = await read("evo://trajectories/a")
        assert (seen["events"], seen["failed"], seen["last"]["line"]) == (2, 1, 1)
        run = await read("evo://runs/run-1")
        assert (run["run"]["state"], run["last_step"]) == ("finished", {"step": 2})
        for uri in ("evo://runs/nothing", "evo://trajectories/..", "evo://trajectories/%2e%2e%2fraw", "evo://runs/A!"):
            with pytest.raises(MCPError):
                await read(uri)
        monkeypatch.setenv("MCP_EVO_LAYER", "traj")
        assert (await read("evo://trajectories/a"))["events"] == 0, "no segment of the layer below is in it"


async def _until_watching(home: Home) -> None:
    """The watcher holds the lease and has had its first look."""
    while not (home.root / "lease").exists() or not home.index.path.exists():
        await anyio.sleep(0.05)
    await anyio.sleep(0.3)


async def test_a_workspace_that_comes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "START_S", 0.05)
    monkeypatch.setattr(notifying, "RETRY_S", 0.1)
    root = tmp_path / "later"
    async with Client(build_server(root), mode="auto"):
        await anyio.sleep(0.3)
        assert not root.exists(), "watching creates nothing"
        home = fresh_home(root)
        with anyio.fail_after(WITHIN_S):
            await _until_watching(home)


def test_the_watcher_is_not_imported_by_the_first_question() -> None:
    code = "import sys, mcp_server.server; sys.exit(any(one.startswith('optimizer') for one in sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
