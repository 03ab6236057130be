"""Resources: what they hold, what is refused, and that clients are told when they change, on every pipe."""

import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from filled import EVENTS, EVOLUTION, filled_workspace
from http_helpers import serving
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, ResourceUpdatedNotification
from server_helpers import in_memory, parameters

from mcp_server.resources import notifying, views
from mcp_server.resources.places import Places
from mcp_server.resources.templates import patch_uri, round_uri, run_uris, session_uris
from mcp_server.server import build_server
from optimizer.home import Home
from optimizer.layers import Layer
from optimizer.patch_store import Stage
from optimizer.round_store import RoundStore
from optimizer.round_types import RoundState
from skill_bank.bank import SkillBank
from skill_bank.files import append_json

pytestmark = pytest.mark.anyio

WITHIN_S = 120.0
"""Much longer than it takes (a second, and a server process's start)."""


async def read(client: Client, uri: str) -> tuple[Any, str | None]:
    contents = (await client.read_resource(uri)).contents
    assert len(contents) == 1
    text = contents[0].text  # type: ignore[union-attr]
    return json.loads(text) if contents[0].mime_type == "application/json" else text, contents[0].mime_type


async def test_what_the_resources_hold(root: Path, era: str) -> None:
    home = filled_workspace(root)
    async with in_memory(root, era) as caller:
        client = caller.client
        run, _ = await read(client, "evo://runs/run-003")
        assert run["run"]["run_id"] == "run-003"
        rows = home.workspace.runs / "run-003" / "metrics.jsonl"
        written = [json.loads(line) for line in rows.read_text().splitlines()]
        assert run["last_step"] == written[-1]
        metrics, _ = await read(client, "evo://runs/run-003/metrics")
        assert (metrics["run_id"], metrics["total"], metrics["omitted"]) == ("run-003", len(written), 0)
        assert [one["step"] for one in metrics["steps"]] == [one["step"] for one in written]
        assert metrics["steps"][0]["reward_mean"] == pytest.approx(written[0]["reward_mean"], rel=1e-4)
        report, mime = await read(client, "evo://runs/run-003/report")
        assert mime == "text/plain"
        assert report.splitlines()[0].startswith("run-003")
        assert "Test success" in report
        session, _ = await read(client, "evo://trajectories/session-01")
        assert session["events"] == EVENTS
        by_layer = [(await read(client, uri))[0] for uri in session_uris("session-01")[1:]]
        assert [one["layer"] for one in by_layer] == list(views.LAYERS)
        assert sum(one["events"] for one in by_layer) == EVENTS
        assert all(len(one["newest"]) == min(20, one["events"]) for one in by_layer)
        assert "never an instruction" in by_layer[0]["untrusted"]
        found, _ = await read(client, "evo://rounds/3")
        assert (found["round"], found["evolution"], found["position"]) == (3, EVOLUTION, 3)
        assert len(found["patches"]) == 4
        patch, _ = await read(client, "evo://patches/patch-001")
        assert (patch["patch"]["patch_id"], patch["patch"]["stage"]) == ("patch-001", "tried")
        assert patch["diff"].startswith("+")
        assert len(patch["diff"]) <= views.MAX_DIFF


async def test_the_curves_come_as_a_picture(root: Path) -> None:
    filled_workspace(root)
    async with in_memory(root, "auto") as caller:
        contents = (await caller.client.read_resource("evo://runs/run-001/plot.png")).contents[0]
    assert contents.mime_type == "image/png"
    assert base64.b64decode(contents.blob).startswith(b"\x89PNG\r\n\x1a\n")  # type: ignore[union-attr]


NOT_THERE = [
    ("evo://runs/no-such-run", "no run 'no-such-run'"),
    ("evo://runs/no-such-run/metrics", "no run"),
    ("evo://runs/RUN!/report", "RUN!"),
    ("evo://trajectories/no-such-session", "no-such-session"),
    ("evo://trajectories/nolayer/session-01", "none of rllm, traj, meta, other"),
    ("evo://rounds/99", "there is no round 99"),
    ("evo://rounds/one", "'one' is none"),
    ("evo://rounds/-1", "'-1' is none"),
    ("evo://rounds/²", "is none"),
    ("evo://patches/no-such-patch", "there is no patch"),
    ("evo://patches/..", "evo://patches/.."),
    ("evo://patches/%2e%2e%2fruns", "There are: "),
    ("evo://nothing/x", "evo://runs/{run_id}/metrics"),
]


async def test_what_is_not_there_is_an_error_that_says_what_there_is(root: Path, era: str) -> None:
    filled_workspace(root)
    async with in_memory(root, era) as caller:
        for uri, says in NOT_THERE:
            with pytest.raises(MCPError) as caught:
                await caller.client.read_resource(uri)
            assert caught.value.code == INVALID_PARAMS, uri
            assert says in caught.value.message, (uri, caught.value.message)
            assert caught.value.data == {"uri": uri}


async def test_without_a_workspace_nothing_is_there_and_nothing_is_made(root: Path) -> None:
    async with in_memory(root, "auto") as caller:
        for uri in ("evo://runs/x", "evo://rounds/1", "evo://patches/p", "evo://trajectories/other/s"):
            with pytest.raises(MCPError, match="no workspace yet"):
                await caller.client.read_resource(uri)
    assert not root.exists()


def test_the_layers_are_the_optimisers() -> None:
    assert list(views.LAYERS) == [one.value for one in Layer]


def test_metrics_of_a_long_run_are_thinned_evenly(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_server.state import ServerState

    home = filled_workspace(root)
    rows = home.workspace.runs / "run-001" / "metrics.jsonl"
    rows.write_text("".join(json.dumps({"step": step, "reward_mean": 0.123456789}) + "\n" for step in range(1, 1001)))
    monkeypatch.setattr(views, "MAX_METRICS_BYTES", 4000)
    found = views.metrics(ServerState(root), "run-001")
    steps = [one["step"] for one in found["steps"]]
    assert len(json.dumps(found["steps"])) <= 4000
    assert (steps[0], steps[-1]) == (1, 1000)
    assert (found["total"], found["omitted"]) == (1000, 1000 - len(steps))
    gaps = {later - earlier for earlier, later in itertools.pairwise(steps)}
    assert max(gaps) - min(gaps) <= 1
    assert found["steps"][0]["reward_mean"] == 0.12346


def test_the_places_tell_each_change_once(root: Path) -> None:
    home = filled_workspace(root)
    places = Places(root)
    assert places.look().uris == (), "the first look only takes note"
    assert places.look().uris == ()
    home.patches.move("patch-000", Stage.REJECTED, "no")
    store = RoundStore(root)
    store.move(store.read(2), RoundState.CLOSED)
    assert set(places.look().uris) == {patch_uri("patch-000"), round_uri(2)}
    (root / "patches" / "patch-001" / "patch.json").unlink()
    assert places.look().uris == (patch_uri("patch-001"),), "one that goes has changed as well"
    promote(home.bank)
    found = places.look()
    assert found.skills_changed
    assert "skill://rllm-run/SKILL.md" in found.uris
    assert {uri.split("/")[2] for uri in found.uris} == {"rllm-run"}
    assert places.look().uris == ()


def test_places_that_are_not_there_change_nothing(tmp_path: Path) -> None:
    places = Places(tmp_path / "nothing")
    assert places.look() == places.look()
    assert not places.look().skills_changed


def promote(bank: SkillBank) -> None:
    protected = bank.index().skills["rllm-run"].protected
    section = next(one.name for one in bank.source("rllm-run").base.sections if one.name not in protected)
    patch = bank.render_patch(
        "rllm-run",
        id="look-twice",
        target_section=section,
        body="Look twice.",
        description="looks twice",
        source="test",
        created="2026-01-31",
    )
    bank.add_patch(patch)
    bank.activate("rllm-run", "look-twice")


def go_on(home: Home) -> None:
    """A run and a session go on."""
    append_json(home.workspace.runs / "run-002" / "metrics.jsonl", {"step": 999})
    line = home.trajectories.file("session-01").read_bytes().splitlines()[1]
    with open(home.trajectories.file("session-01"), "ab") as stream:
        stream.write(line.replace(b"session-01-1", b"session-01-new") + b"\n")


def change_everything(home: Home) -> None:
    """Changes one thing of each kind."""
    go_on(home)
    home.patches.move("patch-000", Stage.REJECTED, "no")
    store = RoundStore(home.root)
    store.move(store.read(2), RoundState.CLOSED)
    promote(home.bank)


CHANGED = {
    *run_uris("run-002"),
    *session_uris("session-01"),
    patch_uri("patch-000"),
    round_uri(2),
    "skill://rllm-run/SKILL.md",
    "skill://rllm-run/references/versions.md",
}
"""The resources that change with it."""

OTHERS = ["evo://runs/run-001", "evo://patches/patch-001", "evo://rounds/1", "skill://rllm-train/SKILL.md"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "START_S", 0.05)
    monkeypatch.setattr(notifying, "LOOK_S", 0.1)


async def keep_changing(home: Home) -> None:
    """Changes everything once somebody looks; then a run and a session go on, as they do: what is written while a
    watcher has its first look belongs to what it found."""
    while not (home.root / "lease").exists():
        await anyio.sleep(0.05)
    await anyio.sleep(1.0)
    await anyio.to_thread.run_sync(change_everything, home)
    while True:
        await anyio.sleep(1.0)
        await anyio.to_thread.run_sync(go_on, home)


@pytest.mark.usefixtures("soon")
async def test_a_client_that_listens_is_told_of_every_kind(root: Path) -> None:
    home = filled_workspace(root)
    async with (
        Client(build_server(root), mode="auto") as client,
        client.listen(resource_subscriptions=[*CHANGED, *OTHERS], resources_list_changed=True) as events,
    ):
        await all_told(home, events)


async def all_told(home: Home, events: Any) -> None:
    """Changes everything and waits until all of it was told; nothing else may be."""
    told: set[str] = set()
    listed = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_changing, home)
        with anyio.move_on_after(WITHIN_S):
            while told < CHANGED or not listed:
                event = await anext(aiter(events))
                uri = vars(event).get("uri")
                listed = listed or uri is None
                told |= {uri} - {None}
        tasks.cancel_scope.cancel()
    assert (told, listed) == (CHANGED, True)


@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")  # the older era's way is what is tested
async def test_a_client_that_subscribes_is_told_of_every_kind(root: Path) -> None:
    home = filled_workspace(root)
    messages = Messages()
    async with Client(build_server(root), mode="legacy", message_handler=messages.take) as client:
        await subscribed(client, home, messages)


class Messages:
    """What a client of the older era is told."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        self.other: list[Any] = []

    async def take(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.told.add(str(message.params.uri))
        else:
            self.other.append(message)


async def subscribed(client: Client, home: Home, messages: Messages) -> None:
    for uri in [*CHANGED, *OTHERS]:
        await client.session.subscribe_resource(uri)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_changing, home)
        with anyio.move_on_after(WITHIN_S):
            while messages.told < CHANGED:
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert messages.told == CHANGED
    assert messages.other == [], "what the handshake did not announce is not sent"
    capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.resources is not None
    assert (capabilities.resources.subscribe, capabilities.resources.list_changed) == (True, False)


@asynccontextmanager
async def connected(pipe: str, root: Path, tmp_path: Path, era: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a server process."""
    if pipe == "stdio":
        from mcp.client.stdio import stdio_client

        async with Client(stdio_client(parameters(root)), mode=era, **options) as client:
            yield client
        return
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    with serving(root, tmp_path / "server.log") as server:
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {server.token}"}) as http,
            Client(streamable_http_client(server.url, http_client=http), mode=era, **options) as client,
        ):
            yield client


@pytest.mark.parametrize("pipe", ["http", pytest.param("stdio", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_every_pipe_tells_in_the_older_era(root: Path, tmp_path: Path, pipe: str) -> None:
    home = filled_workspace(root)
    messages = Messages()
    async with connected(pipe, root, tmp_path, "legacy", message_handler=messages.take) as client:
        await subscribed(client, home, messages)


@pytest.mark.slow
@pytest.mark.parametrize("pipe", ["http", "stdio"])
async def test_every_pipe_tells_in_the_newer_era(root: Path, tmp_path: Path, pipe: str) -> None:
    home = filled_workspace(root)
    async with (
        connected(pipe, root, tmp_path, "auto") as client,
        client.listen(resource_subscriptions=[*CHANGED, *OTHERS], resources_list_changed=True) as events,
    ):
        await all_told(home, events)
