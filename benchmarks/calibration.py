"""What the gate does with patches of known effect: the preset `calibrate` of `evolution.py`.

1. Null pairs of two families (`null_pairs.py`), at least 48 real ones each, resampled through the whole gate with
   random signs. It says how the gate does on exchangeable noise of this size, no more.
2. Ten decisions on null patches entirely from fresh runs, through the product's own door.
3. Twenty planted harmful patches and twelve good ones, each a whole trial on fresh runs.
4. "Faster, but collapses in 15 % of seeds": the null pairs with a gain that the collapses take away again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arm_book import ArmBook
from benchmarks.noise import measure
from benchmarks.null_pairs import FAMILIES, Change, pairs_of, resampled
from benchmarks.planted import Kind, Planted, decide_on, good_patches, harmful_patches, null_patches
from optimizer.trial.plan import DEFAULT
from optimizer.trial.scenarios import SCENARIOS
from optimizer.trial.statistics import rate
from optimizer.trial.types import Decision, Pair, TrialVerdict

Say = Callable[[str], None]

SCENARIO_NAMES = ("calculator-mixed", "calculator-hard")
SEEDS = 24
"""Null pairs of each of the two scenarios: 48 a family."""

DECISIONS = 2000
COLLAPSE_SHARE = 0.15


def calibrate(work: Path, seed: int, say: Say) -> dict[str, Any]:
    """Everything; hours on two cores, kept in `work`."""
    document: dict[str, Any] = {"preset": "calibrate", "seed": seed, "plan": DEFAULT.name}
    pairs = null_pairs(work / "null", seed, say)
    document["resampled"] = [family_row(family, pairs[family], seed) for family in FAMILIES]
    document["collapsing"] = [collapsing_row(family, pairs[family], seed) for family in FAMILIES]
    document["fresh_null"] = planted_row(null_patches(10), work, seed, say)
    document["harmful"] = planted_row(harmful_patches(), work, seed, say)
    document["good"] = planted_row(good_patches(), work, seed, say)
    return document


def null_pairs(work: Path, seed: int, say: Say) -> dict[str, list[Pair]]:
    """Family → real null pairs."""
    scenarios = [one for one in SCENARIOS if one.name in SCENARIO_NAMES]
    with ArmBook(work, say) as book:
        results = measure(book, scenarios, SEEDS, seed, "original", FAMILIES)
    return {family: pairs_of(family, scenarios, results, SEEDS) for family in FAMILIES}


def family_row(family: str, pairs: Sequence[Pair], seed: int) -> dict[str, Any]:
    """False verdicts of one family."""
    rng = np.random.default_rng(seed)
    decisions = resampled(pairs, DEFAULT, DECISIONS, rng)
    return {
        "family": family,
        "real_pairs": len(pairs),
        "zero_differences": sum(pair.difference == 0 for pair in pairs),
        "sd_of_difference": round(float(np.std([pair.difference for pair in pairs], ddof=1)), 4),
    } | verdicts(decisions)


def collapsing_row(family: str, pairs: Sequence[Pair], seed: int) -> dict[str, Any]:
    """Equal mean, but a share of patched arms collapses: the gain is what the collapses cost."""
    rng = np.random.default_rng(seed + 1)
    mean = float(np.mean([pair.base.success for pair in pairs]))
    to = 0.1
    gain = COLLAPSE_SHARE * (mean - to) / (1 - COLLAPSE_SHARE)
    decisions = resampled(pairs, DEFAULT, DECISIONS, rng, Change(gain, COLLAPSE_SHARE, to))
    return {"family": family, "share": COLLAPSE_SHARE, "gain_where_it_works": round(gain, 4)} | verdicts(decisions)


def planted_row(patches: Sequence[Planted], work: Path, seed: int, say: Say) -> dict[str, Any]:
    """Whole trials of planted patches."""
    rows = []
    decisions = []
    for planted in patches:
        decision, folder = decide_on(planted, work / "planted", DEFAULT, seed, say)
        decisions.append(decision)
        summary = decision.summary
        rows.append(
            {
                "patch": planted.name,
                "verdict": str(decision.verdict),
                "reason": None if decision.reason is None else str(decision.reason),
                "effect": None if summary is None else round(summary.effect, 4),
                "pairs": len(folder.pairs(folder.spec())),
            }
        )
    return verdicts(decisions) | {"patches": rows}


def verdicts(decisions: Sequence[Decision]) -> dict[str, Any]:
    """How often each verdict fell; `better` with 95 % bounds."""
    better = rate(sum(one.verdict is TrialVerdict.BETTER for one in decisions), len(decisions))
    return {
        "decisions": len(decisions),
        "better": better.count,
        "better_rate": round(better.count / better.n, 4),
        "better_at_most": round(better.high, 4),
        "worse": sum(one.verdict is TrialVerdict.WORSE for one in decisions),
        "inconclusive": sum(one.verdict is TrialVerdict.INCONCLUSIVE for one in decisions),
        "mean_pairs": round(float(np.mean([one.summary.pairs if one.summary else 0 for one in decisions])), 2),
    }


def markdown(document: dict[str, Any], command: str) -> str:
    """The page `docs/results/calibration.md`."""
    lines = [
        "# Calibration of the trial gate",
        "",
        f"`{command}`",
        "",
        f"Plan `{document['plan']}`, base: profile `original`, scenarios {', '.join(SCENARIO_NAMES)}.",
        "",
        "| what | decisions | better | at most (95 %) | worse | inconclusive | mean pairs |",
        "|---|---|---|---|---|---|---|",
    ]

    def row(title: str, one: dict[str, Any]) -> str:
        return (
            f"| {title} | {one['decisions']} | {one['better']} ({one['better_rate']:.1%}) "
            f"| {one['better_at_most']:.1%} "
            f"| {one['worse']} | {one['inconclusive']} | {one['mean_pairs']:.1f} |"
        )

    for one in document["resampled"]:
        lines.append(row(f"null, {one['family']}: {one['real_pairs']} real pairs resampled", one))
    for one in document["collapsing"]:
        lines.append(row(f"equal mean, collapses in {one['share']:.0%} of seeds ({one['family']})", one))
    for key, title in (("fresh_null", "null, fresh runs"), ("harmful", "planted harmful"), ("good", "planted good")):
        lines.append(row(title, document[key]))
    for kind in (Kind.HARMFUL, Kind.GOOD, Kind.NULL):
        key = "fresh_null" if kind is Kind.NULL else str(kind)
        lines += ["", f"## {key.replace('_', ' ')}", "", "| patch | verdict | effect | pairs |", "|---|---|---|---|"]
        for one in document[key]["patches"]:
            effect = "–" if one["effect"] is None else f"{one['effect']:+.3f}"
            reason = "" if one["reason"] is None else f" ({one['reason'].replace('_', ' ')})"
            lines.append(f"| {one['patch']} | {one['verdict']}{reason} | {effect} | {one['pairs']} |")
    return "\n".join([*lines, ""])
