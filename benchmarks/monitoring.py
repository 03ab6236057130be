"""How well the detectors do: recall on scripted failures by magnitude, delay, false alarms, recorded series and labels.

    python benchmarks/monitoring.py [--seeds 8] [--healthy 100] [--write] [--faults FILE]

`--write` renews the tables in docs/monitoring.md. Scripted runs are drawn from seeds that no threshold was chosen on.
The recorded series of `../shared/corpus` are judged where that folder exists. `--faults` names the output of
`pytest -m slow tests/runs/test_faults_real.py -s`, whose ten runs are listed as they were told.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.runs.detectors.catalogue import CATALOGUE
from trainer.runs.detectors.types import Alert, Detector
from trainer.runs.replay import MAGNITUDES, Recall, against_labels, from_points, from_recording, judged, recall
from trainer.runs.simulate import healthy
from trainer.runs.simulate_faults import FAULTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "monitoring.md"
CORPUS = ROOT.parent / "shared" / "corpus" / "metrics_truth.json"
RECORDINGS = ROOT / "tests" / "runs" / "recordings"
LABELS = ROOT / "tests" / "runs" / "labels"

FIRST_SEED = 2_000_000
"""Thresholds were chosen on seeds below 600,000."""

HEALTHY_STEPS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8, help="runs of each script and magnitude")
    parser.add_argument("--healthy", type=int, default=100, help="healthy runs")
    parser.add_argument("--write", action="store_true", help="renew docs/monitoring.md")
    parser.add_argument("--faults", type=Path, help="output of the ten real runs")
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    alarms, notes = healthy_counts(range(FIRST_SEED, FIRST_SEED + arguments.healthy))
    recorded = recordings()
    results = [[recall(fault, magnitude, seeds) for magnitude in MAGNITUDES] for fault in FAULTS]
    tables = {
        "detectors": detector_table(results, alarms, notes, recorded, arguments),
        "scripts": script_table(results),
        "recordings": recording_table(recorded),
    }
    if arguments.faults is not None:
        tables["faults"] = fault_table(arguments.faults.read_text(encoding="utf-8"))
    for name, table in tables.items():
        print(f"\n## {name}\n\n{table}")
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        for name, table in tables.items():
            page = replaced(page, name, table)
        PAGE.write_text(page, encoding="utf-8")


def replaced(page: str, name: str, table: str) -> str:
    """The page with the part between the marks of a name renewed."""
    begin, end = f"<!-- {name}: written by benchmarks/monitoring.py -->", f"<!-- /{name} -->"
    head, _, rest = page.partition(begin)
    if not rest or end not in rest:
        raise SystemExit(f"{PAGE} has no marks {begin} … {end}")
    return f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def healthy_counts(seeds: Sequence[int]) -> tuple[dict[str, int], dict[str, int]]:
    """(healthy runs with an alarm, with a note) by detector."""
    alarms: dict[str, int] = {}
    notes: dict[str, int] = {}
    for seed in seeds:
        alerts = judged(healthy(seed, HEALTHY_STEPS)).alerts
        for found, chosen in ((alarms, True), (notes, False)):
            for detector in {one.detector for one in alerts if one.severity.is_alarm is chosen}:
                found[detector] = found.get(detector, 0) + 1
    return alarms, notes


class Recorded:
    """One recorded run, judged."""

    def __init__(self, name: str, why: str, steps: int, alerts: Sequence[Alert], labels: dict[str, Any]) -> None:
        self.name, self.why, self.steps = name, why, steps
        self.must: list[list[str]] = labels["must"]
        self.judgement = against_labels(alerts, labels["must"], labels["may"])


def recordings() -> list[Recorded]:
    """Our own recorded runs, and those of the corpus where it is there."""
    found = []
    for path in sorted(RECORDINGS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        run = from_recording(document)
        hard = "few problems" in document["about"]
        labels = {"must": [], "may": ["zero_variance", "no_diversity"] if hard else []}
        found.append(Recorded(path.stem, document["about"], len(run.rows), judged(run).alerts, labels))
    if CORPUS.exists():
        labels = json.loads((LABELS / "corpus.json").read_text(encoding="utf-8"))["runs"]
        for name, series in json.loads(CORPUS.read_text(encoding="utf-8"))["runs"].items():
            run = from_points(series, "val_acc", 1319)
            found.append(Recorded(name, labels[name]["why"], len(run.rows), judged(run).alerts, labels[name]))
    return found


def detector_table(
    results: list[list[Recall]],
    alarms: dict[str, int],
    notes: dict[str, int],
    recorded: list[Recorded],
    arguments: argparse.Namespace,
) -> str:
    head = [
        "| detector | rule | source | worst | recall on scripts | recall on recordings | false alarms | delay |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = [detector_line(one, results, alarms, notes, recorded, arguments.healthy) for one in CATALOGUE]
    return "\n".join([*head, *lines])


def detector_line(
    detector: Detector,
    results: list[list[Recall]],
    alarms: dict[str, int],
    notes: dict[str, int],
    recorded: list[Recorded],
    healthy_runs: int,
) -> str:
    mine = [curve for curve in results if curve[0].fault.detector == detector.id]
    shown = "; ".join(kind_text(curve) + "/".join(f"{one.rate:.2f}" for one in curve) for curve in mine)
    delays = "; ".join(f"{curve[-1].median_delay}" for curve in mine)
    wanted = [
        (run, group) for run in recorded for group in run.must if detector.id in {name.split(":")[0] for name in group}
    ]
    hits = sum(any(one.detector == detector.id for one in run.judgement.alerts) for run, _ in wanted)
    on_records = f"{hits} of {len(wanted)}" if wanted else "–"
    false = sum(one.detector == detector.id for run in recorded for one in run.judgement.false)
    quiet = f"{alarms.get(detector.id, 0)} of {healthy_runs}; {false} of {len(recorded)}"
    if notes.get(detector.id):
        quiet += f" (notes: {notes[detector.id]})"
    cells = (detector.id, detector.rule, detector.source, detector.severity, shown, on_records, quiet, delays)
    return table_row(cells)


def table_row(cells: Sequence[object]) -> str:
    """A line of a table; a bar inside a cell would end it."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def kind_text(curve: list[Recall]) -> str:
    return "" if curve[0].fault.kind is None else f"{curve[0].fault.kind} "


def script_table(results: list[list[Recall]]) -> str:
    head = ["| script | magnitude 0 to 1 | " + " | ".join(f"{one:g}" for one in MAGNITUDES) + " |"]
    head.append("|---|---|" + "---|" * len(MAGNITUDES))
    lines = []
    for curve in results:
        fault = curve[0].fault
        name = fault.detector if fault.kind is None else f"{fault.detector}:{fault.kind}"
        cells = [f"{one.rate:.2f}" + ("" if one.median_delay is None else f" ({one.median_delay})") for one in curve]
        lines.append(table_row((name, fault.meaning, *cells)))
    return "\n".join([*head, *lines])


def recording_table(recorded: list[Recorded]) -> str:
    head = ["| run | steps | what it is | alarms (first step) | missed | false |", "|---|---|---|---|---|---|"]
    lines = []
    for run in recorded:
        firsts: dict[str, Alert] = {}
        for alert in run.judgement.alerts:
            if alert.severity.is_alarm:
                firsts.setdefault(alert.name, alert)
        told = ", ".join(f"{name} ({one.step})" for name, one in firsts.items()) or "none"
        missed = "; ".join(" or ".join(group) for group in run.judgement.missed) or "none"
        false = ", ".join(sorted({one.name for one in run.judgement.false})) or "none"
        lines.append(f"| {run.name} | {run.steps} | {run.why} | {told} | {missed} | {false} |")
    return "\n".join([*head, *lines])


def fault_table(output: str) -> str:
    """The ten real runs from what their tests printed."""
    labels = json.loads((LABELS / "faults.json").read_text(encoding="utf-8"))["runs"]
    head = [
        "| run | fault | ended | expected | told (first step) | found after | false |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = []
    for name, state, step, body in re.findall(
        r"^\.?(\S+): (\w+) after step (\d+), \d+ s\n((?:  step .*\n)*)", output, flags=re.MULTILINE
    ):
        if name not in labels:
            continue
        must, may = labels[name]["must"], labels[name]["may"]
        firsts: dict[str, tuple[int, str]] = {}
        for at, severity, alert in re.findall(r"^  step +(\d+) (\w+) +(\S+?): ", body, flags=re.MULTILINE):
            firsts.setdefault(alert, (int(at), severity))
        wanted = {one for group in must for one in group}
        hits = [at for alert, (at, _) in firsts.items() if {alert, alert.split(":")[0]} & wanted]
        allowed = wanted | set(may)
        false = [
            alert
            for alert, (_, severity) in firsts.items()
            if severity != "info" and not {alert, alert.split(":")[0]} & allowed
        ]
        told = ", ".join(f"{alert} ({at})" for alert, (at, _) in firsts.items()) or "none"
        expected = "; ".join(" or ".join(group) for group in must)
        found = f"{min(hits)} steps" if hits else "missed"
        lines.append(
            f"| {name} | {labels[name]['fault']} | {state} at {step} | {expected} | {told} | {found} | "
            f"{', '.join(false) or 'none'} |"
        )
    return "\n".join([*head, *lines])


if __name__ == "__main__":
    main()
