"""Small stores of made-up events for the tests of index, search, watcher and retention."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.home import Home
from optimizer.index.build import TrajectoryIndex
from optimizer.store import TrajectoryStore

T0 = 1_790_000_000.0


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Home.create(folder / "workspace")
    return folder / "workspace"


def fresh_home(root: Path) -> Home:
    """A new workspace with a seeded bank, copied from one that was made once."""
    shutil.copytree(_template(), root)
    return Home.open(root)


def hook_line(session: str, tool: str = "Bash", **more: Any) -> bytes:
    """A line as `mcp-evo-hook` writes it."""
    document = {"received_at": T0, "session_id": session, "hook_event_name": "PostToolUse", "tool_name": tool}
    return json.dumps({**document, "tool_input": {}, "tool_response": {"stdout": "done"}, **more}).encode()


def append(store: TrajectoryStore, session: str, *lines: bytes) -> None:
    """Raw lines, as a writer of the past left them."""
    path = store.file(session)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as stream:
        stream.write(b"".join(line + b"\n" for line in lines))


def contents(index: TrajectoryIndex) -> dict[str, Any]:
    """All that the index says, without its own numbers: equal for two indexes of the same raw files."""
    with index.reading() as connection:
        events = connection.execute(
            "SELECT s.name, e.line, e.kind, e.agent, e.at, e.time, e.began, e.ended, e.tool, e.base_tool, e.outcome,"
            " e.source, e.call_id, e.run_id, e.same, ls.name, l.line, e.skill, e.layer, t.body"
            " FROM events e JOIN sessions s USING(sid) JOIN texts t ON t.id=e.id"
            " LEFT JOIN events l ON l.id=e.lead LEFT JOIN sessions ls ON ls.sid=l.sid ORDER BY 1, 2"
        ).fetchall()
        dangling = connection.execute(
            "SELECT count(*) FROM events WHERE lead IS NOT NULL AND lead NOT IN (SELECT id FROM events)"
        ).fetchone()[0]
        files = connection.execute(
            "SELECT s.name, e.line, f.path FROM files f LEFT JOIN events e ON e.id=f.event"
            " LEFT JOIN sessions s USING(sid) ORDER BY 1, 2, 3"
        ).fetchall()
        bad = connection.execute(
            "SELECT s.name, b.line FROM bad_lines b LEFT JOIN sessions s USING(sid) ORDER BY 1, 2"
        ).fetchall()
        sessions = connection.execute("SELECT name, offset, line, mark, last_at FROM sessions ORDER BY 1").fetchall()
        numbers = {row[0]: (row[1], row[2]) for row in connection.execute(
            "SELECT e.id, s.name, e.line FROM events e JOIN sessions s USING(sid)"
        )}  # fmt: skip
        words: dict[str, list[Any]] = {}
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'words', 'instance')")
        for term, number in connection.execute("SELECT term, doc FROM temp.terms"):
            words.setdefault(term, []).append(numbers.get(number, "dangling"))
    return {
        "events": events,
        "dangling": dangling,
        "files": files,
        "bad": bad,
        "sessions": sessions,
        "words": {term: sorted(found) for term, found in words.items()},
    }


def rebuilt(store: TrajectoryStore, folder: Path) -> dict[str, Any]:
    """Contents of an index built from scratch over the same raw files."""
    index = TrajectoryIndex(store)
    index.path = folder / "scratch.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{index.path}{suffix}").unlink(missing_ok=True)
    index.refresh()
    return contents(index)
