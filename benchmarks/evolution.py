"""Does evolution help, and can its gate be trusted? Measured on real training.

    python benchmarks/evolution.py --preset quick|full|calibrate [--seed N] [--work DIR] [--json] [--markdown FILE]

quick: from the plain base (profile `original`), three rounds of `evolve` with every better patch approved, then the
evolved skill against the base on reserve scenarios, with fresh seeds that no trial has used.
full: the same from several bases: other environments, the shipped default, and bases with a planted fault, so that
different levers have to be found.
calibrate: null pairs resampled through the gate, whole decisions on fresh null runs, planted harmful and good patches.

Two single-threaded workers side by side. Everything is kept in the work folder; the same command goes on after a kill.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import calibration
from benchmarks.arm_book import ArmBook
from benchmarks.planted import put_fault
from optimizer.evolve import evolve, new_request, resume
from optimizer.home import Home
from optimizer.patch_store import PatchRecord
from optimizer.round_store import RoundStore
from optimizer.round_types import Answer, Progress
from optimizer.trial.folder import pair_seed
from optimizer.trial.plan import QUICK
from optimizer.trial.scenarios import FIXED_HOUSES, SCENARIOS
from optimizer.tryout import CONFIG_SKILL, arm_config
from skill_bank.policy import CompiledPolicy

Say = Callable[[str], None]


@dataclass(frozen=True)
class Start:
    """A base to evolve from, and what it is asked to train."""

    name: str
    env: str
    profile: str | None = None
    fault: tuple[str, float] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """`--set` values of its training runs."""

    def request(self, seed: int) -> str:
        return f"train the tiny {self.env} agent on 64 mixed problems, seed {seed}"


PLAIN = Start("plain-calculator", "calculator", "original")

FULL = (
    PLAIN,
    Start("plain-lookup", "lookup", "original"),
    Start("plain-house-rules", "house_rules", "original", overrides=FIXED_HOUSES),
    Start("default-calculator", "calculator"),
    Start("no-diversity", "calculator", fault=("temperature", 0.1)),
    Start("cut-off", "calculator", fault=("max_completion_tokens", 24)),
)


def say_yes(record: PatchRecord, folder: Path) -> Answer:
    """Whoever starts the benchmark approves beforehand; the audit log records it as unattended."""
    return Answer("approve", "unattended")


def evolved(start: Start, work: Path, rounds: int, seed: int, say: Say) -> tuple[Home, CompiledPolicy, dict[str, Any]]:
    """(workspace, policy before, document of the evolution); goes on with one that was killed."""
    home = Home.create(work / start.name)
    base_file = work / start.name / "base.policy.json"
    if not base_file.exists():
        if start.fault is not None:
            put_fault(home, *start.fault)
        home.bank.policy(CONFIG_SKILL, start.profile).save(base_file)

    def watch(step: Progress) -> None:
        if step.kind in ("findings", "note", "promoted", "rejected"):
            what = step.text or ", ".join(step.round.findings) or (step.patches[0].patch_id if step.patches else "")
            say(f"{start.name} round {step.round.position}: {step.kind} {what}")
        elif step.trial is not None and step.trial.kind in ("pair", "decided"):
            decision = step.trial.decision
            text = f"{len(step.trial.pairs)} pairs" if decision is None else decision.say
            say(f"{start.name} round {step.round.position}: {text}")

    known = RoundStore(home.root).evolutions()
    if known:
        document = resume(home, known[-1], say_yes, watch)
    else:
        request = new_request(
            home,
            start.request(seed),
            rounds,
            start.profile,
            plan=QUICK.name,
            candidates=1,
            seed=seed,
            overrides=start.overrides,
        )
        document = evolve(home, request, say_yes, watch)
    return home, CompiledPolicy.load(base_file), document


def held_out(
    start: Start, home: Home, base: CompiledPolicy, work: Path, pairs: int, seed: int, say: Say
) -> dict[str, Any]:
    """Base against evolved on the reserve scenarios of the start's environment, equal episodes, fresh seeds.

    The interval is the ordinary paired t interval: the number of pairs is fixed beforehand.
    """
    after = home.bank.policy(CONFIG_SKILL, start.profile)
    reserve = [one for one in SCENARIOS if one.reserve and one.env == start.env]
    plan = [reserve[index % len(reserve)] for index in range(pairs)]
    wanted = {}
    for index, scenario in enumerate(plan):
        pair = pair_seed(seed, f"held-out/{start.name}/{scenario.name}", index)
        for arm, policy in (("base", base), ("evolved", after)):
            wanted[f"{index:03d}-{arm}"] = arm_config(scenario, pair, policy, QUICK)
    if all(wanted[f"{index:03d}-base"] == wanted[f"{index:03d}-evolved"] for index in range(pairs)):
        return {"effect": 0.0, "ci95": [0.0, 0.0], "pairs": 0, "why": "nothing was promoted: both arms are the same"}
    say(f"{start.name}: {pairs} held-out pairs")
    with ArmBook(work / start.name / "held-out", say) as book:
        results = book.run(wanted)
    names = [scenario.name for scenario in plan]
    scores = [(results[f"{index:03d}-base"].success, results[f"{index:03d}-evolved"].success) for index in range(pairs)]
    effect, interval = paired_interval([after_ - before for before, after_ in scores])
    return {
        "effect": round(effect, 4),
        "ci95": [round(interval[0], 4), round(interval[1], 4)],
        "pairs": pairs,
        "base": round(float(np.mean([one[0] for one in scores])), 4),
        "evolved": round(float(np.mean([one[1] for one in scores])), 4),
        "scenarios": {name: by_scenario(names, scores, name) for name in dict.fromkeys(names)},
        "scores": [[round(value, 4) for value in one] for one in scores],
    }


def by_scenario(names: Sequence[str], scores: Sequence[tuple[float, float]], name: str) -> float:
    """Mean difference of one scenario."""
    return round(float(np.mean([b - a for other, (a, b) in zip(names, scores, strict=True) if other == name])), 4)


def paired_interval(differences: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """(mean, 95 % interval) by Student's t over pairs."""
    n = len(differences)
    mean = float(np.mean(differences))
    reach = float(stats.t.ppf(0.975, n - 1)) * float(np.std(differences, ddof=1)) / math.sqrt(n)
    return mean, (mean - reach, mean + reach)


def run_starts(starts: Sequence[Start], arguments: argparse.Namespace, work: Path, say: Say) -> dict[str, Any]:
    """Evolves every start and examines it."""
    began = time.monotonic()
    found = []
    for start in starts:
        home, base, document = evolved(start, work, arguments.rounds, arguments.seed, say)
        held = held_out(start, home, base, work, arguments.pairs, arguments.seed, say)
        found.append(
            {"start": start.name, "heldout": held, "rounds": document["rounds"], "stopped": document["stopped"]}
        )
    first = found[0]
    result = {
        "preset": arguments.preset,
        "seed": arguments.seed,
        "heldout": first["heldout"],
        "rounds": first["rounds"],
    }
    if len(starts) > 1:
        result |= {"starts": found, "levers": levers(found)}
    return result | {"minutes": round((time.monotonic() - began) / 60, 1)}


def levers(found: Sequence[dict[str, Any]]) -> list[str]:
    """Different policy keys that some round promoted a patch for."""
    return sorted(
        {
            one["lever"].split(": ")[-1].split(" ")[0]
            for start in found
            for one in start["rounds"]
            if one["patch_id"] is not None and one["lever"]
        }
    )


def markdown(document: dict[str, Any], command: str) -> str:
    """A page for `docs/results/`."""
    lines = [f"# Evolution, preset {document['preset']}", "", f"`{command}`", ""]
    for one in document.get("starts", [{"start": PLAIN.name, **document}]):
        held = one["heldout"]
        lines += [f"## {one['start']}", "", "| round | success before | after | lever | verdict | promoted |"]
        lines += ["|---|---|---|---|---|---|"]
        for row in one["rounds"]:
            evals = [f"{e['mean']:.3f}" if e else "–" for e in (row["eval"]["before"], row["eval"]["after"])]
            lines.append(
                f"| {row['round']} | {evals[0]} | {evals[1]} | {row['lever'] or row['note'] or '–'} | "
                f"{verdict_text(row)} | {row['patch_id'] or '–'} |"
            )
        lines += ["", held_text(held), ""]
    if "levers" in document:
        lines += [f"Levers that were promoted: {', '.join(document['levers']) or 'none'}.", ""]
    return "\n".join(lines)


def verdict_text(row: dict[str, Any]) -> str:
    """Verdicts of a round's patches with their effects."""
    texts = []
    for patch in row["patches"]:
        if patch["effect"] is not None and patch["ci95"] is not None:
            low, high = patch["ci95"]
            texts.append(f"{patch['verdict']} {patch['effect']:+.3f} [{low:+.3f}, {high:+.3f}], {patch['pairs']} pairs")
    return "; ".join(texts) or "–"


def held_text(held: dict[str, Any]) -> str:
    """One sentence."""
    if not held["pairs"]:
        return f"Held out: {held['why']}."
    low, high = held["ci95"]
    parts = ", ".join(f"{name} {effect:+.3f}" for name, effect in held["scenarios"].items())
    return (
        f"Held out (reserve scenarios, fresh seeds, {held['pairs']} pairs): base {held['base']:.3f}, evolved "
        f"{held['evolved']:.3f}, effect {held['effect']:+.3f} [{low:+.3f}, {high:+.3f}] ({parts})."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("quick", "full", "calibrate"), default="quick")
    parser.add_argument("--seed", type=int, default=1, help="all seeds follow from it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=12, help="held-out pairs")
    parser.add_argument(
        "--work", type=Path, default=None, help="kept between calls; by default in the temporary folder"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--markdown", type=Path, help="write the page here")
    arguments = parser.parse_args()
    name = f"mcp-evo-evolution-{arguments.preset}-{arguments.seed}"
    work = arguments.work or Path(tempfile.gettempdir()) / name

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    command = f"python benchmarks/evolution.py --preset {arguments.preset} --seed {arguments.seed}"
    if arguments.preset == "calibrate":
        document = calibration.calibrate(work, arguments.seed, say)
        text = calibration.markdown(document, command)
    else:
        starts = (PLAIN,) if arguments.preset == "quick" else FULL
        document = run_starts(starts, arguments, work, say)
        text = markdown(document, command)
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")
    print(json.dumps(document, indent=1) if arguments.json else text)


if __name__ == "__main__":
    main()
