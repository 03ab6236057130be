"""Rates compared: pass@k, clustered intervals, tests of two proportions; numbers worked out independently."""

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trainer.runs.proportions import (
    clustered_wilson,
    holm,
    independent_test,
    paired_interval,
    paired_test,
    pass_at_k,
)
from trainer.runs.statistics import wilson


@given(st.integers(1, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    attempts = [1] * c + [0] * (n - c)
    subsets = list(itertools.combinations(range(n), k))
    solved = sum(any(attempts[i] for i in subset) for subset in subsets)
    assert pass_at_k(n, c, k) == pytest.approx(solved / len(subsets), abs=1e-12)


@given(st.integers(1, 400), st.data())
@settings(max_examples=100, deadline=None)
def test_pass_at_k_equals_the_formula_in_exact_fractions(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_obvious_formula_is_not() -> None:
    """E over Binomial(n, p) of the estimate is 1 - (1 - p)^k exactly."""
    n, p, k = 8, 0.3, 4
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    ours = sum(w * pass_at_k(n, c, k) for c, w in enumerate(chance))
    obvious = sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(chance))
    assert ours == pytest.approx(truth, abs=1e-12)
    assert abs(obvious - truth) > 0.02


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 2, 5), (4, 2, 0), (4, -1, 1)])
def test_pass_at_k_refuses_what_is_no_count(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


@given(st.lists(st.booleans(), min_size=1, max_size=300))
@settings(max_examples=100, deadline=None)
def test_with_one_episode_a_problem_the_interval_is_wilsons(outcomes: list[bool]) -> None:
    assert clustered_wilson([float(one) for one in outcomes], len(outcomes)) == pytest.approx(
        wilson(sum(outcomes), len(outcomes)), abs=1e-9
    )


def test_episodes_that_always_agree_count_as_one() -> None:
    """40 problems, each solved in all 8 attempts or in none: no more is known than from 40 single attempts."""
    values = [1.0] * 25 + [0.0] * 15
    assert clustered_wilson(values, 320) == pytest.approx(wilson(25, 40))


def test_episodes_that_do_not_depend_on_their_problem_all_count() -> None:
    assert clustered_wilson([0.5] * 20, 160) == pytest.approx(wilson(80, 160))


def test_the_clustered_interval_covers_the_truth_where_the_plain_one_does_not() -> None:
    """Problems differ in difficulty (Beta(1, 1)), 8 attempts at each of 40: 95 % must hold over the draw of both."""
    rng = random.Random(5)
    clustered = plain = 0
    repeats = 600
    for _ in range(repeats):
        solved = [sum(rng.random() < p for _ in range(8)) for p in (rng.random() for _ in range(40))]
        low, high = clustered_wilson([c / 8 for c in solved], 320)
        clustered += low <= 0.5 <= high
        low, high = wilson(sum(solved), 320)
        plain += low <= 0.5 <= high
    assert clustered / repeats > 0.925
    assert plain / repeats < 0.85


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_paired_test_is_the_binomial_test_of_the_differing_problems(lost: int, gained: int) -> None:
    expected = stats.binomtest(lost, lost + gained, 0.5).pvalue if lost + gained else 1.0
    assert paired_test(lost, gained).p == pytest.approx(expected)


def test_paired_interval_by_hand() -> None:
    """b = 12 gained, c = 3 lost, n = 50: (13 - 4) / 52 ± 1.96 sqrt((17/52 - (9/52)²) / 52)."""
    low, high = paired_interval(3, 12, 50)
    half = 1.959964 * math.sqrt((17 / 52 - (9 / 52) ** 2) / 52)
    assert (low, high) == pytest.approx((9 / 52 - half, 9 / 52 + half), abs=1e-6)


@given(st.integers(1, 80), st.integers(1, 80), st.data())
@settings(max_examples=150, deadline=None)
def test_independent_test_agrees_with_scipy(n_a: int, n_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    found = independent_test(a, n_a, b, n_b)
    table = [[a, n_a - a], [b, n_b - b]]
    total = n_a + n_b
    expected = [(a + b) * n / total for n in (n_a, n_b)] + [(total - a - b) * n / total for n in (n_a, n_b)]
    if min(expected) >= 1:
        statistic = stats.chi2_contingency(table, correction=False).statistic * (total - 1) / total
        assert "chi-squared" in found.name
        assert found.p == pytest.approx(stats.chi2.sf(statistic, 1), abs=1e-9)
    else:
        assert "Fisher" in found.name
        assert found.p == pytest.approx(stats.fisher_exact(table).pvalue, abs=1e-6)


def test_overlapping_intervals_may_differ_significantly() -> None:
    """0.80 and 0.90 of 128: the intervals overlap, the test says p < .05."""
    assert wilson(102, 128)[1] > wilson(115, 128)[0]
    assert independent_test(102, 128, 115, 128).p < 0.05


def test_independent_test_holds_its_level() -> None:
    rng = random.Random(3)
    false = 0
    for _ in range(2000):
        a, b = (sum(rng.random() < 0.4 for _ in range(64)) for _ in range(2))
        false += independent_test(a, 64, b, 64).p < 0.05
    assert false / 2000 < 0.065


def test_holm_by_hand() -> None:
    """.01 x 3, max(.03, .02 x 2), max(.04, .04 x 1)."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)
