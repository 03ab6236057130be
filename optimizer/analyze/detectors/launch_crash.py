"""A launched training that crashed, by class.

Rule: an output that shows a launch's log or result holds a Python exception line (`SomeError: …`); the class comes from
the type of the exception, and for assertions and value errors from a stated division (`4 % 32 != 0`, `not divisible`).
The exception that ends the output counts; those of a clean-up (`multiprocessing/resource_tracker.py`) do not.
Needs: a launch in the session, or a run that the output names.
Does not claim: why it crashed beyond the line itself, nor that the run produced nothing (a run id may be
launched again, and an exception may come after the last step).
"""

import re
from enum import StrEnum

from optimizer.analyze.detectors.common import finding, shortened
from optimizer.analyze.runs_named import RunOfRow, named_runs
from optimizer.analyze.texts import DOCUMENT_SUFFIXES, command_of, lines_of, read_path
from optimizer.analyze.view import View
from optimizer.events import Event
from optimizer.types import Finding, Metric


class CrashClass(StrEnum):
    """What kind of exception it was."""

    MISSING_MODULE = "missing_module"
    OUT_OF_MEMORY = "out_of_memory"
    DIVISIBILITY = "divisibility"
    MISSING_FILE = "missing_file"
    KILLED = "killed"
    CONFIGURATION = "configuration"
    OTHER = "other"


_EXCEPTION = re.compile(
    r"\A(?:\([^()]*\)\s*)*(?:E\s+)?(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt))"
    r"(?:\((?P<inner>\w+)\))?(?::\s*(?P<message>.*))?\Z"
)
_DIVISION = re.compile(r"\bdivisible\b|\bdivid(?:e|es|ed|ing)\b|\d\s*%\s*\d|整除", re.IGNORECASE)
_MEMORY = re.compile(r"out of memory|no available memory|cannot allocate memory", re.IGNORECASE)
_KILLED = re.compile(r"killed by signal|signal: killed|SIGKILL", re.IGNORECASE)
_OWN_PROGRAM = re.compile(r"Traceback \(most recent call last\):\s*\n\s+File \"<(?:string|stdin)>\"")
"""A traceback of the command's own program, not of a training."""
_CLEANUP = "multiprocessing/resource_tracker.py"
_TYPES = {
    "ModuleNotFoundError": CrashClass.MISSING_MODULE,
    "ImportError": CrashClass.MISSING_MODULE,
    "OutOfMemoryError": CrashClass.OUT_OF_MEMORY,
    "MemoryError": CrashClass.OUT_OF_MEMORY,
    "FileNotFoundError": CrashClass.MISSING_FILE,
    "ConfigAttributeError": CrashClass.CONFIGURATION,
    "ConfigKeyError": CrashClass.CONFIGURATION,
    "ValidationError": CrashClass.CONFIGURATION,
    "HfArgumentParserError": CrashClass.CONFIGURATION,
}
_SHOWS = frozenset({"Bash", "BashOutput", "TaskOutput", "Monitor", "Read", "monitor_run", "analyze_run"})


def detect(view: View) -> list[Finding]:
    """One finding for each run and class, with the lines that show it."""
    seen: dict[tuple[str, int, CrashClass], list[tuple[int, str]]] = {}
    for event in view.calls:
        if not _may_show(view, event):
            continue
        for run, launch, crash, text in _crashes(view, event):
            seen.setdefault((run, launch, crash), []).append((event.line, text))
    return [
        finding(
            view,
            "launch_crash",
            (run, launch, crash),
            f"{_launch_words(run, launch)} crashed ({crash.replace('_', ' ')}): {shortened(shown[0][1], 200)}",
            [line for line, _ in shown],
            confidence=0.9,
            metrics=[Metric(name="outputs_that_show_it", value=len(shown), n=len(shown))],
        )
        for (run, launch, crash), shown in seen.items()
    ]


def classify(kind: str, inner: str | None, message: str) -> CrashClass:
    """The class of an exception by its type and, where the type is a general one, by what its message states."""
    for name in (inner, kind.rsplit(".", 1)[-1]):
        if name in _TYPES:
            return _TYPES[name or ""]
    if _MEMORY.search(message):
        return CrashClass.OUT_OF_MEMORY
    if _KILLED.search(message):
        return CrashClass.KILLED
    if kind.rsplit(".", 1)[-1] in ("AssertionError", "ValueError", "RuntimeError") and _DIVISION.search(message):
        return CrashClass.DIVISIBILITY
    return CrashClass.OTHER


def _may_show(view: View, event: Event) -> bool:
    tool = (event.tool or "").rsplit("__", 1)[-1]
    if tool not in _SHOWS or _OWN_PROGRAM.search(view.outputs[event.line]):
        return False
    path = read_path(event) if tool == "Read" else None
    if path is not None and path.endswith((*DOCUMENT_SUFFIXES, ".json", ".jsonl", ".yaml")):
        return False
    return bool(view.book.launches) and event.line >= view.book.launches[0].line


def _crashes(view: View, event: Event) -> list[tuple[str, int, CrashClass, str]]:
    if "rror" not in view.outputs[event.line] and "xception" not in view.outputs[event.line]:
        return []
    if re.match(r"\A\s*(?:grep|rg|ag)\b.*\.py\b", command_of(event)):
        return []
    lines = lines_of(view.outputs[event.line])
    runs = RunOfRow(lines, named_runs(view.inputs[event.line], view.book.runs), view.book.runs)
    found: dict[tuple[str, CrashClass], str] = {}
    for row, line in enumerate(lines):
        match = _EXCEPTION.match(line.strip())
        if match is None or any(_CLEANUP in one for one in lines[max(0, row - 4) : row]):
            continue
        message = match["message"] or ""
        if match["type"] == "KeyError" and re.match(r"'/(?:psm|mp)[_-]", message):
            continue  # what the resource tracker of a worker says when it goes down
        crash = classify(match["type"], match["inner"], message)
        run = runs.at(row) or _launched_before(view, event.line)
        if run is not None:
            found[(run, crash)] = line.strip()
    if any(crash is not CrashClass.OTHER for _, crash in found):
        found = {key: text for key, text in found.items() if key[1] is not CrashClass.OTHER}
    return [(run, view.book.launch_at(run, event.line), crash, text) for (run, crash), text in found.items()]


def _launched_before(view: View, line: int) -> str | None:
    """The launch that the output is about where it names no run: the last one before it."""
    before = [launch for launch in view.book.launches if launch.line <= line]
    if not before:
        return None
    return before[-1].run or f"the training launched in line {before[-1].line}"


def _launch_words(run: str, launch: int) -> str:
    return f"{run}, launch {launch}," if launch > 1 else run
