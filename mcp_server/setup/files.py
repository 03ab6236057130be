"""Configuration files of others: read with care, written all or none, put back exactly."""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from mcp_server.setup.json_edit import JsonTextError, parse
from mcp_server.setup.types import Action, FileChange, SetupError
from skill_bank.files import write_bytes_atomic

MAX_BYTES = 64 * 1024 * 1024
"""A configuration beyond this is none."""


_OWN_FOLDERS = frozenset({".claude", "Claude", "skills"})
"""Folders of the client; a project or home that is reached by a link is none of ours to judge."""


def read_bytes(path: Path) -> bytes | None:
    """The file's bytes; None where there is none. Raises SetupError for a link and what is no file."""
    for part in (path, path.parent):
        if part.is_symlink() and (part == path or part.name in _OWN_FOLDERS):
            raise SetupError(
                f"{part} is a link to {os.readlink(part)}: mcp-evo does not write through links. Put the file itself "
                f"there, or add the lines by hand to where it leads (--dry-run shows them)."
            )
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        raise SetupError(f"{path} is no configuration file: it is {_what(status)}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from error


def _what(status: os.stat_result) -> str:
    return "a folder" if stat.S_ISDIR(status.st_mode) else f"special, or {status.st_size:,} bytes long"


def edited(path: Path, before: bytes | None, edit: Callable[[str], str]) -> bytes | None:
    """The bytes after `edit`, which gets a JSON text (`{}` for an empty or missing file).

    Raises SetupError that names the file. A missing file that `edit` leaves empty stays missing.
    """
    try:
        text = "" if before is None else before.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8, then run this again") from error
    empty = not text.strip()
    try:
        parse("{}" if empty else text)
        after = edit("{}\n" if empty else text)
        parse(after)
    except JsonTextError as error:
        raise SetupError(
            f"{path} is not plain JSON: {error}. Nothing was changed; correct it there, or add the entry by hand"
        ) from error
    except SetupError as error:
        raise SetupError(f"{path}: {error}") from error
    if empty and after == "{}\n":
        return before
    return after.encode("utf-8")


def check_writable(path: Path) -> None:
    """Raises SetupError where the file or the folder that it will be in cannot be written."""
    if path.exists() and not os.access(path, os.W_OK):
        raise SetupError(f"{path} is write-protected: allow writing (chmod u+w), or add the entry by hand")
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise SetupError(f"{path} cannot be written: {folder} is no folder that you may write to")


def carry_out(changes: Sequence[FileChange]) -> tuple[Path, ...]:
    """Writes every change, or none: a failure takes back what was written. Returns the folders that were made.

    Raises SetupError, also where a file is no longer as it was when the changes were worked out.
    """
    for change in changes:
        if change.action is not Action.UNCHANGED:
            check_writable(change.path)
            if read_bytes(change.path) != change.before:
                raise SetupError(f"{change.path} was changed in the meantime: nothing was written, run this again")
    done: list[FileChange] = []
    made: list[Path] = []
    try:
        for change in changes:
            if change.action is Action.UNCHANGED:
                continue
            made += _make_folders(change.path.parent)
            done.append(change)
            _write(change.path, change.after, change.mode)
    except OSError as error:
        _take_back(done, made)
        failed = done[-1].path if done else changes[0].path
        raise SetupError(f"{failed} cannot be written ({error.strerror or error}): nothing was changed") from error
    return tuple(made)


def _make_folders(folder: Path) -> list[Path]:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir()
    return list(reversed(missing))


def _write(path: Path, data: bytes | None, mode: int) -> None:
    if data is None:
        path.unlink(missing_ok=True)
        return
    if path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
    write_bytes_atomic(path, data, mode=mode)


def _take_back(done: Sequence[FileChange], made: Sequence[Path]) -> None:
    for change in reversed(done):
        try:
            _write(change.path, change.before, change.mode)
        except OSError:  # the disk that refused the first write: what was there is still there
            continue
    remove_empty(made)


def remove_empty(folders: Sequence[Path]) -> None:
    """Takes away those of the folders that are empty, inner ones first."""
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone already
            continue
