"""Outcome of a tool call, from structured evidence only.

Three values: ok, failed, unknown. A text that happens to hold "failed" or "error:" proves nothing: read as failures,
such words called 1,060 of 9,532 real calls failed, of which 29 were. Evidence is a flag or code of the call itself, or
the prefix with which the harness reports a failure. A grep without match and a diff with differences are no failures.
"""

import re
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The response carries nothing that would tell."""


_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (-?\d+)")
_EXIT_KEYS = ("exitCode", "exit_code", "returnCode", "returncode")
_TRACEBACK = "Traceback (most recent call last)"
_AGENT_OK = (None, "completed", "async_launched")
_AGENT_TOOLS = ("Agent", "Task")


def outcome_of(tool: str | None, response: Any) -> tuple[Outcome, str | None]:
    """(outcome, evidence of a failure)."""
    reason = failure_in(tool, response)
    if reason is not None:
        return Outcome.FAILED, reason
    if response is None or response in ("", {}, []):
        return Outcome.UNKNOWN, None
    return Outcome.OK, None


def failure_in(tool: str | None, response: Any) -> str | None:
    """The structured evidence that the call failed, or None."""
    if isinstance(response, str):
        return _in_text(response)
    if isinstance(response, list):
        flagged = any(isinstance(part, dict) and (part.get("is_error") or part.get("isError")) for part in response)
        return "is_error" if flagged else None
    if isinstance(response, dict):
        return _in_document(tool, response)
    return None


def _in_text(response: str) -> str | None:
    code = _EXIT_CODE.match(response)
    if code is not None and int(code[1]) != 0:
        return code[0]
    if response.startswith(("<tool_use_error>", "Error:")):
        return response[:60]
    return None


def _in_document(tool: str | None, response: dict[str, Any]) -> str | None:
    if response.get("is_error") is True or response.get("isError") is True:
        return "is_error"
    if response.get("interrupted") is True:
        return "interrupted"
    error = response.get("error")
    if response.get("success") is False:
        return f"success=false: {str(error or '')[:60]}"
    if "success" not in response and isinstance(error, str) and error:
        return f"error: {error[:60]}"
    for key in _EXIT_KEYS:
        code = response.get(key)
        if isinstance(code, int) and not isinstance(code, bool) and code != 0:
            return f"{key}={code}"
    status = response.get("code")
    if tool == "WebFetch" and isinstance(status, int) and status >= 400:
        return f"http {status}"
    if tool in _AGENT_TOOLS and response.get("status") not in _AGENT_OK:
        return f"agent status {response.get('status')}"
    if tool == "Bash":
        return _in_shell(response)
    return None


def _in_shell(response: dict[str, Any]) -> str | None:
    stdout, stderr = response.get("stdout"), response.get("stderr")
    code = _EXIT_CODE.match(stdout) if isinstance(stdout, str) else None
    if code is not None and int(code[1]) != 0:
        return code[0]
    if isinstance(stderr, str) and _TRACEBACK in stderr:
        return "traceback on stderr"
    return None
