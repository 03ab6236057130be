"""Comparing rates: tests of two proportions (paired, independent), pass@k, intervals for clustered episodes. Pure.

Overlap of two intervals is no test: two 95 % intervals may overlap although the difference is significant at 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.runs.statistics import Z95, wilson


@dataclass(frozen=True)
class TestOfTwo:
    """A test of equal rates, with its name."""

    __test__ = False  # not a test case of pytest

    name: str
    p: float
    """Two-sided p value."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k attempts succeeds, unbiased, from c successes in n attempts at one problem.

    1 - C(n-c, k) / C(n, k): the share of k-subsets of the attempts with a success (Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", arXiv 2107.03374, equation 1), computed as a product so that nothing overflows.
    The obvious 1 - (1 - c/n)^k is biased. Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} of {c} successes in {n} attempts: k must be 1 to n, successes 0 to n")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def clustered_wilson(values: Sequence[float], episodes: int, z: float = Z95) -> tuple[float, float]:
    """Wilson interval of the mean of per-problem rates, where several episodes belong to one problem.

    Episodes of one problem resemble each other, so they count for fewer than they are: the interval is that of
    n* = p(1-p) / s² independent trials, s² the variance of the mean over problems (effective sample size; Korn and
    Graubard 1998). n* lies between the number of problems and that of episodes; with one episode a problem it is their
    number and the interval is Wilson's. Raises ValueError for no values.
    """
    problems = len(values)
    if not values or episodes < problems:
        raise ValueError(f"{problems} problems with {episodes} episodes have no rate")
    mean = math.fsum(values) / problems
    variance = math.fsum((value - mean) ** 2 for value in values) / problems**2
    spread = mean * (1 - mean)
    effective = episodes if variance <= spread / episodes else spread / variance
    n = max(problems, min(episodes, math.floor(effective + 1e-9)))
    return wilson(min(float(n), max(0.0, mean * n)), n, z)


def paired_test(only_first: int, only_second: int) -> TestOfTwo:
    """Exact McNemar test: whether two success rates on the same problems are equal.

    Under equality the problems that only one of the two solves split evenly, so p is twice the smaller tail of
    Binomial(only_first + only_second, 1/2), at most 1 (McNemar 1947; exact form as in Fay 2010).
    """
    n, smaller = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(smaller + 1))
    return TestOfTwo("exact McNemar test on the same problems", min(1.0, 2 * tail / 2**n))


def paired_interval(only_first: int, only_second: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Interval of (second - first) for two rates on the same n problems (adjusted Wald, Bonett and Price 2012).

    With p = (only_second + 1) / (n + 2) and q = (only_first + 1) / (n + 2): p - q ± z sqrt((p + q - (p - q)²) / (n+2)).
    """
    if n < only_first + only_second or n <= 0:
        raise ValueError(f"{only_first} + {only_second} differing problems of {n}")
    gained, lost = (only_second + 1) / (n + 2), (only_first + 1) / (n + 2)
    half = z * math.sqrt((gained + lost - (gained - lost) ** 2) / (n + 2))
    return max(-1.0, gained - lost - half), min(1.0, gained - lost + half)


def independent_test(a: int, n_a: int, b: int, n_b: int) -> TestOfTwo:
    """Whether two independent rates a / n_a and b / n_b are equal.

    The "N-1" chi-squared test, (N-1)(a d - b c)² / (row and column sums), where every expected count is at least 1,
    else Fisher's exact test by Irwin's rule (Campbell 2007, "Chi-squared and Fisher-Irwin tests of two-by-two tables
    with small sample recommendations").
    """
    for successes, n in ((a, n_a), (b, n_b)):
        if n <= 0 or not 0 <= successes <= n:
            raise ValueError(f"{successes} successes of {n} trials is not a rate")
    total, solved = n_a + n_b, a + b
    expected = (solved * n_a / total, solved * n_b / total, (total - solved) * n_a / total)
    if min(*expected, (total - solved) * n_b / total) >= 1:
        cross = a * (n_b - b) - b * (n_a - a)
        statistic = (total - 1) * cross**2 / (n_a * n_b * solved * (total - solved))
        return TestOfTwo("N-1 chi-squared test of two independent rates", math.erfc(math.sqrt(statistic / 2)))
    return TestOfTwo("Fisher's exact test of two independent rates", _fisher(a, n_a, solved, total))


def _fisher(a: int, n_a: int, solved: int, total: int) -> float:
    """Sum of the hypergeometric probabilities that are no larger than that of the table seen."""
    ways = {
        x: math.comb(n_a, x) * math.comb(total - n_a, solved - x)
        for x in range(max(0, solved - (total - n_a)), min(n_a, solved) + 1)
    }
    return min(1.0, sum(count for count in ways.values() if count <= ways[a]) / math.comb(total, solved))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for asking several questions at once (Holm 1979), in the order given.

    The i-th smallest of m is multiplied by m - i + 1; an adjusted value is never below a smaller one's.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted
