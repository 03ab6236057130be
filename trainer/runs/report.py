"""The closing report of a run: what it was, what came out, what it means, what the episodes look like, where files are.

`build_report` collects values; `report_lines` writes them as plain text (the same for terminal, tool and file).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import TrainingConfig
from trainer.runs import event_file
from trainer.runs.curves import text_curve
from trainer.runs.detectors.feed import RunWatch, strongest
from trainer.runs.detectors.types import Alert
from trainer.runs.diagnose import DEFAULT_THRESHOLDS, Finding, Thresholds, diagnose_run
from trainer.runs.errors import RunError
from trainer.runs.review import Review, Stretch
from trainer.runs.review_files import review_of, validations_of
from trainer.runs.rundir import RunDirectory
from trainer.runs.samples import SampleEpisode, sample_episodes
from trainer.runs.series import RunSeries
from trainer.runs.types import Eval, RunDocument, RunState, Verdict
from trainer.runs.wording import counted

MAX_ALARMS = 5
"""Alarms that the closing report lists, the most severe first."""

_VERDICTS = {
    Verdict.GOAL_REACHED: "goal reached",
    Verdict.GOAL_MISSED: "goal missed",
    Verdict.NO_GOAL: "no goal was set",
}

PHASES = ("generate", "environment", "logprob", "update", "other")
"""Phases of a step that metrics lines time; they add up to the step."""


@dataclass(frozen=True)
class RunReport:
    """Everything that a closing report says."""

    document: RunDocument
    config: TrainingConfig
    findings: tuple[Finding, ...]
    alerts: tuple[tuple[Alert, int], ...]
    """Each anomaly that was seen while it ran, in its worst form, with how often; the most severe first."""
    warnings: tuple[str, ...]
    """What the worker said went wrong, though it went on."""
    skipped: dict[str, str]
    """Detectors that could not judge, with the metric they miss."""
    reward: tuple[tuple[int, float], ...]
    """(step, mean training reward)."""
    validation: tuple[tuple[int, float], ...]
    """(step, success on the validation split)."""
    phase_seconds: dict[str, float] = field(default_factory=dict)
    """Phase → seconds over the whole run."""
    review: Review = field(default_factory=Review)
    samples: tuple[SampleEpisode, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """What → absolute path, of what exists."""


def build_report(directory: RunDirectory, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> RunReport:
    """Collects the report of a run in whatever state it is. Raises RunError."""
    document = directory.read_document()
    series = RunSeries(directory.metrics())
    watch = RunWatch(directory)
    watch.poll()
    return RunReport(
        document=document,
        config=directory.read_config(),
        findings=tuple(diagnose_run(directory, thresholds)),
        alerts=tuple(strongest(watch.alerts)),
        warnings=tuple(str(one.get("text", "")) for one in directory.events() if one.get("kind") == "warning"),
        skipped=watch.skipped,
        reward=tuple(series.points("reward_mean")),
        validation=tuple(validations_of(directory)),
        phase_seconds=phase_seconds(directory.metrics()),
        review=review_of(directory),
        samples=tuple(sample_episodes(directory)),
        files=_files(directory),
    )


def phase_seconds(metrics: list[dict[str, Any]]) -> dict[str, float]:
    """Sum over the steps of the seconds of each phase."""
    total: dict[str, float] = {}
    for row in metrics:
        seconds = row.get("seconds")
        if not isinstance(seconds, Mapping):
            continue
        for phase, value in seconds.items():
            if isinstance(value, (int, float)):
                total[str(phase)] = total.get(str(phase), 0.0) + float(value)
    return total


def _files(directory: RunDirectory) -> dict[str, str]:
    candidates = {
        "run": directory.path,
        "model": directory.model_folder,
        "metrics": directory.metrics_path,
        "curves": directory.path / event_file.FOLDER,
        "episodes": directory.episodes_folder,
        "log": directory.log_path,
    }
    return {name: str(path) for name, path in candidates.items() if Path(path).exists()}


def eval_line(result: Eval) -> str:
    """`0.95 [0.90, 0.98], n 128: parse 1.00, tool calls 0.99, correct given a valid call 0.96`."""
    parts = [
        ("calls parsed", result.parse_ok_rate),
        ("episodes with a valid call", result.tool_call_rate),
        ("correct given a valid call", result.correct_given_valid_call),
        ("cut by the cap", result.truncated_rate or None),
    ]
    split = ", ".join(f"{name} {value:.2f}" for name, value in parts if value is not None)
    text = f"{result.mean:.3f} [{result.ci95[0]:.3f}, {result.ci95[1]:.3f}] n={result.n}"
    return f"{text}   ({split})" if split else text


def headline(document: RunDocument) -> str:
    """State and verdict of a run in one line."""
    if document.state is RunState.FINISHED:
        verdict = _VERDICTS.get(document.verdict, "") if document.verdict is not None else ""
        return f"{document.run_id}: finished{', ' + verdict if verdict else ''}"
    if document.state is RunState.STOPPED:
        return f"{document.run_id}: stopped ({document.stop_reason or 'asked'})"
    if document.failure is not None:
        return f"{document.run_id}: {document.state} ({document.failure.kind}): {document.failure.message}"
    return f"{document.run_id}: {document.state}"


def report_lines(report: RunReport, *, width: int = 80) -> list[str]:
    """The report as plain text."""
    document, config = report.document, report.config
    lines = [headline(document)]
    seconds = f", {document.seconds:.1f} s" if document.seconds is not None else ""
    device = f" on {document.device}" if document.device else ""
    lines.append(
        f"{config.model} / {config.env} ({config.difficulty}), step {document.step} of at most "
        f"{document.planned_steps or config.planned_steps}{seconds}{device}, seed {config.seed}"
    )
    mixture = (document.model_extra or {}).get("generated_tasks")
    if isinstance(mixture, dict):
        lines.append(_mixture_line(mixture))
    if len(report.reward) > 1:
        lines += ["", "Mean training reward by step"]
        lines += text_curve(report.reward, width=min(60, max(20, width - 12)))
    before, after = document.eval.get("before"), document.eval.get("after")
    if before is not None or after is not None:
        lines += ["", "Test success (held-out problems, 95 % Wilson interval)"]
        if before is not None:
            lines.append(f"  before  {eval_line(before)}")
        if after is not None:
            lines.append(f"  after   {eval_line(after)}")
    if report.validation:
        best = max(report.validation, key=lambda point: point[1])
        lines.append(
            f"  best validation {best[1]:.3f} at step {best[0]} of {counted(len(report.validation), 'validation')}"
        )
    if report.findings:
        lines += ["", "What the numbers say"]
        lines += [f"  {finding.sentence}" for finding in report.findings[:3]]
    lines += review_lines(report.review)
    alarms = [alert for alert, _ in report.alerts if alert.severity.is_alarm]
    if alarms or report.warnings:
        lines += ["", "Seen while it ran"]
        lines += [f"  {text}" for text in report.warnings[:MAX_ALARMS]]
        lines += [f"  step {one.step}, {one.severity}, {one.name}: {one.say}" for one in alarms[:MAX_ALARMS]]
    total = sum(report.phase_seconds.values())
    if total > 0:
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in report.phase_seconds.items() if value > 0)
        lines += ["", f"Time of {counted(len(report.reward), 'step')}: {total:.1f} s ({shares})"]
    for sample in report.samples:
        reward = "" if sample.reward is None else f", reward {sample.reward:g}"
        lines += ["", f"Episode: {sample.label} (step {sample.step}{reward}, {sample.stop_reason or 'ended'})"]
        lines += [f"  {role:9} {text}" for role, text in sample.messages]
    if document.failure is not None and document.failure.log_tail:
        lines += ["", "Last lines of worker.log", *[f"  {line}" for line in document.failure.log_tail]]
    if report.files:
        lines += ["", "Files", *[f"  {name:9} {path}" for name, path in report.files.items()]]
    return lines


def _mixture_line(mixture: dict[str, Any]) -> str:
    """`training problems: 32 generated and 32 of the environment, from …/tasks.jsonl`."""
    left_out = sum(mixture["left_out"].values())
    told = f"; {left_out} left out: {', '.join(mixture['left_out'])}" if left_out else ""
    counts = f"{mixture['generated']} generated and {mixture['originals']} original"
    return f"training problems: {counts}, from {mixture['file']}{told}"


_COLUMNS = (
    ("reward", "reward_mean"),
    ("entropy", "entropy"),
    ("flat", "frac_zero_variance"),
    ("parsed", "parse_ok_rate"),
    ("calls", "tool_call_rate"),
    ("cut", "truncated_rate"),
    ("tokens", "completion_mean"),
)
"""Columns of the table of parts: heading, measure."""


def review_lines(review: Review) -> list[str]:
    """The run by its parts, and what changed between them; nothing for a run that is too short for parts."""
    if not review.quarters:
        return []
    head = "".join(f"{name:>9}" for name, _ in _COLUMNS) + f"{'validated':>11}"
    lines = ["", f"{'By part (mean over steps)':26}{head}"]
    lines += [_stretch_line(one) for one in (*review.quarters, *review.epochs)]
    lines += [f"  {one.sentence}" for one in review.shifts]
    lines += [f"  {one.sentence}" for one in review.revisits]
    return lines


def _stretch_line(one: Stretch) -> str:
    cells = ""
    for _, measure in _COLUMNS:
        level = one.levels.get(measure)
        cells += f"{'–' if level is None else format(level.mean, '.3g'):>9}"
    validated = "–" if one.validation is None else f"{one.validation:.3f}"
    return f"  {one.name}, {one.first_step}–{one.last_step}".ljust(26) + cells + f"{validated:>11}"


def review_json(review: Review) -> dict[str, Any]:
    """The review as JSON: parts with (mean, standard error or null) of each measure, shifts, epochs side by side."""

    def part(one: Stretch) -> dict[str, Any]:
        levels = {
            name: [round(level.mean, 5), round(level.error, 5) if math.isfinite(level.error) else None]
            for name, level in one.levels.items()
        }
        steps = [one.first_step, one.last_step]
        return {"name": one.name, "steps": steps, "levels": levels, "validation": one.validation}

    return {
        "quarters": [part(one) for one in review.quarters],
        "epochs": [part(one) for one in review.epochs],
        "shifts": [asdict(one) for one in review.shifts],
        "revisits": [{**asdict(one), "sentence": one.sentence} for one in review.revisits],
    }


def run_json(directory: RunDirectory) -> dict[str, Any]:
    """The run document as `runs show --json` gives it: the file, with findings, config and files added."""
    document = directory.read_document()
    result: dict[str, Any] = document.model_dump(mode="json")
    try:
        report = build_report(directory)
    except RunError as error:
        return {**result, "report_error": str(error)}
    result["config"] = report.config.model_dump(mode="json")
    result["findings"] = [
        {"kind": one.kind.value, "sentence": one.sentence, "numbers": one.numbers, "confidence": one.confidence}
        for one in report.findings
    ]
    result["review"] = review_json(report.review)
    result["alerts"] = [{**alert.as_dict(), "times": times} for alert, times in report.alerts]
    result["detectors_skipped"] = report.skipped
    result["files"] = report.files
    json.dumps(result, allow_nan=False)  # strict JSON, or a clear error here instead of in somebody's reader
    return result
