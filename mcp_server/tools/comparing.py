"""The tool that puts runs side by side, and shows their curves as an image when asked."""

import base64
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from mcp_types import CallToolResult, ImageContent
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.state import ServerState
from mcp_server.tooling import ToolSpec
from mcp_server.tools.training import EvoContext, state_of

if TYPE_CHECKING:
    from trainer.runs.compare import RunComparison

MAX_FIELDS = 20
"""Differing fields in one answer."""


class Measured(Part):
    """A number of a run with its meaning."""

    run_id: str
    name: str
    metric: str
    split: str
    origin: str
    n: int
    mean: float
    ci95: tuple[float, float] | None = None


class Tested(Part):
    """A run against the first one."""

    run_id: str
    say: str
    difference: float
    ci95: tuple[float, float]
    test: str
    p_adjusted: float
    verdict: str


class CompareAnswer(Answer):
    """Runs side by side."""

    elastic = ("notes", "config", "measures", "differences")

    runs: list[str]
    verdict: str
    config: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Differing field: run: value.")
    measures: list[Measured] = Field(default_factory=list, description="Only those of one origin compare.")
    differences: list[Tested] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


async def compare_runs(
    ctx: EvoContext,
    runs: Annotated[list[str], Field(min_length=1, max_length=12, description="Ids; the first is the base.")],
    image: Annotated[bool, Field(description="Also curves as PNG; one run is enough.")] = False,
) -> Annotated[CallToolResult, CompareAnswer]:
    """Use to say which of several runs gave the better model: differing settings, measures with intervals, test of
    success. A training mean is never compared with a held-out rate."""
    found, png = await anyio.to_thread.run_sync(_compare, state_of(ctx), runs, image)
    result = answer(found.verdict, _answer(found))
    if png is not None:
        result.content.append(ImageContent(type="image", data=base64.b64encode(png).decode(), mime_type="image/png"))
    return result


def _compare(state: ServerState, names: list[str], image: bool) -> "tuple[RunComparison, bytes | None]":
    from trainer.runs.compare import RunComparison, measures_of
    from trainer.runs.compare import compare_runs as compare
    from trainer.runs.plots import curves_of
    from trainer.runs.plots_png import png_of
    from trainer.runs.registry import find_run
    from trainer.runs.workspace import Workspace

    workspace = Workspace(state.root)
    runs = [find_run(workspace, name) for name in names]
    png = png_of([curves_of(run.directory) for run in runs]) if image else None
    if len(runs) == 1 and image:
        document = runs[0].document
        alone = RunComparison(
            runs=[document.run_id],
            states={document.run_id: str(document.state)},
            config=[],
            measures=measures_of(runs[0]),
            differences=[],
            notes=[],
            verdict=f"Curves of {document.run_id}.",
        )
        return alone, png
    return compare(runs), png


def _answer(found: "RunComparison") -> CompareAnswer:
    return CompareAnswer(
        runs=found.runs,
        verdict=found.verdict,
        config={one.field: one.values for one in found.config[:MAX_FIELDS]},
        measures=[
            Measured(
                run_id=one.run_id,
                name=one.name,
                metric=one.metric,
                split=one.split,
                origin=str(one.origin),
                n=one.n,
                mean=round(one.mean, 4),
                ci95=None if one.ci95 is None else _pair(one.ci95),
            )
            for one in found.measures
        ],
        differences=[
            Tested(
                run_id=one.second,
                say=one.sentence,
                difference=round(one.difference, 4),
                ci95=_pair(one.ci95),
                test=one.test,
                p_adjusted=float(f"{one.p_adjusted:.3g}"),
                verdict=one.verdict,
            )
            for one in found.differences
        ],
        notes=[clip(one, 400) for one in found.notes],
        next=_next(found),
    )


def _pair(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 4), round(interval[1], 4)


def _next(found: "RunComparison") -> Next:
    if len(found.runs) == 1:
        return Next(say="Ask what held it back.", tool="analyze_run", arguments={"run_id": found.runs[0]})
    if not found.differences:
        against = {"target": found.runs[0], "against": found.runs[1:6]}
        return Next(say="Test them on the same problems.", tool="evaluate_model", arguments=against)
    best = max(found.differences, key=lambda one: one.difference)
    run_id = best.second if best.difference > 0 else found.runs[0]
    return Next(say="Ask what still holds the best one back.", tool="analyze_run", arguments={"run_id": run_id})


SPECS = [
    ToolSpec(
        compare_runs,
        title="Compare runs",
        read_only=True,
        help_with=Next(say="See which runs there are.", tool="list_runs"),
    ),
]
