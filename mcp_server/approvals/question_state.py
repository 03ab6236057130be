"""What ties an answer to the question that was asked, in the protocol without sessions (2026-07-28).

There the server keeps nothing between a question and its answer: the client carries a sealed text back. The SDK seals
it with AES-256-GCM and binds it to the tool, its arguments, the client's token and a time; here are its two lasting
parts.

1. The key lies in the workspace (`question-key`, mode 0600), so an answer that comes after a restart of the server, or
   to another server of the same workspace, still counts.
2. A sealed text is taken once. What was taken is remembered by its hash until it would have expired
   (`questions-answered.jsonl`), so an answer that was recorded cannot be sent again, not even after the patch was taken
   back and waits anew.
"""

import hashlib
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from mcp_server.access.secret_files import SecretError, secret_in
from skill_bank.files import append_json, iterate_lines, lock_of, write_bytes_atomic

KEY_FILE = "question-key"
ANSWERED_FILE = "questions-answered.jsonl"

KEY_BYTES = 32
KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}\Z")

MOST_LINES = 1000
"""Answered questions after which expired ones are dropped from the file."""

logger = logging.getLogger(__name__)


class QuestionState:
    """Seals and opens question states of one workspace (a `RequestStateCodec` of the SDK).

    Nothing is read or written before the first question: building a server touches no disk.
    """

    def __init__(self, root: Path, ttl_s: float, clock: Callable[[], float] = time.time) -> None:
        self.root, self.ttl_s, self.clock = root, ttl_s, clock
        self._codec: AESGCMRequestStateCodec | None = None
        self._making = threading.Lock()

    def seal(self, payload: bytes) -> str:
        """The sealed text for a client to carry."""
        return self._opened().seal(payload)

    def unseal(self, token: str) -> bytes:
        """What was sealed. Raises InvalidRequestState for a text that is not ours or was taken before."""
        payload = self._opened().unseal(token)
        try:
            first = self._take(hashlib.sha256(token.encode()).hexdigest())
        except OSError as error:  # what cannot be remembered as taken must not be taken
            logger.warning("an answer was refused, as it could not be remembered: %s", error)
            raise InvalidRequestState("not remembered") from error
        if not first:
            raise InvalidRequestState("used before")
        return payload

    def _opened(self) -> AESGCMRequestStateCodec:
        with self._making:
            if self._codec is None:
                self._codec = AESGCMRequestStateCodec([self._key()])
            return self._codec

    def _key(self) -> str:
        path = self.root / KEY_FILE
        try:
            return secret_in(path, KEY_PATTERN, _new_key)
        except SecretError as error:  # others may know it: what was sealed with it must not count
            logger.warning("%s is replaced, so open questions are asked again: %s", path, error)
            return secret_in(path, KEY_PATTERN, _new_key, renew=True)

    def _take(self, digest: str) -> bool:
        """Remembers a sealed text; False where it was remembered already."""
        path, now = self.root / ANSWERED_FILE, self.clock()
        with lock_of(self.root / KEY_FILE):
            known = _read(path)
            if digest in known:
                return False
            if len(known) >= MOST_LINES:
                kept = [(one, until) for one, until in known.items() if until > now]
                write_bytes_atomic(path, b"".join(_line(*one) for one in kept), mode=0o600)
            append_json(path, {"sha256": digest, "until": now + self.ttl_s})
            return True


def _new_key() -> str:
    return secrets.token_urlsafe(KEY_BYTES)


def _line(digest: str, until: float) -> bytes:
    return json.dumps({"sha256": digest, "until": until}).encode() + b"\n"


def _read(path: Path) -> dict[str, float]:
    """Hash → when it expires. A line that cannot be read is passed over: the seal still has its own time limit."""
    found: dict[str, float] = {}
    if not path.exists():
        return found
    for _, line in iterate_lines(path):
        try:
            row = json.loads(line)
            found[str(row["sha256"])] = float(row["until"])
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s: a line cannot be read: %s", path, error)
    return found
