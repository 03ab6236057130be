"""How much of an arm's success is luck: runs of one configuration on many seeds, for each scenario that decides.

    python benchmarks/noise.py [--seeds 24] [--profile original] [--work DIR] [--json] [--markdown FILE]

For each scenario: spread of the base arm (with the part that only the finite exam makes taken off), correlation of two
arms under common random numbers (the second arm's learning rate is three times the first's, as a patch would set it),
spread of a pair's difference about its mean with and without them, share of collapses. From that the operating
characteristics of the shipped trial plan on this noise. Eight arms a minute on two cores; a work folder keeps what is
done.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.arm_book import ArmBook
from benchmarks.null_pairs import BASE, STEP, STEPPED, Change, arm_configs, centred, pairs_of, resampled
from optimizer.trial.plan import DEFAULT, PLANS, TrialPlan
from optimizer.trial.scenarios import SCENARIOS, Scenario
from optimizer.trial.statistics import rate, realised_correlation
from optimizer.trial.types import ArmResult, Pair, TrialVerdict
from optimizer.tryout import CONFIG_SKILL
from skill_bank.bank import SkillBank

ROOM = (0.35, 0.75)
"""Where the base arm of a scenario should end."""

GAINS = (0.0, 0.05, 0.10, 0.15, 0.20, 0.30)

_DECISIONS = 2000
_Z = 1.959964 + 0.841621
"""Two-sided 5 % and power 80 %."""


def chosen_scenarios(names: Sequence[str]) -> list[Scenario]:
    """The scenarios that decide, or those named."""
    deciding = {one.name: one for one in SCENARIOS if not one.reserve}
    unknown = [name for name in names if name not in deciding]
    if unknown:
        raise SystemExit(f"no deciding scenario is called {', '.join(unknown)}. There are: {', '.join(deciding)}")
    return [deciding[name] for name in names] if names else list(deciding.values())


def measure(
    book: ArmBook, scenarios: Sequence[Scenario], seeds: int, seed: int, profile: str | None, arm: str
) -> dict[tuple[str, int, str], ArmResult]:
    """(scenario, index, arm) → result, for the base arm and the one named."""
    policy = SkillBank.shipped().policy(CONFIG_SKILL, profile)
    wanted = {}
    for index in range(seeds):
        for scenario in scenarios:
            configs = arm_configs(scenario, policy, index, seed)
            for one in (BASE, arm):
                wanted[scenario.name, index, one] = configs[one]
    names = {key: f"{key[0]}-{profile or 'default'}-{key[1]:03d}-{key[2]}".lower() for key in wanted}
    results = book.run({names[key]: config for key, config in wanted.items()})
    return {key: results[name] for key, name in names.items()}


def spread_of(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))


def row_of(scenario: Scenario, pairs: Sequence[Pair]) -> dict[str, Any]:
    """What the stepped pairs of one scenario say about its noise."""
    base = [pair.base.success for pair in pairs]
    tasks = pairs[0].base.n
    mean = float(np.mean(base))
    sd = spread_of(base)
    exam = mean * (1 - mean) / tasks
    differences = [pair.difference for pair in pairs]
    apart = math.hypot(sd, spread_of([pair.patched.success for pair in pairs]))
    collapsed = rate(sum(pair.base.collapsed for pair in pairs), len(pairs))
    return {
        "scenario": scenario.name,
        "episodes": scenario.episodes,
        "runs": len(pairs),
        "mean": round(mean, 4),
        "has_room": ROOM[0] <= mean <= ROOM[1],
        "sd": round(sd, 4),
        "step_gains": round(float(np.mean(differences)), 4),
        "sd_training": round(math.sqrt(max(sd**2 - exam, 0.0)), 4),
        "correlation": _rounded(realised_correlation(pairs)),
        "sd_of_difference": round(spread_of(differences), 4),
        "sd_of_difference_unpaired": round(apart, 4),
        "pairs_for_80_percent_at_15": max(math.ceil((_Z * spread_of(differences) / 0.15) ** 2), 2),
        "collapses": collapsed.count,
        "collapses_at_most": round(collapsed.high, 4),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def characteristics(pairs: Sequence[Pair], plan: TrialPlan, seed: int) -> list[dict[str, Any]]:
    """What the plan would decide on this noise, for patches of known gain."""
    rng = np.random.default_rng(seed)
    rows = []
    for gain in GAINS:
        decisions = resampled(pairs, plan, _DECISIONS, rng, Change(gain=gain))
        counts = [one.summary.pairs if one.summary is not None else 0 for one in decisions]
        better = sum(one.verdict is TrialVerdict.BETTER for one in decisions)
        rows.append(
            {
                "plan": plan.name,
                "gain": gain,
                "better": round(better / len(decisions), 4),
                "pairs": round(float(np.mean(counts)), 2),
            }
        )
    return rows


def document_of(
    results: Mapping[tuple[str, int, str], ArmResult], scenarios: Sequence[Scenario], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Everything measured, as one document."""
    rows = []
    everything: list[Pair] = []
    for scenario in scenarios:
        pairs = pairs_of(STEPPED, [scenario], results, arguments.seeds)
        rows.append(row_of(scenario, pairs))
        everything += centred(pairs)
    widest = max(row["sd_of_difference"] for row in rows)
    return {
        "profile": arguments.profile or "default",
        "seed": arguments.seed,
        "step": STEP,
        "scenarios": rows,
        "planned_sd": DEFAULT.planned_sd,
        "plan_covers_noise": widest <= DEFAULT.planned_sd,
        "characteristics": [
            row for plan in PLANS.values() for row in characteristics(everything, plan, arguments.seed)
        ],
    }


def markdown(document: dict[str, Any], command: str) -> str:
    """The page `docs/results/noise.md`."""
    lines = [
        "# Noise of a training run",
        "",
        f"`{command}`",
        "",
        f"Base arm: profile `{document['profile']}`. The second arm of a pair trains on the same seed with "
        f"{document['step']:g} times the learning rate; what that gains is told and taken off.",
        "",
        "| scenario | episodes | runs | success | sd | sd without the exam's | second arm gains | correlation | "
        "sd of a difference | sd without common streams | pairs for 80 % power at .15 | collapses (at most) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["scenarios"]:
        room = "" if row["has_room"] else " (outside .35–.75)"
        correlation = "–" if row["correlation"] is None else f"{row['correlation']:.2f}"
        lines.append(
            f"| {row['scenario']} | {row['episodes']} | {row['runs']} | {row['mean']:.3f}{room} | {row['sd']:.3f} | "
            f"{row['sd_training']:.3f} | {row['step_gains']:+.3f} | {correlation} | {row['sd_of_difference']:.3f} | "
            f"{row['sd_of_difference_unpaired']:.3f} | {row['pairs_for_80_percent_at_15']} | "
            f"{row['collapses']} ({row['collapses_at_most']:.0%}) |"
        )
    covers = "covers" if document["plan_covers_noise"] else "does NOT cover"
    lines += [
        "",
        f"The shipped plans are made for a spread of {document['planned_sd']:.2f}, which {covers} every row above.",
        "",
        "What the plans decide on this noise: pairs drawn with replacement and with random signs, a known gain "
        f"added to one arm, {_DECISIONS} trials a row.",
        "",
        "| plan | true gain | called better | mean pairs |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['plan']} | {row['gain']:.2f} | {row['better']:.1%} | {row['pairs']:.1f} |"
        for row in document["characteristics"]
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24, help="runs of each scenario")
    parser.add_argument("--seed", type=int, default=1, help="all seeds follow from it")
    parser.add_argument("--profile", default="original", help="base values; default: the shipped ones")
    parser.add_argument("--scenario", action="append", default=[], help="only this one (may be repeated)")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mcp-evo-noise")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--markdown", type=Path, help="write the page here")
    arguments = parser.parse_args()
    profile = None if arguments.profile == "default" else arguments.profile
    arguments.profile = profile
    scenarios = chosen_scenarios(arguments.scenario)
    with ArmBook(arguments.work, lambda text: print(text, file=sys.stderr, flush=True)) as book:
        results = measure(book, scenarios, arguments.seeds, arguments.seed, profile, STEPPED)
    document = document_of(results, scenarios, arguments)
    command = f"python benchmarks/noise.py --seeds {arguments.seeds} --profile {profile or 'default'}"
    text = markdown(document, command)
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")
    print(json.dumps(document, indent=1) if arguments.json else text)


if __name__ == "__main__":
    main()
