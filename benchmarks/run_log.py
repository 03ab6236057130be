"""A run directory as a page: what was asked, the test before and after, and every step in numbers.

python benchmarks/run_log.py RUN_DIRECTORY > docs/results/NAME.md
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainer.config import TrainingConfig
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval

COLUMNS = ("reward_mean", "frac_zero_variance", "entropy", "completion_mean", "truncated_rate", "grad_norm", "time_s")


def shown(value: Any) -> str:
    """A cell: three significant digits, a dash for what was not measured."""
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def evaluation(name: str, one: Eval) -> str:
    """A row of the table of tests."""
    low, high = one.ci95
    rates = [one.parse_ok_rate, one.tool_call_rate, one.finish_rate, one.truncated_rate]
    return f"| {name} | {one.mean:.3f} [{low:.3f}, {high:.3f}] | {one.n} | {' | '.join(map(shown, rates))} |"


def page(directory: RunDirectory) -> str:
    """The page in Markdown."""
    document, config = directory.read_document(), directory.read_config()
    plain = TrainingConfig().model_dump(mode="json")
    own = {
        key: value for key, value in config.model_dump(mode="json").items() if value != plain[key] and key != "folder"
    }
    own["model"] = Path(str(config.model)).name
    lines = [
        f"Request: “{document.request}”. Settings that differ from the defaults (by request, `--set` or policy):",
        "",
        "```",
        *(f"{key}: {value}" for key, value in own.items()),
        "```",
        f"{document.parameters:,} parameters, {document.device}, torch {document.packages.get('torch')}, "
        f"{document.step} steps, {document.seconds or 0:.0f} s. {document.state}, {document.stop_reason}.",
        "",
        "| test | success [95 % Wilson] | n | calls parsed | episodes with a valid call | submitted | cut off |",
        "|---|---|---|---|---|---|---|",
        *(evaluation(name, one) for name, one in document.eval.items()),
        "",
        f"| step | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
        *(f"| {row['step']} | {' | '.join(shown(row.get(name)) for name in COLUMNS)} |" for row in directory.metrics()),
    ]
    return "\n".join(lines)


def main() -> int:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "run.json").is_file():
        print("usage: python benchmarks/run_log.py RUN_DIRECTORY (a folder with run.json)", file=sys.stderr)
        return 2
    print(page(RunDirectory(Path(sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
