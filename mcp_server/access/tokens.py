"""Named tokens of the HTTP server: who may come in, and what each may do.

1. A token is shown once, when it is made. `tokens.json` (mode 0600) keeps its SHA-256, name, role and end. A token is
   32 random bytes, so a fast hash is enough: there is nothing to guess.
2. The plain token of the workspace (`http-token`) is none of them: it belongs to whoever owns the folder and may do
   everything (`mcp_server/access/roles.py` says what a role may do).
3. Who makes a token for role `approve` must be a person at a terminal, as for every approval.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_server.access.roles import OWNER, Caller, Role
from mcp_server.access.secret_files import why_not_private
from optimizer.audit import AuditLog, current_user
from skill_bank.files import lock_of, write_bytes_atomic

TOKENS_FILE = "tokens.json"
"""In the workspace folder."""

PREFIX = "mcpevo_"
"""Begins every named token, so that a person or a scanner of secrets knows one when they see it."""

SECRET_BYTES = 32

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")

MOST_TOKENS = 100

DEFAULT_LIFE = "90d"

LONGEST_S = 366 * 24 * 3600.0

_DURATION = re.compile(r"(\d{1,6})\s*([mhd])\Z")
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}

logger = logging.getLogger(__name__)


class TokenError(Exception):
    """A token that cannot be made, read or taken away; the message says what to do."""


class NamedToken(BaseModel):
    """What is kept of a token."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")
    role: Role
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    created_at: float
    expires_at: float | None = None
    user: str = Field(default_factory=current_user)
    """Who made it."""

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class _Document(BaseModel):
    """`tokens.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = 1
    tokens: list[NamedToken] = Field(default_factory=list, max_length=MOST_TOKENS)


def seconds_of(text: str) -> float | None:
    """Seconds of `12h` or `90d`; None for `never`. Raises TokenError."""
    if text.strip().lower() == "never":
        return None
    found = _DURATION.match(text.strip().lower())
    seconds = 0.0 if found is None else float(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= LONGEST_S:
        raise TokenError(f"{text!r} is no life of a token: write for instance 12h or 90d (366d at most), or never")
    return seconds


class Tokens:
    """The named tokens of a workspace. A change by any process holds from the next request on."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = root / TOKENS_FILE
        self.root, self.clock = root, clock
        self._seen: tuple[int, int, int] | None = None
        self._known: tuple[NamedToken, ...] = ()

    def add(self, name: str, role: Role, life_s: float | None) -> str:
        """Makes a token and returns it; this is the only time that it can be seen. Raises TokenError, OSError."""
        if NAME_PATTERN.match(name) is None or name == OWNER:
            raise TokenError(
                f"{name[:60]!r} cannot name a token: 1 to 32 of a-z, 0-9, '-' and '_', the first one a letter or "
                f"digit, and not {OWNER!r}, which is the plain token's name"
            )
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        with lock_of(self.path):
            known = self.read()
            if any(one.name == name for one in known):
                raise TokenError(f"there is a token {name!r} already: choose another name, or remove it first")
            if len(known) >= MOST_TOKENS:
                raise TokenError(f"there are {MOST_TOKENS} tokens already: remove one first")
            now = self.clock()
            made = NamedToken(
                name=name,
                role=role,
                sha256=_hash(secret),
                created_at=now,
                expires_at=None if life_s is None else now + life_s,
            )
            self._write([*known, made])
        AuditLog(self.root).append("token_added", token=name, role=str(role), expires_at=made.expires_at)
        return secret

    def remove(self, name: str) -> NamedToken:
        """Takes a token away; from the next request on it is refused. Raises TokenError."""
        with lock_of(self.path):
            known = self.read()
            found = next((one for one in known if one.name == name), None)
            if found is None:
                names = ", ".join(one.name for one in known) or "none yet"
                raise TokenError(f"there is no token {name[:60]!r}. There are: {names}")
            self._write([one for one in known if one is not found])
        AuditLog(self.root).append("token_removed", token=name, role=str(found.role))
        return found

    def read(self) -> tuple[NamedToken, ...]:
        """All tokens, the oldest first. Raises TokenError where the file must not be trusted."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise TokenError(f"{self.path} cannot be read ({error.strerror})") from error
        with os.fdopen(handle, "rb") as stream:
            why = why_not_private(os.fstat(handle))
            if why is not None:
                raise TokenError(f"{self.path} {why}: whoever can write it could let themselves in. chmod 600 it")
            try:
                return tuple(_Document.model_validate_json(stream.read()).tokens)
            except ValidationError as error:
                what = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise TokenError(f"{self.path} is damaged ({what}): take it away and add the tokens anew") from error

    def caller(self, secret: str) -> Caller | None:
        """Whose token it is, or None. Every known token is compared, each in constant time."""
        digest, now = _hash(secret), self.clock()
        found: NamedToken | None = None
        for one in self._current():
            if hmac.compare_digest(one.sha256, digest):
                found = one
        if found is None or found.expired(now):
            return None
        return Caller(found.name, found.role, found.sha256[:16])

    def _current(self) -> tuple[NamedToken, ...]:
        """The tokens as they are in the file now, which is read again only when it changed."""
        try:
            about = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return ()
        seen = (about.st_ino, about.st_mtime_ns, about.st_ctime_ns)
        if seen != self._seen:
            try:
                self._known = self.read()
            except TokenError as error:
                logger.warning("no named token is accepted: %s", error)
                self._known = ()
            self._seen = seen
        return self._known

    def _write(self, tokens: list[NamedToken]) -> None:
        document = _Document(tokens=tokens).model_dump_json(indent=1)
        write_bytes_atomic(self.path, document.encode() + b"\n", mode=0o600)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
