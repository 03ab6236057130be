"""JSON over HTTP with time-outs and typed errors, standard library only. Redirects are not followed."""

import http.client
import json
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trainer.experience.problems import PoolError, ProblemKind

MAX_ANSWER_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    connect_s: float = 10.0
    answer_s: float = 30.0
    """From the connection to the last byte."""


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class HttpAnswer:
    """Status and body."""

    status: int
    body: Any
    """The JSON document; text where it is none."""
    is_json: bool


def request_json(
    method: str,
    url: str,
    document: Any = None,
    *,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    headers: dict[str, str] | None = None,
) -> HttpAnswer:
    """One request. Raises PoolError: unreachable, timed out, bad answer (too long); a status is an answer."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PoolError(ProblemKind.UNREACHABLE, f"{url!r} is no address of a service; write http://host:port")
    made = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = made(parts.hostname, parts.port, timeout=timeouts.connect_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = None if document is None else json.dumps(document, ensure_ascii=True).encode("ascii")
    sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
    where = f"{parts.scheme}://{parts.hostname}:{connection.port}{parts.path}"
    deadline = time.monotonic() + timeouts.connect_s + timeouts.answer_s
    try:
        connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(timeouts.answer_s)
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        data = b""
        while chunk := response.read1(65536):
            data += chunk
            if len(data) > MAX_ANSWER_BYTES:
                raise PoolError(ProblemKind.BAD_ANSWER, f"{where} answers with more than 32 MB")
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError as error:
        limit = f"{timeouts.connect_s:g} s to connect, {timeouts.answer_s:g} s to answer"
        raise PoolError(ProblemKind.TIMED_OUT, f"{where} did not answer in time ({limit})") from error
    except (OSError, http.client.HTTPException, ssl.SSLError, socket.gaierror) as error:
        reason = str(error) or type(error).__name__
        raise PoolError(
            ProblemKind.UNREACHABLE, f"{where} cannot be reached ({reason}); check its address and that it runs"
        ) from error
    finally:
        connection.close()
    try:
        return HttpAnswer(response.status, json.loads(data), True)
    except (ValueError, RecursionError):
        return HttpAnswer(response.status, data.decode("utf-8", "replace")[:2000], False)
