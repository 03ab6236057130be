"""Qwen 3.5 and Qwen 3 Coder: calls as tags, argument values as plain text that the tool's schema gives a type.

<tool_call>
<function=name>
<parameter=key>
value
</parameter>
</function>
</tool_call>
"""

from typing import Any

from trainer.models.parsing.tags import take_apart
from trainer.models.parsing.types import ParsedTurn, ToolCall, Tools
from trainer.models.parsing.values import check, parameters_of, typed

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


def parse_qwen_xml(text: str, tools: Tools = ()) -> ParsedTurn:
    """An argument that does not fit its type is an error, not a text."""
    tagged = take_apart(text)
    calls: list[ToolCall] = []
    errors: list[str] = []
    for body in tagged.bodies:
        try:
            calls.append(_call(body.strip(), tools))
        except ValueError as error:
            errors.append(str(error))
    if FUNCTION in tagged.outside:
        errors.append(f"{FUNCTION} outside of <tool_call>")
    return ParsedTurn(tagged.outside, calls, errors + tagged.errors)


def _call(body: str, tools: Tools) -> ToolCall:
    """Raises ValueError with what the model should mend."""
    name, closed, rest = body.removeprefix(FUNCTION).partition(">")
    name = name.strip()
    if not body.startswith(FUNCTION) or not closed or not name or not rest.endswith(FUNCTION_END):
        raise ValueError(f"a call is {FUNCTION}name> … {FUNCTION_END}")
    check(name)
    schemas = parameters_of(tools, name)
    arguments: dict[str, Any] = {}
    rest = rest.removesuffix(FUNCTION_END).strip()
    while rest:
        if not rest.startswith(PARAMETER):
            raise ValueError(f"only {PARAMETER}name> may stand in a function")
        key, opened, after = rest.removeprefix(PARAMETER).partition(">")
        value, ended, rest = after.partition(PARAMETER_END)
        key = key.strip()
        if not opened or not key:
            raise ValueError(f"a parameter is {PARAMETER}name> value {PARAMETER_END}")
        if not ended:
            raise ValueError(f"parameter {key} was not closed with {PARAMETER_END}")
        check(key)
        # the format puts one line feed on either side of a value
        try:
            arguments[key] = typed(value.removeprefix("\n").removesuffix("\n"), schemas.get(key, {}))
        except ValueError as error:
            raise ValueError(f"parameter {key}: {error}") from error
        rest = rest.strip()
    return ToolCall(name, arguments)
