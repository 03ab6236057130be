"""`mcp-evo-hook`: takes one Claude Code hook event on standard input and appends it to its session's raw events.

1. Standard library only, and as little of it as possible: the process costs little more than a bare Python.
2. It never disturbs the agent: always exit status 0, nothing on standard output, and never a workspace made. What went
   wrong is counted in `trajectories/hook-errors.log` of the workspace, where there is one.
3. The event is stored as it came, on one line, with the time of arrival put in front; it is parsed only where its bytes
   look as if they held a secret (then it is stored redacted) or where its session cannot be told otherwise.
4. One write on an append-only handle under the lock that every other writer of the file takes: no line is lost or torn.
"""

import os
import re
import sys
import time

_SESSION = re.compile(rb'"session_id"\s*:\s*"([^"\\]{1,200})"')
_CWD = re.compile(rb'"cwd"\s*:\s*"([^"\\]{1,4000})"')
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")

_SUSPICIOUS = (
    *(b"sk-", b"AKIA", b"ASIA", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"hf_"),
    *(b"AIza", b"xox", b"_live_", b"_test_", b"eyJ", b"PRIVATE KEY", b"://"),
)
"""Fixed bytes without which no shape of a secret can match."""

_SUSPICIOUS_FOLDED = (b"bearer", b"basic ", b"password", b"passwd", b"secret", b"api", b"token", b"authorization")
"""The same, whatever their case."""

MAX_BYTES = 32 * 1024 * 1024
"""An event larger than this is not one of an agent's calls; it is counted as an error."""


def main() -> None:
    """Entry point of the script; ends with status 0 whatever happens."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        home = workspace_of(data)
        if home is not None:
            try:
                capture(home, data)
            except Exception as error:
                note_error(home, error)
    except Exception:  # nothing may reach the agent, and there is no workspace to note it in
        pass
    sys.exit(0)


def workspace_of(data: bytes) -> str | None:
    """The workspace that exists: `$MCP_EVO_HOME`, else above `$CLAUDE_PROJECT_DIR`, else above the event's folder."""
    fixed = os.environ.get("MCP_EVO_HOME")
    if fixed:
        return fixed if os.path.isdir(fixed) else None
    folder = os.environ.get("CLAUDE_PROJECT_DIR") or _folder_of(data)
    while folder:
        candidate = os.path.join(folder, ".mcp-evo")
        if os.path.isdir(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return None


def _folder_of(data: bytes) -> str | None:
    return _field(data, "cwd", _CWD)


def _field(data: bytes, name: str, pattern: "re.Pattern[bytes]") -> str | None:
    """A top-level text field: by its bytes where they are there once, else by parsing."""
    if data.count(b'"%s"' % name.encode()) == 1:
        found = pattern.search(data)
        if found is not None:
            return found[1].decode("utf-8")
    import json

    document = json.loads(data)
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else None


def capture(home: str, data: bytes) -> None:
    """Appends the event. Raises ValueError for what is no event of a session, OSError where the disk refuses."""
    data = data.strip().replace(b"\r", b" ").replace(b"\n", b" ")  # JSON text never holds them inside a string
    if not data.startswith(b"{") or len(data) > MAX_BYTES:
        raise ValueError("not an event: no JSON object, or too large")
    session = _field(data, "session_id", _SESSION)
    if session is None:
        raise ValueError("an event without session_id")
    if suspicious(data):
        data = _redacted(data)
    body = data[1:].lstrip()
    line = b'{"received_at":%.6f%s%s\n' % (time.time(), b"" if body.startswith(b"}") else b",", body)
    _append(os.path.join(home, "trajectories", "raw", _folder_name(session)), line)


def suspicious(data: bytes) -> bool:
    """Whether the bytes may hold a secret; a false alarm only costs time."""
    if any(part in data for part in _SUSPICIOUS):
        return True
    folded = data.lower()
    return any(part in folded for part in _SUSPICIOUS_FOLDED)


def _redacted(data: bytes) -> bytes:
    import json

    from optimizer.redact import redact

    return json.dumps(redact(json.loads(data)), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _folder_name(session: str) -> str:
    """The session, or an id made from it where it cannot name a folder."""
    if _ID.match(session):
        return session
    import hashlib

    return "session-" + hashlib.sha256(session.encode()).hexdigest()[:16]


def _append(folder: str, line: bytes) -> None:
    import fcntl

    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "events.jsonl")
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # a writer was killed in its line: close it, so that it costs only itself
            written = os.write(handle, line)
            if written != len(line):
                os.ftruncate(handle, size)
                raise OSError(28, f"only {written} of {len(line)} bytes were written", path)
        finally:
            os.close(handle)
    finally:
        os.close(lock)


def note_error(home: str, error: Exception) -> None:
    """Adds a line to the side file of errors; `mcp-evo doctor` may count them."""
    folder = os.path.join(home, "trajectories")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    text = f"{time.time():.3f} {type(error).__name__}: {str(error)[:200]}".replace("\n", " ") + "\n"
    handle = os.open(os.path.join(folder, "hook-errors.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, text.encode("utf-8"))
    finally:
        os.close(handle)
