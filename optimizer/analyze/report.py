"""Reports: `reports/<layer>/<report_id>.json` and `.md`, findings with everything they rest on."""

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.analyze.claims import Checked
from optimizer.ids import check_id
from optimizer.layers import Layer
from optimizer.types import EventEvidence, Finding, Metric
from skill_bank.files import read_json, write_json_atomic, write_text_atomic

SCHEMA_VERSION = 1

MAX_SERIES_SHOWN = 20
"""Series in the text for people."""


class ReportError(ValueError):
    """A report that does not exist or cannot be read."""


class SeriesLine(BaseModel):
    """A series of numbers that tool output showed, in short."""

    model_config = ConfigDict(extra="allow")

    session: str
    name: str
    split: str | None = None
    """None: neither its name nor its place says on which split it was measured."""
    run: str | None = None
    axis: str
    """step | epoch | round | index | none (a single number)."""
    points: int
    own: int = 0
    """Numbers among them that the agent wrote itself."""
    first_step: float | None = None
    last_step: float | None = None
    last: str
    """The number shown last."""
    lines: list[int] = Field(default_factory=list)
    """Events that show it, the first ones."""


class Report(BaseModel):
    """What an analysis found."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    report_id: str
    layer: str
    sessions: list[str] = Field(default_factory=list)
    runs: list[str] = Field(default_factory=list)
    segments: int = 0
    tool_calls: int = 0
    findings: list[Finding] = Field(default_factory=list)
    claims: list[Checked] = Field(default_factory=list)
    """What agents stated, with verdicts."""
    series: list[SeriesLine] = Field(default_factory=list)
    """The longest of the series that were read."""
    series_total: int = 0
    created_at: float = Field(default_factory=time.time)

    def finding(self, finding_id: str) -> Finding:
        """One finding. Raises ReportError naming those there are."""
        for one in self.findings:
            if one.id == finding_id:
                return one
        known = ", ".join(one.id for one in self.findings) or "none"
        raise ReportError(f"report {self.report_id} has no finding {finding_id!r}. It has: {known}")


class ReportStore:
    """Reports of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / "reports"

    def write(self, report: Report) -> Path:
        """Writes both forms and returns the path of the JSON one."""
        folder = self.root / Layer(report.layer)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{check_id(report.report_id, 'report')}.json"
        write_text_atomic(path.with_suffix(".md"), markdown(report))
        write_json_atomic(path, report.model_dump(mode="json"))
        return path

    def read(self, report_id: str) -> Report:
        """A report of any layer. Raises ReportError."""
        check_id(report_id, "report")
        for layer in Layer:
            path = self.root / layer / f"{report_id}.json"
            if path.exists():
                return self._load(path)
        raise ReportError(f"there is no report {report_id!r}. There are: {', '.join(self.ids()[-5:]) or 'none yet'}")

    def claims_of(self, report_id: str) -> list[Checked]:
        """Claims that a report holds; none where it is not there yet."""
        return self.read(report_id).claims if report_id in self.ids() else []

    def ids(self) -> list[str]:
        """All reports, oldest first."""
        if not self.root.is_dir():
            return []
        paths = sorted(self.root.glob("*/*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in paths]

    def find(self, finding_id: str) -> tuple[Report, Finding]:
        """The newest report that holds a finding. Raises ReportError."""
        for report_id in reversed(self.ids()):
            report = self.read(report_id)
            for one in report.findings:
                if one.id == finding_id:
                    return report, one
        raise ReportError(
            f"no report holds finding {finding_id!r}: analyse a run first, and take the id from its findings"
        )

    def _load(self, path: Path) -> Report:
        try:
            return Report.model_validate(read_json(path))
        except (ValueError, ValidationError) as error:
            raise ReportError(f"{path} cannot be read: {error}") from error


def markdown(report: Report) -> str:
    """The report for people."""
    sessions, runs = ", ".join(report.sessions) or "none", ", ".join(report.runs) or "none"
    counts = f"{report.segments} segments with {report.tool_calls} tool calls"
    head = f"Layer {report.layer}; sessions: {sessions}; runs: {runs}; {counts}."
    lines = [f"# Report {report.report_id}", "", head, ""]
    if not report.findings:
        lines += ["Nothing was found.", ""]
    for number, finding in enumerate(report.findings, start=1):
        lines += [f"## {number}. {finding.kind.replace('_', ' ')}", "", finding.what, ""]
        lines += [f"- id: `{finding.id}`, confidence {finding.confidence:.2f}"]
        if finding.lever is not None:
            choices = " or ".join(f"{one:g}" for one in finding.lever.choices)
            lines.append(f"- lever: {finding.lever.skill} `{finding.lever.key}` {finding.lever.direction} ({choices})")
        if finding.blocked is not None:
            lines.append(f"- blocked: {finding.blocked}")
        lines += [f"- {_metric_text(metric)}" for metric in finding.metrics]
        lines += [f"- evidence: {', '.join(_evidence_text(one) for one in finding.evidence)}", ""]
    return "\n".join([*lines, *_claims_text(report), *_series_text(report)])


def _claims_text(report: Report) -> list[str]:
    if not report.claims:
        return []
    lines = ["## Claims", ""]
    for one in report.claims:
        lines.append(f"- **{one.verified}**: {one.statement or 'no machine form'} ({one.reason})")
        if one.untested is not None:
            lines.append(f"  - untested text: {' '.join(one.untested.split())}")
    return [*lines, ""]


def _series_text(report: Report) -> list[str]:
    if not report.series:
        return []
    shown = report.series[:MAX_SERIES_SHOWN]
    lines = ["## Series read from tool output", "", "| metric | split | run | points | last | lines |"]
    lines.append("|---|---|---|---|---|---|")
    for one in shown:
        points = f"{one.points} by {one.axis}" if one.axis != "none" else str(one.points)
        own = f", {one.own} the agent's own" if one.own else ""
        cited = ", ".join(f"{one.session}:{line}" for line in one.lines[:3])
        split, run = one.split or "not stated", one.run or "not stated"
        lines.append(f"| {_cell(one.name)} | {split} | {_cell(run)} | {points}{own} | {one.last} | {cited} |")
    if report.series_total > len(shown):
        lines += ["", f"{len(shown)} of {report.series_total} series."]
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _metric_text(metric: Metric) -> str:
    text = f"{metric.name} = {metric.value:.4g}"
    if metric.standard_error is not None:
        text += f" ± {metric.standard_error:.2g} (standard error)"
    if metric.n is not None:
        text += f", n = {metric.n}"
    return f"{text}, split {metric.split}" if metric.split is not None else text


def _evidence_text(evidence: Any) -> str:
    if isinstance(evidence, EventEvidence):
        return f"{evidence.session}:{evidence.line}"
    return evidence.run_id if evidence.step is None else f"{evidence.run_id} step {evidence.step}"
