"""`mcp-evo-hook`: takes one Claude Code hook event on standard input and appends it to its session's raw events.

1. Standard library only, and as little of it as possible (no `re`, no `json` on the way most events take): the process
   costs little more than a bare Python.
2. It never disturbs the agent: always exit status 0, nothing on standard output, and never a workspace made. What went
   wrong is counted in `trajectories/hook-errors.log` of the workspace, where there is one; `mcp-evo doctor` shows it.
3. The event is stored as it came, on one line, with the time of arrival put in front; it is parsed only where its bytes
   look as if they held a secret (then it is stored redacted) or where its session cannot be told otherwise.
4. One write on an append-only handle under the lock that every other writer of the file takes: no line is lost or torn.
"""

import os
import sys
import time

from optimizer.capture.prefilter import suspicious

_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")

MAX_BYTES = 32 * 1024 * 1024
"""An event larger than this is not one of an agent's calls; it is counted as an error."""

ERRORS = "hook-errors.log"
"""Side file of errors in `trajectories`; `.1` behind it when it has grown."""

_MAX_ERROR_BYTES = 256 * 1024


def main() -> None:
    """Entry point of the script; ends with status 0 whatever happens."""
    try:
        take(sys.stdin.buffer.read(MAX_BYTES + 1))
    except Exception:  # standard input that is closed or broken: nothing may reach the agent
        pass
    os._exit(0)  # nothing is open or buffered; taking the interpreter down costs a tenth of the process


def take(data: bytes) -> None:
    """Records one event where there is a workspace. Never raises: an error is counted, or there is nobody to tell."""
    try:
        home = workspace_of(data)
        if home is not None:
            try:
                capture(home, data)
            except Exception as error:
                note_error(home, error)
    except Exception:  # no workspace can be told, or it cannot be written
        pass


def workspace_of(data: bytes) -> str | None:
    """The workspace that exists: `$MCP_EVO_HOME`, else above `$CLAUDE_PROJECT_DIR`, else above the event's folder."""
    fixed = os.environ.get("MCP_EVO_HOME")
    if fixed:
        return fixed if os.path.isdir(fixed) else None
    folder = os.environ.get("CLAUDE_PROJECT_DIR") or field(data, "cwd")
    while folder:
        candidate = os.path.join(folder, ".mcp-evo")
        if os.path.isdir(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return None


def field(data: bytes, name: str) -> str | None:
    """A top-level text field: by its bytes where they stand before anything nested, else by parsing.

    The bytes `"name"` cannot stand inside a JSON string, where their quotation marks would be escaped.
    """
    at = data.find(b'"%s"' % name.encode())
    if at >= 0 and data.count(b"{", 0, at) == 1 and b"[" not in data[:at]:
        rest = data[at + len(name) + 2 : at + len(name) + 4200].lstrip()
        if rest.startswith(b":"):
            rest = rest[1:].lstrip()
            end = rest.find(b'"', 1)
            if rest.startswith(b'"') and end > 1 and b"\\" not in rest[:end]:
                return rest[1:end].decode("utf-8")
    import json

    document = json.loads(data)
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) and value else None


def capture(home: str, data: bytes) -> None:
    """Appends the event. Raises ValueError for what is no event of a session, OSError where the disk refuses."""
    data = data.strip().replace(b"\r", b" ").replace(b"\n", b" ")  # JSON text never holds them inside a string
    if not data.startswith(b"{") or len(data) > MAX_BYTES:
        raise ValueError("not an event: no JSON object, or too large")
    session = field(data, "session_id")
    if session is None:
        raise ValueError("an event without session_id")
    if suspicious(data) or _has_own_rules(home):
        data = _redacted(home, data)
    body = data[1:].lstrip()
    line = b'{"received_at":%.6f%s%s\n' % (time.time(), b"" if body.startswith(b"}") else b",", body)
    folder = os.path.join(home, "trajectories", "raw", folder_name(session))
    for left in (2, 1, 0):
        try:
            _append(folder, line)
            return
        except FileNotFoundError:  # the session's folder was pruned between two steps
            if not left:
                raise


def _has_own_rules(home: str) -> bool:
    """Whether the workspace's configuration says what else is a secret."""
    try:
        with open(os.path.join(home, "config.yaml"), "rb") as stream:
            return b"\nredaction:" in b"\n" + stream.read()
    except OSError:
        return False


def _redacted(home: str, data: bytes) -> bytes:
    """The event without secrets; as text where it is not JSON or too deep to be parsed."""
    import json

    from optimizer.redact import rules_of

    rules = rules_of(home)
    try:
        clean = json.dumps(rules.redact(json.loads(data), suspected=True), ensure_ascii=False, separators=(",", ":"))
        return clean.encode("utf-8", "backslashreplace")  # half a surrogate pair becomes its escape
    except (ValueError, RecursionError):
        text = rules.redact_text(data.decode("utf-8", "surrogateescape"))
        return text.encode("utf-8", "surrogateescape").replace(b"\n", b" ")


def folder_name(session: str) -> str:
    """The session, or an id made from it where it cannot name a folder."""
    if 0 < len(session) <= 64 and _ID_CHARACTERS.issuperset(session) and session[0] not in "-_":
        return session
    import hashlib

    return "session-" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
    """Adds a line to the side file of errors."""
    folder = os.path.join(home, "trajectories")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, ERRORS)
    text = f"{time.time():.3f} {type(error).__name__}: {str(error)[:200]}".replace("\n", " ") + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, text.encode("utf-8", "backslashreplace"))
        grown = os.fstat(handle).st_size > _MAX_ERROR_BYTES
    finally:
        os.close(handle)
    if grown:
        os.replace(path, path + ".1")
