"""Edits that belong to nothing else in the session.

Rule: under a skill of ours a source file is written or edited that no prompt, input or output before it named, and that
no call after it names again; at least two such files under the same skill.
Needs: edits with their file names (Edit, Write, NotebookEdit). Reports and data (Markdown, JSON, text) are no source.
Does not claim: that the edit was wrong. It says that nothing in the record connects it with the work.
"""

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.texts import read_path
from optimizer.analyze.view import View
from optimizer.types import Finding, Metric

MIN_FILES = 2

_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_SOURCES = (".py", ".ipynb", ".js", ".ts", ".tsx", ".c", ".cc", ".cpp", ".h", ".rs", ".go", ".java", ".toml", ".cfg",
            ".ini", ".css", ".html")  # fmt: skip


def detect(view: View) -> list[Finding]:
    """One finding for each skill under which unconnected files were edited."""
    edited: dict[tuple[str, str | None], list[tuple[int, str]]] = {}
    for event in view.calls:
        path = read_path(event)
        segment = view.segment_of(event)
        if event.tool not in _EDITS or event.failed or path is None or segment is None or segment.skill is None:
            continue
        if path.endswith(_SOURCES) and not _named_elsewhere(view, event.line, path):
            edited.setdefault((segment.id, segment.skill), []).append((event.line, path))
    found = []
    for (segment_id, skill), files in edited.items():
        names = list(dict.fromkeys(path.rsplit("/", 1)[-1] for _, path in files))
        if len(names) < MIN_FILES:
            continue
        listed = ", ".join(names[:6])
        what = f"under {skill}, {len(names)} files were edited that nothing before or after names: {listed}"
        metric = Metric(name="unconnected_files", value=len(names), n=len(files))
        lines = [line for line, _ in files]
        found.append(finding(view, "loss_of_focus", segment_id, what, lines, confidence=0.5, metrics=[metric]))
    return found


def _named_elsewhere(view: View, line: int, path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    stem = name.rsplit(".", 1)[0]
    wanted = name if len(stem) < 4 else stem
    for other in view.events:
        if other.line == line:
            continue
        if other.text is not None and wanted in other.text:
            return True
        if other.is_call:
            same = other.tool in _EDITS and read_path(other) == path
            if not same and (wanted in view.inputs[other.line] or wanted in view.outputs[other.line]):
                return True
    return False
