"""The curves of runs as a PNG, with matplotlib (optional extra `plots`), never with a display."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainer.runs.errors import RunError
from trainer.runs.plots import Curves, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS_PER_INCH = 110


def png_of(curves: Sequence[Curves]) -> bytes:
    """One image: reward with its band and validations, entropy, lengths, seconds of the phases.

    Several runs share the first three panels; phases are those of the first one. Raises RunError where matplotlib is
    missing, or where there is nothing to draw.
    """
    drawn = [one for one in curves if not one.empty]
    if not drawn:
        raise RunError("there is nothing to draw: no step has been taken yet.")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RunError(
            "images need matplotlib, which is not installed: pip install 'mcp-evo[plots]'. Without it: mcp-evo runs "
            "plot draws in the terminal."
        ) from error
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    ((reward, entropy), (lengths, phases)) = figure.subplots(2, 2)
    _reward(reward, drawn)
    _lines(entropy, [(one.run_id, one.entropy, f"C{i}-") for i, one in enumerate(drawn)], "entropy, nats a token")
    _lines(
        lengths,
        [
            *((f"{one.run_id} mean", one.length_mean, f"C{i}-") for i, one in enumerate(drawn)),
            *((f"{one.run_id} longest", one.length_max, f"C{i}:") for i, one in enumerate(drawn)),
        ],
        "tokens of an episode",
    )
    lengths.axhline(drawn[0].length_cap, color="grey", linewidth=0.8, linestyle="--")
    _phases(phases, drawn[0])
    figure.suptitle(f"{drawn[0].run_id}: {drawn[0].title}" if len(drawn) == 1 else f"{len(drawn)} runs", fontsize=11)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DOTS_PER_INCH)
    return stream.getvalue()


def _reward(axes: "Axes", curves: Sequence[Curves]) -> None:
    for number, one in enumerate(curves):
        colour = f"C{number}"
        steps = [point.step for point in one.reward]
        axes.plot(steps, [point.value for point in one.reward], color=colour, label=one.run_id)
        lows, highs = [point.low for point in one.reward], [point.high for point in one.reward]
        axes.fill_between(steps, lows, highs, color=colour, alpha=0.18, linewidth=0)
        _marks(axes, one.validation, colour)
    axes.set_ylim(min(0.0, *axes.get_ylim()), max(1.0, *axes.get_ylim()))
    axes.set(title="mean training reward ± 1.96 se; diamonds: validation, 95 %", xlabel="step")
    axes.title.set_fontsize(9)
    axes.legend(fontsize=7)


def _marks(axes: "Axes", points: Sequence[Point], colour: str) -> None:
    if not points:
        return
    values = [point.value for point in points]
    errors = [
        [max(0.0, point.value - point.low) for point in points],
        [max(0.0, point.high - point.value) for point in points],
    ]
    steps = [point.step for point in points]
    axes.errorbar(steps, values, yerr=errors, fmt="D", markersize=4, color=colour, elinewidth=0.8, capsize=2)


def _lines(axes: "Axes", series: Sequence[tuple[str, Sequence[tuple[int, float]], str]], title: str) -> None:
    for name, points, style in series:
        if points:
            axes.plot([step for step, _ in points], [value for _, value in points], style, label=name)
    axes.set_ylim(bottom=0.0)
    axes.set(title=title, xlabel="step")
    axes.title.set_fontsize(9)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=7)


def _phases(axes: "Axes", curves: Curves) -> None:
    steps = sorted({step for points in curves.phases.values() for step, _ in points})
    stacks: list[list[float]] = []
    for points in curves.phases.values():
        values: dict[int, Any] = dict(points)
        stacks.append([values.get(step, 0.0) for step in steps])
    if steps:
        axes.stackplot(steps, stacks, labels=list(curves.phases), alpha=0.85)
        axes.legend(fontsize=7, loc="upper right")
    axes.set(title=f"seconds of a step, {curves.run_id}", xlabel="step")
    axes.title.set_fontsize(9)
