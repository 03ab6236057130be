"""Resources `evo://…`: runs, sessions, rounds and patches to be read, and told of when they change (`notifying`).

Reading one creates nothing; one that is not there is an error that names those there are. What stands in recorded
sessions and in patches comes from anywhere: it is marked, capped, and holds no character that a reader cannot see.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from mcp_server.resources import views
from mcp_server.state import ServerState
from mcp_server.tooling import is_domain_error
from skill_bank.visible import visible

JSON = "application/json"

T = TypeVar("T")


def run_uris(run_id: str) -> list[str]:
    """The resources of a run; all of them change with it."""
    return [f"evo://runs/{run_id}{part}" for part in ("", "/metrics", "/report", "/plot.png")]


def session_uris(session: str) -> list[str]:
    """The resources of a recorded session; all of them change with it."""
    layers = views.LAYERS
    return [f"evo://trajectories/{session}", *(f"evo://trajectories/{layer}/{session}" for layer in layers)]


def round_uri(number: int) -> str:
    """The resource of a round."""
    return f"evo://rounds/{number}"


def patch_uri(patch_id: str) -> str:
    """The resource of a patch."""
    return f"evo://patches/{patch_id}"


def add_resources(server: MCPServer[Any], state: ServerState) -> None:
    """Registers the templates."""

    @server.resource("evo://runs/{run_id}", name="run", title="Training run", mime_type=JSON)
    async def run(run_id: str) -> str:
        """State, verdict and the last step of a run."""
        return await _read_json(state, views.run, run_id)

    @server.resource("evo://runs/{run_id}/metrics", name="run-metrics", title="Metrics of a run", mime_type=JSON)
    async def metrics(run_id: str) -> str:
        """Every metric of a run by step; of a long run, steps evenly spread."""
        return await _read_json(state, views.metrics, run_id)

    @server.resource("evo://runs/{run_id}/report", name="run-report", title="Report of a run", mime_type="text/plain")
    async def report(run_id: str) -> str:
        """What a run was, what came out of it, what held it back, single episodes, where its files are."""
        return visible_lines(await _read(state, views.report, run_id))

    @server.resource("evo://runs/{run_id}/plot.png", name="run-plot", title="Curves of a run", mime_type="image/png")
    async def plot(run_id: str) -> bytes:
        """Reward, validation and losses of a run as a picture."""
        return await _read(state, views.plot, run_id)

    @server.resource("evo://trajectories/{session}", name="session", title="Recorded session", mime_type=JSON)
    async def session(session: str) -> str:
        """How many events a session has, how many failed, and the last one; search_trajectories shows them."""
        return await _read_json(state, views.session, session)

    @server.resource(
        "evo://trajectories/{layer}/{session}",
        name="session-layer",
        title="A layer's part of a session",
        mime_type=JSON,
    )
    async def layer(layer: str, session: str) -> str:
        """The newest events of a session that belong to a layer (rllm, traj, meta, other)."""
        return await _read_json(state, views.session_layer, layer, session)

    @server.resource("evo://rounds/{number}", name="round", title="Improvement round", mime_type=JSON)
    async def round_(number: str) -> str:
        """A round: its run with test success before and after, findings, patches with their verdicts."""
        return await _read_json(state, views.round_, number)

    @server.resource("evo://patches/{patch_id}", name="patch", title="Patch of a skill", mime_type=JSON)
    async def patch(patch_id: str) -> str:
        """A patch: its stage, finding, changes, verdict and difference."""
        return await _read_json(state, views.patch, patch_id)


async def _read_json(state: ServerState, what: Callable[..., dict[str, Any]], *names: str) -> str:
    return json.dumps(visible(await _read(state, what, *names)), ensure_ascii=False)


async def _read(state: ServerState, what: Callable[..., T], *names: str) -> T:
    if not state.exists:
        raise ResourceNotFoundError("there is no workspace yet; the first tool call makes one")
    try:
        return await anyio.to_thread.run_sync(what, state, *names)
    except Exception as error:
        if not is_domain_error(error):
            raise
        raise ResourceNotFoundError(str(error)) from error


def visible_lines(text: str) -> str:
    """A text of several lines without characters that a reader cannot see."""
    return str(visible(text))
