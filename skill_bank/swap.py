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
from collections.abc import Mapping
from pathlib import Path

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


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def recover(parent: Path) -> None:
    """Finishes or takes back what a killed writer left in `parent`. The caller holds the bank's lock."""
    if not parent.is_dir():
        return
    for left in sorted(parent.glob(f"{_OLD}*")):
        target = parent / left.name[len(_OLD) :]
        if target.exists():
            shutil.rmtree(left)
        else:
            os.rename(left, target)
    for left in sorted(parent.glob(f"{_STAGING}*")):
        shutil.rmtree(left)


def same_files(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether the folder holds exactly these files (names relative, with /)."""
    if not folder.is_dir():
        return False
    found = {one.relative_to(folder).as_posix(): one for one in folder.rglob("*") if not one.is_dir()}
    return found.keys() == files.keys() and all(found[name].read_bytes() == data for name, data in files.items())


def replace_folder(target: Path, files: Mapping[str, bytes]) -> bool:
    """Makes `target` hold exactly `files`, in one step; False if it does already.

    Raises OSError with the old folder untouched.
    """
    if same_files(target, files):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{target.name}-", dir=target.parent))
    try:
        staging.chmod(0o755)
        for name in sorted(files):
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(files[name])
                stream.flush()
                os.fsync(stream.fileno())
        _flush(staging)
        if not target.exists():
            os.rename(staging, target)
        elif not _exchange(staging, target):
            aside = target.parent / f"{_OLD}{target.name}"
            if aside.exists():
                shutil.rmtree(aside)
            os.rename(target, aside)
            os.rename(staging, target)
            shutil.rmtree(aside)
        _flush(target.parent)
    finally:
        if staging.exists():
            shutil.rmtree(staging)
    return True
