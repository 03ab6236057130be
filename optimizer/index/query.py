"""What a search asks for: filters as values, times as people write them, the cursor of the next page."""

import base64
import hashlib
import json
import re
import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from optimizer.layers import Layer, check_read, layer_below
from optimizer.outcome import Outcome

MAX_LIMIT = 100

MAX_QUERY_CHARACTERS = 1000

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class SearchError(ValueError):
    """A search that cannot be done as asked; says what is allowed."""


@dataclass(frozen=True)
class Query:
    """Filters that must all hold; None: whatever."""

    text: str | None = None
    """Pieces at white space, all of which must occur, each literally, whatever the case."""
    tool: str | None = None
    """With or without the prefix of its server."""
    outcome: str | None = None
    skill: str | None = None
    file: str | None = None
    """Part of a path that a call's input names."""
    since: float | None = None
    """Unix seconds."""
    until: float | None = None
    layer: str | None = None
    session: str | None = None
    """Its full id."""

    def checked(self) -> "Query":
        """The query if every filter can hold. Raises SearchError."""
        _check_one_of("outcome", self.outcome, [one.value for one in Outcome])
        _check_one_of("layer", self.layer, [one.value for one in Layer])
        if self.text is not None and len(self.text) > MAX_QUERY_CHARACTERS:
            raise SearchError(f"the text has {len(self.text)} characters; at most {MAX_QUERY_CHARACTERS} are searched")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise SearchError("since lies after until: swap them, or leave one out")
        return self

    def read_by(self, reader: Layer | str | None) -> "Query":
        """The query with the layer that an optimiser may read. Raises LayerError for any other layer."""
        if reader is None:
            return self
        if self.layer is None:
            return replace(self, layer=str(layer_below(reader)))
        check_read(reader, self.layer)
        return self

    def digest(self) -> str:
        """Ties a cursor to its query."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _check_one_of(name: str, value: str | None, allowed: list[str]) -> None:
    if value is not None and value not in allowed:
        raise SearchError(f"{name} {value[:60]!r} is none of {', '.join(allowed)}")


def moment(text: str | None, *, now: float | None = None) -> float | None:
    """Unix seconds of `2026-01-31`, `2026-01-31T15:45`, `90m`, `2h`, `3d` (ago) or seconds. Raises SearchError."""
    if text is None or not text.strip():
        return None
    given = text.strip()
    ago = _AGO.match(given)
    if ago is not None:
        return (time.time() if now is None else now) - float(ago[1]) * _UNIT_S[ago[2]]
    try:
        if re.fullmatch(r"\d{9,11}(?:\.\d+)?", given):
            return float(given)
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, OverflowError, OSError):
        raise SearchError(
            f"{given[:60]!r} is no time: write 2026-01-31, 2026-01-31T15:45, seconds since 1970, or 90m, 2h, 3d ago"
        ) from None


@dataclass(frozen=True)
class Place:
    """Where a page ended: hits are ordered by time, the newest first, then by session and line."""

    at: float
    session: str
    line: int

    def cursor(self, query: Query) -> str:
        """The place as an opaque text that holds for this query only."""
        document = json.dumps([self.at, self.session, self.line, query.digest()])
        return base64.urlsafe_b64encode(document.encode("utf-8")).decode("ascii").rstrip("=")


def place_of(cursor: str | None, query: Query) -> Place | None:
    """The place of a cursor. Raises SearchError for one that is none or belongs to another query."""
    if not cursor:
        return None
    try:
        at, session, line, digest = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        place = Place(float(at), str(session), int(line))
    except (ValueError, TypeError, UnicodeError, RecursionError) as error:
        raise SearchError("the cursor is none that a search returned; leave it out to begin with the newest") from error
    if digest != query.digest():
        raise SearchError("the cursor belongs to another search; repeat that one, or leave the cursor out")
    return place
