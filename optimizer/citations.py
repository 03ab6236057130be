"""Which recorded sessions are evidence: what patches, approvals, trials, rounds, campaigns and findings rest on.

`explain` walks from a value to the events behind it; a session that such a chain ends at must not be pruned. A document
cites a session by its id, as `session:line`, or through a run that was launched in it. Documents that cannot be parsed
cite whatever their bytes name: in doubt, a session stays.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optimizer.home import Home
from optimizer.store import folder_of
from skill_bank.files import read_json_lines
from trainer.runs.registry import list_runs

CITING = ("patches", "trials", "rounds", "campaigns", "evaluations", "reports")
"""Folders of the workspace whose documents may rest on events."""

DEPTH = 3
"""Documents lie at most so deep; below are a trial's own arms, which name nothing outside."""

_LINE = re.compile(r"(.+):(\d+)\Z", re.DOTALL)

_EVIDENCE_KEYS = ("findings", "claims")
"""Of a report only these rest on events; that it looked at a session is no reason to keep it."""


def citations(home: Home) -> dict[str, list[str]]:
    """Session → the documents that cite it, in order. Raises OSError where one cannot be read."""
    sessions = {one.session for one in home.trajectories.files()}
    runs = {
        run.directory.run_id: folder_of(run.document.session)
        for run in list_runs(home.workspace)
        if run.document.session is not None
    }
    cited: dict[str, list[str]] = {}
    for where, value in _documents(home.root):
        for session in sorted(_named(value, sessions, runs)):
            cited.setdefault(session, []).append(where)
    return cited


def _documents(root: Path) -> Iterator[tuple[str, Any]]:
    for name in CITING:
        for path in _files(root / name, DEPTH):
            value = _load(path)
            if name == "reports" and isinstance(value, dict):
                value = [value.get(key) for key in _EVIDENCE_KEYS]
            yield str(path.relative_to(root)), value
    audit = root / "audit.jsonl"
    if audit.is_file():
        yield audit.name, _load(audit)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and depth > 1:
            yield from _files(path, depth - 1)
        elif path.suffix in (".json", ".jsonl") and path.is_file():
            yield path


def _load(path: Path) -> Any:
    if path.suffix == ".jsonl":
        rows = read_json_lines(path)
        if not rows.bad_lines:
            return [row for _, row in rows.rows]
    data = path.read_bytes()
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return re.split(r'[\s",\[\]{}]+', data.decode("utf-8", "replace"))


def _named(value: Any, sessions: set[str], runs: dict[str, str]) -> set[str]:
    """Sessions that a JSON value names, its keys included."""
    found: set[str] = set()
    pending: list[tuple[bool, Any]] = [(False, value)]
    while pending:
        is_session, one = pending.pop()
        if isinstance(one, dict):
            pending += [(key in ("session", "sessions"), member) for key, member in one.items()]
            pending += [(False, key) for key in one]
        elif isinstance(one, list):
            pending += [(is_session, member) for member in one]
        elif isinstance(one, str):
            line = _LINE.match(one)
            for name in (one, line[1]) if line is not None else (one,):
                folder = folder_of(name) if is_session or line is not None else name
                found |= {name, folder, runs.get(name, name)} & sessions
    return found
