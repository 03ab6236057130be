"""What the gate does with patches of known effect: the preset `calibrate` of `evolution.py`.

1. Null pairs (`null_pairs.py`: the same configuration under two run seeds), 48 real ones of each family of scenarios,
   resampled through the whole gate with random signs. It says how the gate does on exchangeable noise of this size, no
   more.
2. Ten decisions on null pairs that are all fresh runs.
3. Twenty planted harmful patches and twelve good ones, each a whole trial on fresh runs through the product's own
   door.
4. "Faster, but collapses in 15 % of seeds": the null pairs with a gain that the collapses take away again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arm_book import ArmBook
from benchmarks.noise import measure
from benchmarks.null_pairs import BASE, RESEEDED, Change, arm_configs, pairs_of, resampled
from benchmarks.planted import Kind, Planted, decide_on, good_patches, harmful_patches
from optimizer.trial.folder import pair_seed
from optimizer.trial.plan import DEFAULT
from optimizer.trial.scenarios import SCENARIOS, Scenario
from optimizer.trial.statistics import decide, rate
from optimizer.trial.types import Decision, Pair, TrialVerdict
from optimizer.tryout import CONFIG_SKILL
from skill_bank.bank import SkillBank

Say = Callable[[str], None]

FAMILIES = {"calculator": ("calculator-mixed", "calculator-hard"), "lookup": ("lookup-mixed",)}
"""Family → its deciding scenarios."""

REAL_PAIRS = 48
"""Null pairs of a family."""

FRESH = 10
"""Decisions entirely from fresh runs."""

DECISIONS = 2000
COLLAPSE_SHARE = 0.15


def calibrate(work: Path, seed: int, say: Say) -> dict[str, Any]:
    """Everything; hours on two cores, kept in `work`."""
    document: dict[str, Any] = {"preset": "calibrate", "seed": seed, "plan": DEFAULT.name}
    pairs = null_pairs(work / "null", seed, say)
    document["resampled"] = [family_row(family, pairs[family], seed) for family in FAMILIES]
    document["collapsing"] = [collapsing_row(family, pairs[family], seed) for family in FAMILIES]
    document["fresh_null"] = fresh_null(work / "null", seed, say)
    document["harmful"] = planted_row(harmful_patches(), work, seed, say)
    document["good"] = planted_row(good_patches(), work, seed, say)
    return document


def scenarios_of(family: str) -> list[Scenario]:
    """The scenarios of a family, in the order in which they take turns."""
    return [one for one in SCENARIOS if one.name in FAMILIES[family]]


def null_pairs(work: Path, seed: int, say: Say) -> dict[str, list[Pair]]:
    """Family → real null pairs."""
    found = {}
    for family in FAMILIES:
        scenarios = scenarios_of(family)
        each = REAL_PAIRS // len(scenarios)
        with ArmBook(work, say) as book:
            results = measure(book, scenarios, each, seed, "original", RESEEDED)
        found[family] = pairs_of(RESEEDED, scenarios, results, each)
    return found


def fresh_null(work: Path, seed: int, say: Say) -> dict[str, Any]:
    """Decisions on null pairs that nothing else uses, each pair run when the gate asks for it."""
    policy = SkillBank.shipped().policy(CONFIG_SKILL, "original")
    scenarios = scenarios_of("calculator")
    decisions, rows = [], []
    with ArmBook(work, say) as book:
        for attempt in range(FRESH):
            own = pair_seed(seed, "fresh null", attempt)
            pairs: list[Pair] = []
            decision = None
            while decision is None:
                index = len(pairs)
                scenario = scenarios[index % len(scenarios)]
                configs = arm_configs(scenario, policy, index, own)
                names = {arm: f"fresh-{attempt:02d}-{index:02d}-{arm}" for arm in (BASE, RESEEDED)}
                done = book.run({names[arm]: configs[arm] for arm in names})
                base, other = done[names[BASE]], done[names[RESEEDED]]
                pairs.append(Pair(index=index, scenario=scenario.name, seed=own, base=base, patched=other))
                decision = decide(pairs, DEFAULT)
            say(f"fresh null {attempt + 1} of {FRESH}: {decision.say}")
            decisions.append(decision)
            rows.append(decision_row(f"null-{attempt + 1}", decision, len(pairs)))
    return verdicts(decisions) | {"patches": rows}


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
        rows.append(decision_row(planted.name, decision, len(folder.pairs(folder.spec()))))
    return verdicts(decisions) | {"patches": rows}


def decision_row(name: str, decision: Decision, pairs: int) -> dict[str, Any]:
    """One trial's outcome."""
    summary = decision.summary
    return {
        "patch": name,
        "verdict": str(decision.verdict),
        "reason": None if decision.reason is None else str(decision.reason),
        "effect": None if summary is None else round(summary.effect, 4),
        "pairs": pairs,
    }


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
        f"Plan `{document['plan']}`, base: profile `original`. Null arms: the same configuration, another run seed.",
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
    for key in (str(Kind.HARMFUL), str(Kind.GOOD), "fresh_null"):
        lines += ["", f"## {key.replace('_', ' ')}", "", "| patch | verdict | effect | pairs |", "|---|---|---|---|"]
        for one in document[key]["patches"]:
            effect = "–" if one["effect"] is None else f"{one['effect']:+.3f}"
            reason = "" if one["reason"] is None else f" ({one['reason'].replace('_', ' ')})"
            lines.append(f"| {one['patch']} | {one['verdict']}{reason} | {effect} | {one['pairs']} |")
    return "\n".join([*lines, ""])
