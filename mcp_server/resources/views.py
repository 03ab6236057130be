"""What the resources hold, read from the workspace. What is not there is told by errors of the domain."""

import json
import os
from typing import TYPE_CHECKING, Any

from mcp_server.answers import clip
from mcp_server.state import LAYER_VARIABLE, ServerState
from mcp_server.views.recorded import UNTRUSTED, time_text

if TYPE_CHECKING:
    from optimizer.index.search import Hit, Page
    from trainer.runs.rundir import RunDirectory

LAYERS = ("rllm", "traj", "meta", "other")
"""As `optimizer.layers.Layer`, whose import can wait."""

MAX_METRICS_BYTES = 64 * 1024
"""Of the metrics of one run: about what a client shows of a resource."""

MAX_EVENTS = 20
"""The newest events of a layer's part of a session."""

MAX_SNIPPET = 240

MAX_DIFF = 16_000
"""Characters of a patch's difference; the folder has all of it."""


def run(state: ServerState, run_id: str) -> dict[str, Any]:
    """The document of a run and its last step. Raises RunError."""
    directory = _run(state, run_id)
    rows = directory.metrics_from(0)[0]
    return {"run": directory.read_document().model_dump(mode="json"), "last_step": rows[-1] if rows else None}


def metrics(state: ServerState, run_id: str) -> dict[str, Any]:
    """Its steps, as many as fit, the first and the last among them. Raises RunError."""
    directory = _run(state, run_id)
    document = directory.read_document()
    rows = [_short_row(row) for row in directory.metrics_from(0)[0]]
    shown = rows
    while len(shown) > 2 and len(json.dumps(shown)) > MAX_METRICS_BYTES:
        count = max(2, len(shown) // 2)
        shown = [rows[round(index * (len(rows) - 1) / (count - 1))] for index in range(count)]
    return {
        "run_id": document.run_id,
        "state": str(document.state),
        "total": len(rows),
        "omitted": len(rows) - len(shown),
        "steps": shown,
    }


def _short_row(row: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl with numbers of five significant digits."""
    return {
        key: float(f"{one:.5g}") if isinstance(one, float) else _short_row(one) if isinstance(one, dict) else one
        for key, one in row.items()
    }


def report(state: ServerState, run_id: str) -> str:
    """The closing report, or what of it can be said so far. Raises RunError."""
    from trainer.runs.report import build_report, report_lines

    return "\n".join(report_lines(build_report(_run(state, run_id), state.thresholds()))) + "\n"


def plot(state: ServerState, run_id: str) -> bytes:
    """Its curves as PNG. Raises RunError."""
    from trainer.runs.plots import curves_of
    from trainer.runs.plots_png import png_of

    return png_of([curves_of(_run(state, run_id))])


def _run(state: ServerState, run_id: str) -> "RunDirectory":
    from trainer.runs.registry import find_run
    from trainer.runs.workspace import Workspace, check_id

    return find_run(Workspace(state.root), check_id(run_id)).directory


def session(state: ServerState, session: str) -> dict[str, Any]:
    """Counts and the last event of a session. Raises BadId, SearchError."""
    name, page = _events(state, session, limit=1)
    _, failed = _events(state, session, outcome="failed", limit=1)
    last = page.hits[0] if page.hits else None
    return {
        "session": name,
        "events": page.total,
        "failed": failed.total,
        "last": None if last is None else _event(last),
        "untrusted": UNTRUSTED.replace("hits[].recorded", "last.kind"),
    }


def session_layer(state: ServerState, layer: str, session: str) -> dict[str, Any]:
    """The newest events of a session that belong to a layer. Raises BadId, SearchError, LayerError."""
    name, page = _events(state, session, layer=layer, limit=MAX_EVENTS, snippet=MAX_SNIPPET)
    _, failed = _events(state, session, layer=layer, outcome="failed", limit=1)
    return {
        "session": name,
        "layer": layer,
        "events": page.total,
        "failed": failed.total,
        "newest": [{**_event(one), "recorded": clip(one.snippet, MAX_SNIPPET)} for one in page.hits],
        "untrusted": UNTRUSTED.replace("hits[]", "newest[]"),
    }


def _events(
    state: ServerState,
    session: str,
    *,
    limit: int,
    layer: str | None = None,
    outcome: str | None = None,
    snippet: int = MAX_SNIPPET,
) -> "tuple[str, Page]":
    from optimizer.index.query import Query
    from optimizer.index.search import search

    home = state.home()
    name = home.trajectories.resolve(session)
    reader = os.environ.get(LAYER_VARIABLE) or None
    query = Query(session=name, layer=layer, outcome=outcome)
    return name, search(home.index, query, limit=limit, reader=reader, snippet=snippet)


def _event(hit: "Hit") -> dict[str, Any]:
    return {
        "line": hit.line,
        "time": None if hit.time is None else time_text(hit.time),
        "kind": hit.kind,
        "tool": hit.tool,
        "outcome": hit.outcome,
        "skill": hit.skill,
        "layer": hit.layer,
    }


def round_(state: ServerState, number: str) -> dict[str, Any]:
    """A round with the request of its evolution. Raises RoundError."""
    from optimizer.evolve import round_document
    from optimizer.round_store import RoundStore
    from optimizer.round_types import RoundError

    store = RoundStore(state.root)
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        known = ", ".join(map(str, store.numbers()[-8:])) or "none yet"
        raise RoundError(f"a round has a number, {clip(number, 40)!r} is none. There are: {known}")
    found = store.read(int(number))
    return {
        "evolution": found.evolution,
        "position": found.position,
        "request": clip(found.request, 500),
        **round_document(state.home(), found),
    }


def patch(state: ServerState, patch_id: str) -> dict[str, Any]:
    """A patch's record and difference. Raises PatchError, BadId."""
    from optimizer.ids import check_id
    from optimizer.patch_store import PatchStore

    store = PatchStore(state.root)
    record = store.read(check_id(patch_id, "patch"))
    try:
        diff = (store.folder(record.patch_id) / "patch.diff").read_text(encoding="utf-8")
    except FileNotFoundError:  # killed between record and texts
        diff = ""
    return {"patch": record.model_dump(mode="json"), "diff": diff[:MAX_DIFF]}
