"""Durable file primitives, the lowest layer: everything that mcp-evo writes goes through here.

1. A JSON or text document is written to a temporary file in the same folder, flushed to the disk and renamed over the
   old one, so a reader sees the old or the new document and never a part of one.
2. A line of a JSON-lines file is one `write` on an append-only handle under a lock file beside it.
3. A reader of JSON lines splits on byte 0x0A only (U+2028 and U+0085 are text), counts bad lines and goes on. Bad is
   also what is nested so deeply that the parser gives up.
4. Half a surrogate pair (a model or tool may write one) is no text in UTF-8; it is written as its JSON escape.
"""

import errno
import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None  # type: ignore[assignment]


def write_bytes_atomic(path: Path, data: bytes, *, mode: int = 0o644, flushed: bool = True) -> None:
    """Replaces `path` by `data` in one step. Not `flushed`: what is derived need not outlive a power cut.

    Raises OSError (for instance ENOSPC) with the old document untouched and no temporary file left behind.
    """
    write_chunks_atomic(path, (data,), mode=mode, flushed=flushed)


def write_chunks_atomic(
    path: Path,
    chunks: Iterable[bytes],
    *,
    mode: int = 0o644,
    flushed: bool = True,
    times_ns: tuple[int, int] | None = None,
) -> None:
    """`write_bytes_atomic` of one piece after the other, for files that shall not be in memory at once.

    `times_ns`: (access, modification) that the file gets instead of now.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            for data in chunks:
                stream.write(data)
            if flushed:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(name, mode)
        if times_ns is not None:
            os.utime(name, ns=times_ns)
        os.replace(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


SYNC_WAITS = sys.platform.startswith("linux")
"""Whether `sync` returns when everything is on the disk (sync(2) of Linux; elsewhere it only schedules the writing)."""
MANY = 64
"""Files from which flushing the whole disk once is cheaper than flushing one after the other."""


def flush_all(paths: Collection[str]) -> None:
    """Returns when these files and folders are on the disk.

    Called when all of them are written: what the first has to wait for, the others need not wait for again.
    """
    if SYNC_WAITS and len(paths) >= MANY:
        os.sync()
        return
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_many_atomic(contents: Mapping[Path, bytes], *, mode: int = 0o644) -> None:
    """`write_bytes_atomic` for many files in folders that exist: all are on the disk before the first gets its name.

    Raises OSError with every old document untouched, if not the renaming itself fails.
    """
    staged: dict[Path, str] = {}
    try:
        for path, data in contents.items():
            name = f"{path.parent}/.{path.name[:40]}.{os.getpid()}.tmp"
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            staged[path] = name
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
            finally:
                os.close(handle)
        flush_all(staged.values())
        for path in list(staged):
            os.replace(staged.pop(path), path)
    finally:
        for left in staged.values():
            if os.path.exists(left):
                os.unlink(left)


def write_text_atomic(path: Path, text: str) -> None:
    """`write_bytes_atomic` for UTF-8 text with line feeds as written."""
    write_bytes_atomic(path, encoded(text))


def encoded(text: str) -> bytes:
    """UTF-8, with half surrogate pairs as `\\ud800`: in JSON, where they can only be inside strings, an escape that
    reads as the same text."""
    return text.encode("utf-8", "backslashreplace")


def write_json_atomic(path: Path, document: Any) -> None:
    """Writes `document` as indented UTF-8 JSON; NaN and infinity are refused with ValueError (they are not JSON)."""
    text = json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)
    write_bytes_atomic(path, encoded(text) + b"\n")


def read_json(path: Path) -> Any:
    """Reads one JSON document. Raises FileNotFoundError, or ValueError that names the file."""
    try:
        return json.loads(path.read_bytes())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def lock_of(path: Path) -> FileLock:
    """The inter-process lock that guards `path` (a `.lock` file beside it)."""
    return FileLock(str(path) + ".lock", mode=0o600)


def append_line(path: Path, line: bytes) -> None:
    """`append_lines` for one line."""
    append_lines(path, [line])


def append_lines(path: Path, lines: Sequence[bytes], *, wait: bool = True) -> None:
    """Appends lines (without their line feeds) as one write under the file's lock: all of them or none.

    A torn last line, left by a writer that was killed, is closed first, so that it costs itself and not these lines.
    Without `wait` raises BlockingIOError where another writer holds the lock; nothing is written then.
    """
    if any(b"\n" in line for line in lines):
        raise ValueError("a JSON line cannot hold a line feed")
    with _locked(path, wait):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = (b"\n" if torn else b"") + b"".join(line + b"\n" for line in lines)
            written = os.write(descriptor, data)
            if written != len(data):  # a full disk may take a part: take it back, so that no reader meets half a line
                os.ftruncate(descriptor, size)
                raise OSError(28, f"only {written} of {len(data)} bytes were written", str(path))
        finally:
            os.close(descriptor)


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Holds the lock of `lock_of`, taken as its library takes it: the library's own checks cost more than the write.

    Raises BlockingIOError where it is held and is not to be waited for.
    """
    if fcntl is None:
        with _locked_by_library(path, wait):
            yield
        return
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            with _locked_by_library(path, wait):  # a file system without such locks: the library knows another way
                yield
            return
        yield
    finally:
        os.close(handle)


@contextmanager
def _locked_by_library(path: Path, wait: bool) -> Iterator[None]:
    lock = lock_of(path)
    try:
        lock.acquire(blocking=wait)
    except Timeout as error:
        raise BlockingIOError(errno.EAGAIN, "another process writes this file", str(path)) from error
    try:
        yield
    finally:
        lock.release()


def append_json(path: Path, document: Any) -> None:
    """Appends `document` as one JSON line; NaN and infinity are refused with ValueError."""
    append_line(path, encoded(json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))))


@dataclass(frozen=True)
class JsonLines:
    """What a JSON-lines file held."""

    rows: list[tuple[int, Any]]
    """(line number from 1, document), in file order."""
    bad_lines: list[int]
    """Numbers of the lines that are not JSON."""
    end: int
    """Offset in bytes behind the last complete line: where an incremental reader goes on."""


def iterate_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(offset behind the line, line without its line feed) for each complete line from `offset` on."""
    with open(path, "rb") as stream:
        stream.seek(offset)
        position = offset
        for line in stream:  # a binary stream splits on 0x0A only
            if not line.endswith(b"\n"):
                return
            position += len(line)
            yield position, line[:-1]


def read_json_lines(path: Path, offset: int = 0, first_line: int = 1) -> JsonLines:
    """Reads the complete lines from `offset` on; a missing file is an empty one. Bad lines are counted, not raised."""
    rows: list[tuple[int, Any]] = []
    bad: list[int] = []
    end = offset
    if not path.exists():
        return JsonLines(rows, bad, end)
    for number, (behind, line) in enumerate(iterate_lines(path, offset), start=first_line):
        end = behind
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line)))
        except (ValueError, RecursionError):
            bad.append(number)
    return JsonLines(rows, bad, end)
