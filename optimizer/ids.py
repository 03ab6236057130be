"""Ids: one pattern for everything that becomes a file name, and short ids from content."""

import hashlib
import re
import time

ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")


class BadId(ValueError):
    """An id that cannot name a file of the workspace."""


def check_id(text: str, what: str) -> str:
    """`text` if it is a valid id. Raises BadId."""
    if ID_PATTERN.match(text) is None:
        raise BadId(
            f"{what} {text!r} is not an id: 1 to 64 of a-z, 0-9, '-' and '_', beginning with a letter or a digit"
        )
    return text


def content_id(*parts: object, length: int = 16) -> str:
    """Hex digits of SHA-256 over the parts: the same parts give the same id."""
    joined = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(joined.encode("utf-8")).hexdigest()[:length]


def stamped_id(kind: str, *parts: object) -> str:
    """`<kind>-<UTC date and time>-<4 hex digits>`: sorts by time, and two made in one second differ by their parts."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{kind}-{stamp}-{content_id(now, *parts, length=4)}"
