"""The analysis of one run: findings, advice, the run by its parts, episodes worth a look; on disk and as text.

`runs/<id>/analysis.json` holds all of it; the report (`reports/rllm/run-<id>`) holds the findings, for patches to refer
to, and its text the rest as well.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from optimizer.analyze.advice import Advice
from optimizer.analyze.report import Report, ReportStore
from skill_bank.files import write_json_atomic, write_text_atomic
from trainer.runs.report import review_json, review_lines
from trainer.runs.review import Review
from trainer.runs.rundir import RunDirectory
from trainer.runs.samples import SampleEpisode

ANALYSIS_FILE = "analysis.json"

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RunAnalysis:
    """Everything that an analysis says about a run."""

    report: Report
    advice: tuple[Advice, ...]
    review: Review
    samples: tuple[SampleEpisode, ...]

    def write(self, store: ReportStore, directory: RunDirectory) -> Path:
        """Writes both files and returns the path of the report's JSON. Raises OSError."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "run_id": directory.run_id,
            "report_id": self.report.report_id,
            "findings": [one.model_dump(mode="json") for one in self.report.findings],
            "advice": [{**asdict(one), "sentence": one.sentence} for one in self.advice],
            "review": review_json(self.review),
            "samples": [asdict(one) for one in self.samples],
        }
        write_json_atomic(directory.path / ANALYSIS_FILE, document)
        path = store.write(self.report)
        text = path.with_suffix(".md")
        write_text_atomic(text, text.read_text(encoding="utf-8").rstrip("\n") + "\n\n" + "\n".join(self.lines()) + "\n")
        return path

    def lines(self) -> list[str]:
        """Advice, parts and episodes as Markdown."""
        return [*_advice_lines(self.advice), *_review_lines(self.review), *_sample_lines(self.samples)]


def _advice_lines(advice: Sequence[Advice]) -> list[str]:
    return ["## What to try", "", *(f"- {one.sentence}" for one in advice), ""] if advice else []


def _review_lines(review: Review) -> list[str]:
    table = review_lines(review)
    return ["## The run by its parts", "", "```", *(line for line in table if line), "```", ""] if table else []


def _sample_lines(samples: Sequence[SampleEpisode]) -> list[str]:
    """Indented, so that nothing an episode says is taken for markup or for an instruction of the report."""
    lines: list[str] = []
    for one in samples:
        reward = "" if one.reward is None else f", reward {one.reward:g}"
        lines += [f"## Episode: {one.label} (step {one.step}{reward}, {one.stop_reason or 'ended'})", ""]
        lines += [f"    {role:9} {text}" for role, text in one.messages]
        lines.append("")
    return lines
