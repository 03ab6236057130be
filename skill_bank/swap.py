"""Replacing a whole folder in one step.

The new folder is built beside the old one, flushed, and exchanged with it by one system call (renameat2 on Linux,
renamex_np on macOS), so a reader and a killed writer see the old folder or the new one. Where the file system cannot
exchange, two renames do it, and `recover` puts the old folder back if a kill fell between them.
"""

import ctypes
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from skill_bank.files import flush_all

_EXCHANGE = 2
"""RENAME_EXCHANGE of linux/fs.h, and RENAME_SWAP of macOS's sys/stdio.h."""
_AT_FDCWD = -100
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_STAGING = ".new-"
_OLD = ".old-"


def _exchange(first: Path, second: Path) -> bool:
    """Exchanges two paths in one step; False where the system or the file system cannot. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform.startswith("linux"):
            failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_EXCHANGE))
        elif sys.platform == "darwin":
            failed = library.renamex_np(names[0], names[1], ctypes.c_uint(_EXCHANGE))
        else:
            return False
    except AttributeError:  # a C library from before the call
        return False
    if failed:
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            return False
        raise OSError(code, os.strerror(code), str(first))
    return True


def _remove(path: str | Path) -> None:
    """Takes a folder away, or whatever stands in its place: a file, or a link, whose target is left alone."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


ABANDONED_S = 60
"""Age from which a staging folder outside of a bank counts as left by a writer that died: staging takes seconds."""


def remove_abandoned(parent: Path) -> None:
    """Takes away what killed writers left in a folder that no lock guards."""
    for left in sorted(parent.glob(f"{_STAGING}*")) if parent.is_dir() else ():
        try:
            if left.stat().st_mtime < time.time() - ABANDONED_S:
                _remove(left)
        except FileNotFoundError:  # its writer lives and has just put it in place
            continue


def recover(parent: Path) -> None:
    """Finishes or takes back what a killed writer left in `parent`. The caller holds the bank's lock."""
    if not parent.is_dir():
        return
    hidden = sorted(name for name in os.listdir(parent) if name.startswith((_OLD, _STAGING)))
    for name in hidden:
        if name.startswith(_OLD) and not os.path.lexists(parent / name[len(_OLD) :]):
            os.rename(parent / name, parent / name[len(_OLD) :])
        else:
            _remove(parent / name)


def same_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether the folder holds exactly these files (names relative, with /)."""
    try:
        found = dict(_files(str(folder), ""))
    except (FileNotFoundError, NotADirectoryError):
        return False
    if found.keys() != files.keys() or any(size != len(files[name]) for name, size in found.items()):
        return False
    for name, data in files.items():
        with open(f"{folder}/{name}", "rb", buffering=0) as stream:
            if stream.read() != data:
                return False
    return True


def _files(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    """(relative name, size) of every file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry.stat().st_size


def replace_folders(targets: Mapping[Path, Mapping[str, bytes]]) -> frozenset[Path]:
    """`replace_folder` for many folders; the ones that changed.

    All are built beside the old ones and flushed to the disk together before the first is exchanged. Raises OSError; up
    to the first exchange every old folder is untouched, and each single one is the old or the new one whatever happens.
    """
    changed = {target: files for target, files in targets.items() if not same_files(target, files)}
    staged: dict[Path, Path] = {}
    try:
        for target, files in changed.items():
            staged[target] = _stage(target, files)
        flush_all([path for target, folder in staged.items() for path in _written(folder, changed[target])])
        for target in list(staged):
            _put_in_place(target, staged[target])
            if os.path.lexists(staged[target]):  # the old folder, after an exchange
                _remove(staged[target])
            del staged[target]
        flush_all({str(target.parent) for target in changed})
    finally:
        for left in staged.values():
            if os.path.lexists(left):
                _remove(left)
    return frozenset(changed)


def replace_folder(target: Path, files: Mapping[str, bytes]) -> bool:
    """Makes `target` hold exactly `files`, in one step; False if it does already.

    Raises OSError with the old folder untouched.
    """
    return target in replace_folders({target: files})


def _written(folder: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    """The files of a folder, then the folders that hold them."""
    paths = [f"{folder}/{name}" for name in files]
    yield from paths
    yield from sorted({os.path.dirname(path) for path in paths} | {str(folder)})


def _stage(target: Path, files: Mapping[str, bytes]) -> Path:
    """A new folder with the files, beside `target`, not flushed yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{target.name}-", dir=target.parent))
    try:
        staging.chmod(0o755)
        for name in sorted(files):
            path = f"{staging}/{name}"
            if "/" in name:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(files[name])
    except BaseException:
        shutil.rmtree(staging)
        raise
    return staging


def _put_in_place(target: Path, staging: Path) -> None:
    if not os.path.lexists(target):
        os.rename(staging, target)
    elif not _exchange(staging, target):
        aside = target.parent / f"{_OLD}{target.name}"
        if os.path.lexists(aside):
            _remove(aside)
        os.rename(target, aside)
        os.rename(staging, target)
        _remove(aside)
