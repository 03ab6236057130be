"""Curves of a run: what is read, how the terminal shows it, and a real PNG."""

import math
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import TrainingConfig
from trainer.runs.errors import RunError
from trainer.runs.plots import BAND, MARK, MEAN, Point, curves_of, plot_lines, text_band
from trainer.runs.plots_png import png_of
from trainer.runs.registry import create_run
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState
from trainer.runs.workspace import Workspace


def run_with(workspace: Workspace, rows: list[dict[str, Any]], run_id: str = "run-a") -> RunDirectory:
    directory = create_run(workspace, TrainingConfig.model_validate({}), run_id=run_id)
    directory.set_fields(state=RunState.RUNNING, started_at=time.time())
    for row in rows:
        directory.append_metrics(row)
    return directory


def rows_of(steps: int) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "reward_mean": step / (steps + 1),
            "reward_std": 0.4,
            "episodes": 16,
            "entropy": 1 / step,
            "completion_mean": 40.0 + step,
            "completion_max": 60 + step,
            "seconds": {"generate": 0.3, "update": 0.1, "other": 0.0},
        }
        for step in range(1, steps + 1)
    ]


def test_the_band_is_the_standard_error_over_the_episodes(workspace: Workspace) -> None:
    """reward_std .4 over 16 episodes: ± 1.96 x .1."""
    curves = curves_of(run_with(workspace, rows_of(3)))
    (first, *_) = curves.reward
    assert (first.step, first.value) == (1, 0.25)
    assert (first.low, first.high) == pytest.approx((0.25 - 0.196, 0.25 + 0.196), abs=1e-4)
    assert curves.phase_totals == pytest.approx({"generate": 0.9, "update": 0.3})
    assert curves.length_max[-1] == (3, 63)


def test_what_was_not_measured_is_left_out_never_zero(workspace: Workspace) -> None:
    rows: list[dict[str, Any]] = [{"step": 1, "reward_mean": 0.5}, {"step": 2, "entropy": 0.1}, {"step": 3}]
    curves = curves_of(run_with(workspace, rows))
    assert curves.reward == (Point(1, 0.5, 0.5, 0.5),)
    assert curves.entropy == ((2, 0.1),)
    assert curves.phases == {}
    assert "Time of the steps" not in "\n".join(plot_lines(curves))


def test_a_run_without_steps_says_so(workspace: Workspace) -> None:
    curves = curves_of(run_with(workspace, []))
    assert plot_lines(curves)[-1] == "no step yet: nothing to draw"
    with pytest.raises(RunError, match="nothing to draw"):
        png_of([curves])


def test_the_terminal_shows_curve_band_marks_and_phases(workspace: Workspace) -> None:
    directory = run_with(workspace, rows_of(12))
    evaluation = {"metric": "success", "split": "validation", "n": 64, "mean": 0.6, "ci95": [0.48, 0.71]}
    directory.append_event("validation", step=5, eval=evaluation)
    lines = plot_lines(curves_of(directory), width=80)
    text = "\n".join(lines)
    assert text.count(MARK) == 2  # the legend and the one validation
    assert MEAN in text
    assert BAND in text
    assert any(line.startswith("  generate") and "75%" in line for line in lines)
    assert "longest (cap 256)" in text
    assert all(len(line) <= 100 for line in lines)


def test_a_rising_curve_by_hand() -> None:
    """Three steps, three columns each but one: 0, .5 and 1 lie in the lowest, middle and highest row."""
    points = [Point(step, value, value, value) for step, value in ((1, 0.0), (2, 0.5), (3, 1.0))]
    lines = text_band(points, width=60, height=3)
    assert [line[7:] for line in lines[:3]] == ["        ●", "    ●", "●"]
    assert lines[0].startswith(" 1.00")
    assert lines[2].startswith(" 0.00")
    assert lines[3].split() == ["step", "1", "3"]


@given(
    st.lists(st.tuples(st.floats(-2, 3), st.floats(0, 2)), min_size=1, max_size=400),
    st.integers(20, 120),
    st.integers(2, 20),
)
@settings(max_examples=60, deadline=None)
def test_any_curve_fits_its_frame(values: list[tuple[float, float]], width: int, height: int) -> None:
    points = [Point(i, value, value - half, value + half) for i, (value, half) in enumerate(values, start=1)]
    lines = text_band(points, width=width, height=height)
    assert len(lines) == height + 1
    assert all(len(line) <= width + 7 for line in lines[:-1])
    assert any(MEAN in line for line in lines)


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height by the header of the format; its checksum must hold."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    length, kind = struct.unpack(">I4s", png[8:16])
    assert (length, kind) == (13, b"IHDR")
    assert zlib.crc32(png[12:29]) == struct.unpack(">I", png[29:33])[0]
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_one_and_several_runs_as_an_image(workspace: Workspace) -> None:
    pytest.importorskip("matplotlib")
    first = curves_of(run_with(workspace, rows_of(8)))
    second = curves_of(run_with(workspace, rows_of(3), "run-b"))
    one, both = png_of([first]), png_of([first, second])
    width, height = size_of(one)
    assert width > 800
    assert height > 500
    assert size_of(both) == (width, height)
    assert one != both


def test_without_matplotlib_the_error_says_what_to_install(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = curves_of(run_with(workspace, rows_of(3)))
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RunError, match=r"pip install 'mcp-evo\[plots\]'"):
        png_of([curves])


def test_wild_values_do_not_break_the_image(workspace: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = rows_of(4)
    rows[1] |= {"reward_mean": -3.5, "reward_std": None, "entropy": 1e6}
    rows[2] = {"step": 3}
    curves = curves_of(run_with(workspace, rows))
    assert all(math.isfinite(point.low) for point in curves.reward)
    assert size_of(png_of([curves]))[0] > 800
