"""Intervals against published and hand-worked numbers, and against simulation of their coverage."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.runs.curves import sparkline, text_curve, thin
from trainer.runs.series import RunSeries
from trainer.runs.statistics import difference_interval, mean, standard_error, theil_sen_slope, wilson


def test_wilson_against_numbers_worked_out_by_hand() -> None:
    # 8 of 10, z = 1.96: centre (0.8 + 3.8416/20) / 1.38416 = 0.71674;
    # half width 1.96 / 1.38416 * sqrt(0.016 + 0.009604) = 0.22658
    assert wilson(8, 10, 1.96) == pytest.approx((0.49016, 0.94332), abs=2e-5)
    # 0 of 20: upper bound z²/(n + z²) = 3.8416/23.8416
    assert wilson(0, 20, 1.96) == pytest.approx((0.0, 0.16113), abs=1e-5)
    assert wilson(20, 20, 1.96) == pytest.approx((0.83887, 1.0), abs=1e-5)


def test_newcombe_against_his_published_example() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80 = 0.20, interval 0.0524 … 0.3339
    assert difference_interval(48, 80, 56, 70) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_wilson_keeps_its_level() -> None:
    rng = random.Random(1)
    for rate in (0.05, 0.35, 0.9):
        covered = 0
        for _ in range(2000):
            hits = sum(rng.random() < rate for _ in range(64))
            low, high = wilson(hits, 64)
            covered += low <= rate <= high
        assert 0.925 < covered / 2000 < 0.985


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_rate_and_is_symmetric(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    low, high = wilson(hits, n)
    assert 0 <= low <= hits / n <= high <= 1
    mirrored = wilson(n - hits, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_what_is_no_rate_is_refused(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="not a rate"):
        wilson(hits, n)


def test_means_and_slopes() -> None:
    assert mean([1.0, 2.0, 6.0]) == 3.0
    # deviations -2, -1, 3: sum of squares 14, variance 7, standard error sqrt(7/3)
    assert standard_error([1.0, 2.0, 6.0]) == pytest.approx(math.sqrt(7 / 3))
    assert math.isnan(standard_error([1.0]))
    assert theil_sen_slope([0.0, 1.0, 2.0, 100.0, 4.0]) == pytest.approx(1.0)
    assert theil_sen_slope([float(i) for i in range(1000)]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="two values"):
        theil_sen_slope([1.0])


def test_a_series_leaves_out_what_was_not_measured() -> None:
    rows = [
        {"step": 1, "a": 0.0},
        {"step": 2},
        {"step": 3, "a": None},
        {"step": 4, "a": float("nan")},
        {"step": 5, "a": 1},
    ]
    series = RunSeries(rows)
    assert series.points("a") == [(1, 0.0), (5, 1.0)]
    assert series.average("a") == 0.5
    assert series.average("missing") is None
    assert series.third("missing", 0) is None
    assert series.steps == 5


def test_thirds_peak_and_ends() -> None:
    series = RunSeries([{"step": i + 1, "r": value} for i, value in enumerate([0, 0, 3, 6, 9, 9, 3, 0, 0])])
    assert (series.third("r", 0), series.third("r", 1), series.third("r", 2)) == (1.0, 8.0, 1.0)
    assert series.early("r") == 1.0
    assert series.late("r") == 1.0
    assert series.peak("r") == (6, 8.0)


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(-2, 3)), min_size=1, max_size=300))
def test_a_curve_always_fits_its_width(points: list[tuple[int, float]]) -> None:
    lines = text_curve(points, width=40, height=5)
    assert len(lines) == 7
    assert all(len(line) <= 7 + 40 + 12 for line in lines)
    assert len(thin(points, 40)) <= 40


def test_a_curve_is_high_where_the_values_are() -> None:
    lines = text_curve([(1, 0.0), (2, 1.0)], width=2, height=4)
    assert [line[7:9] for line in lines[:4]] == [" █", " █", " █", " █"]
    assert sparkline([0.0, 0.5, 1.0]) == "▁▄█" or sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([]) == ""
