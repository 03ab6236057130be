"""Whether lessons help: before training, in training, in every mode; and what credit of single turns brings.

    python benchmarks/experience.py [--part uplift|modes|training|credit] [--seeds N] [--work FOLDER] [--json]

Without `--part`: uplift and modes. On `house_rules` with `tiny`, where every house has its own meaning of an operator,
so that nobody can know a new house. Pools are what the shipped distiller makes of training rollouts, tried by the
shipped trials, guarded by the shipped refusal of evaluation problems. Pairs are seeds, as many as `--seeds` says
beforehand; intervals are Student's t at 95 %.

Everything runs on two single-threaded workers. In a `--work` folder that is named again, what was finished is not run
again, so a measurement that was killed goes on; after a change of the program name another folder.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; `mcp-evo` sets it, too

from benchmarks.common import BenchmarkError
from benchmarks.experience_modes import modes
from benchmarks.experience_training import SETTINGS, credit, training
from benchmarks.experience_uplift import LESSONS, fill_config, uplift
from benchmarks.kept_runs import KeptRuns

PARTS = ("uplift", "training", "modes", "credit")
DEFAULT_PARTS = ("uplift", "modes")
SEEDS = {"uplift": 8, "training": 5, "modes": 1, "credit": 5}
"""Pairs where `--seeds` says nothing; modes are one run each, whatever it says."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be given several times")
    parser.add_argument("--seeds", type=int, help=f"pairs; default {SEEDS}")
    parser.add_argument("--lessons", type=int, default=LESSONS, help="uplift: lessons in a prompt at most")
    parser.add_argument("--setting", default="houses", choices=tuple(SETTINGS), help="training: what is learned")
    parser.add_argument("--work", type=Path, help="folder that keeps what is done; default: a new one")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    if arguments.seeds is not None and arguments.seeds < 2:
        parser.error("--seeds must be at least 2: an interval needs two pairs")
    work = arguments.work or Path(tempfile.mkdtemp(prefix="experience-"))
    report: dict[str, Any] = {}
    try:
        with KeptRuns(work, lambda text: print(text, file=sys.stderr, flush=True)) as runs:
            for part in arguments.part or DEFAULT_PARTS:
                report[part] = measured(part, runs, arguments)
    except BenchmarkError as error:
        raise SystemExit(f"experience: {error}") from None
    print(
        json.dumps(report, indent=1) if arguments.json else "\n\n".join(TABLES[part](report[part]) for part in report)
    )
    return 0


def measured(part: str, runs: KeptRuns, arguments: argparse.Namespace) -> Any:
    """One part of the report."""
    seeds = range(1, 1 + (arguments.seeds or SEEDS[part]))
    if part == "uplift":
        import torch

        torch.set_num_threads(1)
        return uplift(runs, seeds, {seed: fill_config(seed) for seed in seeds}, arguments.lessons)
    if part == "training":
        return training(runs, seeds, SETTINGS[arguments.setting])
    return modes(runs, seeds[0]) if part == "modes" else credit(runs, seeds)


def effect_text(one: dict[str, Any], digits: int = 2) -> str:
    """`+0.21 (0.12 to 0.30)`."""
    low, high = one["ci95"]
    return f"{one['effect']:+.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def uplift_table(found: dict[str, Any]) -> str:
    success, leaks = found["success"], found["leaks"]
    rows = [
        ("success without", f"{success['plain']:.3f}"),
        ("with lessons of the house", f"{success['guided']:.3f}"),
        ("with placebo", f"{success['placebo']:.3f}"),
        ("lessons against none", effect_text(found)),
        ("lessons against placebo", effect_text(found["against_placebo"])),
        ("placebo against none", effect_text(found["placebo_against_plain"])),
        ("test problems with a lesson", f"{found['coverage']:.0%}"),
        ("records that tell a test problem, refused", f"{leaks['refused']} of {leaks['offered']}"),
    ]
    return table((f"{found['pairs']} pairs", ""), rows)


def training_table(found: dict[str, Any]) -> str:
    arms, differences = found["arms"], found["differences"]
    rows = []
    for arm, one in arms.items():
        other = differences.get(arm)
        rows.append(
            (
                arm,
                f"{one['reached']} of {one['of']}",
                f"{one['episodes_to_goal']:.0f}",
                "" if other is None else effect_text(other["episodes_to_goal"], 0),
                f"{one['mean']:.3f}",
                "" if other is None else effect_text(other["mean"], 3),
                f"{one['last']:.3f}",
                "" if other is None else effect_text(other["last"], 3),
            )
        )
    head = (
        f"houses: {found['houses']}, steps of {' x '.join(map(str, found['shape']))}",
        f"reached {found['goal']}",
        f"episodes of {found['episodes']}",
        "difference",
    )
    text = table((*head, "mean of the curve", "difference", "last", "difference"), rows)
    counted = [
        f"{arm} {effect_text(one['episodes_to_goal_with_filling'], 0)}"
        for arm, one in differences.items()
        if "episodes_to_goal_with_filling" in one
    ]
    return f"{text}\n\nFilling took {found['filling_episodes']} episodes; counted in: {', '.join(counted)}."


def modes_table(found: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["mode"],
            f"{one['rows_before']} → {one['rows']}",
            ", ".join(map(str, one["written_at"])) or "never",
            f"{one['model']}{'' if one['model_changed'] else ' (unchanged)'}",
            f"{one['guided']}",
            f"{one['stripped']}",
        )
        for one in found
    ]
    return table(("mode", "records", "written at steps", "weights", "guided", "of them stripped"), rows)


def credit_table(found: list[dict[str, Any]]) -> str:
    rows = [
        (one["env"], one["scheme"], f"{one['off']:.3f}", f"{one['on']:.3f}", effect_text(one, 3), str(one["pairs"]))
        for one in found
    ]
    return table(("environment", "scheme", "off", "on", "difference", "pairs"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


TABLES: dict[str, Callable[[Any], str]] = {
    "uplift": uplift_table,
    "training": training_table,
    "modes": modes_table,
    "credit": credit_table,
}


if __name__ == "__main__":
    sys.exit(main())
