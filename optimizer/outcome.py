"""Outcome of a tool call: ok, failed or unknown, and the evidence for it.

1. *Structured* evidence is a flag or code of the call itself, or the prefix with which the harness reports a failure. A
   text that happens to hold "failed" or "error:" proves nothing: read as failures, such words called 1,060 of 9,532
   real calls failed, of which 29 were.
2. *Masked* and *reported* failures are read off what a shell command printed (`optimizer.masked`).
3. A non-zero exit may be an answer: a grep without match, a diff with differences, a test that is false. That and a
   probe for what may not be there yet are no failures; the evidence says which of them it was.
"""

import re
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import UNSET

from optimizer.call_fields import CallInput, CallResponse, input_fields, response_fields, text
from optimizer.masked import candidate, masked_failure, reported_failure, says_nothing
from optimizer.shell import read_command


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The response carries nothing that would tell."""


class Evidence(StrEnum):
    """What an outcome rests on, where it looks like a failure."""

    STRUCTURED = "structured"
    """A flag, a code or the harness's prefix: failed."""
    MASKED = "masked"
    """The command's own programs complained, and its exit status does not tell: failed."""
    REPORTED = "reported"
    """The program that the command ran says so in its output: failed."""
    ANSWER = "answer"
    """A non-zero exit that answers a question (grep, diff, test): not failed."""
    PROBE = "probe"
    """A complaint that the command provides for, or a warning: not failed."""


class Judgement(NamedTuple):
    """The outcome of a call with its evidence."""

    outcome: Outcome
    reason: str | None = None
    """The text that tells, shortened."""
    evidence: Evidence | None = None


OK = Judgement(Outcome.OK)
UNKNOWN = Judgement(Outcome.UNKNOWN)

_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (-?\d+)")
_TRACEBACK = "Traceback (most recent call last)"
_AGENT_OK = (None, "completed", "async_launched")
_AGENT_TOOLS = ("Agent", "Task")
_ASKS = frozenset(
    {"grep", "egrep", "fgrep", "rg", "ugrep", "zgrep", "diff", "cmp", "test", "[", "[[", "pgrep", "which"}
)
"""Programs whose exit status 1 means no."""


def judge(tool: str | None, call_input: Any, response: Any) -> Judgement:
    """The outcome of a call by everything that tells."""
    fields = response if type(response) is CallResponse else response_fields(response)
    reason = failure_in(tool, response) if fields is None else _in_document(tool, fields)
    if reason is not None:
        if tool == "Bash" and _is_answer(input_fields(call_input), response, reason):
            return Judgement(Outcome.OK, reason, Evidence.ANSWER)
        return Judgement(Outcome.FAILED, reason, Evidence.STRUCTURED)
    if fields is None:
        return UNKNOWN if response is None or response in ("", []) else OK
    if tool == "Bash":
        stdout, stderr = fields.stdout, fields.stderr
        output = f"\n{stdout if isinstance(stdout, str) else ''}\n{stderr if isinstance(stderr, str) else ''}"
        call = call_input if type(call_input) is CallInput else input_fields(call_input)
        command = call.command if isinstance(call.command, str) else ""
        if not says_nothing(command, output):
            return _by_output(command, output)
    return UNKNOWN if response == {} else OK


def judge_reported_failure(tool: str | None, call_input: Any, error: Any) -> Judgement:
    """The outcome of a call that its source says failed."""
    reason = f"PostToolUseFailure: {str(error)[:80]}"
    if tool == "Bash" and _is_answer(input_fields(call_input), error, reason):
        return Judgement(Outcome.OK, reason, Evidence.ANSWER)
    return Judgement(Outcome.FAILED, reason, Evidence.STRUCTURED)


def outcome_of(tool: str | None, response: Any) -> tuple[Outcome, str | None]:
    """(outcome, evidence of a failure) by structured evidence alone."""
    judgement = judge(tool, None, response)
    if judgement.evidence is Evidence.STRUCTURED:
        return judgement.outcome, judgement.reason
    return (Outcome.OK if judgement.outcome is Outcome.FAILED else judgement.outcome), None


def _is_answer(call: CallInput, response: Any, reason: str) -> bool:
    """Whether a bare exit status 1 is the answer of a program that asks; its output would be the matches, so there is
    none."""
    told = response if isinstance(response, str) else reason
    if told.strip() not in ("Exit code 1", "Error: Exit code 1"):
        return False
    command = text(call.command)
    commands = read_command(command).commands if command is not None else []
    return bool(commands) and commands[-1][0] in _ASKS


def _by_output(command: str, output: str) -> Judgement:
    line = candidate(command, output)
    if line is not None:
        sure = masked_failure(command, output)
        if sure is None:
            return Judgement(Outcome.OK, line, Evidence.PROBE)
        return Judgement(Outcome.FAILED, sure, Evidence.MASKED)
    line = reported_failure(command, output)
    if line is not None:
        return Judgement(Outcome.FAILED, line, Evidence.REPORTED)
    return OK


def failure_in(tool: str | None, response: Any) -> str | None:
    """The structured evidence that the call failed, or None."""
    if isinstance(response, str):
        return _in_text(response)
    if isinstance(response, list):
        flagged = any(isinstance(part, dict) and (part.get("is_error") or part.get("isError")) for part in response)
        return "is_error" if flagged else None
    fields = response_fields(response)
    return None if fields is None else _in_document(tool, fields)


def _in_text(response: str) -> str | None:
    code = _EXIT_CODE.match(response)
    if code is not None and int(code[1]) != 0:
        return code[0]
    if response.startswith(("<tool_use_error>", "Error:")):
        return response[:60]
    return None


def _in_document(tool: str | None, response: CallResponse) -> str | None:
    if response.is_error is True or response.isError is True:
        return "is_error"
    if response.interrupted is True:
        return "interrupted"
    if response.success is False:
        return f"success=false: {'' if response.error is UNSET else str(response.error)[:60]}"
    if response.success is UNSET and text(response.error) is not None:
        return f"error: {response.error[:60]}"
    code = response.exitCode
    if type(code) is int and code != 0:
        return f"exitCode={code}"
    code = response.exit_code
    if type(code) is int and code != 0:
        return f"exit_code={code}"
    code = response.returnCode
    if type(code) is int and code != 0:
        return f"returnCode={code}"
    code = response.returncode
    if type(code) is int and code != 0:
        return f"returncode={code}"
    if tool == "Bash":
        return _in_shell(response)
    if tool == "WebFetch" and isinstance(response.code, int) and response.code >= 400:
        return f"http {response.code}"
    if tool in _AGENT_TOOLS:
        status = None if response.status is UNSET else response.status
        if status not in _AGENT_OK:
            return f"agent status {status}"
    return None


def _in_shell(response: CallResponse) -> str | None:
    stdout = response.stdout
    if isinstance(stdout, str) and stdout[:1] == "E":
        code = _EXIT_CODE.match(stdout)
        if code is not None and int(code[1]) != 0:
            return code[0]
    if isinstance(response.stderr, str) and _TRACEBACK in response.stderr:
        return "traceback on stderr"
    return None
