"""Secrets in files of the workspace: made once, never readable for others, never followed as a link."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from skill_bank.files import lock_of, write_bytes_atomic

MAX_SECRET_BYTES = 1000
"""More is read of no such file: whoever put a large one there wrote no secret."""


class SecretError(Exception):
    """A file that must not be used as a secret; the message says why and what to do."""


def secret_in(path: Path, allowed: re.Pattern[str], make: Callable[[], str], *, renew: bool = False) -> str:
    """The secret in `path`, made where there is none; `renew` makes a new one. Raises SecretError, OSError.

    Processes that ask at once get the same one.
    """
    with lock_of(path):
        if not renew and os.path.lexists(path):
            return read_secret(path, allowed)
        secret = make()
        write_bytes_atomic(path, f"{secret}\n".encode("ascii"), mode=0o600)
        return secret


def read_secret(path: Path, allowed: re.Pattern[str]) -> str:
    """The secret in a file that is its owner's alone. Raises SecretError."""
    again = "Take it away and start again: a new one is made"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{path} cannot be read ({error.strerror}). {again}") from error
    with os.fdopen(handle, "rb") as stream:
        why = why_not_private(os.fstat(handle))
        if why is not None:
            raise SecretError(f"{path} {why}. {again}")
        secret = stream.read(MAX_SECRET_BYTES).decode("ascii", errors="replace").strip()
    if allowed.match(secret) is None:
        raise SecretError(f"{path} holds no token (32 or more of A-Z, a-z, 0-9, - and _). {again}")
    return secret


def why_not_private(about: os.stat_result) -> str | None:
    """What is wrong with an open file that should be its owner's alone, or None."""
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        return "must be a file of yours that nobody else can read (mode 0600)"
    return None
