"""Tool calls in model text. Parsers never raise: what cannot be read is an error string for the model to see."""

import json
from dataclasses import dataclass, field
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class ToolCall:
    """A call that could be read."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ParsedTurn:
    """One model turn, taken apart."""

    content: str
    """Text outside the calls."""
    calls: list[ToolCall] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """One for each call that could not be read."""

    @property
    def attempted(self) -> bool:
        """Whether the model tried to call a tool."""
        return bool(self.calls or self.errors)


def _call(text: str) -> ToolCall | str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "the call is not valid JSON"
    if not isinstance(document, dict):
        return "a call is an object with name and arguments"
    name, arguments = document.get("name"), document.get("arguments", document.get("parameters", {}))
    if not isinstance(name, str) or not name:
        return "the call has no name"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return "the arguments are not valid JSON"
    if not isinstance(arguments, dict):
        return "the arguments are not an object"
    return ToolCall(name, arguments)


def parse_hermes(text: str) -> ParsedTurn:
    """Hermes/Qwen: `<tool_call>` JSON `</tool_call>`, any number of them; an unclosed one is an error."""
    calls: list[ToolCall] = []
    errors: list[str] = []
    outside: list[str] = []
    at = 0
    while True:
        start = text.find(OPEN, at)
        if start < 0:
            outside.append(text[at:])
            break
        outside.append(text[at:start])
        end = text.find(CLOSE, start)
        if end < 0:
            errors.append(f"{OPEN} was not closed with {CLOSE}")
            break
        found = _call(text[start + len(OPEN) : end].strip())
        if isinstance(found, str):
            errors.append(found)
        else:
            calls.append(found)
        at = end + len(CLOSE)
    content = "".join(outside).replace(CLOSE, "").strip()
    if CLOSE in "".join(outside):
        errors.append(f"{CLOSE} without {OPEN}")
    return ParsedTurn(content, calls, errors)
