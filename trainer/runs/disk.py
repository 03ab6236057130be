"""Room on the disk: how much is free, what counts as a full disk, and whether a folder still takes a few bytes.

A disk is full for a process also where a quota or a limit on file sizes says so. Libraries that write by themselves
hide the number of the error (torch: RuntimeError, safetensors: SafetensorError), so a folder can be asked: `is_full`
writes.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, quota spent, file larger than the process may write."""

FULL_STATUS = 74
"""Exit status of a worker that could not even write that the disk is full (EX_IOERR of sysexits.h)."""

PROBE_BYTES = 1 << 20
"""What a folder must still take: the smallest model that we ship is four times that."""


class DiskFull(OSError):
    """Less space is free than the workspace wants to keep."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(errno.ENOSPC, message, str(folder))

    def __str__(self) -> str:
        return str(self.strerror)


def free_mb(folder: Path) -> int:
    """Free space of the file system that holds `folder`, in MB (2**20 bytes). Raises OSError."""
    return shutil.disk_usage(folder).free // 2**20


def require_free(folder: Path, keep_free_mb: int) -> None:
    """Raises DiskFull where less than `keep_free_mb` is free."""
    free = free_mb(folder)
    if free < keep_free_mb:
        message = (
            f"{free} MB are free in {folder}, {keep_free_mb} MB are wanted (keep_free_mb in config.yaml of the "
            f"workspace). Free some space or lower that number."
        )
        raise DiskFull(message, folder)


def is_disk_error(error: BaseException) -> bool:
    """Whether the operating system refused a write for want of room."""
    return isinstance(error, OSError) and error.errno in FULL_ERRORS


def is_full(folder: Path) -> bool:
    """Whether the folder does not take `PROBE_BYTES` any more: they are written, flushed and taken away again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(PROBE_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return is_disk_error(error)
    return False
