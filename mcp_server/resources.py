"""Resources that change while one looks: a run and a recorded session, as JSON. `notifying` tells when to read anew."""

import json
import os
from typing import Any

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from mcp_server.answers import visible
from mcp_server.recorded import time_text
from mcp_server.state import LAYER_VARIABLE, ServerState
from mcp_server.tooling import is_domain_error

JSON = "application/json"


def add_resources(server: MCPServer[Any], state: ServerState) -> None:
    """Registers the templates. Reading one that is not there is a clear error and creates nothing."""

    @server.resource("evo://runs/{run_id}", name="run", title="Training run", mime_type=JSON)
    async def run(run_id: str) -> str:
        """State, verdict and the last step of a run."""
        return await _read(state, _run, run_id)

    @server.resource("evo://trajectories/{session}", name="session", title="Recorded session", mime_type=JSON)
    async def session(session: str) -> str:
        """How many events a session has, how many failed, and the last one; search_trajectories shows them."""
        return await _read(state, _session, session)


async def _read(state: ServerState, what: Any, name: str) -> str:
    if not state.exists:
        raise ResourceNotFoundError("there is no workspace yet; the first tool call makes one")
    try:
        return json.dumps(visible(await anyio.to_thread.run_sync(what, state, name)), ensure_ascii=False)
    except Exception as error:
        if not is_domain_error(error):
            raise
        raise ResourceError(str(error)) from error


def _run(state: ServerState, run_id: str) -> dict[str, Any]:
    from trainer.runs.registry import find_run
    from trainer.runs.workspace import Workspace, check_id

    directory = find_run(Workspace(state.root), check_id(run_id)).directory
    rows = directory.metrics_from(0)[0]
    return {"run": directory.read_document().model_dump(mode="json"), "last_step": rows[-1] if rows else None}


def _session(state: ServerState, session: str) -> dict[str, Any]:
    from optimizer.index.query import Query
    from optimizer.index.search import search

    home = state.home()
    name = home.trajectories.resolve(session)
    reader = os.environ.get(LAYER_VARIABLE) or None
    page = search(home.index, Query(session=name), limit=1, reader=reader)
    failed = search(home.index, Query(session=name, outcome="failed"), limit=1, reader=reader)
    last = page.hits[0] if page.hits else None
    return {
        "session": name,
        "events": page.total,
        "failed": failed.total,
        "last": None
        if last is None
        else {
            "line": last.line,
            "time": None if last.time is None else time_text(last.time),
            "kind": last.kind,
            "tool": last.tool,
            "outcome": last.outcome,
            "skill": last.skill,
            "layer": last.layer,
        },
    }
