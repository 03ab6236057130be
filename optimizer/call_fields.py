"""The fields of a call's input and response that rules read.

Inputs and responses are whatever a tool wants. The rules about outcomes, files, skills and intents read few of their
fields, so a reader that only applies rules (segmentation, facts) decodes these and steps over the rest of the line.
A field that is absent is UNSET; one of an unexpected type is kept as it is and proves nothing.
"""

from typing import Any

import msgspec
from msgspec import UNSET


class CallInput(msgspec.Struct, gc=False):
    """Input of a call, as far as rules read it."""

    skill: Any = UNSET
    name: Any = UNSET
    args: Any = UNSET
    file_path: Any = UNSET
    notebook_path: Any = UNSET
    command: Any = UNSET
    run_in_background: Any = UNSET
    prompt: Any = UNSET
    id: Any = UNSET
    task_id: Any = UNSET
    delaySeconds: Any = UNSET


class CallResponse(msgspec.Struct, gc=False):
    """Response of a call, as far as rules read it."""

    is_error: Any = UNSET
    isError: Any = UNSET
    interrupted: Any = UNSET
    success: Any = UNSET
    error: Any = UNSET
    exitCode: Any = UNSET
    exit_code: Any = UNSET
    returnCode: Any = UNSET
    returncode: Any = UNSET
    code: Any = UNSET
    status: Any = UNSET
    stdout: Any = UNSET
    stderr: Any = UNSET
    agentId: Any = UNSET
    agentType: Any = UNSET
    totalDurationMs: Any = UNSET
    totalToolUseCount: Any = UNSET
    id: Any = UNSET
    taskId: Any = UNSET
    clampedDelaySeconds: Any = UNSET


InputFields = CallInput | list[Any] | str | int | float | bool | None
"""What a typed decoder makes of an input."""

ResponseFields = CallResponse | list[Any] | str | int | float | bool | None

NO_INPUT = CallInput()


def input_fields(value: Any) -> CallInput:
    """The fields of an input; none of them where it is no object."""
    if type(value) is CallInput:
        return value
    if isinstance(value, dict):
        try:
            return msgspec.convert(value, CallInput)
        except msgspec.ValidationError:  # keys that are no texts
            return NO_INPUT
    return NO_INPUT


def response_fields(value: Any) -> CallResponse | None:
    """The fields of a response; None where it is no object."""
    if type(value) is CallResponse:
        return value
    if isinstance(value, dict):
        try:
            return msgspec.convert(value, CallResponse)
        except msgspec.ValidationError:  # keys that are no texts
            return None
    return None


def number(value: Any) -> float | None:
    """A number; anything else is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A text that is not empty; anything else is none."""
    return value if isinstance(value, str) and value else None
